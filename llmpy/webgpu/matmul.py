"""Matmul on a GPU. The maths and the contract are in ops/matmul.py, the method in matmul.wgsl.

Operands may be larger than a binding, and begin at any element: the three products go over ranges
of rows that a binding can hold, one after the other where they add to the same result.
"""

from ..errors import UsageError
from .adapters import is_software
from .device import ALIGNMENT
from .kernels import aligned, run, scratch_array
from .memory import ITEM, view

# Shapes that the kernel may have, by name: the tile of a workgroup; its threads, and what each has.
# fmt: off
TILES = {
    "32x32": {"X": 8, "Y": 8, "TM": 4, "TN": 4, "BK": 8, "UNROLL": 4},
    "64x64": {"X": 16, "Y": 16, "TM": 4, "TN": 4, "BK": 16, "UNROLL": 4},
    "64x64-few": {"X": 8, "Y": 8, "TM": 8, "TN": 8, "BK": 16, "UNROLL": 4},
    "64x128": {"X": 32, "Y": 8, "TM": 8, "TN": 4, "BK": 16, "UNROLL": 4},
    "128x64": {"X": 8, "Y": 16, "TM": 8, "TN": 8, "BK": 16, "UNROLL": 4},
    "128x128": {"X": 16, "Y": 16, "TM": 8, "TN": 8, "BK": 8, "UNROLL": 4},
    "128x128-few": {"X": 8, "Y": 8, "TM": 16, "TN": 16, "BK": 8, "UNROLL": 1},
    "direct-64x64": {"X": 16, "Y": 16, "TM": 4, "TN": 4, "DIRECT": 1},
    "direct-64x64-few": {"X": 8, "Y": 8, "TM": 8, "TN": 8, "DIRECT": 1},
    "direct-128x128": {"X": 8, "Y": 8, "TM": 16, "TN": 16, "DIRECT": 1},
}
# fmt: on
HARDWARE = "32x32"  # reported within 80% of the best of each of four vendors' GPUs, on average
SOFTWARE = "direct-128x128"  # drivers on the CPU load slowly: as few loads as can be

SUMMED = 64  # rows that one thread sums for the gradient of the bias
WG = 64  # threads of a workgroup of these sums


def check_tile(tile):
    """Raise UsageError for the name of no shape; None is no name."""
    if tile is not None and tile not in tuple(TILES):
        raise UsageError(f"--tile is {tile}, expected one of {', '.join(TILES)}")


def candidates(device):
    """Name the shapes worth trying on a device: the registers of hardware don't hold 16 x 16."""
    software = is_software(device.adapter)
    return [name for name, tile in TILES.items() if software or tile["TM"] < 16]


def matmul_forward(out, inp, weight, bias, *, bf16=False):
    forward_product(out, inp, weight, bias)


def matmul_backward(dinp, dweight, dbias, dout, inp, weight, *, accumulate, bf16=False):
    dinp_product(dinp, dout, weight)
    dweight_product(dweight, dout, inp, add=accumulate)
    if dbias is not None:
        bias_gradient(dbias, dout, accumulate)


def matmul_gelu_forward(out, pre, inp, weight, bias, *, bf16=False):
    forward_product(pre, inp, weight, bias, gelu=out)


def matmul_gelu_backward(dpre, dweight, dbias, dout, out, weight, pre, *, accumulate, bf16=False):
    dinp_product(dpre, dout, weight, pre=pre, out=out)
    dweight_product(dweight, dout, out, add=accumulate)
    if dbias is not None:
        bias_gradient(dbias, dout, accumulate)


def forward_product(out, inp, weight, bias=None, *, stride=None, column=0, gelu=None):
    """Write out[m, column + n] = inp[m,:] . weight[n,:] + bias[n].

    stride  elements of a row of `out`; None means as many as `weight` has rows
    gelu    where GELU of `out` goes, if anywhere
    """
    N, C = weight.shape
    stride = stride or N
    for n, n_end in ranges(N, weight.device, C):
        for m, m_end in ranges(inp.size // C, weight.device, C, stride):
            product(
                part(out, m, m_end, stride), part(inp, m, m_end, C), part(weight, n, n_end, C),
                bias=part(bias, n, n_end, 1), out=part(gelu, m, m_end, stride),
                sizes=(m_end - m, n_end - n, C),
                a=(0, C, 1), b=(0, C, 1), c=(column + n, stride),
            )  # fmt: skip


def dinp_product(dinp, dout, weight, *, stride=None, column=0, add=False, pre=None, out=None):
    """Write dinp[m,:] = sum over n of dout[m, column + n] weight[n,:], or add it.

    stride  elements of a row of `dout`; None means as many as `weight` has rows
    pre     what the result is multiplied with GELU's derivative at, if anything
    out     where GELU of `pre` goes
    """
    N, C = weight.shape
    stride = stride or N
    for n, n_end in ranges(N, weight.device, C):
        last = n_end == N  # only now is the sum complete
        for m, m_end in ranges(dinp.size // C, weight.device, C, stride):
            product(
                part(dinp, m, m_end, C), part(dout, m, m_end, stride), part(weight, n, n_end, C),
                out=part(out, m, m_end, C) if last else None,
                pre=part(pre, m, m_end, C) if last else None,
                sizes=(m_end - m, C, n_end - n),
                a=(column + n, stride, 1), b=(0, 1, C), c=(0, C), add=add or n > 0,
            )  # fmt: skip


def dweight_product(dweight, dout, inp, *, stride=None, column=0, add=False):
    """Write dweight[n,:] = sum over m of dout[m, column + n] inp[m,:], or add it.

    stride  elements of a row of `dout`; None means as many as `dweight` has rows
    """
    N, C = dweight.shape
    stride = stride or N
    for n, n_end in ranges(N, dweight.device, C):
        for m, m_end in ranges(inp.size // C, dweight.device, C, stride) or [(0, 0)]:
            product(
                part(dweight, n, n_end, C), part(dout, m, m_end, stride), part(inp, m, m_end, C),
                sizes=(n_end - n, C, m_end - m),
                a=(column + n, 1, stride), b=(0, 1, C), c=(0, C), add=add or m > 0,
            )  # fmt: skip


def product(c_array, a_array, b_array, *, sizes, a, b, c, add=False, bias=None, out=None, pre=None):
    """Write c[m,n] = sum over k of a[m,k] * b[n,k], or add it.

    sizes  M, N, K
    a, b   where element (0, 0) is, and the steps along m or n, and along k
    c      where element (0, 0) is, and the step along m
    out    where GELU of the result goes, or of `pre`, if that is there; both lie as c does
    """
    M, N, K = sizes
    device = c_array.device
    tile = {**tile_of(device), "GELU": 0 if out is None else 1 if pre is None else 2}
    if "DIRECT" not in tile:
        tile |= {"A_UNIT_K": a[2] == 1, "B_UNIT_K": b[2] == 1}
    written = out or scratch_array(device, "matmul", 1)  # not the zeros that stand for None
    found = [aligned(array) for array in (c_array, a_array, b_array, bias, written, pre)]
    c_start, a_start, b_start, bias_start, out_start, pre_start = (start for _, start in found)
    scalars = (
        M, N, K, a_start + a[0], *a[1:], b_start + b[0], *b[1:], c_start + c[0], c[1],
        bias_start, out_start + c[0], pre_start + c[0], bias is not None, add,
    )  # fmt: skip
    groups = -(-M // (tile["TM"] * tile["Y"])) * -(-N // (tile["TN"] * tile["X"]))
    arrays = {i: array for i, (array, _) in enumerate(found)}
    run("matmul", "matmul", arrays, groups, scalars, **tile)


def tile_of(device):
    """Give the shape that products on a device have: its own, else what suits such devices."""
    return TILES[device.tile or (SOFTWARE if is_software(device.adapter) else HARDWARE)]


def bias_gradient(dbias, dout, add):
    """Write the sum of the rows of `dout`, or add it."""
    N = dbias.size
    across = -(-N // WG)
    for m, m_end in ranges(dout.size // N, dbias.device, N) or [(0, 0)]:
        pieces = -(-(m_end - m) // SUMMED)
        sums = [scratch_array(dbias.device, "matmul sums", max(pieces * N, 1))]
        if pieces:
            rows, start = aligned(part(dout, m, m_end, N))
            scalars, constants = (m_end - m, N, start, 0), {"WG": WG, "SUMMED": SUMMED}
            groups = pieces * across
            run("matmul", "matmul_backward_sums", {3: rows}, groups, scalars, sums, **constants)
        scalars = pieces, N, 0, add or m > 0
        run("matmul", "matmul_backward_bias", {2: dbias}, across, scalars, sums, WG=WG)


def ranges(count, device, *widths):
    """Cut `count` rows so that a binding can hold each part of an array of such rows.

    widths  elements of a row of each array
    """
    unit = ALIGNMENT // ITEM  # a binding begins up to so many elements before what it is for
    most = max((device.max_binding // ITEM - unit) // max(widths), 1)
    return [(start, min(start + most, count)) for start in range(0, count, most)]


def part(array, start, stop, width):
    """Give rows of an array, seen as rows of `width` elements; None for nothing."""
    if array is None or start == stop:
        return None
    return view(array, start * width, (stop - start, width))
