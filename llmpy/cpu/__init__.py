"""The ops in Numba, in float32: the backend "cpu".

Each function is bound to the table of its op in ops/, which is checked once for each set of shapes.
"""

import llvmlite.binding
import numba

from .. import ops
from ..ops.contract import bind
from ..ops.memory import (
    copy,
    download,
    fit_places,
    largest_tensor,
    on_host,
    record,
    sync,
    upload,
    view,
    zero,
)
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
from .footprint import scratch_bytes
from .memory import alloc, alloc_places
from .threads import set_threads

name = "cpu"

T_UNIT = 1  # `next_logits` takes any length

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


def describe():
    """Say in one line what computes."""
    threads = numba.get_num_threads()
    plural = "" if threads == 1 else "s"
    return (
        f"Numba {numba.__version__} on {llvmlite.binding.get_host_cpu_name()},"
        f" {threads} thread{plural}"
    )


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
    "record",
    "residual_backward",
    "residual_forward",
    "residual_layernorm_forward",
    "scratch_bytes",
    "set_threads",
    "softmax_forward",
    "sync",
    "upload",
    "view",
    "zero",
]
