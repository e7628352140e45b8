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
