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
// into workgroup memory, as [k][m] and [k][n], where a thread reads four neighbours at once; or, if
// DIRECT, each thread reads a and b where they are. A thread has TM rows and TN columns of c: four
// that are neighbours, and as many again 4 * Y rows or 4 * X columns further on.

override X: u32 = 8u;       // threads of a workgroup across n
override Y: u32 = 8u;       // and across m
override TM: u32 = 4u;      // rows of c for a thread: 4, 8 or 16
override TN: u32 = 4u;      // columns of c for a thread: 4, 8 or 16
override DIRECT: bool = false;
override BK: u32 = 8u;
override UNROLL: u32 = 1u;  // how many of BK are in the text of the loop: 1, 2 or 4
override A_UNIT_K: bool = true;  // a[m,k] and a[m,k+1] are neighbours; else a[m,k] and a[m+1,k]
override B_UNIT_K: bool = true;

override GELU: u32 = 0u;    // what is done to c: 0 nothing, or
const FORWARD = 1u;         //     GELU of it goes to out, or
const BACKWARD = 2u;        //     it is multiplied by GELU's derivative at pre, whose GELU goes to out

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
@group(0) @binding(4) var<storage, read_write> out: array<f32>;  // as c
@group(0) @binding(5) var<storage, read> pre: array<f32>;        // as c
@group(1) @binding(0) var<uniform> shape: Shape;

var<workgroup> a_tile: array<vec4f, BK * BM / 4u>;  // [k][m]
var<workgroup> b_tile: array<vec4f, BK * BN / 4u>;  // [k][n]

// Four elements at one k: of four rows of a, of four columns of b; and each for all of a thread's.
struct Fours { f0: vec4f, f1: vec4f, f2: vec4f, f3: vec4f }

// What a thread sums: four rows of c, in which a column of a matrix is a row of four; and all rows.
struct Rows { c0: mat4x4f, c1: mat4x4f, c2: mat4x4f, c3: mat4x4f }
struct Tile { r0: Rows, r1: Rows, r2: Rows, r3: Rows }

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
fn add_outer(c: mat4x4f, a: vec4f, b: vec4f) -> mat4x4f {
    return mat4x4f(
        fma(vec4f(a.x), b, c[0]), fma(vec4f(a.y), b, c[1]),
        fma(vec4f(a.z), b, c[2]), fma(vec4f(a.w), b, c[3]));
}

fn add_rows(rows: Rows, a: vec4f, b: Fours) -> Rows {
    var sums = rows;
    sums.c0 = add_outer(rows.c0, a, b.f0);
    if TN > 4u { sums.c1 = add_outer(rows.c1, a, b.f1); }
    if TN > 8u {
        sums.c2 = add_outer(rows.c2, a, b.f2);
        sums.c3 = add_outer(rows.c3, a, b.f3);
    }
    return sums;
}

fn add_products(tile: ptr<function, Tile>, a: Fours, b: Fours) {
    (*tile).r0 = add_rows((*tile).r0, a.f0, b);
    if TM > 4u { (*tile).r1 = add_rows((*tile).r1, a.f1, b); }
    if TM > 8u {
        (*tile).r2 = add_rows((*tile).r2, a.f2, b);
        (*tile).r3 = add_rows((*tile).r3, a.f3, b);
    }
}

fn add_tiles(tile: ptr<function, Tile>, k: u32, y: u32, x: u32) {
    let p = k * (BM / 4u) + y;
    let q = k * (BN / 4u) + x;
    var a = Fours();
    var b = Fours();
    a.f0 = a_tile[p];
    b.f0 = b_tile[q];
    if TM > 4u { a.f1 = a_tile[p + Y]; }
    if TN > 4u { b.f1 = b_tile[q + X]; }
    if TM > 8u { a.f2 = a_tile[p + 2u * Y]; a.f3 = a_tile[p + 3u * Y]; }
    if TN > 8u { b.f2 = b_tile[q + 2u * X]; b.f3 = b_tile[q + 3u * X]; }
    add_products(tile, a, b);
}

fn a_four(at: vec4u) -> vec4f { return vec4f(a[at.x], a[at.y], a[at.z], a[at.w]); }

fn b_four(at: vec4u) -> vec4f { return vec4f(b[at.x], b[at.y], b[at.z], b[at.w]); }

// Rows and columns beyond the last are the last once more; their sums are not written.
fn direct_product(m: u32, n: u32) -> Tile {
    var tile = Tile();
    let last = vec2u(shape.M, shape.N) - 1u;
    let four = vec4u(0u, 1u, 2u, 3u);
    let m0 = shape.a_start + min(m + four, vec4u(last.x)) * shape.a_row;
    let m1 = shape.a_start + min(m + 4u * Y + four, vec4u(last.x)) * shape.a_row;
    let m2 = shape.a_start + min(m + 8u * Y + four, vec4u(last.x)) * shape.a_row;
    let m3 = shape.a_start + min(m + 12u * Y + four, vec4u(last.x)) * shape.a_row;
    let n0 = shape.b_start + min(n + four, vec4u(last.y)) * shape.b_row;
    let n1 = shape.b_start + min(n + 4u * X + four, vec4u(last.y)) * shape.b_row;
    let n2 = shape.b_start + min(n + 8u * X + four, vec4u(last.y)) * shape.b_row;
    let n3 = shape.b_start + min(n + 12u * X + four, vec4u(last.y)) * shape.b_row;
    for (var k = 0u; k < shape.K; k++) {
        let p = k * shape.a_column;
        let q = k * shape.b_column;
        var a = Fours();
        var b = Fours();
        a.f0 = a_four(m0 + p);
        b.f0 = b_four(n0 + q);
        if TM > 4u { a.f1 = a_four(m1 + p); }
        if TN > 4u { b.f1 = b_four(n1 + q); }
        if TM > 8u { a.f2 = a_four(m2 + p); a.f3 = a_four(m3 + p); }
        if TN > 8u { b.f2 = b_four(n2 + q); b.f3 = b_four(n3 + q); }
        add_products(&tile, a, b);
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
            add_tiles(&tile, k, y, x);
            if UNROLL > 1u { add_tiles(&tile, k + 1u, y, x); }
            if UNROLL > 2u {
                add_tiles(&tile, k + 2u, y, x);
                add_tiles(&tile, k + 3u, y, x);
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


fn write(m: u32, n: u32, sum: f32) {
    let at = m * shape.c_row + n;
    var x = sum;
    if shape.has_bias != 0u { x += bias[shape.bias_start + n]; }
    if shape.add != 0u { x += c[shape.c_start + at]; }
    if GELU == BACKWARD {
        let p = pre[shape.pre_start + at];
        x *= gelu_derivative(p);
        out[shape.out_start + at] = gelu(p);
    }
    c[shape.c_start + at] = x;
    if GELU == FORWARD { out[shape.out_start + at] = gelu(x); }
}

// Count how many of four, from `first` on, are before `end`.
fn present(first: u32, end: u32) -> u32 { return min(max(first, end) - first, 4u); }

fn write_four(m: u32, n: u32, sums: mat4x4f) {
    for (var i = 0u; i < present(m, shape.M); i++) {
        for (var j = 0u; j < present(n, shape.N); j++) { write(m + i, n + j, sums[i][j]); }
    }
}

fn write_rows(m: u32, n: u32, rows: Rows) {
    write_four(m, n, rows.c0);
    if TN > 4u { write_four(m, n + 4u * X, rows.c1); }
    if TN > 8u {
        write_four(m, n + 8u * X, rows.c2);
        write_four(m, n + 12u * X, rows.c3);
    }
}

@compute @workgroup_size(X * Y)
fn matmul(@builtin(workgroup_id) group: vec3u,
          @builtin(num_workgroups) groups: vec3u,
          @builtin(local_invocation_index) lane: u32) {
    let across = (shape.N + BN - 1u) / BN;
    let task = group.y * groups.x + group.x;
    let m0 = task / across * BM;
    let n0 = task % across * BN;
    if m0 >= shape.M { return; }  // the same for the whole workgroup
    let tile = product(m0, n0, lane);
    let m = m0 + lane / X * 4u;
    let n = n0 + lane % X * 4u;
    write_rows(m, n, tile.r0);
    if TM > 4u { write_rows(m + 4u * Y, n, tile.r1); }
    if TM > 8u {
        write_rows(m + 8u * Y, n, tile.r2);
        write_rows(m + 12u * Y, n, tile.r3);
    }
}

// The gradient of the bias: the sums of SUMMED rows, each by a thread for each column; then theirs.

override WG: u32 = 64u;      // threads of a workgroup
override SUMMED: u32 = 64u;

struct Columns { M: u32, N: u32, start: u32, add: u32 }

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
    for (var i = m; i < min(m + SUMMED, columns.M); i++) {
        sum += dout[columns.start + i * columns.N + n];
    }
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
