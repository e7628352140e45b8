"""exp, and GELU with its derivative, in float32, written so that LLVM makes vectors of the loops.

    exp(x) = 2^n exp(r),   n = round(x / ln 2),   r = x - n ln 2 in [-ln 2 / 2, ln 2 / 2]
    gelu(x)  = x s(2u),    u = sqrt(2 / pi) (x + 0.044715 x^3),   s the logistic function
    gelu'(x) = s (1 + (1 - s) 2u' x)

x s(2u) is 0.5 x (1 + tanh u), without its cancellation for negative x; e^-2u is made as a power of
2, whose argument stays within the range. exp is right to the ends: 0 below -104 and at -infinity,
infinity from 88.73 on, NaN for NaN. Comparisons are written so that NaN fails them and goes
through.

Source of the polynomial of exp: Cephes, expf.c.
"""

import numpy as np

from .jit import part
from .simd import bits_of_float, float_of_bits

f32 = np.float32

# Never nnan or ninf: NaN and infinity stay visible. A product may be fused with a sum. The terms of
# a sum over a row may be taken in another order, which is what makes vectors of it; elsewhere the
# order matters: reassociated, exp loses digits and gelu' becomes 0 * infinity.
FUSED = {"contract"}
SUM = {"contract", "reassoc", "nsz"}

ONE_OVER_LN_2, TWO_ROOT_2_OVER_PI, CUBIC = 1.4426950408889634, 1.5957691216057308, 0.044715
LOG2E = f32(ONE_OVER_LN_2)
LN2_HIGH, LN2_LOW = f32(0.693359375), f32(-2.12194440e-4)  # the sum is ln 2; n * LN2_HIGH is exact
# 2u = TWO_U x + TWO_U_CUBIC x^3, and POWER_U x + POWER_U_CUBIC x^3 = -2u / ln 2
TWO_U, TWO_U_CUBIC = f32(TWO_ROOT_2_OVER_PI), f32(TWO_ROOT_2_OVER_PI * CUBIC)
POWER_U = f32(-TWO_ROOT_2_OVER_PI * ONE_OVER_LN_2)
POWER_U_CUBIC = f32(-TWO_ROOT_2_OVER_PI * ONE_OVER_LN_2 * CUBIC)
MAGIC, MAGIC_BITS = f32(1.5 * 2**23), np.int32(0x4B400000)  # the spacing of floats there is 1

# (2^f - 1) / f for f in [-1/2, 1/2], a polynomial of least relative error, 2e-9
POWER = (0.6931472, 0.24022648, 0.055503324, 0.009618437, 0.0013398875, 0.00015353362)
P1, P2, P3, P4, P5, P6 = map(f32, POWER)
MAGIC_127 = 1.5 * 2.0**23 + 127  # adding it leaves n + 127 in the low bits


@part(fastmath=FUSED)
def exp(x):
    """Give e^x, within 2 ulp where the result is not subnormal."""
    y = f32(-104.0) if x < f32(-104.0) else x
    y = f32(89.0) if y > f32(89.0) else y
    t = y * LOG2E + MAGIC  # rounds to an integer, which is left in the low bits
    n = t - MAGIC
    r = y - n * LN2_HIGH - n * LN2_LOW
    # pairs of terms side by side: a chain of operations half as long as Horner's
    square = r * r
    high = f32(1.9875691500e-4) * r + f32(1.3981999507e-3)
    middle = f32(8.3334519073e-3) * r + f32(4.1665795894e-2)
    low = f32(1.6666665459e-1) * r + f32(5.0000001201e-1)
    p = (high * square + middle) * square + low
    e, n = p * square + r + f32(1), bits_of_float(t) - MAGIC_BITS
    # 2^n in two factors: one alone overflows at n = 128 and underflows at -127
    half = n >> np.int32(1)
    first = float_of_bits((half + np.int32(127)) << np.int32(23))
    return e * first * float_of_bits((n - half + np.int32(127)) << np.int32(23))


@part(fastmath=FUSED)
def exp2_inside(y):
    """Give 2^y for y in [-126, 127], NaN for NaN."""
    t = y + f32(MAGIC_127)
    f = y - (t - f32(MAGIC_127))
    square = f * f
    p = (((P6 * f + P5) * square + (P4 * f + P3)) * square + (P2 * f + P1)) * f + f32(1)
    return p * float_of_bits(bits_of_float(t) << np.int32(23))


@part(fastmath=FUSED)
def clamp(x, largest):
    """Hold x within -largest and largest; NaN stays."""
    y = -largest if x < -largest else x
    return largest if y > largest else y


@part(fastmath=FUSED)
def gelu_parts(x):
    """Give y, that is x within 9.9 of 0, so that the exponential is finite; e^-2u(y); and s(2u)."""
    y = clamp(x, f32(9.9))
    e = exp2_inside(y * (POWER_U + POWER_U_CUBIC * (y * y)))
    return y, e, f32(1) / (f32(1) + e)


@part(fastmath=FUSED)
def gelu_of(x, s):
    """Give GELU, tanh form: 0 below -10, where it is under 1e-36; NaN for -infinity."""
    return x * f32(0) if x < f32(-10.0) else x * s  # -infinity * 0 is NaN


@part(fastmath=FUSED)
def derivative_of(y, e, s):
    """Give the derivative of GELU: within 1e-34 of 0 and 1 beyond 9.9."""
    return s * (f32(1) + e * s * (y * (TWO_U + f32(3) * TWO_U_CUBIC * (y * y))))


@part(fastmath=FUSED)
def gelu_derivative(x):
    """Give the derivative of GELU at x."""
    y, e, s = gelu_parts(x)
    return derivative_of(y, e, s)


@part(fastmath=FUSED)
def gelu_row(out, inp):
    """Write GELU of each element of a row."""
    for i in range(inp.shape[0]):
        x = inp[i]
        _, _, s = gelu_parts(x)
        out[i] = gelu_of(x, s)


@part(fastmath=FUSED)
def gelu_both_rows(dpre, out, pre):
    """Multiply a row by the derivative of GELU at `pre`, and write GELU: they share gelu_parts."""
    for i in range(pre.shape[0]):
        x = pre[i]
        y, e, s = gelu_parts(x)
        dpre[i] = dpre[i] * derivative_of(y, e, s)
        out[i] = gelu_of(x, s)


@part(fastmath=SUM)
def exp_row(row, scale, shift):
    """Replace each element of a row by exp(scale * element - shift), and give their sum."""
    total = f32(0)
    for i in range(row.shape[0]):
        e = exp(scale * row[i] - shift)
        row[i] = e
        total += e
    return total


@part(fastmath=FUSED)
def gelu_backward_row(dinp, inp, dout):
    """Add the gradient through GELU of each element of a row."""
    for i in range(inp.shape[0]):
        dinp[i] += dout[i] * gelu_derivative(inp[i])


@part(fastmath=SUM)
def sum_exp(row, shift):
    """Give the sum of exp(element - shift) over a row."""
    total = f32(0)
    for i in range(row.shape[0]):
        total += exp(row[i] - shift)
    return total


@part(fastmath=SUM)
def row_sum(row):
    """Give the sum of a row."""
    total = f32(0)
    for i in range(row.shape[0]):
        total += row[i]
    return total


@part(fastmath=SUM)
def square_sum(row, shift):
    """Give the sum of (element - shift)^2 over a row."""
    total = f32(0)
    for i in range(row.shape[0]):
        total += (row[i] - shift) * (row[i] - shift)
    return total


@part(fastmath=SUM)
def dot(x, y):
    """Give the scalar product of two rows."""
    total = f32(0)
    for i in range(x.shape[0]):
        total += x[i] * y[i]
    return total


@part(fastmath=SUM)
def square_sum_float64(row):
    """Give the sum of the squares of a row, summed in float64."""
    total = np.float64(0)
    for i in range(row.shape[0]):
        total += np.float64(row[i]) * np.float64(row[i])
    return total
