// The mean loss. The maths and the contract are in ops/mean_loss.py.
// Bindings are numbered in the order of the Python arguments.

override WG: u32 = 256u;  // threads of the one workgroup

const BLOCK = 16u;  // losses of a thread that are summed by themselves: shorter sums, less rounding

@group(0) @binding(0) var<storage, read_write> outcome: array<f32>;  // (2)
@group(0) @binding(1) var<storage, read> losses: array<f32>;         // (B, T)

struct Scalars {
    scale: f32,
    accumulate: u32,  // 1 to add to what is there
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
fn mean_loss(@builtin(local_invocation_index) lane: u32) {
    let count = arrayLength(&losses);
    var x = 0.0;
    for (var start = lane; start < count; start += BLOCK * WG) {
        var block = 0.0;
        for (var k = 0u; k < BLOCK; k++) {
            let bt = start + k * WG;
            if bt < count { block += losses[bt]; }
        }
        x += block;
    }
    let mean = scalars.scale * workgroup_sum(x, lane);
    if lane == 0u {
        if scalars.accumulate == 1u { outcome[0] += mean; } else { outcome[0] = mean; }
    }
}
