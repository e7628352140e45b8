"""Checkpoints: bytes worked by hand, round trips, and every wrong file refused."""

import math
import os
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmpy.bfloat16 import rounded_to_bfloat16
from llmpy.errors import UsageError
from llmpy.formats.checkpoint import (
    checkpoint_bytes,
    read_checkpoint,
    read_checkpoint_config,
    write_checkpoint,
)
from llmpy.sizes import GPT2Config, descriptor_config
from llmpy.tensors import PARAMS, table_shapes

from .foreign import header, message

FILE = "m.bin"  # of the fixture `write`

TINY = GPT2Config(max_seq_len=2, vocab_size=3, num_layers=1, num_heads=1, channels=2)

# the file's values are 1, 2, ... 88 in version 1: 3*2 of wte, 2*2 of wpe, 2, 2, then
# 6*2 and 6 of qkv, 2*2 and 2 of attproj, 2, 2, 8*2 and 8 of fc, 2*8 and 2 of fcproj, 2, 2
WTE = struct.pack("<6f", *range(1, 7))
REST = struct.pack("<82f", *range(7, 89))
GOLDEN = {
    1: header(20240326, 1, 2, 3, 1, 1, 2) + WTE + REST,
    3: header(20240326, 3, 2, 3, 1, 1, 2, 128) + WTE + bytes(125 * 2 * 4) + REST,
    5: header(20240326, 5, 2, 3, 1, 1, 2, 128)
    # 1, 2, ... 6 are 3f80 4000 4040 4080 40a0 40c0; all to 88 fit in the 8 bits of bfloat16
    + bytes.fromhex("803f 0040 4040 8040 a040 c040")
    + bytes(125 * 2 * 2)
    + b"".join(struct.pack("<f", i)[2:] for i in range(7, 89)),
}
PLACES_IN_TINY = {"wpe": (6, 4), "qkvw": (14, 12), "attprojb": (36, 2), "lnfb": (86, 2)}


def random_memory(config, seed=0):
    size = (checkpoint_bytes(config, 3) - 1024) // 4
    memory = np.random.default_rng(seed).standard_normal(size, np.float32)
    memory[config.vocab_size * config.channels : config.padded_vocab_size * config.channels] = 0
    return memory


@pytest.mark.parametrize("version", [1, 3, 5])
def test_golden_bytes_are_read(write, version):
    config, memory = read_checkpoint(write(GOLDEN[version]))
    assert config == TINY
    assert memory.dtype == np.float32
    assert memory[:6].tolist() == [1, 2, 3, 4, 5, 6]
    assert not memory[6:256].any()
    assert memory[256:].tolist() == list(range(7, 89))
    assert read_checkpoint_config("m.bin") == (TINY, version)


@pytest.mark.parametrize("version", [1, 3, 5])
def test_golden_bytes_are_written(tmp_path, version):
    memory = np.concatenate([np.arange(1, 7), np.zeros(250), np.arange(7, 89)]).astype(np.float32)
    write_checkpoint(tmp_path / "m.bin", TINY, memory, version)
    assert (tmp_path / "m.bin").read_bytes() == GOLDEN[version]
    write_checkpoint(tmp_path / "d.bin", TINY, memory.astype(np.float64), version)
    assert (tmp_path / "d.bin").read_bytes() == GOLDEN[version]


def test_tensors_lie_where_the_table_says(write):
    _, memory = read_checkpoint(write(GOLDEN[1]))
    end = 0
    for name, shape in table_shapes(PARAMS, TINY.dims).items():
        start, end = end, end + math.prod(shape)
        if name in PLACES_IN_TINY:
            before, count = PLACES_IN_TINY[name]  # values in version 1 before the tensor
            assert memory[start:end].tolist() == [before + 1 + i for i in range(count)]


def test_sizes_of_gpt2_124m():
    config = descriptor_config("d12")
    sizes = {version: checkpoint_bytes(config, version) for version in (1, 3, 5)}
    assert sizes == {1: 497_760_256, 3: 497_904_640, 5: 248_952_832}


@settings(max_examples=25, deadline=None)
@given(
    maxT=st.integers(1, 9),
    V=st.integers(1, 300),
    L=st.integers(1, 3),
    NH=st.integers(1, 3),
    HS=st.integers(1, 4),
    version=st.sampled_from([1, 3]),
)
def test_float32_round_trip_keeps_every_bit(tmp_path_factory, maxT, V, L, NH, HS, version):
    config = GPT2Config(
        max_seq_len=maxT, vocab_size=V, num_layers=L, num_heads=NH, channels=NH * HS
    )
    memory = random_memory(config)
    memory[0] = np.nan
    memory[-1] = -np.inf
    path = tmp_path_factory.mktemp("m") / "m.bin"
    write_checkpoint(path, config, memory, version)
    assert path.stat().st_size == checkpoint_bytes(config, version)
    config2, memory2 = read_checkpoint(path)
    assert config2 == config
    assert memory2.tobytes() == memory.tobytes()


def test_bfloat16_of_more_than_one_piece(tmp_path):
    config = GPT2Config(max_seq_len=8, vocab_size=200, num_layers=2, num_heads=4, channels=256)
    memory = random_memory(config)
    assert memory.size > 2**20 + 256 * 256  # converted in pieces of 2**20
    write_checkpoint(tmp_path / "m.bin", config, memory, 5)
    assert (tmp_path / "m.bin").stat().st_size == 1024 + 2 * memory.size
    rounded = rounded_to_bfloat16(memory)
    assert (rounded != memory).any()
    assert read_checkpoint(tmp_path / "m.bin")[1].tobytes() == rounded.tobytes()


def test_padding_of_our_size_is_kept_and_not_written_to_version_1(tmp_path):
    memory = random_memory(TINY)
    memory[6:256] = 7
    write_checkpoint(tmp_path / "m.bin", TINY, memory, 3)
    assert read_checkpoint(tmp_path / "m.bin")[1].tobytes() == memory.tobytes()
    write_checkpoint(tmp_path / "m.bin", TINY, memory, 1)
    memory[6:256] = 0
    assert read_checkpoint(tmp_path / "m.bin")[1].tobytes() == memory.tobytes()


@pytest.mark.parametrize(("version", "rows"), [(3, 3), (3, 8), (3, 200), (5, 3), (5, 64)])
def test_another_padding_is_replaced_by_ours(write, version, rows):
    nonzero = struct.pack("<f", 9.0) if version == 3 else struct.pack("<f", 9.0)[2:]
    wte, rest = (WTE, REST) if version == 3 else (GOLDEN[5][1024:1036], GOLDEN[5][-164:])
    head = header(20240326, version, 2, 3, 1, 1, 2, rows)
    config, memory = read_checkpoint(write(head + wte + nonzero * (rows - 3) * 2 + rest))
    assert config == TINY
    assert memory.tolist() == [*range(1, 7), *[0] * 250, *range(7, 89)]


def test_a_checkpoint_past_2_gib_is_read_at_the_right_place(tmp_path):
    # a file with a hole: 600 million unused rows of padding, then the other tensors
    rows = 300_000_000
    path = tmp_path / "m.bin"
    path.write_bytes(header(20240326, 3, 2, 3, 1, 1, 2, rows) + WTE)
    os.truncate(path, 1024 + rows * 2 * 4)
    with open(path, "r+b") as file:
        file.seek(0, os.SEEK_END)
        assert file.tell() > 2**31
        file.write(REST)
    _, memory = read_checkpoint(path)
    assert memory[256:].tolist() == list(range(7, 89))


class TestRefusals:
    @pytest.mark.parametrize("version", [1, 3, 5])
    def test_every_truncation(self, write, version):
        whole = GOLDEN[version]
        for size in [*range(0, 1024, 41), *range(1020, 1060), *range(1060, len(whole), 7)]:
            assert message(read_checkpoint, write(whole[:size])).startswith("m.bin: ")

    def test_cut_at_the_last_byte_and_too_long(self, write):
        parts = "(1,024 of header and 88 parameters of 4 bytes)"
        assert message(read_checkpoint, write(GOLDEN[1][:-1])) == (
            f"m.bin: 1,375 bytes, expected 1,376 {parts}. The file may be cut short."
        )
        assert message(read_checkpoint, write(GOLDEN[1] + bytes(4))) == (
            f"m.bin: 1,380 bytes, expected 1,376 {parts}"
        )
        assert message(read_checkpoint_config, write(GOLDEN[5] + bytes(4))) == (
            "m.bin: 1,704 bytes, expected 1,700 (1,024 of header and 338 parameters of 2 bytes)"
        )

    @pytest.mark.parametrize(
        ("values", "want"),
        [
            (
                (2, 2, 3, 1, 1, 2),
                "version is 2 (bfloat16 with float32 LayerNorms in one of two orders, April 2024), "
                "expected 1, 3 or 5. Export the model again as version 3 or 5.",
            ),
            (
                (4, 2, 3, 1, 1, 2, 128),
                "version is 4 (bfloat16 with float32 LayerNorms, April 2024), "
                "expected 1, 3 or 5. Export the model again as version 3 or 5.",
            ),
            ((99, 2, 3, 1, 1, 2), "version is 99, expected 1, 3 or 5"),
            ((0, 2, 3, 1, 1, 2), "version is 0, expected 1, 3 or 5"),
            ((1, 0, 3, 1, 1, 2), "max_seq_len is 0, expected at least 1"),
            ((1, 2, -3, 1, 1, 2), "vocab_size is -3, expected at least 1"),
            ((1, 2, 3, 0, 1, 2), "num_layers is 0, expected at least 1"),
            ((1, 2, 3, 1, 0, 2), "num_heads is 0, expected at least 1"),
            ((1, 2, 3, 1, -1, 2), "num_heads is -1, expected at least 1"),
            ((1, 2, 3, 1, 1, -2147483648), "channels is -2147483648, expected at least 1"),
            ((1, 2, 3, 1, 4, 2), "channels is 2, expected a multiple of num_heads = 4"),
            (
                (3, 2, 3, 1, 1, 2, 2),
                "padded_vocab_size is 2, expected at least vocab_size = 3",
            ),
            ((3, 2, 3, 1, 1, 2), "padded_vocab_size is 0, expected at least vocab_size = 3"),
            (
                (3, 2, 3, 1, 1, 2, -128),
                "padded_vocab_size is -128, expected at least vocab_size = 3",
            ),
        ],
    )
    def test_every_wrong_field(self, write, values, want):
        content = header(20240326, *values) + GOLDEN[3][1024:]
        assert message(read_checkpoint, write(content)) == f"m.bin: {want}"
        assert message(read_checkpoint_config, write(content)) == f"m.bin: {want}"

    def test_huge_sizes_are_refused_by_the_length(self, write):
        most = 2**31 - 1
        content = header(20240326, 3, most, most, most, most, most, most) + GOLDEN[3][1024:]
        count = 2 * most * most + most * (12 * most * most + 13 * most) + 2 * most
        assert message(read_checkpoint, write(content)) == (
            f"m.bin: 2,376 bytes, expected {1024 + 4 * count:,} "
            f"(1,024 of header and {count:,} parameters of 4 bytes). The file may be cut short."
        )

    def test_what_cannot_be_written(self, tmp_path):
        path = tmp_path / "m.bin"
        memory = np.zeros(338, np.float32)
        for version in (0, 2, 4):
            assert message(write_checkpoint, path, TINY, memory, version, error=UsageError) == (
                f"write_checkpoint: version is {version}, expected 1, 3 or 5"
            )
        assert message(write_checkpoint, path, TINY, memory[:88], error=UsageError) == (
            "write_checkpoint: memory has shape (88,), expected (338,)"
        )
        wrong = np.zeros(338, np.int32)
        assert message(write_checkpoint, path, TINY, wrong, error=UsageError) == (
            "write_checkpoint: memory has dtype int32, expected float32"
        )
        assert os.listdir(tmp_path) == []
