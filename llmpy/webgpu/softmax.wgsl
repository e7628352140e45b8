// Softmax. The maths and the contract are in ops/softmax.py.
// Bindings are numbered in the order of the Python arguments.

override WG: u32 = 64u;  // threads of a workgroup; one workgroup per position

struct Columns {
    V: u32,
    Vp: u32,
}

@group(0) @binding(0) var<storage, read_write> probs: array<f32>;  // (B, T, Vp)
@group(0) @binding(1) var<storage, read> logits: array<f32>;       // (B, T, Vp)
@group(1) @binding(0) var<uniform> columns: Columns;

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

@compute @workgroup_size(WG)
fn softmax_forward(@builtin(workgroup_id) group: vec3u,
                   @builtin(num_workgroups) groups: vec3u,
                   @builtin(local_invocation_index) lane: u32) {
    let row = (group.y * groups.x + group.x) * columns.Vp;
    if row >= arrayLength(&probs) { return; }  // the same for the whole workgroup
    var x = logits[row];  // begin with a true one: there may be nothing above any stand-in
    for (var v = lane; v < columns.V; v += WG) {
        if logits[row + v] > x { x = logits[row + v]; }
    }
    let largest = workgroup_max(x, lane);
    x = 0.0;
    for (var v = lane; v < columns.V; v += WG) { x += exp_below(logits[row + v] - largest); }
    let sum = workgroup_sum(x, lane);
    for (var v = lane; v < columns.Vp; v += WG) {
        if v < columns.V {
            probs[row + v] = exp_below(logits[row + v] - largest) / sum;
        } else {
            probs[row + v] = 0.0;
        }
    }
}
