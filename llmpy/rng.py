"""Random numbers: PyTorch's CPU generator for initial weights, and xorshift* for sampling.

`MT19937` draws what torch's CPU generator draws from the same seed, so that a seed gives the model
that PyTorch and llm.c make of it:

    integer   one 32-bit output of mt19937
    uniform   its low 24 bits / 2^24, float32 in [0, 1)
    normal    Box-Muller. n >= 16: n uniforms x are drawn, then transformed in blocks of 16:
                  radius = sqrt(-2 ln(1 - x[t]))      theta = float32(2 pi) x[t + 8]      t = 0..7
                  x[t] = radius cos(theta)            x[t + 8] = radius sin(theta)
              If 16 does not divide n, the last 16 values are drawn and transformed again.
              n < 16: doubles of 53 bits from two integers, the high word first, in pairs (u, w):
                  theta = 2 pi u    radius = sqrt(-2 log1p(-w))
              gives the cosine and keeps the sine for the next call with n < 16, whatever is
              drawn between the two.

Integers and uniforms are exact. Normals of n >= 16 have the bits of torch's AVX builds, whose log,
sin and cos are Cephes' float32 polynomials with fused multiply-adds; a fused multiply-add is one in
float64, rounded to float32. So the numbers do not depend on this machine's functions. Other paths
(torch's own scalar one, llm.c's double theta) differ in the last places, and more near zero.

xorshift* is what llm.c samples tokens with: 64 bits of state, 32 bits a draw.

Sources: Matsumoto and Nishimura 1998; Moshier's Cephes, sinf.c and logf.c, in the form of PyTorch,
ATen/native/cpu/avx_mathfun.h; there too DistributionTemplates.h; llm.c, llmc/rand.h, train_gpt2.c.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import ops
from .errors import UsageError
from .sizes import GPT2Config
from .tensors import PARAMS, Tensors

INIT_STD = 0.02  # same as GPT-2

_CHUNK = 1 << 16  # values transformed at a time, a multiple of 16: they stay in the cache
_TWO_PI = np.float32(2 * math.pi)
_MASK = (1 << 64) - 1

# Cephes' float32 coefficients, highest power first
# fmt: off
_LOG = np.array([
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
], np.float32)
_SIN = np.array([-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1], np.float32)
_COS = np.array([2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2], np.float32)
# fmt: on
_PI_OVER_4 = np.array([0.78515625, 2.4187564849853515625e-4, 3.77489497744594108e-8], np.float32)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_SQRT_HALF, _FOUR_OVER_PI = np.float32(math.sqrt(0.5)), np.float32(4 / math.pi)


class MT19937:
    """The mt19937 of torch's CPU generator, with its ways to draw uniforms and normals.

    generator  numpy's RandomState: the 624 words of state and the position in them
    spare      the sine kept from the last pair of doubles, or None

    >>> MT19937(137).randint32()
    4053805790
    """

    def __init__(self, seed: int) -> None:
        """Start as `torch.manual_seed(seed)` does: of 64 bits the low 32 count."""
        if not 0 <= seed <= _MASK:
            raise UsageError(f"seed is {seed}, expected 0 to 2**64 - 1")
        self.generator = np.random.RandomState(seed & 0xFFFFFFFF)
        self.spare: float | None = None

    def integers(self, n: int) -> NDArray[np.uint32]:
        """Draw n integers of 32 bits."""
        return self.generator.randint(0, 1 << 32, n, dtype=np.uint32)

    def randint32(self) -> int:
        """Draw one integer of 32 bits."""
        return int(self.integers(1)[0])

    def uniform(self, n: int) -> NDArray[np.float32]:
        """Draw n float32 values in [0, 1)."""
        out = np.empty(n, np.float32)
        self._fill_uniform(out)
        return out

    def normal_(self, n: int, mean: float = 0.0, std: float = 1.0) -> NDArray[np.float32]:
        """Draw n float32 values as one call of `torch.Tensor.normal_(mean, std)` does."""
        out = np.empty(n, np.float32)
        self.fill_normal(out, mean, std)
        return out

    def fill_normal(self, out: NDArray[np.float32], mean: float, std: float) -> None:
        """Write what `normal_` of out's size draws into `out`, one contiguous axis."""
        n = out.size
        if n < 16:
            for i in range(n):
                out[i] = self._normal_double() * std + mean
            return
        whole = n - n % 16
        for start in range(0, whole, _CHUNK):
            block = out[start : min(start + _CHUNK, whole)]
            self._fill_uniform(block)
            _box_muller(block, mean, std)
        if whole < n:
            self.integers(n - whole)  # torch draws the rest, too, before it draws the tail again
            self._fill_uniform(out[-16:])
            _box_muller(out[-16:], mean, std)

    def _fill_uniform(self, out: NDArray[np.float32]) -> None:
        for start in range(0, out.size, _CHUNK):
            block = out[start : start + _CHUNK]
            block[:] = self.integers(block.size) & 0xFFFFFF
            block *= np.float32(2.0**-24)

    def _uniform_double(self) -> float:
        high, low = (int(word) for word in self.integers(2))
        return ((high << 32 | low) & ((1 << 53) - 1)) * 2.0**-53

    def _normal_double(self) -> float:
        if self.spare is not None:
            value, self.spare = self.spare, None
            return value
        theta = 2 * math.pi * self._uniform_double()
        radius = math.sqrt(-2 * math.log1p(-self._uniform_double()))
        self.spare = radius * math.sin(theta)
        return radius * math.cos(theta)


def _fma(a: Any, b: Any, c: Any) -> NDArray[np.float32]:
    """Give a * b + c of float32 values, rounded once: their product is exact in float64."""
    result: NDArray[np.float64] = np.multiply(a, b, dtype=np.float64)
    result += c
    return result.astype(np.float32)


def _log(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Take the logarithm of normal float32 values: x = m 2^e with m in [sqrt(1/2), sqrt(2))."""
    bits = x.view(np.int32)
    e = ((bits >> 23) - 126).astype(np.float32)
    m = ((bits & 0x007FFFFF) | 0x3F000000).view(np.float32)  # in [0.5, 1)
    small = (m < _SQRT_HALF).astype(np.float32)
    e -= small
    m = (m - np.float32(1)) + m * small
    z = m * m
    wide = m.astype(np.float64)
    y = _fma(wide, _LOG[0], _LOG[1])
    for coefficient in _LOG[2:]:
        y = _fma(y, wide, coefficient)
    y = _fma(y * m, z, e * _LN2_LOW)
    return _fma(e, _LN2_HIGH, m + _fma(z, -0.5, y))


def _sincos(x: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Take sine and cosine of float32 values >= 0 that are not large."""
    octant = (x * _FOUR_OVER_PI).astype(np.int32)
    octant = (octant + 1) & ~1
    turns = octant.astype(np.float64)
    for part in _PI_OVER_4:  # x -= octant * pi / 4, which is stored in three parts
        x = _fma(turns, -part, x)
    z = x * x
    wide = z.astype(np.float64)
    cos = _fma(_fma(wide, _COS[0], _COS[1]), wide, _COS[2])
    cos = _fma(cos * z, wide, z * np.float32(-0.5)) + np.float32(1)
    sin = _fma(_fma(wide, _SIN[0], _SIN[1]), wide, _SIN[2])
    sin = _fma(sin * z, x, x)
    # swap and negate by the bits: a mask as good as random makes branches slow
    sin_bits, cos_bits = sin.view(np.int32), cos.view(np.int32)
    differ = (sin_bits ^ cos_bits) & -(octant >> 1 & 1)
    sin_bits ^= differ ^ ((octant & 4) << 29)
    cos_bits ^= differ ^ ((octant + 2 & 4) << 29)
    return sin, cos


def _box_muller(x: NDArray[np.float32], mean: float, std: float) -> None:
    """Turn uniforms into normals in place, in blocks of 16."""
    blocks = x.reshape(-1, 2, 8)
    radius = np.sqrt(np.float32(-2) * _log(np.float32(1) - blocks[:, 0]))
    sin, cos = _sincos(_TWO_PI * blocks[:, 1])
    blocks[:, 0] = _fma(radius * cos, np.float32(std), np.float32(mean))
    blocks[:, 1] = _fma(radius * sin, np.float32(std), np.float32(mean))


def init_params(config: GPT2Config, seed: int = 42) -> NDArray[np.float32]:
    """Make the initial weights of a model, as PyTorch and llm.c make them from the seed.

    Normal with std 0.02 in the order wte (V rows), wpe, then by layer qkvw, attprojw, fcw, fcprojw,
    a call of normal_ each; attprojw and fcprojw, which write to the residual stream, with
    0.02 / sqrt(2L). LayerNorm weights are 1, all biases and the padding rows of wte 0.

    Returns one flat array of all parameters, in the order of PARAMS.
    """
    params = Tensors(ops, PARAMS, config.dims)
    for norm in (params.ln1w, params.ln2w, params.lnfw):
        norm.fill(1)
    rng = MT19937(seed)
    rng.fill_normal(params.wte[: config.vocab_size].reshape(-1), 0.0, INIT_STD)
    rng.fill_normal(params.wpe.reshape(-1), 0.0, INIT_STD)
    residual_std = INIT_STD / math.sqrt(2 * config.num_layers)
    for l in range(config.num_layers):
        p = params.layer(l)
        rng.fill_normal(p.qkvw.reshape(-1), 0.0, INIT_STD)
        rng.fill_normal(p.attprojw.reshape(-1), 0.0, residual_std)
        rng.fill_normal(p.fcw.reshape(-1), 0.0, INIT_STD)
        rng.fill_normal(p.fcprojw.reshape(-1), 0.0, residual_std)
    memory: NDArray[np.float32] = params.memory
    return memory


def random_u32(state: int) -> tuple[int, int]:
    """Step llm.c's xorshift*.

    state    64 bits, not 0

    Returns the next state and 32 random bits.
    """
    state ^= state >> 12
    state ^= state << 25 & _MASK
    state ^= state >> 27
    return state, (state * 0x2545F4914F6CDD1D & _MASK) >> 32


def random_f32(state: int) -> tuple[int, np.float32]:
    """Step llm.c's xorshift*: the next state and a float32 in [0, 1), of 24 bits."""
    state, bits = random_u32(state)
    return state, np.float32((bits >> 8) / 16777216)
