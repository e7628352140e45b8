// LayerNorm. The maths and the contract are in ops/layernorm.py.
// Bindings are numbered in the order of the Python arguments.

override C: u32 = 1u;       // channels
override WG: u32 = 64u;     // threads of a workgroup
override HAS_BIAS: bool = true;
override ACCUMULATE: bool = false;  // add to dweight and dbias

const EPS = 1e-5;           // same as ops/layernorm.py
const ROWS = 16u;           // rows that a workgroup of the backward pass sums; same as layernorm.py

// layernorm_forward: one workgroup per position
@group(0) @binding(0) var<storage, read_write> out: array<f32>;   // (B, T, C)
@group(0) @binding(1) var<storage, read_write> mean: array<f32>;  // (B, T)
@group(0) @binding(2) var<storage, read_write> rstd: array<f32>;  // (B, T)
@group(0) @binding(3) var<storage, read> inp: array<f32>;         // (B, T, C)
@group(0) @binding(4) var<storage, read> weight: array<f32>;      // (C)
@group(0) @binding(5) var<storage, read> bias: array<f32>;        // (C)

var<workgroup> partial: array<f32, WG>;

// Give every thread the sum of what all threads bring, in an order that WG alone decides.
fn workgroup_sum(x: f32, lane: u32) -> f32 {
    partial[lane] = x;
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();  // partial[lane + half] is there
        if lane < half { partial[lane] += partial[lane + half]; }
    }
    workgroupBarrier();      // the sum is there
    let sum = partial[0];
    workgroupBarrier();      // partial may be written again only after all have read it
    return sum;
}

@compute @workgroup_size(WG)
fn layernorm_forward(@builtin(workgroup_id) group: vec3u,
                     @builtin(num_workgroups) groups: vec3u,
                     @builtin(local_invocation_index) lane: u32) {
    let bt = group.y * groups.x + group.x;
    if bt >= arrayLength(&mean) { return; }  // the same for the whole workgroup
    let row = bt * C;
    var x = 0.0;
    for (var c = lane; c < C; c += WG) { x += inp[row + c]; }
    let m = workgroup_sum(x, lane) / f32(C);
    x = 0.0;
    for (var c = lane; c < C; c += WG) {
        let d = inp[row + c] - m;
        x += d * d;
    }
    let s = 1.0 / sqrt(workgroup_sum(x, lane) / f32(C) + EPS);
    for (var c = lane; c < C; c += WG) {
        let shift = select(0.0, bias[c * u32(HAS_BIAS)], HAS_BIAS);
        out[row + c] = (inp[row + c] - m) * s * weight[c] + shift;
    }
    if lane == 0u {
        mean[bt] = m;
        rstd[bt] = s;
    }
}
