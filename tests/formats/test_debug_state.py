"""Debug states: bytes worked by hand, round trips, and every wrong file refused."""

import dataclasses
import os
import struct

import numpy as np
import pytest

from llmpy.errors import UsageError
from llmpy.formats.debug_state import (
    DebugState,
    debug_state_bytes,
    read_debug_state,
    write_debug_state,
)
from llmpy.sizes import GPT2Config, descriptor_config

from .foreign import FOREIGN, OF_LLMC, header, message

FILE = "s.bin"  # of the fixture `write`

TINY = GPT2Config(max_seq_len=2, vocab_size=3, num_layers=1, num_heads=1, channels=2)

# B 1, T 2: tokens 0 2, targets 2 1, six logits, the loss, then the 88 gradients of tests for
# checkpoints (3*2 of dwte first), in version 2 with 125 rows of zeros behind dwte
BATCH = struct.pack("<4i", 0, 2, 2, 1) + struct.pack("<7f", 0.5, -1, 2, 3, -4, 5, 1.25)
DWTE = struct.pack("<6f", *range(1, 7))
REST = struct.pack("<82f", *range(7, 89))
GOLDEN = {
    1: header(20240327, 1, 1, 2) + BATCH + DWTE + REST,
    2: header(20240327, 2, 1, 2) + BATCH + DWTE + bytes(125 * 2 * 4) + REST,
}
STATE = DebugState(
    tokens=np.array([[0, 2]], np.int32),
    targets=np.array([[2, 1]], np.int32),
    logits=np.array([[[0.5, -1, 2], [3, -4, 5]]], np.float32),
    loss=1.25,
    grads=np.array([*range(1, 7), *[0] * 250, *range(7, 89)], np.float32),
)


@pytest.mark.parametrize("version", [1, 2])
def test_golden_bytes_are_read(write, version):
    state = read_debug_state(write(GOLDEN[version]), TINY)
    for field in dataclasses.fields(DebugState):
        got, want = getattr(state, field.name), getattr(STATE, field.name)
        if field.name != "loss":
            assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("version", [1, 2])
def test_golden_bytes_are_written(tmp_path, version):
    write_debug_state(tmp_path / "s.bin", TINY, STATE, version)
    assert (tmp_path / "s.bin").read_bytes() == GOLDEN[version]


def test_sizes_of_gpt2_124m():
    config = descriptor_config("d12")
    assert debug_state_bytes(config, 4, 64, 1) == 549_225_476
    assert debug_state_bytes(config, 4, 64, 2) == 549_369_860


@pytest.mark.parametrize(("B", "T", "V"), [(1, 1, 1), (3, 7, 130), (2, 5, 128), (4, 8, 257)])
@pytest.mark.parametrize("version", [1, 2])
def test_round_trip_keeps_every_bit(tmp_path, B, T, V, version):
    config = GPT2Config(max_seq_len=8, vocab_size=V, num_layers=2, num_heads=3, channels=6)
    rng = np.random.default_rng(B * V)
    rows = V if version == 1 else config.padded_vocab_size
    size = (debug_state_bytes(config, B, T, 2) - 1024) // 4 - 2 * B * T - B * T * V - 1
    grads = rng.standard_normal(size).astype(np.float32)
    grads[rows * 6 : config.padded_vocab_size * 6] = 0
    state = DebugState(
        rng.integers(0, V, (B, T), np.int32),
        rng.integers(0, V, (B, T), np.int32),
        rng.standard_normal((B, T, V)).astype(np.float32),
        float(np.float32(rng.random())),
        grads,
    )
    write_debug_state(tmp_path / "s.bin", config, state, version)
    assert (tmp_path / "s.bin").stat().st_size == debug_state_bytes(config, B, T, version)
    back = read_debug_state(tmp_path / "s.bin", config)
    for field in dataclasses.fields(DebugState):
        got, want = (np.asarray(getattr(s, field.name)) for s in (back, state))
        assert got.shape == want.shape
        assert got.tobytes() == want.tobytes()


class TestRefusals:
    @pytest.mark.parametrize("version", [1, 2])
    def test_truncations(self, write, version):
        whole = GOLDEN[version]
        for size in [*range(0, 1024, 111), *range(1020, 1080), *range(1080, len(whole), 7)]:
            got = message(read_debug_state, write(whole[:size]), TINY)
            assert got.startswith("s.bin: ")

    def test_lengths(self, write):
        parts = "(1,024 of header, batch of B*T = 1*2, logits of 3 columns, loss, 88 gradients)"
        assert message(read_debug_state, write(GOLDEN[1][:-1]), TINY) == (
            f"s.bin: 1,419 bytes, expected 1,420 {parts}. The file may be cut short."
        )
        assert message(read_debug_state, write(GOLDEN[1] + bytes(4)), TINY) == (
            f"s.bin: 1,424 bytes, expected 1,420 {parts}"
        )

    def test_the_state_of_another_model(self, write):
        other = dataclasses.replace(TINY, channels=4)
        assert message(read_debug_state, write(GOLDEN[2]), other) == (
            "s.bin: 2,420 bytes, expected 4,156 (1,024 of header, batch of B*T = 1*2, "
            "logits of 3 columns, loss, 772 gradients). The file may be cut short."
        )

    @pytest.mark.parametrize(
        ("values", "want"),
        [
            ((0, 1, 2), "version is 0, expected 1 or 2"),
            ((3, 1, 2), "version is 3, expected 1 or 2"),
            ((4, 64, 0), "version is 4, expected 1 or 2"),  # [1] is B where Llama's layout is
            ((2, 64, 0), "T is 0, expected at least 1"),
            ((2, 0, 2), "B is 0, expected at least 1"),
            ((2, -1, 2), "B is -1, expected at least 1"),
            ((2, 1, -2), "T is -2, expected at least 1"),
            ((2, 1, 3), "T is 3, expected at most max_seq_len = 2 of the model"),
            (
                (2, 2**31 - 1, 2),
                "2,420 bytes, expected 85,899,348,260 (1,024 of header, batch of B*T = "
                "2147483647*2, logits of 3 columns, loss, 338 gradients). "
                "The file may be cut short.",
            ),
        ],
    )
    def test_every_wrong_field(self, write, values, want):
        content = header(20240327, *values) + GOLDEN[2][1024:]
        assert message(read_debug_state, write(content), TINY) == f"s.bin: {want}"

    @pytest.mark.parametrize(
        ("place", "value", "want"),
        [
            (0, 3, "token (0, 0) is 3, expected 0 to 2 (vocab_size is 3)"),
            (1, -1, "token (0, 1) is -1, expected 0 to 2 (vocab_size is 3)"),
            (2, 127, "target (0, 0) is 127, expected 0 to 2 (vocab_size is 3)"),
        ],
    )
    def test_ids_outside_the_vocabulary(self, write, place, value, want):
        content = bytearray(GOLDEN[2])
        struct.pack_into("<i", content, 1024 + 4 * place, value)
        assert message(read_debug_state, write(content), TINY) == f"s.bin: {want}"

    def test_other_files(self, write):
        for content, kind in FOREIGN.values():
            assert message(read_debug_state, write(content), TINY) == (
                f"s.bin: content looks like {kind}, expected a debug state (magic number 20240327)"
            )
        for magic, kind in OF_LLMC.items():
            if magic != 20240327:
                assert message(read_debug_state, write(header(magic, 1)), TINY) == (
                    f"s.bin: magic number is {magic} ({kind}), expected 20240327 (a debug state)"
                )

    @pytest.mark.parametrize(
        ("change", "want"),
        [
            ({"tokens": np.zeros(2, np.int32)}, "tokens has shape (2,), expected (B, T)"),
            ({"targets": np.zeros((2, 1), np.int32)}, "targets has shape (2, 1), expected (1, 2)"),
            (
                {"logits": np.zeros((1, 2, 128), np.float32)},
                "logits has shape (1, 2, 128), expected (1, 2, 3)",
            ),
            ({"grads": np.zeros(88, np.float32)}, "grads has shape (88,), expected (338,)"),
        ],
    )
    def test_what_cannot_be_written(self, tmp_path, change, want):
        state = dataclasses.replace(STATE, **change)
        got = message(write_debug_state, tmp_path / "s.bin", TINY, state, error=UsageError)
        assert got == f"write_debug_state: {want}"
        assert os.listdir(tmp_path) == []

    def test_versions_that_cannot_be_written(self, tmp_path):
        got = message(write_debug_state, tmp_path / "s.bin", TINY, STATE, 3, error=UsageError)
        assert got == "write_debug_state: version is 3, expected 1 or 2"
