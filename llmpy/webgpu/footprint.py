"""How much memory the kernels take besides their arguments, about, before it is taken."""

from collections.abc import Mapping


def scratch_bytes(dims: Mapping[str, int], itemsize: int = 4) -> int:
    """Give about how many bytes of scratch the ops keep.

    dims  the letters of a model, and B and T
    """
    from .classifier import chunk_rows

    positions = dims["B"] * dims["T"]
    logits = min(chunk_rows(dims["Vp"]), positions) * dims["Vp"]
    sums = -(-positions // 16) * 4 * dims["C"]  # partial sums of LayerNorm and of biases
    dots = positions * dims["NH"]  # of attention: <dout, out>
    return itemsize * (logits + sums + dots)
