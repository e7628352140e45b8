"""The search for the shape of matrix products that suits a device: each is timed.

The three products of a layer, (M, K) inputs by (N, K) weights: forward, and both gradients. Sizes
of a multi-layer perceptron's first product stand for all.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypedDict

import numpy as np

from ..console import note
from ..errors import BackendError
from .device import Device
from .matmul import candidates, dinp_product, dweight_product, forward_product
from .memory import allocate, upload, view
from .peak import seconds_each

ROWS = 1024  # at most so many rows of inputs: more take longer and tell the same


class TileRate(TypedDict):
    """How fast the products are with one shape."""

    tile: str
    forward_gflops: float
    dinp_gflops: float
    dweight_gflops: float
    gflops: float  # of all three


def time_tiles(
    device: Device, M: int, N: int, K: int, working: Callable[[str], None] = lambda tile: None
) -> list[TileRate]:
    """Time the shapes worth trying on a device; the fastest comes first.

    working  is told of each shape
    """
    M = min(M, ROWS)
    rates = []
    before = device.tile
    try:
        for tile in candidates(device):
            working(tile)
            device.tile = tile
            try:
                seconds = list(_seconds_of_products(device, M, N, K))
            except BackendError as error:  # one that this driver refuses
                note(f"--tile {tile}: {error}")
                continue
            operations = 2 * M * N * K
            forward, dinp, dweight = (operations / s / 1e9 for s in seconds)
            rates.append(
                TileRate(
                    tile=tile, forward_gflops=forward, dinp_gflops=dinp, dweight_gflops=dweight,
                    gflops=3 * operations / sum(seconds) / 1e9,
                )
            )  # fmt: skip
    finally:
        device.tile = before
    return sorted(rates, key=lambda rate: -rate["gflops"])


def _seconds_of_products(device: Device, M: int, N: int, K: int) -> Iterator[float]:
    rng = np.random.default_rng(0)
    sizes = {"out": (M, N), "inp": (M, K), "weight": (N, K)}
    block = allocate(device, [M * N, M * K, N * K] * 2, "float32", apart=True)
    upload(block, rng.standard_normal(block.size, np.float32))
    arrays, at = [], 0
    for shape in (*sizes.values(), *sizes.values()):  # the gradients as well
        arrays.append(view(block, at, shape))
        at += shape[0] * shape[1]
    out, inp, weight, dout, dinp, dweight = arrays
    products: tuple[Callable[[], None], ...] = (
        partial(forward_product, out, inp, weight),
        partial(dinp_product, dinp, dout, weight),
        partial(dweight_product, dweight, dout, inp),
    )
    for product in products:
        yield seconds_each(device, partial(_repeat, product), trials=2)


def _repeat(product: Callable[[], None], times: int) -> None:
    for _ in range(times):
        product()
