"""Attention on the CPU. The maths and the contract are in ops/attention.py.

Rows, which are queries, are taken in blocks, whose scores lie in scratch memory, never all (T, T):

    forward    S = Q K^T;  E = exp(scale S - largest of the row);  out = E V / sum of the row
    backward   S = Q K^T;  P = exp(scale S - lse);  dP = dout V^T
               dS = P (dP - D) with D = sum of dout * out over a row
               dQ = scale dS K;  dK = scale dS^T Q;  dV = P^T dout

Forward, a block of ROW_BLOCK rows meets all keys up to its last row at once. Backward, a block of
BLOCK rows meets one block of BLOCK keys after the other, from the diagonal to the first, in strips
of MR keys, so that what they make stays in the first two caches (L1, L2). Scores then lie by keys,
a row for each: the products for dV and dK read P and dS as they lie.

A task is a piece of a head. Of few heads there are several pieces, each with blocks of rows from
the whole length, so that all cost the same. Forward, the threads decide how many, since no row
depends on the pieces. Backward, the sizes alone: each piece sums its own dK and dV, which are then
added in the order of the pieces.
"""

from collections import namedtuple

import numpy as np
from numba import get_num_threads

from .attention_blocks import (
    all_finite,
    dots,
    gradient_strip,
    pack_rows,
    plain_product,
    product,
    scores,
    softmax_block,
    strip_product,
    strip_scores,
    take_rows,
    up,
    write_rows,
)
from .jit import inlined, kernel, part, plain
from .memory import data, max_threads, scratch_at
from .packing import copy_rows, words
from .simd import MR, NR, PAIRS, W, floats
from .tasks import integers, run
from .tile import ADD, WRITE
from .vector_math import LOG2E

ROW_BLOCK = 48  # rows of a block, forward: a multiple of MR on all machines
BLOCK = 96  # rows and keys of a block, backward: a multiple of MR and NR on all machines
TASKS_PER_THREAD = 4  # forward, so that the last ones end together
TASKS = 48  # backward, whatever the threads

f32 = np.float32


@inlined
def place(n, piece, pieces):
    """Give which block, counted from the last, is number n of a piece, counted so: to and fro."""
    return n * pieces + (piece if n % 2 == 0 else pieces - 1 - piece)


@inlined
def blocks_of_piece(piece, pieces, blocks):
    """Count the blocks of a piece; its last is block `blocks` - 1 - `piece`."""
    turns = blocks // pieces
    return turns + int(place(turns, piece, pieces) < blocks)


@inlined
def block_of_piece(m, piece, pieces, blocks):
    """Give the number of block m of a piece, in ascending order; all pieces cost about the same."""
    return blocks - 1 - place(blocks_of_piece(piece, pieces, blocks) - 1 - m, piece, pieces)


def pieces_of_head(heads, blocks, tasks):
    """Give the pieces of a head, each of at least two blocks, for so many tasks in all."""
    return max(1, min(-(-tasks // max(1, heads)), blocks // 2))


# ----------------------------------------------------------------------------------------------
# forward

Forward = namedtuple("Forward", "Q K V S stride O largest sums end")


@plain
def forward_scratch(at, T, HS, bf16):
    """Give the addresses of a thread's scratch, which begins at `at`."""
    n, heads = words(HS, bf16), up(HS, NR)
    stride = up(T + MR, 2 * W) + 16  # of scores; not all rows in the same sets of a cache
    Q = at
    K = Q + 4 * ROW_BLOCK * n
    V = K + 4 * up(T, NR) * n
    S = V + 4 * words(T, bf16) * heads
    O = S + 4 * ROW_BLOCK * stride
    largest = O + 4 * ROW_BLOCK * heads
    sums = largest + 4 * ROW_BLOCK
    end = up(sums + 4 * ROW_BLOCK, 64)
    return Forward(Q, K, V, S, stride, O, largest, sums, end)


@kernel
def forward_task(arguments, task, thread):
    """Attend: the blocks of rows of a piece of a head."""
    out, lse, qkv, T, NH, HS, pieces, bf16, memory, size = integers(arguments, 10)
    piece, head, C = task % pieces, task // pieces, NH * HS
    b, h, ld, heads = head // NH, head % NH, 3 * C, up(HS, NR)
    out, lse = out + 4 * (b * T * C + h * HS), lse + 4 * head * T
    qkv += 4 * (b * T * ld + h * HS)
    s = forward_scratch(memory + 4 * thread * size, T, HS, bf16)
    scale = f32(1.0 / np.sqrt(HS))

    blocks = -(-T // ROW_BLOCK)
    length = min(T, (blocks - piece) * ROW_BLOCK)
    pack_rows(s.K, qkv + 4 * C, ld, length, HS, 0, bf16)
    pack_rows(s.V, qkv + 8 * C, ld, length, HS, 1, bf16)
    for m in range(blocks_of_piece(piece, pieces, blocks)):
        first = block_of_piece(m, piece, pieces, blocks) * ROW_BLOCK
        rows = min(ROW_BLOCK, T - first)
        take_rows(s.Q, qkv + 4 * first * ld, ld, rows, HS, bf16)
        make_powers(s, first, rows, scale, HS, bf16, bf16)
        add_values(s, first, rows, length, HS, bf16)
        if not all_finite(s.O + 4 * (rows - 1) * heads, HS):  # the row that sees all of the block
            make_powers(s, first, rows, scale, HS, bf16, 0)
            add_values_plainly(s, qkv + 8 * C, ld, first, rows, length, HS, bf16)
        most, total = floats(s.largest, rows), floats(s.sums, rows)
        block_lse = floats(lse + 4 * first, rows)
        for r in range(rows):
            to, made = out + 4 * (first + r) * C, s.O + 4 * r * heads
            write_rows(to, C, made, heads, 1, HS, f32(1) / total[r], WRITE)
            block_lse[r] = scale * most[r] + np.log(total[r])


@inlined
def make_powers(s, first, rows, scale, HS, bf16, rounded):
    """Make E of a block of rows, as words of bfloat16 where it is to be rounded."""
    scores(s.S, s.stride, s.Q, s.K, rows, first + rows, first, HS, bf16)
    softmax_block(s.S, s.stride, rows, first, scale * LOG2E, s.largest, s.sums, rounded)


@inlined
def add_values(s, first, rows, length, HS, bf16):
    """Write O = E V: the sums over the keys before the block, and then over its own."""
    add_earlier_values(s, first, rows, length, HS, bf16)
    panel, skipped = words(length, bf16) * NR, 4 * words(first, bf16)
    V, mode = s.V + skipped * NR, ADD if first else WRITE
    product(s.O, up(HS, NR), s.S + skipped, s.stride, 1, V, panel, rows, rows, 0, HS, mode, bf16)


@inlined
def add_earlier_values(s, first, rows, length, HS, bf16):
    """Write O = E V over the keys before the block."""
    panel = words(length, bf16) * NR
    product(s.O, up(HS, NR), s.S, s.stride, 1, s.V, panel, rows, first, first, HS, WRITE, bf16)


@inlined
def add_values_plainly(s, V, ld, first, rows, length, HS, bf16):
    """Do what `add_values` does with an E that is not rounded yet, leaving out what a row doesn't
    see.
    """
    if bf16:
        copy_rows(s.S, s.stride, s.S, s.stride, up(rows, MR), first, bf16)
    add_earlier_values(s, first, rows, length, HS, bf16)
    mode = ADD if first else WRITE
    for r in range(rows):
        weights, to = s.S + 4 * (r * s.stride + first), s.O + 4 * r * up(HS, NR)
        plain_product(to, weights, 1, V + 4 * first * ld, ld, r + 1, 0, HS, mode, bf16)


def attention_forward(out, lse, qkv, *, NH, bf16=False):
    B, T, C = out.shape
    HS, bf16 = C // NH, int(bf16)
    threads = get_num_threads()
    tasks = TASKS_PER_THREAD * threads if threads > 1 else 1
    pieces = pieces_of_head(B * NH, -(-T // ROW_BLOCK), tasks)
    size = forward_scratch(0, T, HS, bf16).end // 4
    memory = scratch_at("attention", max_threads() * size)
    arguments = data(out), data(lse), data(qkv), T, NH, HS, pieces, bf16, memory, size
    run(forward_task, B * NH * pieces, *arguments)


# ----------------------------------------------------------------------------------------------
# backward

Backward = namedtuple("Backward", "QT dOT Qp dOp K V Kp S dP pairs dQ lse D end")


@plain
def backward_scratch(at, T, HS, bf16):
    """Give the addresses of a thread's scratch, which begins at `at`.

    QT, dOT        rows of a block packed over HS; Qp, dOp are the same packed over the rows
    K, V           keys and values as words; Kp, keys packed over the keys
    S, dP          a row of BLOCK floats for each key: one strip of them, or all of a block
    pairs          dS of a block where words are pairs of bfloat16, two keys to a word
    """
    n, heads = words(HS, bf16), up(HS, NR)
    QT = at
    dOT = QT + 4 * BLOCK * n
    Qp = dOT + 4 * BLOCK * n
    dOp = Qp + 4 * words(BLOCK, bf16) * heads
    K = dOp + 4 * words(BLOCK, bf16) * heads
    V = K + 4 * up(T, MR) * n
    Kp = V + 4 * up(T, MR) * n
    S = Kp + 4 * words(T, bf16) * heads
    dP = S + 4 * BLOCK * BLOCK
    pairs = dP + 4 * BLOCK * BLOCK
    dQ = pairs + (4 * words(BLOCK, bf16) * BLOCK if bf16 and PAIRS else 0)
    lse = dQ + 4 * BLOCK * heads
    D = lse + 4 * BLOCK
    end = up(D + 4 * BLOCK, 64)
    return Backward(QT, dOT, Qp, dOp, K, V, Kp, S, dP, pairs, dQ, lse, D, end)


@kernel
def backward_task(arguments, task, thread):
    """Give dQ of a piece of a head, and its part of dK and dV: all, where there is no other."""
    (
        dqkv, dout, out, lse, qkv, T, NH, HS, pieces, bf16, sums, sums_size, memory, size,
    ) = integers(arguments, 14)  # fmt: skip
    piece, head, C = task % pieces, task // pieces, NH * HS
    b, h, ld, heads = head // NH, head % NH, 3 * C, up(HS, NR)
    row, row3 = 4 * (b * T * C + h * HS), 4 * (b * T * ld + h * HS)
    dout, out, lse = dout + row, out + row, lse + 4 * head * T
    qkv, dqkv = qkv + row3, dqkv + row3
    s = backward_scratch(memory + 4 * thread * size, T, HS, bf16)
    dK = sums + 4 * (thread if pieces == 1 else task) * sums_size
    dV = dK + 2 * sums_size
    scale = f32(1.0 / np.sqrt(HS))

    blocks = -(-T // BLOCK)
    length = min(T, (blocks - piece) * BLOCK)
    take_rows(s.K, qkv + 4 * C, ld, length, HS, bf16)
    take_rows(s.V, qkv + 8 * C, ld, length, HS, bf16)
    pack_rows(s.Kp, qkv + 4 * C, ld, length, HS, 1, bf16)
    done = -1  # the last block of rows so far: the sums of later keys are to be begun
    for m in range(blocks_of_piece(piece, pieces, blocks)):
        i = block_of_piece(m, piece, pieces, blocks)
        first = i * BLOCK
        rows, q, do = min(BLOCK, T - first), qkv + 4 * first * ld, dout + 4 * first * C
        take_block(s, q, do, out + 4 * first * C, lse + 4 * first, C, rows, HS, bf16)
        for j in range(i, -1, -1):
            at_sums, mode = 4 * j * BLOCK * heads, WRITE if j > done else ADD
            add_products(
                s, dK + at_sums, dV + at_sums, mode, length, j, rows, j == i, scale, HS, bf16
            )
            if j == i and not sums_finite(s.dQ, dK + at_sums, dV + at_sums, rows, HS):
                add_products_plainly(
                    s, dK + at_sums, dV + at_sums, q, do, C, j, rows, scale, HS, bf16
                )
        write_rows(dqkv + 4 * first * ld, ld, s.dQ, heads, rows, HS, scale, WRITE)
        done = i
    if pieces == 1:
        write_rows(dqkv + 4 * C, ld, dK, heads, T, HS, scale, WRITE)
        write_rows(dqkv + 8 * C, ld, dV, heads, T, HS, f32(1), WRITE)


@inlined
def take_block(s, q, do, out, lse, C, rows, HS, bf16):
    """Bring a block of rows to scratch."""
    pack_rows(s.QT, q, 3 * C, rows, HS, 0, bf16)
    pack_rows(s.dOT, do, C, rows, HS, 0, bf16)
    pack_rows(s.Qp, q, 3 * C, rows, HS, 1, bf16)
    pack_rows(s.dOp, do, C, rows, HS, 1, bf16)
    dots(s.D, do, C, out, C, rows, HS)
    copy_rows(s.lse, rows, lse, rows, 1, rows, 0)


@part
def make_strip(s, S, dP, j, key, rows, before, scale, HS, bf16, rounded):
    """Make P and dS of the block of rows and the MR keys from `key` of block j on.

    They go over S and dP, as words if `rounded`, as floats if not.
    """
    at = 4 * (j * BLOCK + key) * words(HS, bf16)
    strip_scores(S, BLOCK, s.K + at, s.QT, rows, key, before, HS, bf16)
    strip_scores(dP, BLOCK, s.V + at, s.dOT, rows, key, before, HS, bf16)
    gradient_strip(S, dP, BLOCK, rows, key, before, scale, s.lse, s.D, s.pairs, rounded)


@inlined
def add_products(s, dK, dV, mode, length, j, rows, diagonal, scale, HS, bf16):
    """Add what P and dS give to dK, dV and dQ; dQ begins with the diagonal.

    The strips of P lie in one place, one after the other. So do those of dS where dQ takes it from
    `pairs`; elsewhere they lie beside each other.
    """
    keys, before = (rows, 0) if diagonal else (BLOCK, BLOCK)
    heads, in_pairs = up(HS, NR), PAIRS and bf16
    for key in range(0, keys, MR):
        S, dP = s.S, s.dP
        if not in_pairs:
            dP += 4 * key * BLOCK
        make_strip(s, S, dP, j, key, rows, before, scale, HS, bf16, bf16)
        to = 4 * key * heads
        strip_product(dV + to, heads, S, BLOCK, s.dOp, rows, key, before, HS, mode, bf16)
        strip_product(dK + to, heads, dP, BLOCK, s.Qp, rows, key, before, HS, mode, bf16)
    dS = s.pairs if in_pairs else s.dP
    Kp, panel = s.Kp + 4 * words(j * BLOCK, bf16) * NR, words(length, bf16) * NR
    dQ_mode = WRITE if diagonal else ADD
    product(s.dQ, heads, dS, 1, BLOCK, Kp, panel, rows, keys, before, HS, dQ_mode, bf16)


@inlined
def sums_finite(dQ, dK, dV, rows, HS):
    """Tell whether the sums that see all of a block on the diagonal are finite.

    Its last row sees all keys, and its first key is seen by all rows.
    """
    last = dQ + 4 * (rows - 1) * up(HS, NR)
    return all_finite(last, HS) and all_finite(dK, HS) and all_finite(dV, HS)


@inlined
def add_products_plainly(s, dK, dV, q, do, C, j, rows, scale, HS, bf16):
    """Do what `add_products` does with the block on the diagonal, leaving out masked pairs."""
    ld, heads = 3 * C, up(HS, NR)
    for key in range(0, rows, MR):
        at = 4 * key * BLOCK
        make_strip(s, s.S + at, s.dP + at, j, key, rows, 0, scale, HS, bf16, 0)
    for r in range(rows):
        column, row, to = 4 * r, 4 * (r * BLOCK + r), 4 * r * heads
        at_q, at_do, left = q + 4 * r * ld, do + 4 * r * C, rows - r  # from the diagonal on
        plain_product(s.dQ + to, s.dP + column, BLOCK, q + 4 * C, ld, r + 1, 0, HS, WRITE, bf16)
        plain_product(dK + to, s.dP + row, 1, at_q, ld, left, r % 2, HS, WRITE, bf16)
        plain_product(dV + to, s.S + row, 1, at_do, C, left, r % 2, HS, WRITE, bf16)


@kernel
def pieces_task(arguments, task, thread):
    """Write dK and dV of a block of keys as the sums of the pieces, in their order."""
    dqkv, T, NH, HS, pieces, sums, sums_size = integers(arguments, 7)
    blocks, C, heads = -(-T // BLOCK), NH * HS, up(HS, NR)
    head, j = task // blocks, task % blocks
    b, h, first, rows = head // NH, head % NH, j * BLOCK, min(BLOCK, T - j * BLOCK)
    scale = f32(1.0 / np.sqrt(HS))
    for kind in range(2):
        to = dqkv + 4 * ((b * T + first) * 3 * C + (1 + kind) * C + h * HS)
        factor, mode = f32(1) if kind else scale, WRITE
        for piece in range(pieces):
            at = (head * pieces + piece) * sums_size + (kind * blocks * BLOCK + first) * heads
            if blocks - 1 - piece >= j:  # its last rows see the keys
                write_rows(to, 3 * C, sums + 4 * at, heads, rows, HS, factor, mode)
                mode = ADD


def sizes(B, T, NH, HS, bf16):
    """Give pieces of a head, words of scratch by thread, and number and words of sums, backward."""
    blocks = -(-T // BLOCK)
    pieces = pieces_of_head(B * NH, blocks, TASKS)
    sums = max_threads() if pieces == 1 else B * NH * pieces
    return pieces, backward_scratch(0, T, HS, bf16).end // 4, sums, 2 * blocks * BLOCK * up(HS, NR)


def scratch_words(B, T, NH, HS, bf16):
    """Give the words of scratch that the two passes keep, by use."""
    _, backward, sums, sums_size = sizes(B, T, NH, HS, bf16)
    own = max(forward_scratch(0, T, HS, bf16).end // 4, backward)
    return {"attention": max_threads() * own, "attention_sums": sums * sums_size}


def attention_backward(dqkv, dout, out, lse, qkv, *, NH, bf16=False):
    B, T, C = out.shape
    HS, bf16 = C // NH, int(bf16)
    pieces, size, slots, sums_size = sizes(B, T, NH, HS, bf16)
    memory = scratch_at("attention", max_threads() * size)
    sums = scratch_at("attention_sums", slots * sums_size)
    arrays = data(dqkv), data(dout), data(out), data(lse), data(qkv)
    run(
        backward_task, B * NH * pieces,
        *arrays, T, NH, HS, pieces, bf16, sums, sums_size, memory, size,
    )  # fmt: skip
    if pieces > 1:
        tasks = B * NH * -(-T // BLOCK)
        run(pieces_task, tasks, data(dqkv), T, NH, HS, pieces, sums, sums_size)
