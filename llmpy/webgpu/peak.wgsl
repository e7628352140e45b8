// What a device can do at best: multiplications and additions in registers, and bytes to and from
// memory. The measuring is in peak.py.

override WG: u32 = 256u;  // threads of a workgroup

@group(0) @binding(0) var<storage, read_write> out: array<vec4f>;
@group(0) @binding(1) var<storage, read> inp: array<vec4f>;

struct Scalars {
    times: u32,  // rounds of multiply_add
}
@group(1) @binding(0) var<uniform> scalars: Scalars;

// Eight sums of four numbers each, so that one need not wait for another; 64 multiplications and
// additions of vectors a round. Each thread writes one vector, so that nothing can be left out.
@compute @workgroup_size(WG)
fn multiply_add(@builtin(workgroup_id) group: vec3u,
                @builtin(num_workgroups) groups: vec3u,
                @builtin(local_invocation_index) lane: u32) {
    let i = (group.y * groups.x + group.x) * WG + lane;
    if i >= arrayLength(&out) { return; }
    let x = inp[i];  // below 1: the sums stay finite
    var a = x;
    var b = x + 1.0;
    var c = x + 2.0;
    var d = x + 3.0;
    var e = x + 4.0;
    var f = x + 5.0;
    var g = x + 6.0;
    var h = x + 7.0;
    for (var k = 0u; k < scalars.times; k++) {
        a = a * x + x; b = b * x + x; c = c * x + x; d = d * x + x;
        e = e * x + x; f = f * x + x; g = g * x + x; h = h * x + x;
        a = a * x + x; b = b * x + x; c = c * x + x; d = d * x + x;
        e = e * x + x; f = f * x + x; g = g * x + x; h = h * x + x;
        a = a * x + x; b = b * x + x; c = c * x + x; d = d * x + x;
        e = e * x + x; f = f * x + x; g = g * x + x; h = h * x + x;
        a = a * x + x; b = b * x + x; c = c * x + x; d = d * x + x;
        e = e * x + x; f = f * x + x; g = g * x + x; h = h * x + x;
    }
    out[i] = a + b + c + d + e + f + g + h;
}

// Two reads and a write of each element.
@compute @workgroup_size(WG)
fn stream(@builtin(workgroup_id) group: vec3u,
          @builtin(num_workgroups) groups: vec3u,
          @builtin(local_invocation_index) lane: u32) {
    let i = (group.y * groups.x + group.x) * WG + lane;
    if i < arrayLength(&out) { out[i] = out[i] * 0.5 + inp[i]; }
}
