"""The ops in WGSL, on any GPU, in float32: the backend "webgpu".

Each op's functions, in the file of its stem, say which kernels run on what; the kernels are in the
.wgsl file beside it. They are bound to the table of the op in ops/. A process has one device: the
adapter that `open_device` chose, else the best.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from .. import ops
from ..ops.contract import bind
from . import adamw as _adamw
from . import attention as _attention
from . import classifier as _classifier
from . import crossentropy as _crossentropy
from . import encoder as _encoder
from . import gelu as _gelu
from . import global_norm as _global_norm
from . import layernorm as _layernorm
from . import matmul as _matmul
from . import mean_loss as _mean_loss
from . import residual as _residual
from . import softmax as _softmax
from .adapters import choose_adapter, shares_memory
from .device import Device
from .footprint import scratch_bytes
from .memory import Array, allocate, copy, download, fit_places, upload, view, zero

name = "webgpu"

T_UNIT = 64  # `next_logits` rounds a length up to a multiple: what is recorded is for one

_opened: list[Device] = []

# fmt: off
encoder_forward = bind(ops.encoder_forward, _encoder.encoder_forward)
encoder_backward = bind(ops.encoder_backward, _encoder.encoder_backward)
layernorm_forward = bind(ops.layernorm_forward, _layernorm.layernorm_forward)
layernorm_backward = bind(ops.layernorm_backward, _layernorm.layernorm_backward)
residual_layernorm_forward = bind(
    ops.residual_layernorm_forward, _layernorm.residual_layernorm_forward)
matmul_forward = bind(ops.matmul_forward, _matmul.matmul_forward)
matmul_backward = bind(ops.matmul_backward, _matmul.matmul_backward)
matmul_gelu_forward = bind(ops.matmul_gelu_forward, _matmul.matmul_gelu_forward)
matmul_gelu_backward = bind(ops.matmul_gelu_backward, _matmul.matmul_gelu_backward)
attention_forward = bind(ops.attention_forward, _attention.attention_forward)
attention_backward = bind(ops.attention_backward, _attention.attention_backward)
gelu_forward = bind(ops.gelu_forward, _gelu.gelu_forward)
gelu_backward = bind(ops.gelu_backward, _gelu.gelu_backward)
residual_forward = bind(ops.residual_forward, _residual.residual_forward)
residual_backward = bind(ops.residual_backward, _residual.residual_backward)
softmax_forward = bind(ops.softmax_forward, _softmax.softmax_forward)
crossentropy_forward = bind(ops.crossentropy_forward, _crossentropy.crossentropy_forward)
crossentropy_softmax_backward = bind(
    ops.crossentropy_softmax_backward, _crossentropy.crossentropy_softmax_backward)
classifier_forward = bind(ops.classifier_forward, _classifier.classifier_forward)
classifier_forward_backward = bind(
    ops.classifier_forward_backward, _classifier.classifier_forward_backward)
logits_forward = bind(ops.logits_forward, _classifier.logits_forward)
adamw = bind(ops.adamw, _adamw.adamw)
global_norm = bind(ops.global_norm, _global_norm.global_norm)
mean_loss = bind(ops.mean_loss, _mean_loss.mean_loss)
# fmt: on


def open_device(adapter: Any = None, portable: bool = False, tile: str | None = None) -> Device:
    """Open an adapter, instead of the device that was open: its models compute no more.

    adapter   one of `list_adapters`, or its name or index; None is the best
    portable  ask for no more than what every WebGPU device has
    tile      shape of matrix products, one of matmul.TILES; None is one that suits such adapters

    Raises BackendError where there is none or it refuses, UsageError for a name that is none.
    """
    _matmul.check_tile(tile)
    if isinstance(adapter, int):
        adapter = str(adapter)
    if adapter is None or isinstance(adapter, str):
        adapter = choose_adapter(adapter)
    opened = Device(adapter, portable, tile)
    for before in _opened:
        before.replaced = True
    _opened[:] = [opened]
    return opened


def device() -> Device:
    """Give the device of this process, and open the best adapter's if there is none."""
    return _opened[0] if _opened else open_device()


def describe() -> str:
    """Say in one line what computes."""
    return device().describe()


def alloc(shape: Sequence[int], dtype: str = "float32") -> Array:
    """Allocate an array of zeros."""
    return view(allocate(device(), [math.prod(shape)], dtype, apart=True), 0, shape)


def alloc_places(sizes: Sequence[int], dtype: str = "float32", apart: bool = False) -> Array:
    """Allocate a block of places of so many elements, one behind the other, all zero.

    apart  a buffer for each, since a kernel may not read and write the same one
    """
    return allocate(device(), sizes, dtype, apart=apart)


def largest_tensor() -> int:
    """Give the most bytes that a tensor may take: it lies in one buffer."""
    return device().max_buffer


def on_host() -> bool:
    """Tell whether tensors lie in the memory of this machine, of which the system tells."""
    return shares_memory(device().adapter)


def record(passes: Callable[[], None]) -> Callable[[], None]:
    """Give a function that does what `passes` does, without asking it again."""
    opened = device()
    with opened.capture() as recording:
        passes()
    return lambda: opened.replay(recording)


def sync() -> None:
    """Wait until the device has done all that was asked for."""
    device().wait()


__all__ = [
    "adamw",
    "alloc",
    "alloc_places",
    "attention_backward",
    "attention_forward",
    "classifier_forward",
    "classifier_forward_backward",
    "copy",
    "crossentropy_forward",
    "crossentropy_softmax_backward",
    "describe",
    "download",
    "encoder_backward",
    "encoder_forward",
    "fit_places",
    "gelu_backward",
    "gelu_forward",
    "global_norm",
    "largest_tensor",
    "layernorm_backward",
    "layernorm_forward",
    "logits_forward",
    "matmul_backward",
    "matmul_forward",
    "matmul_gelu_backward",
    "matmul_gelu_forward",
    "mean_loss",
    "name",
    "on_host",
    "open_device",
    "record",
    "residual_backward",
    "residual_forward",
    "residual_layernorm_forward",
    "scratch_bytes",
    "softmax_forward",
    "sync",
    "upload",
    "view",
    "zero",
]
