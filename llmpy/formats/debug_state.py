"""What a model should compute for one batch: llm.c's debug state, magic number 20240327.

    offset  type   meaning
    0       int32  20240327
    4       int32  version, 1 or 2
    8       int32  B
    12      int32  T
    16      int32 x 252  zero
    1024    int32 (B, T)       tokens
            int32 (B, T)       targets
            float32 (B, T, V)  logits, without padding in both versions
            float32            mean loss
            float32            the gradients of the 16 tensors of PARAMS, in its order

    version  rows of dwte   written by llm.c      GPT-2 124M, B 4, T 64
    1        V              to 28 April 2024      549,225,476 bytes
    2        Vp, zero padded  since then          549,369,860 bytes

V and Vp are not in the file: it is read beside the model it belongs to, and the length must fit.

Source: llm.c, train_gpt2.py, write_state, and its history.
"""

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import FormatError, UsageError
from ..sizes import GPT2Config
from .checkpoint import check_memory, num_parameters, read_tensors, write_tensors
from .header import (
    DEBUG_STATE,
    HEADER_BYTES,
    InputFile,
    PathLike,
    atomic_write,
    pack_header,
    write_array,
)

VERSIONS = (1, 2)


@dataclass(frozen=True)
class DebugState:
    """One batch, and what the model computes for it."""

    tokens: NDArray[np.int32]  # (B, T)
    targets: NDArray[np.int32]  # (B, T)
    logits: NDArray[np.float32]  # (B, T, V)
    loss: float  # mean over B and T
    grads: NDArray[np.float32]  # flat, as the parameters, dwte padded to Vp rows


def read_debug_state(path: PathLike, config: GPT2Config) -> DebugState:
    """Read the debug state, version 1 or 2, of a model with the sizes of `config`.

    Raises FormatError if the magic number, the version, B, T, the length or a token is wrong.
    """
    with InputFile(path) as file:
        version, B, T = debug_state_header(file)
        if config.max_seq_len < T:
            raise FormatError(
                f"{file.path}: T is {T}, expected at most max_seq_len = {config.max_seq_len} "
                "of the model"
            )
        V = config.vocab_size
        rows = V if version == 1 else config.padded_vocab_size
        count = num_parameters(config, rows)
        file.check_size(
            debug_state_bytes(config, B, T, version),
            f"{HEADER_BYTES:,} of header, batch of B*T = {B}*{T}, logits of {V:,} columns, loss, "
            f"{count:,} gradients",
        )
        tokens = np.empty((B, T), np.int32)
        targets = np.empty((B, T), np.int32)
        logits = np.empty((B, T, V), np.float32)
        loss = np.empty(1, np.float32)
        offset = HEADER_BYTES
        for array in (tokens, targets, logits, loss):
            file.read_into(array, offset)
            offset += array.nbytes
        for name, ids in (("token", tokens), ("target", targets)):
            check_ids(file.path, name, ids, V)
        grads = read_tensors(file, offset, config, rows, "float32")
        return DebugState(tokens, targets, logits, float(loss[0]), grads)


def write_debug_state(
    path: PathLike, config: GPT2Config, state: DebugState, version: int = 2
) -> None:
    """Write a debug state; the file appears whole or not at all."""
    who = "write_debug_state"
    if version not in VERSIONS:
        raise UsageError(f"{who}: version is {version}, expected 1 or 2")
    if state.tokens.ndim != 2 or state.tokens.size == 0:
        raise UsageError(f"{who}: tokens has shape {state.tokens.shape}, expected (B, T)")
    B, T = state.tokens.shape
    V = config.vocab_size
    if state.targets.shape != (B, T):
        raise UsageError(f"{who}: targets has shape {state.targets.shape}, expected ({B}, {T})")
    if state.logits.shape != (B, T, V):
        raise UsageError(f"{who}: logits has shape {state.logits.shape}, expected ({B}, {T}, {V})")
    check_memory(who, "grads", config, state.grads)
    rows = V if version == 1 else config.padded_vocab_size
    with atomic_write(path) as file:
        file.write(pack_header(DEBUG_STATE, version, B, T))
        write_array(file, state.tokens, "i4")
        write_array(file, state.targets, "i4")
        write_array(file, state.logits, "f4")
        file.write(struct.pack("<f", state.loss))
        write_tensors(file, config, state.grads, rows, "float32")


def debug_state_bytes(config: GPT2Config, B: int, T: int, version: int) -> int:
    """Give the length of a debug state file."""
    rows = config.vocab_size if version == 1 else config.padded_vocab_size
    values = 2 * B * T + B * T * config.vocab_size + 1 + num_parameters(config, rows)
    return HEADER_BYTES + 4 * values


def debug_state_header(file: InputFile) -> tuple[int, int, int]:
    """Check the header of a debug state; give version, B and T."""
    _, version, B, T, *_ = file.header(DEBUG_STATE)
    if version not in VERSIONS:
        raise FormatError(f"{file.path}: version is {version}, expected 1 or 2")
    for name, value in (("B", B), ("T", T)):
        if value < 1:
            raise FormatError(f"{file.path}: {name} is {value}, expected at least 1")
    return version, B, T


def check_ids(path: str, name: str, ids: NDArray[np.int32], V: int) -> None:
    """Raise FormatError at the first id outside 0 to V - 1, with its place in (B, T)."""
    wrong = np.argwhere((ids < 0) | (ids >= V))
    if wrong.size:
        b, t = wrong[0]
        raise FormatError(
            f"{path}: {name} ({b}, {t}) is {ids[b, t]}, expected 0 to {V - 1} (vocab_size is {V})"
        )
