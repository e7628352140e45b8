// Attention. The maths and the contract are in ops/attention.py.
// Bindings are numbered in the order of the Python arguments.
//
// A workgroup makes WIDTH channels of sums for ROWS rows of a head. It meets COLUMNS columns at a
// time, makes the weights of all pairs, and adds the columns' vectors times the weights:
//
//                                  rows     columns  weights  vectors
//   forward                        queries  keys     P        value  P = exp(score - largest yet)
//   backward, GRADIENT of QUERY    queries  keys     dS       key    P = exp(score - lse)
//   backward, GRADIENT of KEY      keys     queries  dS       query  dS = P * (datt - D)
//   backward, GRADIENT of VALUE    keys     queries  P        dout   D = <dout, out>
//
// Tiles of pairs of which none counts are left out. In those on the diagonal the weights of pairs
// that don't count are 0, and if a vector isn't finite such pairs are left out of the sums too.

override FAR: bool = true;    // HS > 32
override GRADIENT: u32 = 0u;  // of what attention_backward makes it: QUERY, KEY or VALUE

// the parts of qkv and dqkv, and dout; same as attention.py
const QUERY = 0u;
const KEY = 1u;
const VALUE = 2u;
const DOUT = 3u;

const THREADS = 64u;          // 8 by 8: each has 8 rows, and 4 columns, or 4 or 8 channels
const ROWS = 64u;             // same as attention.py
const COLUMNS = 32u;
const WIDTH = 64u;            // same as attention.py
const DEPTH = 16u;            // channels, or columns, that are in workgroup memory at once
const LINE = ROWS / 4u + 1u;  // vec4f; one more than needed, so that neighbours are in other banks
const COLUMN_LINE = COLUMNS / 4u + 1u;

struct Sizes {
    T: u32,
    NH: u32,
    HS: u32,
    heads: u32,               // B * NH
    scale: f32,               // 1 / sqrt(HS)
    lowest: f32,              // minus infinity, which WGSL cannot spell
}
@group(1) @binding(0) var<uniform> sizes: Sizes;

// attention_forward
@group(0) @binding(0) var<storage, read_write> out: array<f32>;  // (B, T, C)
@group(0) @binding(1) var<storage, read_write> lse: array<f32>;  // (B, NH, T)
@group(0) @binding(2) var<storage, read> qkv: array<f32>;        // (B, T, 3C)

// attention_backward and attention_backward_dots
@group(0) @binding(0) var<storage, read_write> dqkv: array<f32>;      // (B, T, 3C)
@group(0) @binding(1) var<storage, read> dout: array<f32>;            // (B, T, C)
@group(0) @binding(2) var<storage, read> made_out: array<f32>;        // (B, T, C)
@group(0) @binding(3) var<storage, read> made_lse: array<f32>;        // (B, NH, T)
@group(0) @binding(4) var<storage, read> made_from: array<f32>;       // (B, T, 3C), qkv
@group(1) @binding(1) var<storage, read_write> dots_made: array<f32>; // (B, NH, T), D
@group(1) @binding(1) var<storage, read> dots: array<f32>;            // (B, NH, T), D

var<workgroup> weights: array<vec4f, COLUMNS * LINE>;     // of 4 rows, by column
var<workgroup> left: array<vec4f, DEPTH * LINE>;          // 4 rows, by channel; or vectors
var<workgroup> right: array<vec4f, DEPTH * COLUMN_LINE>;  // 4 columns, by channel; or 4 rows
var<workgroup> odd: atomic<u32>;                          // 1 once a vector was not finite

// ---------------------------------------------------------------------------------------------
// what both passes share

// Where a workgroup is, the same for all its threads.
struct Place {
    b: u32,
    h: u32,
    head: u32,
    first: u32,  // row
    chunk: u32,  // first channel of its sums
}

// Where a thread is in its workgroup: its rows are from 8 y on, its columns from 4 x on.
struct Thread { x: u32, y: u32, lane: u32 }

fn thread(lane: u32) -> Thread { return Thread(lane % 8u, lane / 8u, lane); }

fn blocks() -> u32 { return (sizes.T + ROWS - 1u) / ROWS; }

fn tasks() -> u32 { return sizes.heads * blocks() * ((sizes.HS + WIDTH - 1u) / WIDTH); }

// Give the place of a task. Those with most pairs come first; `up` says that rows are keys.
fn place_of(task: u32, up: bool) -> Place {
    let head = task % sizes.heads;
    let block = task / sizes.heads % blocks();
    let chunk = task / sizes.heads / blocks() * WIDTH;
    let first = select(blocks() - 1u - block, block, up) * ROWS;
    return Place(head / sizes.NH, head % sizes.NH, head, first, chunk);
}

// 4 numbers of each of a thread's 8 rows.
struct Tile {
    r0: vec4f, r1: vec4f, r2: vec4f, r3: vec4f,
    r4: vec4f, r5: vec4f, r6: vec4f, r7: vec4f,
}

// The sums of a thread: 8 rows of 4 channels, and 32 channels farther, 8 rows of 4 more.
struct Sums { near: Tile, far: Tile }

// Add the products of 8 rows with 4 columns.
fn outer(t: Tile, a: vec4f, b: vec4f, c: vec4f) -> Tile {
    return Tile(
        t.r0 + a.x * c, t.r1 + a.y * c, t.r2 + a.z * c, t.r3 + a.w * c,
        t.r4 + b.x * c, t.r5 + b.y * c, t.r6 + b.z * c, t.r7 + b.w * c,
    );
}

fn scaled(t: Tile, a: vec4f, b: vec4f) -> Tile {
    return Tile(
        t.r0 * a.x, t.r1 * a.y, t.r2 * a.z, t.r3 * a.w,
        t.r4 * b.x, t.r5 * b.y, t.r6 * b.z, t.r7 * b.w,
    );
}

// Add the products of `left` and `right`, of so many channels but DEPTH at most. Here and below
// the bound is known late lest a driver unroll the loop, which takes it seconds.
fn add_channels(sum: Tile, channels: u32, me: Thread) -> Tile {
    var t = sum;
    for (var k = 0u; k < min(channels, DEPTH); k += 1u) {
        let row = k * LINE + 2u * me.y;
        t = outer(t, left[row], left[row + 1u], right[k * COLUMN_LINE + me.x]);
    }
    return t;
}

fn columns_after(column: u32) -> vec4u { return vec4u(column) + vec4u(0u, 1u, 2u, 3u); }

// Say which pairs of a row count: those of a query with itself and earlier keys.
fn seen(row: u32, columns: vec4u, up: bool) -> vec4<bool> {
    let here = columns == vec4u(row);
    return (here | ((columns > vec4u(row)) == vec4<bool>(up))) & (columns < vec4u(sizes.T));
}

// Give exp(x), 0 where it is tiny, and NaN for NaN, which drivers may forget.
fn exponential(x: vec4f) -> vec4f {
    let e = select(exp(clamp(x, vec4f(-87.0), vec4f(89.0))), vec4f(), x < vec4f(-87.0));
    return select(e, x, is_nan(x));
}

fn is_nan(x: vec4f) -> vec4<bool> {
    return (bitcast<vec4u>(x) & vec4u(0x7fffffffu)) > vec4u(0x7f800000u);
}

fn is_lowest(x: vec4f) -> vec4<bool> { return bitcast<vec4u>(x) == vec4u(0xff800000u); }

fn store_weights(w: Tile, me: Thread) {
    let at = 4u * me.x * LINE + 2u * me.y;
    weights[at] = vec4f(w.r0.x, w.r1.x, w.r2.x, w.r3.x);
    weights[at + 1u] = vec4f(w.r4.x, w.r5.x, w.r6.x, w.r7.x);
    weights[at + LINE] = vec4f(w.r0.y, w.r1.y, w.r2.y, w.r3.y);
    weights[at + LINE + 1u] = vec4f(w.r4.y, w.r5.y, w.r6.y, w.r7.y);
    weights[at + 2u * LINE] = vec4f(w.r0.z, w.r1.z, w.r2.z, w.r3.z);
    weights[at + 2u * LINE + 1u] = vec4f(w.r4.z, w.r5.z, w.r6.z, w.r7.z);
    weights[at + 3u * LINE] = vec4f(w.r0.w, w.r1.w, w.r2.w, w.r3.w);
    weights[at + 3u * LINE + 1u] = vec4f(w.r4.w, w.r5.w, w.r6.w, w.r7.w);
}

// Keep 4 channels of a vector where `add_vectors` finds them, and say so if one is not finite.
fn store_vector(i: u32, v: vec4f) {
    left[i] = v;
    let exponent = bitcast<vec4u>(v) & vec4u(0x7f800000u);
    if any(exponent == vec4u(0x7f800000u)) { atomicStore(&odd, 1u); }
}

// Add the vectors of DEPTH columns in `left`, times the weights from `column` on of the tile.
fn add_vectors(sums: Sums, column: u32, columns: u32, me: Thread) -> Sums {
    var near = sums.near;
    var far = sums.far;
    for (var k = 0u; k < min(columns, DEPTH); k += 1u) {
        let at = (column + k) * LINE + 2u * me.y;
        let a = weights[at];
        let b = weights[at + 1u];
        let v = k * (WIDTH / 4u) + me.x;
        near = outer(near, a, b, left[v]);
        if FAR { far = outer(far, a, b, left[v + 8u]); }
    }
    return Sums(near, far);
}

// Give `counted`, but `old` for the rows whose pair with the column does not count.
fn where_seen(old: Tile, counted: Tile, row: u32, column: u32, up: bool) -> Tile {
    let s = seen(column, columns_after(row), !up);
    let t = seen(column, columns_after(row + 4u), !up);
    return Tile(
        select(old.r0, counted.r0, s.x), select(old.r1, counted.r1, s.y),
        select(old.r2, counted.r2, s.z), select(old.r3, counted.r3, s.w),
        select(old.r4, counted.r4, t.x), select(old.r5, counted.r5, t.y),
        select(old.r6, counted.r6, t.z), select(old.r7, counted.r7, t.w),
    );
}

// Do what `add_vectors` does, leaving out the pairs that don't count.
fn add_seen_vectors(
    sums: Sums, tile: u32, column: u32, columns: u32, p: Place, me: Thread, up: bool,
) -> Sums {
    var near = sums.near;
    var far = sums.far;
    let row = p.first + 8u * me.y;
    for (var k = 0u; k < min(columns, DEPTH); k += 1u) {
        let at = (column + k) * LINE + 2u * me.y;
        let a = weights[at];
        let b = weights[at + 1u];
        let v = k * (WIDTH / 4u) + me.x;
        let other = tile + column + k;
        near = where_seen(near, outer(near, a, b, left[v]), row, other, up);
        if FAR { far = where_seen(far, outer(far, a, b, left[v + 8u]), row, other, up); }
    }
    return Sums(near, far);
}

// Where positions of a head lie in a buffer.
struct Source { start: u32, stride: u32, of_dout: bool }

fn source(p: Place, part: u32) -> Source {
    let position = p.b * sizes.T;
    let step = sizes.NH * sizes.HS;
    if part == DOUT { return Source(position * step + p.h * sizes.HS, step, true); }
    return Source((position * 3u + part) * step + p.h * sizes.HS, 3u * step, false);
}

// Give the places of channel c of 4 positions, and which of them exist.
struct Four { at: vec4u, there: vec4<bool> }

fn four_positions(s: Source, t: u32, c: u32) -> Four {
    let positions = columns_after(t);
    let there = (positions < vec4u(sizes.T)) & vec4<bool>(c < sizes.HS);
    return Four(select(vec4u(), s.start + c + positions * s.stride, there), there);
}

// Give the places of 4 channels of a position, and which of them exist.
fn four_channels(s: Source, t: u32, c: u32) -> Four {
    let channels = columns_after(c);
    let there = (channels < vec4u(sizes.HS)) & vec4<bool>(t < sizes.T);
    return Four(select(vec4u(), s.start + t * s.stride + channels, there), there);
}

// Bring 4 channels of all rows to `weights`, where they lie by row.
fn store_rows(t: Tile, me: Thread) {
    let at = 64u * me.y + me.x;
    weights[at] = t.r0;
    weights[at + 8u] = t.r1;
    weights[at + 16u] = t.r2;
    weights[at + 24u] = t.r3;
    weights[at + 32u] = t.r4;
    weights[at + 40u] = t.r5;
    weights[at + 48u] = t.r6;
    weights[at + 56u] = t.r7;
}

// ---------------------------------------------------------------------------------------------
// forward

fn take(f: Four) -> vec4f {
    let v = vec4f(qkv[f.at.x], qkv[f.at.y], qkv[f.at.z], qkv[f.at.w]);
    return select(vec4f(), v, f.there);
}

// Give <query, key> of the thread's pairs.
fn products(p: Place, me: Thread, query: Source, key: Source, column: u32) -> Tile {
    var t: Tile;
    for (var c = 0u; c < sizes.HS; c += DEPTH) {
        workgroupBarrier();  // left and right have been read
        for (var i = me.lane; i < DEPTH * ROWS / 4u; i += THREADS) {
            let k = i % DEPTH;
            let r = i / DEPTH;
            left[k * LINE + r] = take(four_positions(query, p.first + 4u * r, c + k));
            if r < COLUMNS / 4u {
                right[k * COLUMN_LINE + r] = take(four_positions(key, column + 4u * r, c + k));
            }
        }
        workgroupBarrier();  // left and right are there
        t = add_channels(t, sizes.HS - c, me);
    }
    return t;
}

// Give scores, minus infinity for a pair that doesn't count.
fn scores(p: Place, dots_of_row: vec4f, row: u32, columns: vec4u) -> vec4f {
    return select(vec4f(sizes.lowest), dots_of_row * sizes.scale, seen(row, columns, false));
}

fn largest(x: vec4f) -> f32 { return max(max(x.x, x.y), max(x.z, x.w)); }

fn total(x: vec4f) -> f32 { return (x.x + x.y) + (x.z + x.w); }

// Give exp(score - most) of a row; a score of minus infinity weighs nothing whatever the largest.
fn powers(score: vec4f, most: f32) -> vec4f {
    return select(exponential(score - most), vec4f(0.0), is_lowest(score));
}

fn powers_of(s: Tile, m: vec4f, n: vec4f) -> Tile {
    return Tile(
        powers(s.r0, m.x), powers(s.r1, m.y), powers(s.r2, m.z), powers(s.r3, m.w),
        powers(s.r4, n.x), powers(s.r5, n.y), powers(s.r6, n.z), powers(s.r7, n.w),
    );
}

// Give by what sums shrink when the largest grows; nothing is in them before the first score.
fn shrink(before: vec4f, after: vec4f) -> vec4f {
    return select(exponential(before - after), vec4f(0.0), is_lowest(before));
}

fn totals(w: Tile) -> array<vec4f, 2> {
    return array<vec4f, 2>(
        vec4f(total(w.r0), total(w.r1), total(w.r2), total(w.r3)),
        vec4f(total(w.r4), total(w.r5), total(w.r6), total(w.r7)),
    );
}

@compute @workgroup_size(THREADS)
fn attention_forward(@builtin(workgroup_id) group: vec3u,
                     @builtin(num_workgroups) groups: vec3u,
                     @builtin(local_invocation_index) lane: u32) {
    let task = group.y * groups.x + group.x;
    if task >= tasks() { return; }  // the same for the whole workgroup
    let p = place_of(task, false);
    let me = thread(lane);
    let row = p.first + 8u * me.y;
    let query = source(p, QUERY);
    let key = source(p, KEY);
    let value = source(p, VALUE);
    var sums: Sums;
    var m = vec4f(sizes.lowest);  // the largest scores of the thread's rows so far
    var n = m;
    var s: vec4f;                 // sums of powers, of the thread's columns
    var t: vec4f;
    let end = min(sizes.T, p.first + ROWS);
    for (var column = 0u; column < end; column += COLUMNS) {
        var w = products(p, me, query, key, column);
        let columns = columns_after(column + 4u * me.x);
        w = Tile(
            scores(p, w.r0, row, columns), scores(p, w.r1, row + 1u, columns),
            scores(p, w.r2, row + 2u, columns), scores(p, w.r3, row + 3u, columns),
            scores(p, w.r4, row + 4u, columns), scores(p, w.r5, row + 5u, columns),
            scores(p, w.r6, row + 6u, columns), scores(p, w.r7, row + 7u, columns),
        );
        workgroupBarrier();  // right has been read
        let at = 16u * me.x + 2u * me.y;
        right[at] = vec4f(largest(w.r0), largest(w.r1), largest(w.r2), largest(w.r3));
        right[at + 1u] = vec4f(largest(w.r4), largest(w.r5), largest(w.r6), largest(w.r7));
        workgroupBarrier();  // the largest scores of all threads are there
        let m_before = m;
        let n_before = n;
        for (var x = 0u; x < 8u; x += 1u) {
            m = max(m, right[16u * x + 2u * me.y]);
            n = max(n, right[16u * x + 2u * me.y + 1u]);
        }
        let a = shrink(m_before, m);
        let b = shrink(n_before, n);
        w = powers_of(w, m, n);
        store_weights(w, me);
        let added = totals(w);
        s = s * a + added[0];
        t = t * b + added[1];
        sums = Sums(scaled(sums.near, a, b), scaled(sums.far, a, b));
        let there = min(COLUMNS, end - column);
        for (var k = 0u; k < there; k += DEPTH) {
            workgroupBarrier();  // left has been read
            for (var i = me.lane; i < DEPTH * WIDTH / 4u; i += THREADS) {
                let f = four_channels(value, column + k + i / 16u, p.chunk + i % 16u * 4u);
                store_vector(i, take(f));
            }
            workgroupBarrier();  // weights and left are there
            if column + COLUMNS > p.first && atomicLoad(&odd) != 0u {
                sums = add_seen_vectors(sums, column, k, there - k, p, me, false);
            } else {
                sums = add_vectors(sums, k, there - k, me);
            }
        }
    }
    workgroupBarrier();  // right has been read
    right[16u * me.x + 2u * me.y] = s;
    right[16u * me.x + 2u * me.y + 1u] = t;
    workgroupBarrier();  // the sums of all threads are there
    s = vec4f();
    t = vec4f();
    for (var x = 0u; x < 8u; x += 1u) {
        s += right[16u * x + 2u * me.y];
        t += right[16u * x + 2u * me.y + 1u];
    }
    let nan = bitcast<f32>(bitcast<u32>(sizes.lowest) | 0x400000u);
    s = select(s, vec4f(nan), s == vec4f());  // where all scores are minus infinity
    t = select(t, vec4f(nan), t == vec4f());
    for (var half = 0u; half < 1u + u32(FAR); half += 1u) {
        workgroupBarrier();  // weights and right have been read
        if half == 0u { store_rows(scaled(sums.near, 1.0 / s, 1.0 / t), me); }
        if half == 1u { store_rows(scaled(sums.far, 1.0 / s, 1.0 / t), me); }
        if me.x == 0u {
            right[2u * me.y] = select(m + log(s), s, is_nan(s));
            right[2u * me.y + 1u] = select(n + log(t), t, is_nan(t));
        }
        workgroupBarrier();  // the rows are there
        let c = p.chunk + 32u * half + lane % 32u;
        for (var r = lane / 32u; r < ROWS; r += 2u) {
            if p.first + r < sizes.T && c < sizes.HS {
                let at = ((p.b * sizes.T + p.first + r) * sizes.NH + p.h) * sizes.HS + c;
                out[at] = weights[r * 8u + lane % 32u / 4u][lane % 4u];
            }
        }
    }
    if p.chunk == 0u && p.first + lane < sizes.T {
        lse[p.head * sizes.T + p.first + lane] = right[lane / 4u][lane % 4u];
    }
}

// ---------------------------------------------------------------------------------------------
// backward

// Make D: a thread for each position and head.
@compute @workgroup_size(THREADS)
fn attention_backward_dots(@builtin(workgroup_id) group: vec3u,
                           @builtin(num_workgroups) groups: vec3u,
                           @builtin(local_invocation_index) lane: u32) {
    let i = (group.y * groups.x + group.x) * THREADS + lane;  // of (B, T, NH)
    if i >= sizes.heads * sizes.T { return; }
    var sum = 0.0;
    for (var c = i * sizes.HS; c < (i + 1u) * sizes.HS; c += 1u) { sum += dout[c] * made_out[c]; }
    let bt = i / sizes.NH;
    dots_made[(bt / sizes.T * sizes.NH + i % sizes.NH) * sizes.T + bt % sizes.T] = sum;
}

fn take_made(s: Source, f: Four) -> vec4f {
    var v: vec4f;
    if s.of_dout {
        v = vec4f(dout[f.at.x], dout[f.at.y], dout[f.at.z], dout[f.at.w]);
    } else {
        v = vec4f(made_from[f.at.x], made_from[f.at.y], made_from[f.at.z], made_from[f.at.w]);
    }
    return select(vec4f(), v, f.there);
}

// Give the products of the thread's pairs: <query, key>, or <dout, value>.
fn made_products(p: Place, me: Thread, rows: Source, columns: Source, column: u32) -> Tile {
    var t: Tile;
    for (var c = 0u; c < sizes.HS; c += DEPTH) {
        workgroupBarrier();  // left and right have been read
        for (var i = me.lane; i < DEPTH * ROWS / 4u; i += THREADS) {
            let k = i % DEPTH;
            let r = i / DEPTH;
            let row = four_positions(rows, p.first + 4u * r, c + k);
            left[k * LINE + r] = take_made(rows, row);
            if r < COLUMNS / 4u {
                let here = four_positions(columns, column + 4u * r, c + k);
                right[k * COLUMN_LINE + r] = take_made(columns, here);
            }
        }
        workgroupBarrier();  // left and right are there
        t = add_channels(t, sizes.HS - c, me);
    }
    return t;
}

// Give P of a row.
fn made_powers(product: vec4f, log_sum: vec4f, row: u32, columns: vec4u) -> vec4f {
    let p = exponential(product * sizes.scale - log_sum);
    return select(vec4f(), p, seen(row, columns, GRADIENT != QUERY));
}

// Give dS of a row; a pair that doesn't count has none, whatever datt is.
fn gradients(p: vec4f, datt: vec4f, d: vec4f, row: u32, columns: vec4u) -> vec4f {
    return select(vec4f(), p * (datt - d), seen(row, columns, GRADIENT != QUERY));
}

// Give four numbers of (B, NH, T), from position t of a head on.
fn log_sums(p: Place, t: u32) -> vec4f {
    let at = p.head * sizes.T + min(columns_after(t), vec4u(sizes.T - 1u));
    return vec4f(made_lse[at.x], made_lse[at.y], made_lse[at.z], made_lse[at.w]);
}

fn dots_of(p: Place, t: u32) -> vec4f {
    let at = p.head * sizes.T + min(columns_after(t), vec4u(sizes.T - 1u));
    return vec4f(dots[at.x], dots[at.y], dots[at.z], dots[at.w]);
}

// What each row of a thread brings: the numbers of its own position, or those of the 4 columns.
fn spread(rows: vec4f, more: vec4f, columns: vec4f) -> Tile {
    if GRADIENT != QUERY {
        return Tile(columns, columns, columns, columns, columns, columns, columns, columns);
    }
    return Tile(
        vec4f(rows.x), vec4f(rows.y), vec4f(rows.z), vec4f(rows.w),
        vec4f(more.x), vec4f(more.y), vec4f(more.z), vec4f(more.w),
    );
}

@compute @workgroup_size(THREADS)
fn attention_backward(@builtin(workgroup_id) group: vec3u,
                      @builtin(num_workgroups) groups: vec3u,
                      @builtin(local_invocation_index) lane: u32) {
    let task = group.y * groups.x + group.x;
    if task >= tasks() { return; }  // the same for the whole workgroup
    let up = GRADIENT != QUERY;
    let p = place_of(task, up);
    let me = thread(lane);
    let row = p.first + 8u * me.y;
    let rows = source(p, select(QUERY, KEY, up));
    let columns = source(p, select(KEY, QUERY, up));
    let rows_of_datt = source(p, select(DOUT, VALUE, up));
    let columns_of_datt = source(p, select(VALUE, DOUT, up));
    let vectors = source(p, select(select(DOUT, QUERY, GRADIENT == KEY), KEY, !up));
    var sums: Sums;
    let end = select(min(sizes.T, p.first + ROWS), sizes.T, up);
    for (var column = select(0u, p.first, up); column < end; column += COLUMNS) {
        var w = made_products(p, me, rows, columns, column);
        let own = column + 4u * me.x;
        let c = columns_after(own);
        let m = spread(log_sums(p, row), log_sums(p, row + 4u), log_sums(p, own));
        w = Tile(
            made_powers(w.r0, m.r0, row, c), made_powers(w.r1, m.r1, row + 1u, c),
            made_powers(w.r2, m.r2, row + 2u, c), made_powers(w.r3, m.r3, row + 3u, c),
            made_powers(w.r4, m.r4, row + 4u, c), made_powers(w.r5, m.r5, row + 5u, c),
            made_powers(w.r6, m.r6, row + 6u, c), made_powers(w.r7, m.r7, row + 7u, c),
        );
        if GRADIENT != VALUE {
            let t = made_products(p, me, rows_of_datt, columns_of_datt, column);
            let d = spread(dots_of(p, row), dots_of(p, row + 4u), dots_of(p, own));
            w = Tile(
                gradients(w.r0, t.r0, d.r0, row, c), gradients(w.r1, t.r1, d.r1, row + 1u, c),
                gradients(w.r2, t.r2, d.r2, row + 2u, c), gradients(w.r3, t.r3, d.r3, row + 3u, c),
                gradients(w.r4, t.r4, d.r4, row + 4u, c), gradients(w.r5, t.r5, d.r5, row + 5u, c),
                gradients(w.r6, t.r6, d.r6, row + 6u, c), gradients(w.r7, t.r7, d.r7, row + 7u, c),
            );
        }
        store_weights(w, me);
        let there = min(COLUMNS, end - column);
        for (var k = 0u; k < there; k += DEPTH) {
            workgroupBarrier();  // left has been read
            for (var i = lane; i < DEPTH * WIDTH / 4u; i += THREADS) {
                let f = four_channels(vectors, column + k + i / 16u, p.chunk + i % 16u * 4u);
                store_vector(i, take_made(vectors, f));
            }
            workgroupBarrier();  // weights and left are there
            let diagonal = column < p.first + ROWS && column + COLUMNS > p.first;
            if diagonal && atomicLoad(&odd) != 0u {
                sums = add_seen_vectors(sums, column, k, there - k, p, me, up);
            } else {
                sums = add_vectors(sums, k, there - k, me);
            }
        }
    }
    let factor = vec4f(select(sizes.scale, 1.0, GRADIENT == VALUE));
    for (var half = 0u; half < 1u + u32(FAR); half += 1u) {
        workgroupBarrier();  // weights have been read
        if half == 0u { store_rows(scaled(sums.near, factor, factor), me); }
        if half == 1u { store_rows(scaled(sums.far, factor, factor), me); }
        workgroupBarrier();  // the rows are there
        let c = p.chunk + 32u * half + lane % 32u;
        for (var r = lane / 32u; r < ROWS; r += 2u) {
            if p.first + r < sizes.T && c < sizes.HS {
                let part = (p.b * sizes.T + p.first + r) * 3u + GRADIENT;
                let at = (part * sizes.NH + p.h) * sizes.HS + c;
                dqkv[at] = weights[r * 8u + lane % 32u / 4u][lane % 4u];
            }
        }
    }
}
