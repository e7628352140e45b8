"""The generator against numbers that PyTorch drew, and against plain Python integers."""

import math
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from llmpy.errors import UsageError
from llmpy.rng import MT19937, init_params, random_f32, random_u32
from llmpy.sizes import GPT2Config
from llmpy.tensors import PARAMS, table_shapes

GOLDEN = Path(__file__).parent / "golden" / "rng.npz"
SIZES = (1, 5, 15, 16, 17, 31, 32, 33, 1000)
SEQUENCES = ("n5 n16 n5", "n5 u3 n3", "n7 n17 u5 n1 n40 n2", "u16 n3 n3 n100 n1", "n1 n1 n1 n16 n1")


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN) as arrays:
        return dict(arrays)


def plain_mt19937(seed, n):
    """Matsumoto and Nishimura's generator, word by word."""
    state = [seed]
    for i in range(1, 624):
        state.append((1812433253 * (state[-1] ^ state[-1] >> 30) + i) & 0xFFFFFFFF)
    draws = []
    while len(draws) < n:
        for i in range(624):
            y = (state[i] & 0x80000000) | (state[(i + 1) % 624] & 0x7FFFFFFF)
            state[i] = state[(i + 397) % 624] ^ y >> 1 ^ (0x9908B0DF if y & 1 else 0)
        for y in state:
            y ^= y >> 11
            y ^= y << 7 & 0x9D2C5680
            y ^= y << 15 & 0xEFC60000
            draws.append(y ^ y >> 18)
    return draws[:n]


def test_stream_of_seed_137():
    rng = MT19937(137)
    integers = [rng.randint32() for _ in range(5)]
    assert integers == [4053805790, 2173880614, 380293709, 1237255315, 2986595568]
    # fmt: off
    expected = [0.79476644, 1.43693173, -0.22921921, 0.47556327,
                -0.63344109, -0.57919540, -0.09257047, -0.86591970]
    # fmt: on
    np.testing.assert_array_max_ulp(rng.normal_(8), np.float32(expected), 1)
    assert rng.randint32() == 2186503452


@pytest.mark.parametrize("seed", [0, 1, 42, 2**32 - 1])
def test_integers_and_uniforms_match_plain_integers(seed):
    draws = plain_mt19937(seed, 2000)
    rng = MT19937(seed)
    assert [rng.randint32() for _ in range(1300)] == draws[:1300]
    expected = [(draw & 0xFFFFFF) / 2**24 for draw in draws[1300:]]
    uniforms = rng.uniform(700)
    assert uniforms.dtype == np.float32
    assert uniforms.tolist() == expected


@pytest.mark.parametrize("n", SIZES)
def test_normals_and_uniforms_match_torch(golden, n):
    rng = MT19937(1000 + n)
    np.testing.assert_array_max_ulp(rng.normal_(n), golden[f"normal_{n}"], 4)
    assert rng.uniform(1) == golden[f"after_{n}"]
    scaled = MT19937(2000 + n).normal_(n, -0.3, 0.02)
    np.testing.assert_array_max_ulp(scaled, golden[f"scaled_{n}"], 4)
    np.testing.assert_array_equal(MT19937(3000 + n).uniform(n), golden[f"uniform_{n}"])


@pytest.mark.parametrize("n", [n for n in SIZES if n >= 16])
def test_large_calls_have_the_bits_of_torch(golden, n):
    np.testing.assert_array_equal(MT19937(1000 + n).normal_(n), golden[f"normal_{n}"])


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_sequences_of_calls_match_torch(golden, sequence):
    """The spare of a small call waits through uniforms and large calls."""
    rng = MT19937(137)
    draws = [
        rng.uniform(int(call[1:])) if call[0] == "u" else rng.normal_(int(call[1:]))
        for call in sequence.split()
    ]
    np.testing.assert_array_max_ulp(np.concatenate(draws), golden[sequence], 4)


def test_many_chunks_match_torch(golden):
    big = MT19937(42).normal_(200_000, 0.0, 0.02)
    np.testing.assert_array_equal(big[::997], golden["big_sample"])
    np.testing.assert_array_equal(big[-16:], golden["big_tail"])


def test_seed_is_its_low_32_bits(golden):
    np.testing.assert_array_max_ulp(MT19937(2**40 + 5).normal_(20), golden["wide_seed"], 4)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_seed_out_of_range_is_refused(seed):
    message = f"seed is {seed}, expected 0 to 2**64 - 1"
    with pytest.raises(UsageError, match=re.escape(message) + "$"):
        MT19937(seed)


def test_normals_follow_the_formula():
    """Against Box-Muller in float64, where torch's float32 theta allows it."""
    x = MT19937(7).uniform(16 * 500).reshape(-1, 2, 8)
    radius = np.sqrt(-2 * np.log(1 - x[:, 0].astype(np.float64)))
    theta = (np.float32(2 * math.pi) * x[:, 1]).astype(np.float64)
    expected = np.stack([radius * np.cos(theta), radius * np.sin(theta)], 1).ravel()
    np.testing.assert_allclose(MT19937(7).normal_(16 * 500), expected, rtol=3e-7, atol=0)


def test_init_params_draws_in_order():
    config = GPT2Config(max_seq_len=8, vocab_size=11, num_layers=2, num_heads=2, channels=6)
    params = init_params(config, seed=9)
    shapes = table_shapes(PARAMS, config.dims)
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    assert params.shape == (ends[-1],)
    assert params.dtype == np.float32
    views = {
        name: params[start:end].reshape(shape)
        for (name, shape), (start, end) in zip(
            shapes.items(), pairwise([0, *ends.tolist()]), strict=True
        )
    }
    rng = MT19937(9)

    def same(view, std):
        np.testing.assert_array_equal(view.ravel(), rng.normal_(view.size, 0.0, std))

    same(views["wte"][:11], 0.02)
    assert not views["wte"][11:].any()
    same(views["wpe"], 0.02)
    for l in range(2):
        same(views["qkvw"][l], 0.02)
        same(views["attprojw"][l], 0.01)  # 0.02 / sqrt(2 * 2 layers)
        same(views["fcw"][l], 0.02)
        same(views["fcprojw"][l], 0.01)
    for name in ("ln1w", "ln2w", "lnfw"):
        assert (views[name] == 1).all()
    for name in ("ln1b", "qkvb", "attprojb", "ln2b", "fcb", "fcprojb", "lnfb"):
        assert not views[name].any()


def test_xorshift_matches_arithmetic_modulo_2_64():
    modulus = 2**64
    state = expected = 1337
    for _ in range(1000):
        expected ^= expected // 2**12
        expected ^= expected * 2**25 % modulus
        expected ^= expected // 2**27
        bits = expected * 2685821657736338717 % modulus // 2**32
        next_state, drawn = random_u32(state)
        assert (next_state, drawn) == (expected, bits)
        state, value = random_f32(state)
        assert state == expected
        assert value.dtype == np.float32
        assert float(value) == bits // 256 / 2**24
