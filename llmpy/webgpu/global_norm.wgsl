// The global norm. The maths and the contract are in ops/global_norm.py.
// Bindings are numbered in the order of the Python arguments.
//
// Squares of 1e30 overflow float32, and those of 1e-30 vanish. So there are three sums, by the size
// of the element: (small * 2^80)^2, middle^2 and (large * 2^-80)^2. Each element is in one of them.
// The factors are added to the exponents: of products, drivers would make one of 2^160.
// Source: Blue 1978, https://doi.org/10.1145/355769.355771.

override WG: u32 = 256u;  // threads of a workgroup

const CHUNK = 16384u;     // elements of a workgroup; same as global_norm.py
const SCALE = 80u << 23u;       // what bits of a float grow by when it is multiplied with 2^80
const LARGE = 0x57800000u;      // bits of 2^48
const SMALL = 0x27800000u;      // bits of 2^-48
const INFINITY = 0x7f800000u;   // bits; those of NaN are above
const SMALLEST = 0x00800000u;   // bits of the smallest normal number: what is below counts as 0

@group(0) @binding(0) var<storage, read_write> outcome: array<f32>;  // (2)
@group(0) @binding(1) var<storage, read> grads: array<f32>;          // a part of (N)

struct Span {
    start: u32,  // elements of the binding that count
    stop: u32,
    first: u32,  // place of the first chunk's sums
}
@group(1) @binding(0) var<uniform> span: Span;
@group(1) @binding(1) var<storage, read_write> sums: array<vec4f>;  // small, middle, large

const FEW = 8u;  // partial sums from which each thread makes the whole one
var<workgroup> partial: array<vec4f, WG>;
var<workgroup> few: array<vec4f, FEW>;

// Give every thread the sum of what all threads bring, in an order that WG alone decides.
fn workgroup_sums(x: vec4f, lane: u32) -> vec4f {
    partial[lane] = x;
    workgroupBarrier();  // all of partial is there
    if lane < FEW {
        var sum = vec4f();
        for (var i = lane; i < WG; i += FEW) { sum += partial[i]; }
        few[lane] = sum;
    }
    workgroupBarrier();  // few is there, and partial may be written again
    var sum = vec4f();
    for (var i = 0u; i < FEW; i++) { sum += few[i]; }
    return sum;          // few is written again only behind the next call's first barrier
}

// Square each element of a chunk, into the sum of its size.
@compute @workgroup_size(WG)
fn global_norm_sums(@builtin(workgroup_id) group: vec3u,
                    @builtin(num_workgroups) groups: vec3u,
                    @builtin(local_invocation_index) lane: u32) {
    let chunk = group.y * groups.x + group.x;
    if chunk >= (span.stop + CHUNK - 1u) / CHUNK { return; }  // the same for the whole workgroup
    let stop = min(chunk * CHUNK + CHUNK, span.stop);
    var x = vec4f();
    for (var i = chunk * CHUNK + lane; i < stop; i += WG) {
        if i < span.start { continue; }
        let g = abs(grads[i]);
        let bits = bitcast<u32>(g);
        if bits < SMALL {
            x.x += square(scaled_up(g));
        } else if bits < LARGE {
            x.y += square(g);
        } else {
            x.z += square(scaled_down(g));
        }
    }
    let sum = workgroup_sums(x, lane);
    if lane == 0u { sums[span.first + chunk] = sum; }
}

// One workgroup: add the sums of all chunks, and take the root.
@compute @workgroup_size(WG)
fn global_norm(@builtin(local_invocation_index) lane: u32) {
    var x = vec4f();
    for (var chunk = lane; chunk < span.stop; chunk += WG) { x += sums[chunk]; }
    let sum = workgroup_sums(x, lane);
    if lane == 0u { outcome[1] = root(sum); }
}

fn root(sum: vec4f) -> f32 {
    if bitcast<u32>(sum.z) >= INFINITY { return sum.z; }  // or NaN
    let small = scaled_down(sqrt(sum.x));
    return hypotenuse(scaled_up(sqrt(sum.z)), hypotenuse(sqrt(sum.y), small));
}

fn hypotenuse(a: f32, b: f32) -> f32 {
    if a == 0.0 || b == 0.0 { return a + b; }
    return a * sqrt(1.0 + square(b / a));
}

fn square(x: f32) -> f32 {
    return x * x;
}

// x * 2^80 of x >= 0, infinity beyond the largest number.
fn scaled_up(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    return bitcast<f32>(select(min(bits + SCALE, INFINITY), 0u, bits < SMALLEST));
}

// x * 2^-80 of x >= 0; infinity and NaN stay.
fn scaled_down(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    if bits >= INFINITY { return x; }
    return bitcast<f32>(select(bits - SCALE, 0u, bits < SMALLEST + SCALE));
}
