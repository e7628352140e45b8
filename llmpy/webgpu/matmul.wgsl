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
// A workgroup computes TM * Y rows and TN * X columns of c. It brings BK columns of a and of b
// at a time into workgroup memory, as [k][m] and [k][n].

override X: u32 = 8u;    // threads of a workgroup across n
override Y: u32 = 8u;    // and across m
override BK: u32 = 8u;   // columns of a and b that are multiplied at a time
override A_UNIT_K: bool = true;  // a[m,k] and a[m,k+1] are neighbours; else a[m,k] and a[m+1,k]
override B_UNIT_K: bool = true;

const TM = 4u;           // rows and columns of c for a thread
const TN = 4u;
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

var<workgroup> a_tile: array<f32, BK * BM>;  // [k][m]
var<workgroup> b_tile: array<f32, BK * BN>;  // [k][n]

struct Tile { r0: vec4f, r1: vec4f, r2: vec4f, r3: vec4f }

// Give the first row and column of a task's tile; the row may lie beyond the last.
fn corner(task: u32) -> vec2u {
    let across = (shape.N + BN - 1u) / BN;
    return vec2u(task / across * BM, task % across * BN);
}

fn load(m0: u32, n0: u32, k0: u32, lane: u32) {
    for (var t = lane; t < BK * BM; t += X * Y) {
        let m = select(t % BM, t / BK, A_UNIT_K);
        let k = select(t / BM, t % BK, A_UNIT_K);
        let inside = m0 + m < shape.M && k0 + k < shape.K;
        let at = shape.a_start + (m0 + m) * shape.a_row + (k0 + k) * shape.a_column;
        a_tile[k * BM + m] = select(0.0, a[select(0u, at, inside)], inside);
    }
    for (var t = lane; t < BK * BN; t += X * Y) {
        let n = select(t % BN, t / BK, B_UNIT_K);
        let k = select(t / BN, t % BK, B_UNIT_K);
        let inside = n0 + n < shape.N && k0 + k < shape.K;
        let at = shape.b_start + (n0 + n) * shape.b_row + (k0 + k) * shape.b_column;
        b_tile[k * BN + n] = select(0.0, b[select(0u, at, inside)], inside);
    }
}

fn product(m0: u32, n0: u32, lane: u32) -> Tile {
    var tile = Tile();
    let y = lane / X * TM;
    let x = lane % X * TN;
    for (var k0 = 0u; k0 < shape.K; k0 += BK) {
        load(m0, n0, k0, lane);
        workgroupBarrier();  // the tiles are there
        for (var k = 0u; k < BK; k++) {
            let p = k * BM + y;
            let q = k * BN + x;
            let v = vec4f(b_tile[q], b_tile[q + 1u], b_tile[q + 2u], b_tile[q + 3u]);
            tile.r0 += a_tile[p] * v;
            tile.r1 += a_tile[p + 1u] * v;
            tile.r2 += a_tile[p + 2u] * v;
            tile.r3 += a_tile[p + 3u] * v;
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

fn inside(m: u32, n: u32) -> bool { return m < shape.M && n < shape.N; }

fn write(m: u32, n: u32, sum: f32) {
    if inside(m, n) { c[shape.c_start + m * shape.c_row + n] = complete(m, n, sum); }
}

fn write_gelu(m: u32, n: u32, sum: f32) {
    if inside(m, n) {
        let x = complete(m, n, sum);
        let at = m * shape.c_row + n;
        c[shape.c_start + at] = x;
        out[shape.out_start + at] = gelu(x);
    }
}

fn write_derivative(m: u32, n: u32, sum: f32) {
    if inside(m, n) {
        let at = m * shape.c_row + n;
        let x = pre[shape.pre_start + at];
        var y = sum;
        if shape.add != 0u { y += c[shape.c_start + at]; }
        c[shape.c_start + at] = y * gelu_derivative(x);
        out[shape.out_start + at] = gelu(x);
    }
}

fn write_row(m: u32, n: u32, row: vec4f) {
    write(m, n, row.x);
    write(m, n + 1u, row.y);
    write(m, n + 2u, row.z);
    write(m, n + 3u, row.w);
}

@compute @workgroup_size(X * Y)
fn matmul(@builtin(workgroup_id) group: vec3u,
          @builtin(num_workgroups) groups: vec3u,
          @builtin(local_invocation_index) lane: u32) {
    let first = corner(group.y * groups.x + group.x);
    if first.x >= shape.M { return; }  // the same for the whole workgroup
    let tile = product(first.x, first.y, lane);
    let m = first.x + lane / X * TM;
    let n = first.y + lane % X * TN;
    write_row(m, n, tile.r0);
    write_row(m + 1u, n, tile.r1);
    write_row(m + 2u, n, tile.r2);
    write_row(m + 3u, n, tile.r3);
}

fn write_gelu_row(m: u32, n: u32, row: vec4f) {
    write_gelu(m, n, row.x);
    write_gelu(m, n + 1u, row.y);
    write_gelu(m, n + 2u, row.z);
    write_gelu(m, n + 3u, row.w);
}

@compute @workgroup_size(X * Y)
fn matmul_gelu_forward(@builtin(workgroup_id) group: vec3u,
                       @builtin(num_workgroups) groups: vec3u,
                       @builtin(local_invocation_index) lane: u32) {
    let first = corner(group.y * groups.x + group.x);
    if first.x >= shape.M { return; }  // the same for the whole workgroup
    let tile = product(first.x, first.y, lane);
    let m = first.x + lane / X * TM;
    let n = first.y + lane % X * TN;
    write_gelu_row(m, n, tile.r0);
    write_gelu_row(m + 1u, n, tile.r1);
    write_gelu_row(m + 2u, n, tile.r2);
    write_gelu_row(m + 3u, n, tile.r3);
}

fn write_derivative_row(m: u32, n: u32, row: vec4f) {
    write_derivative(m, n, row.x);
    write_derivative(m, n + 1u, row.y);
    write_derivative(m, n + 2u, row.z);
    write_derivative(m, n + 3u, row.w);
}

@compute @workgroup_size(X * Y)
fn matmul_gelu_backward(@builtin(workgroup_id) group: vec3u,
                        @builtin(num_workgroups) groups: vec3u,
                        @builtin(local_invocation_index) lane: u32) {
    let first = corner(group.y * groups.x + group.x);
    if first.x >= shape.M { return; }  // the same for the whole workgroup
    let tile = product(first.x, first.y, lane);
    let m = first.x + lane / X * TM;
    let n = first.y + lane % X * TN;
    write_derivative_row(m, n, tile.r0);
    write_derivative_row(m + 1u, n, tile.r1);
    write_derivative_row(m + 2u, n, tile.r2);
    write_derivative_row(m + 3u, n, tile.r3);
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
