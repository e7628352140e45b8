"""The two walks through the data, against walks worked out here in plain Python."""

import os
import re

import numpy as np
import pytest

from llmpy.data.loader import DataLoader, SeedLoader, find_shards
from llmpy.errors import FormatError, UsageError
from llmpy.formats.tokens import write_tokens
from llmpy.rng import MT19937


def write_int32(path, tokens):
    path.write_bytes(np.asarray(tokens, "<i4").tobytes())


def write_shards(folder, *sizes):
    """Token files s_0.bin, s_1.bin, ...: token k of shard i is 1000 * i + k."""
    for i, size in enumerate(sizes):
        write_tokens(folder / f"s_{i}.bin", 1000 * i + np.arange(size))
    return str(folder / "s_*.bin")


def first_tokens(loader, n):
    """The first token of each of n batches, each checked to be a run of consecutive tokens."""
    firsts = []
    for _ in range(n):
        tokens, targets = loader.next_batch()
        assert tokens.shape == targets.shape == (loader.B, loader.T)
        assert tokens.dtype == targets.dtype == np.int32
        first = int(tokens[0, 0])
        run = first + np.arange(loader.B * loader.T + 1)
        np.testing.assert_array_equal(tokens.ravel(), run[:-1])
        np.testing.assert_array_equal(targets.ravel(), run[1:])
        firsts.append(first)
    return firsts


def raises(error, message, call):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == message


# the walk of April 2024


@pytest.mark.parametrize("write", [write_int32, write_tokens])
@pytest.mark.parametrize("size", [7, 12, 13, 14, 18, 19, 20])
def test_seed_loader_walks_as_the_c_program(tmp_path, write, size):
    B, T = 2, 3
    write(tmp_path / "t.bin", np.arange(size))
    expected, position = [], 0  # in bytes, as the C program counts
    for _ in range(10):
        if position + (B * T + 1) * 4 > size * 4:
            position = 0
        expected.append(position // 4)
        position += B * T * 4
    with SeedLoader(tmp_path / "t.bin", B, T, vocab_size=size) as loader:
        assert first_tokens(loader, 10) == expected
        loader.reset()
        assert first_tokens(loader, 10) == expected
        assert loader.num_tokens == size
        assert loader.num_batches == size * 4 // (B * T * 4)
        assert loader.batches_per_epoch == expected[1:].index(0) + 1


@pytest.mark.parametrize("loader_class", [SeedLoader, DataLoader])
def test_size_of_the_file_decides(tmp_path, loader_class):
    T = 64
    path = tmp_path / "t.bin"
    write_tokens(path, np.arange(T))
    raises(
        UsageError,
        f"{path}: 64 tokens, expected at least 65, because a batch takes B*T = 1*64 and its last "
        "target one more",
        lambda: loader_class(path, 1, T),
    )
    for size in (T + 1, T + 2):  # one window, again and again
        write_tokens(path, np.arange(size))
        with loader_class(path, 1, T) as loader:
            assert loader.batches_per_epoch == 1
            assert first_tokens(loader, 3) == [0, 0, 0]


@pytest.mark.parametrize("loader_class", [SeedLoader, DataLoader])
def test_token_outside_the_vocabulary_is_refused_at_once(tmp_path, loader_class):
    path = tmp_path / "t.bin"
    tokens = np.zeros(1_200_000, np.int32)
    tokens[-1] = 50257
    message = (
        f"{path}: token 1,199,999 is 50257, expected 0 to 50256 (vocab_size is 50257). "
        "The tokens may be of another vocabulary."
    )
    for write in (write_tokens, write_int32):
        write(path, tokens)
        raises(FormatError, message, lambda: loader_class(path, 1, 64, vocab_size=50257))
        loader_class(path, 1, 64, vocab_size=50258).close()
    tokens[7] = -3
    write_int32(path, tokens)
    raises(
        FormatError,
        f"{path}: token 7 is -3, expected at least 0. The file may not be a token file.",
        lambda: loader_class(path, 1, 64, vocab_size=50257),
    )


# the walk of today


def test_shuffle_has_the_test_vectors():
    """tinyshakespeare's training file: 305,260 tokens in one shard."""
    tokens = np.arange(305_260)
    # fmt: off
    for T, samples, indices in (
        (64, 1192, [408, 791, 914, 1057, 81, 450, 299, 907, 582, 321]),
        (1024, 74, [29, 58, 10, 4, 11, 25, 63, 56, 72, 65]),
    ):
    # fmt: on
        loader = DataLoader.from_tokens(tokens, 4, T, shuffle=True)
        assert loader.shard_num_samples == loader.batches_per_epoch == samples
        assert loader.num_batches == 305_260 // (4 * T)
        firsts = first_tokens(loader, samples)
        assert [first // (4 * T) for first in firsts[:10]] == indices
        assert sorted(firsts) == list(range(0, samples * 4 * T, 4 * T))
        assert first_tokens(loader, samples) != firsts  # the next epoch has another order


def test_shards_follow_in_order_and_wrap(tmp_path):
    pattern = write_shards(tmp_path, 13, 24, 25)  # 2, 3 and 4 samples of 6 tokens
    with DataLoader(pattern, 2, 3) as loader:
        epoch = [0, 6, 1000, 1006, 1012, 2000, 2006, 2012, 2018]
        assert loader.batches_per_epoch == 9
        assert loader.num_tokens == 62
        assert loader.num_batches == 10
        assert loader.shards == [str(tmp_path / f"s_{i}.bin") for i in range(3)]
        assert first_tokens(loader, 22) == [*epoch, *epoch, *epoch[:4]]
        loader.reset()
        assert first_tokens(loader, 9) == epoch


@pytest.mark.parametrize(("rank", "num_processes"), [(0, 1), (0, 2), (1, 2)])
def test_shuffled_shards_follow_llm_c(tmp_path, rank, num_processes):
    sizes = [140, 61, 99, 85]
    pattern = write_shards(tmp_path, *sizes)
    rng = MT19937(42 + rank)

    def permuted(items):
        for i in range(len(items) - 1, 0, -1):
            j = rng.randint32() % (i + 1)
            items[i], items[j] = items[j], items[i]
        return items

    sample = num_processes * 6
    order, expected = [0, 1, 2, 3], []
    for _ in range(3):
        order = permuted(order)
        for shard in order:
            indices = permuted(list(range((sizes[shard] - 1) // sample)))
            expected += [1000 * shard + i * sample + rank * 6 for i in indices]
    settings = {"shuffle": True, "rank": rank, "num_processes": num_processes}
    with DataLoader(pattern, 2, 3, **settings) as loader:
        assert first_tokens(loader, len(expected)) == expected
        assert loader.batches_per_epoch == len(expected) / 3


def test_ranks_share_each_sample_and_each_shard(tmp_path):
    """Unequal shards: all ranks change shard at the same step, and no token comes twice."""
    pattern = write_shards(tmp_path, 100, 61)
    loaders = [DataLoader(pattern, 1, 4, rank=rank, num_processes=3) for rank in range(3)]
    seen = []
    for _ in range(8 + 5):
        firsts = [first_tokens(loader, 1)[0] for loader in loaders]
        assert len({loader.current_shard_idx for loader in loaders}) == 1
        assert firsts == [firsts[0], firsts[0] + 4, firsts[0] + 8]
        seen += firsts
    assert seen == [*range(0, 96, 4), *range(1000, 1060, 4)]
    for loader in loaders:
        loader.close()


def test_seed_changes_the_order():
    tokens = np.arange(1000)
    first = first_tokens(DataLoader.from_tokens(tokens, 1, 8, shuffle=True), 20)
    assert first_tokens(DataLoader.from_tokens(tokens, 1, 8, shuffle=True), 20) == first
    assert first_tokens(DataLoader.from_tokens(tokens, 1, 8, shuffle=True, seed=7), 20) != first


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "int64"])
def test_tokens_in_memory_walk_like_a_file(dtype):
    loader = DataLoader.from_tokens(np.arange(20, dtype=dtype), 2, 3)
    assert first_tokens(loader, 5) == [0, 6, 12, 0, 6]
    assert loader.shards == ["tokens in memory"]
    loader.close()
    assert first_tokens(loader, 1) == [12]


@pytest.mark.parametrize("bad", [-1, 2**31, 2**32 + 5])
def test_tokens_in_memory_must_be_ids(bad):
    raises(
        FormatError,
        f"tokens in memory: token 3 is {bad}, expected 0 to 2147483647 (vocab_size is 2147483648). "
        "The tokens may be of another vocabulary.",
        lambda: DataLoader.from_tokens(np.array([0, 1, 2, bad]), 1, 2),
    )


def test_tokens_in_memory_must_be_integers_on_one_axis():
    for array, found in ((np.zeros(9), "float64 (9,)"), (np.zeros((3, 3), int), "int64 (3, 3)")):
        raises(
            UsageError,
            f"tokens in memory: array is {found}, expected integers with one axis",
            lambda array=array: DataLoader.from_tokens(array, 1, 2),
        )


def test_every_shard_is_checked_when_the_loader_is_made(tmp_path):
    pattern = write_shards(tmp_path, 100, 24)
    raises(
        UsageError,
        f"{tmp_path / 's_1.bin'}: 24 tokens, expected at least 25, because a batch takes "
        "B*T*processes = 2*3*4 and its last target one more",
        lambda: DataLoader(pattern, 2, 3, num_processes=4),
    )
    raises(
        FormatError,
        f"{tmp_path / 's_1.bin'}: token 0 is 1000, expected 0 to 999 (vocab_size is 1000). "
        "The tokens may be of another vocabulary.",
        lambda: DataLoader(pattern, 2, 3, vocab_size=1000),
    )
    (tmp_path / "s_1.bin").write_bytes(b"\x89PNG\r\n\x1a\n" * 200)
    with pytest.raises(FormatError, match=re.escape(f"{tmp_path / 's_1.bin'}: ") + ".*PNG"):
        DataLoader(pattern, 2, 3)


def test_impossible_sizes_are_refused():
    tokens = np.arange(100)

    def load(B=1, T=1, **settings):
        return lambda: DataLoader.from_tokens(tokens, B, T, **settings)

    raises(UsageError, "loader: batch size is 0, expected at least 1", load(B=0))
    raises(UsageError, "loader: sequence length is -2, expected at least 1", load(T=-2))
    raises(UsageError, "loader: processes is 0, expected at least 1", load(rank=0, num_processes=0))
    raises(UsageError, "loader: rank is 2, expected 0 to 1", load(rank=2, num_processes=2))


def test_pattern_finds_shards_in_order_of_code_points(tmp_path):
    for name in ("s_2.bin", "s_10.bin", "S_3.bin", "t_1.bin"):
        (tmp_path / name).touch()
    found = find_shards(str(tmp_path / "[sS]_*.bin"))
    assert [os.path.basename(path) for path in found] == ["S_3.bin", "s_10.bin", "s_2.bin"]
    literal = tmp_path / "s_[2].bin"
    literal.touch()
    assert find_shards(literal) == [str(literal)]
    literal.unlink()
    assert find_shards(literal) == [str(tmp_path / "s_2.bin")]


def test_missing_file_is_named(tmp_path):
    pattern = str(tmp_path / "none_*.bin")
    message = f"{pattern}: no such file, and as a pattern it matches none"
    raises(UsageError, message, lambda: DataLoader(pattern, 1, 1))


def test_offsets_beyond_2_gib(tmp_path):
    """The last batch of a sparse file of 1.2 billion tokens, read without the rest."""
    path = tmp_path / "large.bin"
    size = 1_200_000_065
    header = np.zeros(256, "<i4")
    header[:3] = 20240520, 1, size
    with open(path, "wb") as file:
        file.write(header.tobytes())
        file.truncate(1024 + 2 * size)
        file.seek(1024 + 2 * (size - 65))
        file.write(np.arange(65, dtype="<u2").tobytes())
    with DataLoader(path, 1, 64) as loader:
        assert loader.shard_num_samples == 1_200_000_064 // 64
        loader.current_sample_idx = loader.shard_num_samples - 1
        assert first_tokens(loader, 1) == [0]
        assert loader.next_batch()[0].max() == 0  # back at the start, in the hole
