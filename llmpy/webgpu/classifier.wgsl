// Classifier: what is done to the logits of a chunk of positions, between the products. The maths
// and the contract are in ops/classifier.py. Bindings are numbered in the order of the Python
// arguments of classifier_forward_backward.

override WG: u32 = 64u;  // threads of a workgroup; one workgroup per position

@group(0) @binding(0) var<storage, read_write> losses: array<f32>;  // (B, T)
@group(0) @binding(5) var<storage, read> targets: array<i32>;       // (B, T)

struct Scalars {
    V: u32,
    stride: u32,  // from a row of logits to the next
    first: u32,   // position of the first row
    count: u32,   // rows
    dloss: f32,
}
@group(1) @binding(0) var<uniform> scalars: Scalars;
@group(1) @binding(1) var<storage, read_write> logits: array<f32>;  // (count, stride)

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

// Give every thread the largest of what all threads bring.
fn workgroup_max(x: f32, lane: u32) -> f32 {
    partial[lane] = x;
    workgroupBarrier();  // all of partial is there
    if lane < FEW {
        var largest = partial[lane];
        for (var i = lane; i < WG; i += FEW) {
            if partial[i] > largest { largest = partial[i]; }
        }
        few[lane] = largest;
    }
    workgroupBarrier();  // few is there, and partial may be written again
    var largest = few[0];
    for (var i = 1u; i < FEW; i++) {
        if few[i] > largest { largest = few[i]; }
    }
    return largest;      // few is written again only behind the next call's first barrier
}

// exp(x) of x <= 0, or NaN; some drivers' own is NaN far below 0, or a number for NaN.
fn exp_below(x: f32) -> f32 {
    if (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u { return x; }
    return select(0.0, exp(max(x, -87.0)), x >= -87.0);  // exp(-87) is the smallest normal number
}

// log(x) of x > 0, or NaN.
fn log_above(x: f32) -> f32 {
    if (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u { return x; }
    return log(x);
}

// Give every thread the largest logit of a row and the sum of exp(logit - largest).
fn softmax_sums(row: u32, lane: u32) -> vec2f {
    var x = logits[row];  // begin with a true one: there may be nothing above any stand-in
    for (var v = lane; v < scalars.V; v += WG) {
        if logits[row + v] > x { x = logits[row + v]; }
    }
    let largest = workgroup_max(x, lane);
    x = 0.0;
    for (var v = lane; v < scalars.V; v += WG) { x += exp_below(logits[row + v] - largest); }
    return vec2f(largest, workgroup_sum(x, lane));
}

@compute @workgroup_size(WG)
fn classifier_forward(@builtin(workgroup_id) group: vec3u,
                      @builtin(num_workgroups) groups: vec3u,
                      @builtin(local_invocation_index) lane: u32) {
    let i = group.y * groups.x + group.x;
    if i >= scalars.count { return; }  // the same for the whole workgroup
    let row = i * scalars.stride;
    let bt = scalars.first + i;
    let sums = softmax_sums(row, lane);
    if lane == 0u {
        let target_logit = logits[row + min(u32(targets[bt]), scalars.V - 1u)];
        losses[bt] = log_above(sums.y) - (target_logit - sums.x);
    }
}

// Write the gradient of the logits over the logits, too.
@compute @workgroup_size(WG)
fn classifier_forward_backward(@builtin(workgroup_id) group: vec3u,
                               @builtin(num_workgroups) groups: vec3u,
                               @builtin(local_invocation_index) lane: u32) {
    let i = group.y * groups.x + group.x;
    if i >= scalars.count { return; }  // the same for the whole workgroup
    let row = i * scalars.stride;
    let bt = scalars.first + i;
    let sums = softmax_sums(row, lane);
    let goal = min(u32(targets[bt]), scalars.V - 1u);
    for (var v = lane; v < scalars.V; v += WG) {
        let logit = logits[row + v];
        if v == goal { losses[bt] = log_above(sums.y) - (logit - sums.x); }
        logits[row + v] = (exp_below(logit - sums.x) / sums.y - f32(v == goal)) * scalars.dloss;
    }
}
