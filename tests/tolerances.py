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
ADDED = Tolerance(3e-6, 1e-6, 3e-6, "a hundred numbers of both signs, sums near ten in float32")
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
    ("mean_loss", "float32"):                     ADDED,
}
# fmt: on

# With bf16=True the operands of products are rounded to bfloat16, in the reference too, and their
# products are exact in float32. So what is made from operands that are inputs stays as near as
# without. But a computed operand may lie beside the middle between two bfloat16, in float32 on the
# one side and in float64 on the other: then they differ by a whole step, up to 2**-7 of it. One in
# ten thousand or so does. A single call must allow for that; many calls together must not be off as
# far as they would be if an operand were cut off, or not rounded.

STEPPED = Tolerance(1e-2, 1e-2, 2e-2, "a computed operand, rounded to the other neighbour")
STEPPED_TOGETHER = 4e-4  # relative L2 norm; seen are 1e-5 to 2.5e-4, 1e-3 if one is not rounded

COMPUTED = {  # the outputs with such an operand: GELU, weights of attention, dlogits
    ("matmul_gelu_backward", "dweight"),
    ("attention_forward", "out"),
    ("attention_backward", "dqkv"),
    ("classifier_forward_backward", "dlnf"),
    ("classifier_forward_backward", "dwte"),
}


def is_stepped(name, output, scalars):
    """Say whether an output of a call has an operand that is computed and rounded to bfloat16."""
    return bool(scalars.get("bf16")) and (name, output) in COMPUTED


def tolerance_of(name, output, scalars, floor=None):
    """Give the tolerance of an output of a call: `floor` or the table's, wider if stepped."""
    tolerance = floor or TOLERANCES[name, "float32"]
    if not is_stepped(name, output, scalars):
        return tolerance
    return Tolerance(*map(max, tolerance[:3], STEPPED[:3]), STEPPED.reason)
