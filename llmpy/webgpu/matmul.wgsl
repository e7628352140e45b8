// Matmul. The maths and the contract are in ops/matmul.py.
//
// One product serves all three, by its strides:
//
//     c[m,n] (+)= sum over k of a[m,k] * b[n,k] (+ bias[n])
//
//     matmul.py          c        a          b
//     forward_product    out      inp        weight     m a position, n a channel of the output
//     dinp_product       dinp     dout       weight^T   m a position, n a channel of the input
//     dweight_product    dweight  dout^T     inp^T      m and n channels, k a position
//
// A workgroup computes BM rows and BN columns of c. It brings BK columns of a and of b at a time
// into workgroup memory, as [k][m] and [k][n], where a thread reads four neighbours at once. A
// thread has TM rows and TN columns of c: four that are neighbours, or four more in the other half.

override X: u32 = 8u;       // threads of a workgroup across n
override Y: u32 = 8u;       // and across m
override TM: u32 = 4u;      // rows of c for a thread: 4, 8 or 16
override TN: u32 = 4u;      // columns of c for a thread: 4 or 8
override BK: u32 = 8u;
override DIRECT: bool = false;   // read a and b where they are, without workgroup memory
override UNROLL: u32 = 1u;  // how many of BK are in the text of the loop: 1, 2 or 4
override A_UNIT_K: bool = true;  // a[m,k] and a[m,k+1] are neighbours; else a[m,k] and a[m+1,k]
override B_UNIT_K: bool = true;

override BM = TM * Y;
override BN = TN * X;

const LOW = 1.5957691216057308;    // 2 sqrt(2 / pi)
const HIGH = 0.07135481282671006;  // of the square: LOW * 0.044715

struct Shape {
    M: u32, N: u32, K: u32,
    a_start: u32, a_row: u32, a_column: u32,  // a[m,k] is a[a_start + m * a_row + k * a_column]
    b_start: u32, b_row: u32, b_column: u32,
    c_start: u32, c_row: u32,
    bias_start: u32, out_start: u32, pre_start: u32,
    has_bias: u32,
    add: u32,     // to what c holds
}

@group(0) @binding(0) var<storage, read_write> c: array<f32>;    // rows of c_row elements
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;       // (N)
@group(0) @binding(4) var<storage, read_write> out: array<f32>;  // GELU of c, or of pre
@group(0) @binding(5) var<storage, read> pre: array<f32>;        // as c
@group(1) @binding(0) var<uniform> shape: Shape;

var<workgroup> a_tile: array<vec4f, BK * BM / 4u>;  // [k][m]
var<workgroup> b_tile: array<vec4f, BK * BN / 4u>;  // [k][n]

// What a thread sums, four rows of c: a column of each matrix is a row of four.
struct Rows { left: mat4x4f, right: mat4x4f }

struct Tile { r0: Rows, r1: Rows, r2: Rows, r3: Rows }

// Give the first row and column of a task's tile; the row may lie beyond the last.
fn corner(task: u32) -> vec2u {
    let across = (shape.N + BN - 1u) / BN;
    return vec2u(task / across * BM, task % across * BN);
}

// Elements of the operands, 0 beyond their ends.
fn a_at(m: u32, k: u32) -> f32 {
    let inside = m < shape.M && k < shape.K;
    let at = shape.a_start + m * shape.a_row + k * shape.a_column;
    return select(0.0, a[select(0u, at, inside)], inside);
}

fn b_at(n: u32, k: u32) -> f32 {
    let inside = n < shape.N && k < shape.K;
    let at = shape.b_start + n * shape.b_row + k * shape.b_column;
    return select(0.0, b[select(0u, at, inside)], inside);
}

// Fill both tiles, neighbouring threads from neighbouring places.
fn load(m0: u32, n0: u32, k0: u32, lane: u32) {
    for (var t = lane; t < BK * BM / 4u; t += X * Y) {
        let i = select(t % (BM / 4u), t / BK, A_UNIT_K);
        let k = select(t / (BM / 4u), t % BK, A_UNIT_K);
        let m = m0 + i * 4u;
        a_tile[k * (BM / 4u) + i] = vec4f(
            a_at(m, k0 + k), a_at(m + 1u, k0 + k), a_at(m + 2u, k0 + k), a_at(m + 3u, k0 + k));
    }
    for (var t = lane; t < BK * BN / 4u; t += X * Y) {
        let i = select(t % (BN / 4u), t / BK, B_UNIT_K);
        let k = select(t / (BN / 4u), t % BK, B_UNIT_K);
        let n = n0 + i * 4u;
        b_tile[k * (BN / 4u) + i] = vec4f(
            b_at(n, k0 + k), b_at(n + 1u, k0 + k), b_at(n + 2u, k0 + k), b_at(n + 3u, k0 + k));
    }
}

// Add the outer product of four rows and four columns.
fn outer(c: mat4x4f, a: vec4f, b: vec4f) -> mat4x4f {
    return mat4x4f(
        fma(vec4f(a.x), b, c[0]), fma(vec4f(a.y), b, c[1]),
        fma(vec4f(a.z), b, c[2]), fma(vec4f(a.w), b, c[3]));
}

fn add_rows(c: Rows, a: vec4f, b0: vec4f, b1: vec4f) -> Rows {
    if TN == 4u { return Rows(outer(c.left, a, b0), c.right); }
    return Rows(outer(c.left, a, b0), outer(c.right, a, b1));
}

fn add_products(tile: ptr<function, Tile>, k: u32, y: u32, x: u32) {
    let p = k * (BM / 4u) + y;
    let q = k * (BN / 4u) + x;
    let b0 = b_tile[q];
    var b1 = vec4f();
    if TN > 4u { b1 = b_tile[q + X]; }
    (*tile).r0 = add_rows((*tile).r0, a_tile[p], b0, b1);
    if TM > 4u { (*tile).r1 = add_rows((*tile).r1, a_tile[p + Y], b0, b1); }
    if TM > 8u {
        (*tile).r2 = add_rows((*tile).r2, a_tile[p + 2u * Y], b0, b1);
        (*tile).r3 = add_rows((*tile).r3, a_tile[p + 3u * Y], b0, b1);
    }
}

fn a_four(at: vec4u) -> vec4f { return vec4f(a[at.x], a[at.y], a[at.z], a[at.w]); }

fn b_four(at: vec4u) -> vec4f { return vec4f(b[at.x], b[at.y], b[at.z], b[at.w]); }

// Rows and columns beyond the last are the last once more, and not written.
fn direct_product(m: u32, n: u32) -> Tile {
    var tile = Tile();
    let four = vec4u(0u, 1u, 2u, 3u);
    let last_m = vec4u(shape.M - 1u);
    let last_n = vec4u(shape.N - 1u);
    let a0 = shape.a_start + min(m + four, last_m) * shape.a_row;
    let a1 = shape.a_start + min(m + 4u * Y + four, last_m) * shape.a_row;
    let a2 = shape.a_start + min(m + 8u * Y + four, last_m) * shape.a_row;
    let a3 = shape.a_start + min(m + 12u * Y + four, last_m) * shape.a_row;
    let b0 = shape.b_start + min(n + four, last_n) * shape.b_row;
    let b1 = shape.b_start + min(n + 4u * X + four, last_n) * shape.b_row;
    for (var k = 0u; k < shape.K; k++) {
        let p = k * shape.a_column;
        let q = k * shape.b_column;
        let left = b_four(b0 + q);
        var right = vec4f();
        if TN > 4u { right = b_four(b1 + q); }
        tile.r0 = add_rows(tile.r0, a_four(a0 + p), left, right);
        if TM > 4u { tile.r1 = add_rows(tile.r1, a_four(a1 + p), left, right); }
        if TM > 8u {
            tile.r2 = add_rows(tile.r2, a_four(a2 + p), left, right);
            tile.r3 = add_rows(tile.r3, a_four(a3 + p), left, right);
        }
    }
    return tile;
}

fn product(m0: u32, n0: u32, lane: u32) -> Tile {
    let y = lane / X;
    let x = lane % X;
    if DIRECT { return direct_product(m0 + y * 4u, n0 + x * 4u); }
    var tile = Tile();
    for (var k0 = 0u; k0 < shape.K; k0 += BK) {
        load(m0, n0, k0, lane);
        workgroupBarrier();  // the tiles are there
        for (var k = 0u; k < BK; k += UNROLL) {
            add_products(&tile, k, y, x);
            if UNROLL > 1u { add_products(&tile, k + 1u, y, x); }
            if UNROLL > 2u {
                add_products(&tile, k + 2u, y, x);
                add_products(&tile, k + 3u, y, x);
            }
        }
        workgroupBarrier();  // all have read them
    }
    return tile;
}

// Give x within 9.9 of 0, so that the exponential is finite; NaN stays.
fn gelu_clamp(x: f32) -> f32 {
    return select(select(x, 9.9, x > 9.9), -9.9, x < -9.9);
}

// Give GELU of x: 0 below -10, where it is under 1e-36; NaN for -infinity.
fn gelu(x: f32) -> f32 {
    let y = gelu_clamp(x);
    let s = 1.0 / (1.0 + exp(-y * (LOW + HIGH * (y * y))));
    return x * select(s, 0.0, x < -10.0);
}

// Give the derivative of GELU at x: within 1e-34 of 0 and 1 beyond 9.9.
fn gelu_derivative(x: f32) -> f32 {
    let y = gelu_clamp(x);
    let e = exp(-y * (LOW + HIGH * (y * y)));
    let s = 1.0 / (1.0 + e);
    return s * (1.0 + e * s * (y * (LOW + 3.0 * HIGH * (y * y))));
}


// Give c[m,n] before GELU: what the product gave, and what is added to it.
fn complete(m: u32, n: u32, sum: f32) -> f32 {
    var x = sum;
    if shape.has_bias != 0u { x += bias[shape.bias_start + n]; }
    if shape.add != 0u { x += c[shape.c_start + m * shape.c_row + n]; }
    return x;
}

fn write(m: u32, n: u32, sum: f32) {
    c[shape.c_start + m * shape.c_row + n] = complete(m, n, sum);
}

fn write_gelu(m: u32, n: u32, sum: f32) {
    let x = complete(m, n, sum);
    let at = m * shape.c_row + n;
    c[shape.c_start + at] = x;
    out[shape.out_start + at] = gelu(x);
}

fn write_derivative(m: u32, n: u32, sum: f32) {
    let at = m * shape.c_row + n;
    let x = pre[shape.pre_start + at];
    var y = sum;
    if shape.add != 0u { y += c[shape.c_start + at]; }
    c[shape.c_start + at] = y * gelu_derivative(x);
    out[shape.out_start + at] = gelu(x);
}

// Count how many of four, from `first` on, are before `end`.
fn present(first: u32, end: u32) -> u32 { return min(max(first, end) - first, 4u); }

fn write_rows(m: u32, n: u32, sums: Rows) {
    for (var i = 0u; i < present(m, shape.M); i++) {
        for (var j = 0u; j < present(n, shape.N); j++) { write(m + i, n + j, sums.left[i][j]); }
        if TN > 4u {
            let right = n + 4u * X;
            for (var j = 0u; j < present(right, shape.N); j++) {
                write(m + i, right + j, sums.right[i][j]);
            }
        }
    }
}

@compute @workgroup_size(X * Y)
fn matmul(@builtin(workgroup_id) group: vec3u,
          @builtin(num_workgroups) groups: vec3u,
          @builtin(local_invocation_index) lane: u32) {
    let first = corner(group.y * groups.x + group.x);
    if first.x >= shape.M { return; }  // the same for the whole workgroup
    let tile = product(first.x, first.y, lane);
    let m = first.x + lane / X * 4u;
    let n = first.y + lane % X * 4u;
    write_rows(m, n, tile.r0);
    if TM > 4u { write_rows(m + 4u * Y, n, tile.r1); }
    if TM > 8u {
        write_rows(m + 8u * Y, n, tile.r2);
        write_rows(m + 12u * Y, n, tile.r3);
    }
}

fn write_gelu_rows(m: u32, n: u32, sums: Rows) {
    for (var i = 0u; i < present(m, shape.M); i++) {
        for (var j = 0u; j < present(n, shape.N); j++) { write_gelu(m + i, n + j, sums.left[i][j]); }
        if TN > 4u {
            let right = n + 4u * X;
            for (var j = 0u; j < present(right, shape.N); j++) {
                write_gelu(m + i, right + j, sums.right[i][j]);
            }
        }
    }
}

@compute @workgroup_size(X * Y)
fn matmul_gelu_forward(@builtin(workgroup_id) group: vec3u,
                       @builtin(num_workgroups) groups: vec3u,
                       @builtin(local_invocation_index) lane: u32) {
    let first = corner(group.y * groups.x + group.x);
    if first.x >= shape.M { return; }  // the same for the whole workgroup
    let tile = product(first.x, first.y, lane);
    let m = first.x + lane / X * 4u;
    let n = first.y + lane % X * 4u;
    write_gelu_rows(m, n, tile.r0);
    if TM > 4u { write_gelu_rows(m + 4u * Y, n, tile.r1); }
    if TM > 8u {
        write_gelu_rows(m + 8u * Y, n, tile.r2);
        write_gelu_rows(m + 12u * Y, n, tile.r3);
    }
}

fn write_derivative_rows(m: u32, n: u32, sums: Rows) {
    for (var i = 0u; i < present(m, shape.M); i++) {
        for (var j = 0u; j < present(n, shape.N); j++) { write_derivative(m + i, n + j, sums.left[i][j]); }
        if TN > 4u {
            let right = n + 4u * X;
            for (var j = 0u; j < present(right, shape.N); j++) {
                write_derivative(m + i, right + j, sums.right[i][j]);
            }
        }
    }
}

@compute @workgroup_size(X * Y)
fn matmul_gelu_backward(@builtin(workgroup_id) group: vec3u,
                        @builtin(num_workgroups) groups: vec3u,
                        @builtin(local_invocation_index) lane: u32) {
    let first = corner(group.y * groups.x + group.x);
    if first.x >= shape.M { return; }  // the same for the whole workgroup
    let tile = product(first.x, first.y, lane);
    let m = first.x + lane / X * 4u;
    let n = first.y + lane % X * 4u;
    write_derivative_rows(m, n, tile.r0);
    if TM > 4u { write_derivative_rows(m + 4u * Y, n, tile.r1); }
    if TM > 8u {
        write_derivative_rows(m + 8u * Y, n, tile.r2);
        write_derivative_rows(m + 12u * Y, n, tile.r3);
    }
}

// The gradient of the bias: the sums of SUMMED rows, each by a thread for each column; then theirs.

const SUMMED = 64u;          // same as matmul.py
override WG: u32 = 64u;      // threads of a workgroup; same as matmul.py

struct Columns { M: u32, N: u32, add: u32 }

@group(0) @binding(2) var<storage, read_write> dbias: array<f32>;  // (N)
@group(0) @binding(3) var<storage, read> dout: array<f32>;         // (M, N)
@group(1) @binding(0) var<uniform> columns: Columns;
@group(1) @binding(1) var<storage, read_write> sums: array<f32>;   // (M / SUMMED, N)

@compute @workgroup_size(WG)
fn matmul_backward_sums(@builtin(workgroup_id) group: vec3u,
                        @builtin(num_workgroups) groups: vec3u,
                        @builtin(local_invocation_index) lane: u32) {
    let across = (columns.N + WG - 1u) / WG;
    let task = group.y * groups.x + group.x;
    let n = task % across * WG + lane;
    let m = task / across * SUMMED;
    if n >= columns.N || m >= columns.M { return; }
    var sum = 0.0;
    for (var i = m; i < min(m + SUMMED, columns.M); i++) { sum += dout[i * columns.N + n]; }
    sums[task / across * columns.N + n] = sum;
}

// Here M counts the rows of sums.
@compute @workgroup_size(WG)
fn matmul_backward_bias(@builtin(workgroup_id) group: vec3u,
                        @builtin(num_workgroups) groups: vec3u,
                        @builtin(local_invocation_index) lane: u32) {
    let n = (group.y * groups.x + group.x) * WG + lane;
    if n >= columns.N { return; }
    var sum = 0.0;
    for (var i = 0u; i < columns.M; i++) { sum += sums[i * columns.N + n]; }
    dbias[n] = sum + select(0.0, dbias[n], columns.add != 0u);
}
