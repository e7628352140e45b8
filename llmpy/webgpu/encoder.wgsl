// Encoder. The maths and the contract are in ops/encoder.py.
// Bindings are numbered in the order of the Python arguments.
//
// Backward, each row of a table gathers. For dwte, every position first looks for the next one with
// its token (encoder_backward_links); then a token's first position follows the links and sums. So
// the order of the sum is that of the positions, and nothing is sorted. Links stay in a block of
// positions, since who has no next looks at all that follow; one block is summed after the other.

override WG: u32 = 64u;  // threads of a workgroup

const BLOCK = 4096u;     // positions; same as encoder.py

// encoder_forward: one workgroup per position
@group(0) @binding(0) var<storage, read_write> out: array<f32>;   // (positions, C)
@group(0) @binding(1) var<storage, read> tokens: array<i32>;      // (positions)
@group(0) @binding(2) var<storage, read> wte: array<f32>;         // rows of (Vp, C)
@group(0) @binding(3) var<storage, read> wpe: array<f32>;         // (maxT, C)

// backward
@group(0) @binding(0) var<storage, read_write> dwte: array<f32>;  // rows of (Vp, C)
@group(0) @binding(1) var<storage, read_write> dwpe: array<f32>;  // (maxT, C)
@group(0) @binding(2) var<storage, read> dout: array<f32>;        // (positions, C)
@group(0) @binding(3) var<storage, read> used: array<i32>;        // (positions), the tokens

struct Part {
    first: u32,  // position among all, of the first at hand
    T: u32,
    C: u32,
    row: u32,    // of wte or dwte that is the first at hand
    block: u32,  // position at hand, of the block's first
}
@group(1) @binding(0) var<uniform> part: Part;

// first half: the next position with the same token, plus 1, or 0; second half: 1 where there is
// one before
@group(1) @binding(1) var<storage, read_write> links: array<u32>;  // (2, positions)

@compute @workgroup_size(WG)
fn encoder_forward(@builtin(workgroup_id) group: vec3u,
                   @builtin(num_workgroups) groups: vec3u,
                   @builtin(local_invocation_index) lane: u32) {
    let C = part.C;
    let bt = group.y * groups.x + group.x;
    if bt >= arrayLength(&tokens) { return; }
    let row = u32(tokens[bt]) - part.row;  // wraps around where the token is in an earlier part
    if row >= arrayLength(&wte) / C { return; }  // or in a later one
    let t = (part.first + bt) % part.T;
    for (var c = lane; c < C; c += WG) { out[bt * C + c] = wte[row * C + c] + wpe[t * C + c]; }
}

// One thread per position. The second half of links was cleared.
@compute @workgroup_size(WG)
fn encoder_backward_links(@builtin(workgroup_id) group: vec3u,
                          @builtin(num_workgroups) groups: vec3u,
                          @builtin(local_invocation_index) lane: u32) {
    let bt = (group.y * groups.x + group.x) * WG + lane;
    let count = arrayLength(&used);
    if bt >= count { return; }
    let token = used[bt];
    let stop = min((bt / BLOCK + 1u) * BLOCK, count);
    var next = bt + 1u;
    while next < stop && used[min(next, count - 1u)] != token { next += 1u; }
    if next < stop {
        links[bt] = next + 1u;
        links[count + next] = 1u;  // nobody else writes it: bt is the last before
    } else {
        links[bt] = 0u;
    }
}

// One workgroup per position of a block; those that are a token's first there, and the token's row
// is at hand, have work.
@compute @workgroup_size(WG)
fn encoder_backward_tokens(@builtin(workgroup_id) group: vec3u,
                           @builtin(num_workgroups) groups: vec3u,
                           @builtin(local_invocation_index) lane: u32) {
    let C = part.C;
    let bt = part.block + group.y * groups.x + group.x;
    let count = arrayLength(&used);
    if bt >= count || links[count + bt] != 0u { return; }
    let row = u32(used[bt]) - part.row;
    if row >= arrayLength(&dwte) / C { return; }
    for (var c = lane; c < C; c += WG) {
        var sum = dout[bt * C + c];
        for (var link = links[bt]; link != 0u; link = links[link - 1u]) {
            sum += dout[(link - 1u) * C + c];
        }
        dwte[row * C + c] += sum;
    }
}

// One thread per element of the first T rows of dwpe.
@compute @workgroup_size(WG)
fn encoder_backward_positions(@builtin(workgroup_id) group: vec3u,
                              @builtin(num_workgroups) groups: vec3u,
                              @builtin(local_invocation_index) lane: u32) {
    let C = part.C;
    let i = (group.y * groups.x + group.x) * WG + lane;
    if i >= part.T * C { return; }
    let count = arrayLength(&dout) / C;
    let t = i / C;
    var sum = 0.0;
    // the first position at hand that is a t-th one, then one in each sequence
    for (var bt = (t + part.T - part.first % part.T) % part.T; bt < count; bt += part.T) {
        sum += dout[bt * C + i % C];
    }
    dwpe[i] += sum;
}
