// GELU. The maths and the contract are in ops/gelu.py.
// Bindings are numbered in the order of the Python arguments.

override WG: u32 = 64u;  // threads of a workgroup, each with an element

const LOW = 1.5957691216057308;          // 2 sqrt(2 / pi)
const HIGH = 0.07135481282671006;        // of the square: LOW * 0.044715

// gelu_forward
@group(0) @binding(0) var<storage, read_write> out: array<f32>;   // (B, T, C)
@group(0) @binding(1) var<storage, read> inp: array<f32>;         // (B, T, C)

// gelu_backward
@group(0) @binding(0) var<storage, read_write> dinp: array<f32>;  // (B, T, C)
@group(0) @binding(2) var<storage, read> dout: array<f32>;        // (B, T, C)

// The functions stand in matmul.wgsl too: a test compares them.

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

@compute @workgroup_size(WG)
fn gelu_forward(@builtin(workgroup_id) group: vec3u,
                @builtin(num_workgroups) groups: vec3u,
                @builtin(local_invocation_index) lane: u32) {
    let i = (group.y * groups.x + group.x) * WG + lane;
    if i < arrayLength(&out) { out[i] = gelu(inp[i]); }
}

@compute @workgroup_size(WG)
fn gelu_backward(@builtin(workgroup_id) group: vec3u,
                 @builtin(num_workgroups) groups: vec3u,
                 @builtin(local_invocation_index) lane: u32) {
    let i = (group.y * groups.x + group.x) * WG + lane;
    if i < arrayLength(&dinp) { dinp[i] += dout[i] * gelu_derivative(inp[i]); }
}
