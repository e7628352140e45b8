// LayerNorm. The maths and the contract are in ops/layernorm.py.
// Bindings are numbered in the order of the Python arguments.

override WG: u32 = 64u;     // threads of a workgroup

const EPS = 1e-5;           // same as ops/layernorm.py
const ROWS = 64u;           // positions of a chunk of the backward pass; same as layernorm.py
const COLUMNS = 64u;        // channels of a workgroup of the backward pass's sums; same as there
const LANES = 4u;           // threads that share a channel there

// layernorm_forward: one workgroup per position
@group(0) @binding(0) var<storage, read_write> out: array<f32>;   // (B, T, C)
@group(0) @binding(1) var<storage, read_write> mean: array<f32>;  // (B, T)
@group(0) @binding(2) var<storage, read_write> rstd: array<f32>;  // (B, T)
@group(0) @binding(3) var<storage, read> inp: array<f32>;         // (B, T, C)
@group(0) @binding(4) var<storage, read> weight: array<f32>;      // (C)
@group(0) @binding(5) var<storage, read> bias: array<f32>;        // (C)

// layernorm_backward; what the forward pass has, too, but elsewhere, ends in _
@group(0) @binding(0) var<storage, read_write> dinp: array<f32>;     // (B, T, C)
@group(0) @binding(1) var<storage, read_write> dweight: array<f32>;  // (C)
@group(0) @binding(2) var<storage, read_write> dbias: array<f32>;    // (C)
@group(0) @binding(3) var<storage, read> dout: array<f32>;           // (B, T, C)
@group(0) @binding(4) var<storage, read> inp_: array<f32>;           // (B, T, C)
@group(0) @binding(5) var<storage, read> weight_: array<f32>;        // (C)
@group(0) @binding(6) var<storage, read> mean_: array<f32>;          // (B, T)
@group(0) @binding(7) var<storage, read> rstd_: array<f32>;          // (B, T)

struct Scalars {
    C: u32,           // channels
    has_bias: u32,    // 1, or 0 where bias or dbias is None
    accumulate: u32,  // 1 to add to dweight and dbias
}
@group(1) @binding(0) var<uniform> scalars: Scalars;
@group(1) @binding(1) var<storage, read_write> sums: array<vec2f>;   // (chunks, C): dweight, dbias

const FEW = 8u;  // partial sums from which each thread makes the whole one
var<workgroup> partial: array<f32, WG>;
var<workgroup> few: array<f32, FEW>;
var<workgroup> pairs: array<vec2f, COLUMNS * LANES>;

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
fn layernorm_forward(@builtin(workgroup_id) group: vec3u,
                     @builtin(num_workgroups) groups: vec3u,
                     @builtin(local_invocation_index) lane: u32) {
    let C = scalars.C;
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
        let shift = select(0.0, bias[c * scalars.has_bias], scalars.has_bias == 1u);
        out[row + c] = (inp[row + c] - m) * s * weight[c] + shift;
    }
    if lane == 0u {
        mean[bt] = m;
        rstd[bt] = s;
    }
}

// One workgroup per position: the gradient of its row.
@compute @workgroup_size(WG)
fn layernorm_backward(@builtin(workgroup_id) group: vec3u,
                      @builtin(num_workgroups) groups: vec3u,
                      @builtin(local_invocation_index) lane: u32) {
    let C = scalars.C;
    let bt = group.y * groups.x + group.x;
    if bt >= arrayLength(&mean_) { return; }  // the same for the whole workgroup
    let row = bt * C;
    let m = mean_[bt];
    let s = rstd_[bt];
    var x = 0.0;
    var y = 0.0;
    for (var c = lane; c < C; c += WG) {
        let dnorm = dout[row + c] * weight_[c];
        x += dnorm;
        y += dnorm * ((inp_[row + c] - m) * s);
    }
    let dnorm_mean = workgroup_sum(x, lane) / f32(C);
    let dnorm_norm_mean = workgroup_sum(y, lane) / f32(C);
    for (var c = lane; c < C; c += WG) {
        let norm = (inp_[row + c] - m) * s;
        let dnorm = dout[row + c] * weight_[c];
        dinp[row + c] += (dnorm - dnorm_mean - norm * dnorm_norm_mean) * s;
    }
}

// Give a channel's threads the sum of what all of them bring, in their order.
fn channel_sum(x: vec2f, id: vec3u) -> vec2f {
    pairs[id.y * COLUMNS + id.x] = x;
    workgroupBarrier();  // all are there
    var sum = pairs[id.x];
    for (var i = 1u; i < LANES; i++) { sum += pairs[i * COLUMNS + id.x]; }
    return sum;
}

// One workgroup for COLUMNS channels of ROWS positions: what they add to dweight and dbias.
@compute @workgroup_size(COLUMNS, LANES)
fn layernorm_backward_sums(@builtin(workgroup_id) group: vec3u,
                           @builtin(num_workgroups) groups: vec3u,
                           @builtin(local_invocation_id) id: vec3u) {
    let C = scalars.C;
    let task = group.y * groups.x + group.x;
    let blocks = (C + COLUMNS - 1u) / COLUMNS;
    let chunk = task / blocks;
    let c = task % blocks * COLUMNS + id.x;
    let stop = min(chunk * ROWS + ROWS, arrayLength(&mean_));  // beyond the last task: no position
    var x = vec2f();
    for (var bt = chunk * ROWS + id.y; bt < stop && c < C; bt += LANES) {
        let d = dout[bt * C + c];
        x += vec2f(d * ((inp_[bt * C + c] - mean_[bt]) * rstd_[bt]), d);
    }
    let sum = channel_sum(x, id);
    if id.y == 0u && c < C && chunk * ROWS < stop { sums[chunk * C + c] = sum; }
}

// One workgroup for COLUMNS channels: add what the chunks have, in an order that LANES decides.
@compute @workgroup_size(COLUMNS, LANES)
fn layernorm_backward_weights(@builtin(workgroup_id) group: vec3u,
                              @builtin(num_workgroups) groups: vec3u,
                              @builtin(local_invocation_id) id: vec3u) {
    let C = scalars.C;
    let c = (group.y * groups.x + group.x) * COLUMNS + id.x;
    var x = vec2f();
    for (var i = id.y * C + c; i < arrayLength(&sums) && c < C; i += LANES * C) { x += sums[i]; }
    let sum = channel_sum(x, id);
    if id.y > 0u || c >= C { return; }
    if scalars.accumulate == 1u { dweight[c] += sum.x; } else { dweight[c] = sum.x; }
    if scalars.has_bias == 1u {
        if scalars.accumulate == 1u { dbias[c] += sum.y; } else { dbias[c] = sum.y; }
    }
}
