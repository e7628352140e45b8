"""Encoder on a GPU. The maths and the contract are in ops/encoder.py."""

from .kernels import row_ranges, rows, run, scratch_array
from .memory import view, zero
from .ranges import parts

BLOCK = 4096  # positions that are linked with each other; same as encoder.wgsl
WG = 64  # threads of a workgroup; same as there


def encoder_forward(out, tokens, wte, wpe):
    T, C = out.shape[1:]
    first = 0
    for part_out, part_tokens in parts(tokens.size, out, tokens):
        for row, stop in row_ranges(wte):  # each position is written once, by one of them
            arrays = {0: part_out, 1: part_tokens, 2: rows(wte, row, stop), 3: wpe}
            run("encoder", "encoder_forward", arrays, part_tokens.size, (first, T, C, row, 0))
        first += part_tokens.size


def encoder_backward(dwte, dwpe, dout, tokens, *, accumulate):
    T, C = dout.shape[1:]
    if not accumulate:
        zero(dwte)
        zero(dwpe)
    first = 0
    for part_dout, part_tokens in parts(tokens.size, dout, tokens):
        add_by_token(dwte, part_dout, part_tokens)
        arrays = {1: dwpe, 2: part_dout}
        groups = -(-T * C // WG)
        run("encoder", "encoder_backward_positions", arrays, groups, (first, T, C, 0, 0))
        first += part_tokens.size


def add_by_token(dwte, dout, tokens):
    """Add each row of `dout` to that of its token."""
    (count, C), entry = dout.shape, "encoder_backward_tokens"
    links = scratch_array(tokens.device, "encoder links", 2 * count, "int32")
    zero(view(links, count, (count,)))
    groups = -(-count // WG)
    run("encoder", "encoder_backward_links", {3: tokens}, groups, scratch=(links,))
    for row, stop in row_ranges(dwte):
        arrays = {0: rows(dwte, row, stop), 2: dout, 3: tokens}
        for block in range(0, count, BLOCK):
            positions = min(BLOCK, count - block)
            run("encoder", entry, arrays, positions, (0, 1, C, row, block), (links,))
