"""Attention on a GPU. The maths and the contract are in ops/attention.py.

A binding must hold all of qkv that a kernel sees; where it cannot, the sequences go in several
calls, each beginning where a binding may.
"""

import math

from ..errors import UsageError
from .device import ALIGNMENT
from .kernels import rows, run, scratch_array
from .memory import ITEM

ROWS = 64  # positions of a workgroup; same as attention.wgsl
WIDTH = 64  # channels of a workgroup; same as attention.wgsl
THREADS = 64  # same as attention.wgsl
GRADIENTS = range(3)  # of query, key, value; same as attention.wgsl


def attention_forward(out, lse, qkv, *, NH, bf16=False):
    for start, stop in _ranges("attention_forward", out, lse, qkv):
        out_part, lse_part, qkv_part = (rows(x, start, stop) for x in (out, lse, qkv))
        groups, scalars, wide = _shape(out_part, NH)
        arrays = {0: out_part, 1: lse_part, 2: qkv_part}
        run("attention", "attention_forward", arrays, groups, scalars, FAR=wide)


def attention_backward(dqkv, dout, out, lse, qkv, *, NH, bf16=False):
    for start, stop in _ranges("attention_backward", out, lse, qkv):
        parts = [rows(x, start, stop) for x in (dqkv, dout, out, lse, qkv)]
        _backward(*parts, NH)


def _backward(dqkv, dout, out, lse, qkv, NH):
    groups, scalars, wide = _shape(out, NH)
    dots = scratch_array(out.device, "attention", lse.size)
    each = -(-lse.size // THREADS)
    run("attention", "attention_backward_dots", {1: dout, 2: out}, each, scalars, [dots])
    arrays = {0: dqkv, 1: dout, 3: lse, 4: qkv}
    for gradient in GRADIENTS:
        run(
            "attention", "attention_backward", arrays, groups, scalars, [dots],
            FAR=wide, GRADIENT=gradient,
        )  # fmt: skip


def _shape(out, NH):
    """Give the workgroups, the scalars, and whether a thread has channels beyond the 32nd."""
    B, T, C = out.shape
    HS = C // NH
    groups = B * NH * -(-T // ROWS) * -(-HS // WIDTH)
    return groups, (T, NH, HS, B * NH, 1 / math.sqrt(HS), -math.inf), HS > 32


def _ranges(who, out, lse, qkv):
    """Cut the sequences so that a binding can hold each part of qkv, and may begin at each."""
    if qkv.size == 0:
        return []
    B = qkv.shape[0]
    bytes_each = qkv.size // B * ITEM
    most = qkv.device.max_binding // bytes_each
    if most >= B:
        return [(0, B)]
    units = [ALIGNMENT // math.gcd(ALIGNMENT, x.size // B * ITEM) for x in (out, lse, qkv)]
    step = most // max(units) * max(units)
    if step == 0:
        remedy = f"Take a batch of {most} at most." if most else "Use --backend cpu."
        raise UsageError(
            f"{who}: qkv of {B} sequences takes {B * bytes_each:,} bytes, expected at most"
            f" {qkv.device.max_binding:,}, what this device binds at once. {remedy}"
        )
    return [(start, min(start + step, B)) for start in range(0, B, step)]
