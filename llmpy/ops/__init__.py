"""The ops: their maths, their contracts, and a reference in NumPy, forward and backward.

This is also the backend "numpy". It computes in the dtype of its arrays: float64 to check
derivatives, float32 to compare with.
"""

import numpy as np

from .adamw import adamw
from .attention import attention_backward, attention_forward, attention_scores
from .classifier import classifier_forward, classifier_forward_backward, logits_forward
from .crossentropy import crossentropy_forward, crossentropy_softmax_backward
from .encoder import encoder_backward, encoder_forward
from .gelu import gelu_backward, gelu_forward
from .global_norm import global_norm
from .layernorm import layernorm_backward, layernorm_forward, residual_layernorm_forward
from .matmul import (
    matmul_backward,
    matmul_forward,
    matmul_gelu_backward,
    matmul_gelu_forward,
)
from .mean_loss import mean_loss
from .memory import (
    alloc,
    alloc_places,
    copy,
    download,
    fit_places,
    largest_tensor,
    on_host,
    record,
    scratch_bytes,
    sync,
    upload,
    view,
    zero,
)
from .residual import residual_backward, residual_forward
from .softmax import softmax_forward

name = "numpy"

T_UNIT = 1  # `next_logits` takes any length


def describe() -> str:
    """Say in one line what computes."""
    return f"the NumPy reference, NumPy {np.__version__}"


__all__ = [
    "adamw",
    "alloc",
    "alloc_places",
    "attention_backward",
    "attention_forward",
    "attention_scores",
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
    "softmax_forward",
    "sync",
    "upload",
    "view",
    "zero",
]
