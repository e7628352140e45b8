// AdamW. The maths and the contract are in ops/adamw.py.
// Bindings are numbered in the order of the Python arguments.

override WG: u32 = 256u;  // threads of a workgroup

const EACH = 4u;          // elements of a thread; same as adamw.py

@group(0) @binding(0) var<storage, read_write> params: array<f32>;  // a part of (N)
@group(0) @binding(1) var<storage, read> grads: array<f32>;         // (N)
@group(0) @binding(2) var<storage, read_write> m: array<f32>;       // (N)
@group(0) @binding(3) var<storage, read_write> v: array<f32>;       // (N)
@group(0) @binding(4) var<storage, read> outcome: array<f32>;       // (2); None is zeros

struct Span {
    base: u32,    // element of the buffer where the bindings begin
    start: u32,   // elements of the buffer to update
    stop: u32,
    first: u32,   // of `decays`, that are of this buffer
    last: u32,
}
@group(1) @binding(0) var<uniform> span: Span;

struct Settings {
    lr: f32,
    beta1: f32,
    rest1: f32,   // 1 - beta1
    beta2: f32,
    rest2: f32,
    eps: f32,
    weight_decay: f32,
    scale1: f32,  // 1 / (1 - beta1^step)
    scale2: f32,
    grad_scale: f32,
    max_norm: f32,
}
@group(1) @binding(1) var<uniform> settings: Settings;
@group(1) @binding(2) var<storage, read> decays: array<vec2u>;  // start and stop, in the buffer

fn is_finite(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7f800000u) != 0x7f800000u;
}

@compute @workgroup_size(WG)
fn adamw(@builtin(workgroup_id) group: vec3u,
         @builtin(num_workgroups) groups: vec3u,
         @builtin(local_invocation_index) lane: u32) {
    let norm = outcome[1];
    if !is_finite(outcome[0]) || !is_finite(norm) { return; }
    var scale = settings.grad_scale;
    if settings.max_norm > 0.0 && norm > settings.max_norm { scale *= settings.max_norm / norm; }

    let first = span.base + (group.y * groups.x + group.x) * WG * EACH + lane;
    for (var k = 0u; k < EACH; k++) {
        let place = first + k * WG;
        if place < span.start || place >= span.stop { continue; }
        let i = place - span.base;
        let g = grads[i] * scale;
        let mi = settings.beta1 * m[i] + settings.rest1 * g;
        let vi = settings.beta2 * v[i] + settings.rest2 * g * g;
        let p = params[i];
        m[i] = mi;
        v[i] = vi;
        var update = mi * settings.scale1 / (sqrt(vi * settings.scale2) + settings.eps);
        if decay_of(place) { update += settings.weight_decay * p; }
        params[i] = p - settings.lr * update;
    }
}

fn decay_of(place: u32) -> bool {
    for (var i = span.first; i < span.last; i++) {
        if place >= decays[i].x && place < decays[i].y { return true; }
    }
    return false;
}
