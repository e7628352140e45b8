"""Encoder on a GPU. The maths and the contract are in ops/encoder.py."""

from .kernels import row_ranges, rows, run, scratch_array
from .memory import view, zero
from .ranges import parts

WG = 64  # threads of a workgroup


def encoder_forward(out, tokens, wte, wpe):
    T, C = out.shape[1:]
    first = 0
    for part_out, part_tokens in parts(tokens.size, out, tokens):
        for start, stop in row_ranges(wte):  # each position is written once, by one of them
            arrays = {0: part_out, 1: part_tokens, 2: rows(wte, start, stop), 3: wpe}
            run("encoder", "encoder_forward", arrays, part_tokens.size, (first, T, C, start))
        first += part_tokens.size


def encoder_backward(dwte, dwpe, dout, tokens, *, accumulate):
    T, C = dout.shape[1:]
    if not accumulate:
        zero(dwte)
        zero(dwpe)
    first = 0
    for part_dout, part_tokens in parts(tokens.size, dout, tokens):
        count = part_tokens.size
        links = scratch_array(tokens.device, "encoder links", 2 * count, "int32")
        zero(view(links, count, (count,)))
        arrays = {3: part_tokens}
        run("encoder", "encoder_backward_links", arrays, -(-count // WG), scratch=(links,))
        for start, stop in row_ranges(dwte):
            arrays = {0: rows(dwte, start, stop), 2: part_dout, 3: part_tokens}
            scalars = (first, T, C, start)
            run("encoder", "encoder_backward_tokens", arrays, count, scalars, (links,))
        arrays = {1: dwpe, 2: part_dout}
        groups = -(-T * C // WG)
        run("encoder", "encoder_backward_positions", arrays, groups, (first, T, C, 0))
        first += count
