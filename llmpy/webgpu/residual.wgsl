// Residual. The maths and the contract are in ops/residual.py.
// Bindings are numbered in the order of the Python arguments.

override WG: u32 = 256u;  // threads of a workgroup, each with one element

@group(0) @binding(0) var<storage, read_write> out: array<f32>;    // (B, T, C)
@group(0) @binding(1) var<storage, read> inp1: array<f32>;         // (B, T, C)
@group(0) @binding(2) var<storage, read> inp2: array<f32>;         // (B, T, C)

@group(0) @binding(0) var<storage, read_write> dinp1: array<f32>;  // (B, T, C)
@group(0) @binding(1) var<storage, read_write> dinp2: array<f32>;  // (B, T, C)
@group(0) @binding(2) var<storage, read> dout: array<f32>;         // (B, T, C)

@compute @workgroup_size(WG)
fn residual_forward(@builtin(workgroup_id) group: vec3u,
                    @builtin(num_workgroups) groups: vec3u,
                    @builtin(local_invocation_index) lane: u32) {
    let i = (group.y * groups.x + group.x) * WG + lane;
    if i < arrayLength(&out) { out[i] = inp1[i] + inp2[i]; }
}

@compute @workgroup_size(WG)
fn residual_backward(@builtin(workgroup_id) group: vec3u,
                     @builtin(num_workgroups) groups: vec3u,
                     @builtin(local_invocation_index) lane: u32) {
    let i = (group.y * groups.x + group.x) * WG + lane;
    if i < arrayLength(&dout) {
        dinp1[i] += dout[i];
        dinp2[i] += dout[i];
    }
}
