// Residual and LayerNorm in one. The maths and the contract are in ops/layernorm.py.
// Bindings are numbered in the order of the Python arguments.

override WG: u32 = 64u;     // threads of a workgroup; one workgroup per position

const EPS = 1e-5;           // same as ops/layernorm.py

@group(0) @binding(0) var<storage, read_write> residual: array<f32>;  // (B, T, C)
@group(0) @binding(1) var<storage, read_write> out: array<f32>;       // (B, T, C)
@group(0) @binding(2) var<storage, read_write> mean: array<f32>;      // (B, T)
@group(0) @binding(3) var<storage, read_write> rstd: array<f32>;      // (B, T)
@group(0) @binding(4) var<storage, read> inp1: array<f32>;            // (B, T, C)
@group(0) @binding(5) var<storage, read> inp2: array<f32>;            // (B, T, C)
@group(0) @binding(6) var<storage, read> weight: array<f32>;          // (C)
@group(0) @binding(7) var<storage, read> bias: array<f32>;            // (C)

struct Scalars {
    C: u32,         // channels
    has_bias: u32,  // 1, or 0 where bias is None
}
@group(1) @binding(0) var<uniform> scalars: Scalars;

const FEW = 8u;  // partial sums from which each thread makes the whole one
var<workgroup> partial: array<f32, WG>;
var<workgroup> few: array<f32, FEW>;

// Give every thread the sum of what all threads bring, in an order that WG alone decides.
fn workgroup_sum(x: f32, lane: u32) -> f32 {
    partial[lane] = x;
    workgroupBarrier();  // all of partial is there
    if lane < FEW {
        var sum = 0.0;
        for (var i = lane; i < WG; i += FEW) { sum += partial[i]; }
        few[lane] = sum;
    }
    workgroupBarrier();  // few is there, and partial may be written again
    var sum = 0.0;
    for (var i = 0u; i < FEW; i++) { sum += few[i]; }
    return sum;          // few is written again only behind the next call's first barrier
}

@compute @workgroup_size(WG)
fn residual_layernorm_forward(@builtin(workgroup_id) group: vec3u,
                              @builtin(num_workgroups) groups: vec3u,
                              @builtin(local_invocation_index) lane: u32) {
    let C = scalars.C;
    let bt = group.y * groups.x + group.x;
    if bt >= arrayLength(&mean) { return; }  // the same for the whole workgroup
    let row = bt * C;
    var x = 0.0;
    for (var c = lane; c < C; c += WG) {
        let sum = inp1[row + c] + inp2[row + c];
        residual[row + c] = sum;  // read below by the thread that wrote it
        x += sum;
    }
    let m = workgroup_sum(x, lane) / f32(C);
    x = 0.0;
    for (var c = lane; c < C; c += WG) {
        let d = residual[row + c] - m;
        x += d * d;
    }
    let s = 1.0 / sqrt(workgroup_sum(x, lane) / f32(C) + EPS);
    for (var c = lane; c < C; c += WG) {
        let shift = select(0.0, bias[c * scalars.has_bias], scalars.has_bias == 1u);
        out[row + c] = (residual[row + c] - m) * s * weight[c] + shift;
    }
    if lane == 0u {
        mean[bt] = m;
        rstd[bt] = s;
    }
}
