"""Batches of tokens for training and validation, by two walks through the data.

`SeedLoader` is that of llm.c's C program of April 2024: one file, in order, batch i at token
i*B*T, and back to the start where fewer than B*T + 1 tokens are left.

`DataLoader` is that of llm.c today. The files ("shards") that a pattern matches are in alphabetical
order (of code points), each cut into samples of num_processes*B*T tokens, of which each process
takes B*T; the last token of a sample's last target is the first of the next sample, and what is
left at the end of a shard is not used. With `shuffle`, by mt19937 seeded with seed + rank:

1. at each reset, and so at each epoch, the order of the shards is permuted, from what it was;
2. then, and for each further shard that is opened, 0 ... shard_num_samples - 1 are permuted;
3. a permutation goes from the end: for i = n-1 ... 1, swap i with j = draw % (i + 1). One of a
   single element draws nothing.

A batch is read by seeking B*T + 1 tokens; no shard is ever held whole. A vocabulary size makes a
loader check all tokens once, in pieces, when it is made: a data set of another vocabulary is
refused before anything is trained with it.

Sources: llm.c, train_gpt2.c of April 2024 and llmc/dataloader.h.
"""

import glob
import os
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import FormatError, UsageError
from ..formats.tokens import TokenFile
from ..rng import MT19937

Batch = tuple[NDArray[np.int32], NDArray[np.int32]]  # tokens and targets, (B, T) each

MAX_ID = 2**31 - 1  # of an int32
_PIECE = 1 << 20  # tokens checked at a time


class TokenSource(Protocol):
    """What a loader reads from: a token file, or tokens in memory."""

    path: str
    num_tokens: int

    def read(self, start: int, count: int) -> NDArray[np.int32]:
        """Give the tokens start ... start + count - 1."""

    def close(self) -> None:
        """Let go of the file."""


class MemoryTokens:
    """Tokens in memory, read like a file."""

    def __init__(
        self, tokens: Sequence[int] | NDArray[Any], path: str = "tokens in memory"
    ) -> None:
        """Take integers (N), which are not copied, and what messages call them."""
        self.path = path
        self._tokens: NDArray[Any] = np.asarray(tokens)
        if self._tokens.ndim != 1 or self._tokens.dtype.kind not in "iu":
            raise UsageError(
                f"{self.path}: array is {self._tokens.dtype} {self._tokens.shape}, "
                "expected integers with one axis"
            )
        self.num_tokens = self._tokens.size
        for start in range(0, self.num_tokens, _PIECE):
            ids = self._tokens[start : start + _PIECE]
            _check_piece(self.path, start, ids, (ids < 0) | (ids > MAX_ID), MAX_ID + 1)

    def read(self, start: int, count: int) -> NDArray[np.int32]:
        """Give a copy of the tokens start ... start + count - 1 as int32."""
        return self._tokens[start : start + count].astype(np.int32)

    def close(self) -> None:
        """Do nothing: there is no file."""


def find_shards(pattern: str | os.PathLike[str]) -> list[str]:
    """List the files that a pattern matches, in alphabetical order.

    pattern  a path, taken as it is if it exists, or one with *, ? or [...]

    Raises UsageError if there is no such file.
    """
    pattern = os.fspath(pattern)
    if os.path.exists(pattern):
        return [pattern]
    shards = sorted(glob.glob(pattern))
    if not shards:
        raise UsageError(f"{pattern}: no such file, and as a pattern it matches none")
    return shards


def check_ids(source: TokenSource, vocab_size: int) -> None:
    """Raise FormatError at the first token that is not in [0, vocab_size)."""
    for start in range(0, source.num_tokens, _PIECE):
        ids = source.read(start, min(_PIECE, source.num_tokens - start))
        _check_piece(source.path, start, ids, ids >= vocab_size, vocab_size)


def _check_piece(
    path: str, start: int, ids: NDArray[Any], wrong: NDArray[np.bool_], vocab_size: int
) -> None:
    if wrong.any():
        i = int(wrong.argmax())
        raise FormatError(
            f"{path}: token {start + i:,} is {ids[i]}, expected 0 to {vocab_size - 1} "
            f"(vocab_size is {vocab_size}). The tokens may be of another vocabulary."
        )


def _check_sizes(B: int, T: int, rank: int, num_processes: int) -> None:
    for name, value in (("batch size", B), ("sequence length", T), ("processes", num_processes)):
        if value < 1:
            raise UsageError(f"loader: {name} is {value}, expected at least 1")
    if not 0 <= rank < num_processes:
        raise UsageError(f"loader: rank is {rank}, expected 0 to {num_processes - 1}")


def _check_length(source: TokenSource, B: int, T: int, num_processes: int = 1) -> None:
    need = num_processes * B * T + 1
    if source.num_tokens < need:
        sizes = (
            f"B*T = {B}*{T}" if num_processes == 1 else f"B*T*processes = {B}*{T}*{num_processes}"
        )
        raise UsageError(
            f"{source.path}: {source.num_tokens:,} tokens, expected at least {need:,}, because "
            f"a batch takes {sizes} and its last target one more"
        )


def _split(buffer: NDArray[np.int32], B: int, T: int) -> Batch:
    """Make tokens, and targets one token later, of B*T + 1 tokens; they share memory."""
    return buffer[:-1].reshape(B, T), buffer[1:].reshape(B, T)


class SeedLoader:
    """Batches of one token file in order, as the C program of April 2024 takes them.

    position           token at which the next batch begins
    num_batches        the C program's count, num_tokens // (B*T): one too many where B*T divides
    batches_per_epoch  batches before it goes back to the start

    >>> loader = SeedLoader("tiny_shakespeare_val.bin", B=4, T=64)
    >>> tokens, targets = loader.next_batch()
    """

    def __init__(
        self, path: str | os.PathLike[str], B: int, T: int, vocab_size: int | None = None
    ) -> None:
        """Open a token file of either kind.

        Raises FormatError for a token that is not in [0, vocab_size), UsageError if there are
        fewer than B*T + 1.
        """
        _check_sizes(B, T, 0, 1)
        self.B, self.T = B, T
        self.position = 0
        self._file = TokenFile(path)
        try:
            _check_length(self._file, B, T)
            if vocab_size is not None:
                check_ids(self._file, vocab_size)
        except BaseException:
            self._file.close()
            raise
        self.num_tokens = self._file.num_tokens
        self.num_batches = self.num_tokens // (B * T)
        self.batches_per_epoch = (self.num_tokens - 1) // (B * T)

    def __enter__(self) -> "SeedLoader":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def reset(self) -> None:
        """Go back to the start."""
        self.position = 0

    def next_batch(self) -> Batch:
        """Give the next tokens and targets, int32 (B, T) each."""
        step = self.B * self.T
        if self.position + step + 1 > self.num_tokens:
            self.position = 0
        buffer = self._file.read(self.position, step + 1)
        self.position += step
        return _split(buffer, self.B, self.T)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class DataLoader:
    """Batches of the shards of a pattern, in order or shuffled, as llm.c takes them.

    num_tokens           of all shards
    num_batches          llm.c's count, num_tokens // (num_processes*B*T)
    batches_per_epoch    batches before it starts over: the samples of all shards
    shards               their paths
    rng                  the MT19937 of the permutations; None without shuffle
    shard_indices        order of the shards
    current_shard_idx    place in shard_indices
    shard_num_samples    samples in that shard
    intra_shard_indices  order of its samples; None without shuffle
    current_sample_idx   place of the next sample to serve

    >>> loader = DataLoader("fineweb_train_*.bin", B=4, T=1024, shuffle=True)
    >>> tokens, targets = loader.next_batch()
    """

    def __init__(
        self,
        pattern: str | os.PathLike[str] | MemoryTokens,
        B: int,
        T: int,
        *,
        shuffle: bool = False,
        rank: int = 0,
        num_processes: int = 1,
        seed: int = 42,
        vocab_size: int | None = None,
    ) -> None:
        """Find the shards, check each, and open the first.

        pattern  of files, as `find_shards` takes it; or tokens in memory, as if they were one shard

        Raises FormatError for a shard that is no token file or has a token that is not in
        [0, vocab_size), UsageError if there is none or one is too small for a batch.
        """
        _check_sizes(B, T, rank, num_processes)
        self.B, self.T, self.rank, self.num_processes = B, T, rank, num_processes
        self._sample_tokens = num_processes * B * T
        shards: Sequence[str | MemoryTokens] = (
            [pattern] if isinstance(pattern, MemoryTokens) else find_shards(pattern)
        )
        self._shards = shards
        self._source: TokenSource | None = None
        self.num_tokens = self.batches_per_epoch = 0
        for i in range(len(shards)):
            source = self._open(i)
            try:
                _check_length(source, B, T, num_processes)
                if vocab_size is not None:
                    check_ids(source, vocab_size)
            finally:
                source.close()
            self.num_tokens += source.num_tokens
            self.batches_per_epoch += (source.num_tokens - 1) // self._sample_tokens
        self.num_batches = self.num_tokens // self._sample_tokens

        self.rng = MT19937(seed + rank) if shuffle else None
        self.shard_indices = list(range(len(shards)))
        self.intra_shard_indices: list[int] | None = None
        self.reset()

    @classmethod
    def from_tokens(
        cls, tokens: Sequence[int] | NDArray[Any], B: int, T: int, **settings: Any
    ) -> "DataLoader":
        """Take batches of integers (N) in memory, as if they were one shard; settings as above."""
        return cls(MemoryTokens(tokens), B, T, **settings)

    @property
    def shards(self) -> list[str]:
        """The paths of the shards, in alphabetical order."""
        return [shard if isinstance(shard, str) else shard.path for shard in self._shards]

    def __enter__(self) -> "DataLoader":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def reset(self) -> None:
        """Begin an epoch: permute the shards if they are shuffled, and open the first."""
        if self.rng is not None:
            permute(self.shard_indices, self.rng)
        self._load_shard(0)

    def next_batch(self) -> Batch:
        """Give the next tokens and targets of this process, int32 (B, T) each."""
        if self.current_sample_idx >= self.shard_num_samples:
            if self.current_shard_idx == len(self._shards) - 1:
                self.reset()
            else:
                self._load_shard(self.current_shard_idx + 1)
        sample = self.current_sample_idx
        if self.intra_shard_indices is not None:
            sample = self.intra_shard_indices[sample]
        step = self.B * self.T
        if self._source is None:
            self._source = self._open(self.shard_indices[self.current_shard_idx])
        buffer = self._source.read(sample * self._sample_tokens + self.rank * step, step + 1)
        self.current_sample_idx += 1
        return _split(buffer, self.B, self.T)

    def close(self) -> None:
        """Close the shard; the next batch opens it again."""
        if self._source is not None:
            self._source.close()
            self._source = None

    def _open(self, i: int) -> TokenSource:
        shard = self._shards[i]
        return TokenFile(shard) if isinstance(shard, str) else shard

    def _load_shard(self, place: int) -> None:
        self.close()
        self._source = self._open(self.shard_indices[place])
        self.current_shard_idx, self.current_sample_idx = place, 0
        self.shard_num_samples = (self._source.num_tokens - 1) // self._sample_tokens
        if self.rng is not None:
            self.intra_shard_indices = list(range(self.shard_num_samples))
            permute(self.intra_shard_indices, self.rng)


def permute(indices: list[int], rng: MT19937) -> None:
    """Shuffle a list in place with len(indices) - 1 draws, as llm.c does."""
    n = len(indices)
    ends = np.arange(n, 1, -1)  # i + 1 for i = n-1 ... 1
    for i, j in enumerate((rng.integers(n - 1) % ends).tolist(), 1):
        indices[n - i], indices[j] = indices[j], indices[n - i]
