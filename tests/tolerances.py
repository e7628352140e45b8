"""How far an op may be from the reference in float64: op x dtype, and the reason.

The figures are for inputs of about unit size, as op_cases.py draws them. An element may be off by
rtol * |want| + atol * the root mean square of its tensor, the whole tensor by l2 * its L2 norm;
root mean square and norm count as at least 1.
"""

from typing import NamedTuple


class Tolerance(NamedTuple):
    """The largest differences allowed."""

    l2: float  # of the whole tensor, relative
    rtol: float  # of an element, relative
    atol: float  # of an element, relative to the root mean square of all
    reason: str


ROUNDED = Tolerance(1.2e-7, 2.4e-7, 1e-7, "an addition or two, each rounded")
CANCELLED = Tolerance(3e-7, 2.4e-7, 5e-7, "a product that nearly cancels what it is added to")
SUMMED = Tolerance(3e-6, 1e-5, 5e-6, "sums of some hundred products in float32")
NORMALIZED = Tolerance(1e-6, 1e-5, 5e-6, "two reductions over C, then products")
EXPONENTIAL = Tolerance(2e-6, 1e-5, 2e-6, "an exponential of some ulp, sums of them")
CHAINED = Tolerance(3e-6, 2e-5, 2e-5, "matmul, softmax, matmul, each rounded")

# fmt: off
TOLERANCES: dict[tuple[str, str], Tolerance] = {
    ("encoder_forward", "float32"):               ROUNDED,
    ("encoder_backward", "float32"):              SUMMED,
    ("layernorm_forward", "float32"):             NORMALIZED,
    ("layernorm_backward", "float32"):            SUMMED,
    ("residual_layernorm_forward", "float32"):    NORMALIZED,
    ("residual_forward", "float32"):              ROUNDED,
    ("residual_backward", "float32"):             ROUNDED,
    ("matmul_forward", "float32"):                SUMMED,
    ("matmul_backward", "float32"):               SUMMED,
    ("matmul_gelu_forward", "float32"):           SUMMED,
    ("matmul_gelu_backward", "float32"):          SUMMED,
    ("attention_forward", "float32"):             CHAINED,
    ("attention_backward", "float32"):            CHAINED,
    ("gelu_forward", "float32"):                  EXPONENTIAL,
    ("gelu_backward", "float32"):                 EXPONENTIAL,
    ("softmax_forward", "float32"):               EXPONENTIAL,
    ("crossentropy_forward", "float32"):          EXPONENTIAL,
    ("crossentropy_softmax_backward", "float32"): CANCELLED,
    ("logits_forward", "float32"):                SUMMED,
    ("classifier_forward", "float32"):            CHAINED,
    ("classifier_forward_backward", "float32"):   CHAINED,
    ("adamw", "float32"):                         EXPONENTIAL,
    ("global_norm", "float32"):                   ROUNDED,
}
# fmt: on
