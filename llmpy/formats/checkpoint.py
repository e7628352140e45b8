"""A model's weights: llm.c's checkpoint, magic number 20240326.

    offset  type   meaning
    0       int32  20240326
    4       int32  version
    8       int32  max_seq_len, maxT
    12      int32  vocab_size, V
    16      int32  num_layers, L
    20      int32  num_heads, NH
    24      int32  channels, C
    28      int32  padded_vocab_size, Vp (versions 3 and 5; 0 in version 1)
    32      int32 x 248  zero
    1024    the 16 tensors of tensors.PARAMS in its order, no gaps, row-major, a tensor of all
            layers together; weights are (out, in); wte is also the classifier's weight

    version  type      rows of wte  written by llm.c          GPT-2 124M
    1        float32   V            April 2024                497,760,256 bytes
    3        float32   Vp           since 28 April 2024       497,904,640 bytes
    5        bfloat16  Vp           since 29 April 2024       248,952,832 bytes

In memory a model always has Vp rows, Vp being V rounded up to a multiple of 128. Reading version 1
fills the rows that it lacks with zeros. A file of version 3 or 5 that was padded to another Vp
loses its padding and gets ours, zero; padding that has our size is kept as it is.

Versions 2 and 4, bfloat16 with float32 LayerNorms, lived for days in April 2024. Version 2 named
two layouts of equal length, with nothing in the file to tell which: it can't be read safely.

Writing bfloat16 rounds as bfloat16.py says.

Source: llm.c, train_gpt2.py, write_model, and its history.
"""

from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..bfloat16 import from_bfloat16, to_bfloat16
from ..errors import ConfigError, FormatError, UsageError
from ..sizes import GPT2Config
from ..tensors import PARAMS, table_size
from .header import (
    CHECKPOINT,
    HEADER_BYTES,
    InputFile,
    PathLike,
    atomic_write,
    pack_header,
    write_array,
)

DTYPES = {1: "float32", 3: "float32", 5: "bfloat16"}
ITEM_BYTES = {"float32": 4, "bfloat16": 2}
REFUSED = {
    2: "bfloat16 with float32 LayerNorms in one of two orders, April 2024",
    4: "bfloat16 with float32 LayerNorms, April 2024",
}
FIELDS = ("max_seq_len", "vocab_size", "num_layers", "num_heads", "channels")  # header[2] to [6]
PIECE = 1 << 20  # elements converted at a time, so that a conversion needs little memory


def read_checkpoint(path: PathLike) -> tuple[GPT2Config, NDArray[np.float32]]:
    """Read the weights of a GPT-2 from llm.c's format, version 1, 3 or 5.

    Returns the config and one flat float32 array of all parameters, wte padded to Vp rows.
    Raises FormatError if the magic number, the version, a size or the length is wrong.

    >>> config, memory = read_checkpoint("gpt2_124M.bin")
    >>> config.num_layers, memory.size
    (12, 124475904)
    """
    with InputFile(path) as file:
        config, version, rows = checkpoint_header(file)
        return config, read_tensors(file, HEADER_BYTES, config, rows, DTYPES[version])


def read_checkpoint_config(path: PathLike) -> tuple[GPT2Config, int]:
    """Read only the sizes and the version of a checkpoint; the file is checked as in whole."""
    with InputFile(path) as file:
        config, version, _ = checkpoint_header(file)
        return config, version


def write_checkpoint(
    path: PathLike, config: GPT2Config, memory: NDArray[np.floating[Any]], version: int = 3
) -> None:
    """Write the weights of a GPT-2 in llm.c's format; the file appears whole or not at all.

    memory   flat, all parameters in the order of PARAMS, wte padded to Vp rows
    version  1 or 3 (float32), or 5 (bfloat16)
    """
    if version not in DTYPES:
        raise UsageError(f"write_checkpoint: version is {version}, expected 1, 3 or 5")
    check_memory("write_checkpoint", "memory", config, memory)
    rows = config.vocab_size if version == 1 else config.padded_vocab_size
    with atomic_write(path) as file:
        values = [getattr(config, field) for field in FIELDS]
        padded = 0 if version == 1 else rows
        file.write(pack_header(CHECKPOINT, version, *values, padded))
        write_tensors(file, config, memory, rows, DTYPES[version])


def checkpoint_bytes(config: GPT2Config, version: int) -> int:
    """Give the length of a checkpoint file."""
    rows = config.vocab_size if version == 1 else config.padded_vocab_size
    return HEADER_BYTES + num_parameters(config, rows) * ITEM_BYTES[DTYPES[version]]


def num_parameters(config: GPT2Config, rows: int) -> int:
    """Count the parameters of a model whose wte has `rows` rows."""
    return table_size(PARAMS, config.dims | {"Vp": rows})


def checkpoint_header(file: InputFile) -> tuple[GPT2Config, int, int]:
    """Check the header and the length of a checkpoint; give config, version and rows of wte."""
    header = file.header(CHECKPOINT)
    version = header[1]
    if version not in DTYPES:
        known = f" ({REFUSED[version]})" if version in REFUSED else ""
        remedy = ". Export the model again as version 3 or 5." if known else ""
        raise FormatError(f"{file.path}: version is {version}{known}, expected 1, 3 or 5{remedy}")
    sizes = dict(zip(FIELDS, header[2:7], strict=True))
    try:
        config = GPT2Config(**sizes)
    except ConfigError as error:
        raise FormatError(f"{file.path}: {error}") from None
    rows = config.vocab_size if version == 1 else header[7]
    if rows < config.vocab_size:
        raise FormatError(
            f"{file.path}: padded_vocab_size is {rows}, "
            f"expected at least vocab_size = {config.vocab_size}"
        )
    count = num_parameters(config, rows)
    item_bytes = ITEM_BYTES[DTYPES[version]]
    file.check_size(
        HEADER_BYTES + count * item_bytes,
        f"{HEADER_BYTES:,} of header and {count:,} parameters of {item_bytes} bytes",
    )
    return config, version, rows


def check_memory(who: str, what: str, config: GPT2Config, memory: NDArray[Any]) -> None:
    """Raise UsageError unless `memory` is one axis of all parameters, floating point."""
    size = num_parameters(config, config.padded_vocab_size)
    if memory.shape != (size,):
        raise UsageError(f"{who}: {what} has shape {memory.shape}, expected ({size},)")
    if memory.dtype.kind != "f":
        raise UsageError(f"{who}: {what} has dtype {memory.dtype}, expected float32")


def read_tensors(
    file: InputFile, offset: int, config: GPT2Config, rows: int, dtype: str
) -> NDArray[np.float32]:
    """Read the tensors of PARAMS at byte `offset`, where wte has `rows` rows, at least V.

    Returns a flat array in which wte has Vp rows.
    """
    C = config.channels
    memory = np.zeros(num_parameters(config, config.padded_vocab_size), np.float32)
    if rows == config.padded_vocab_size:
        _read_floats(file, offset, memory, dtype)
        return memory
    rest = offset + rows * C * ITEM_BYTES[dtype]  # behind wte; past 2 GiB for a large model
    _read_floats(file, offset, memory[: config.vocab_size * C], dtype)
    _read_floats(file, rest, memory[config.padded_vocab_size * C :], dtype)
    return memory


def write_tensors(
    file: BinaryIO, config: GPT2Config, memory: NDArray[Any], rows: int, dtype: str
) -> None:
    """Write the tensors of PARAMS with `rows` rows of wte: V, or Vp as in `memory`."""
    C = config.channels
    for part in (memory[: rows * C], memory[config.padded_vocab_size * C :]):
        if dtype == "float32":
            write_array(file, part, "f4")
            continue
        for start in range(0, part.size, PIECE):
            write_array(file, to_bfloat16(part[start : start + PIECE]), "u2")


def _read_floats(file: InputFile, offset: int, out: NDArray[np.float32], dtype: str) -> None:
    if dtype == "float32":
        file.read_into(out, offset)
        return
    halves = np.empty(min(PIECE, out.size), np.uint16)
    for start in range(0, out.size, PIECE):
        piece = out[start : start + PIECE]
        file.read_into(halves[: piece.size], offset + start * 2)
        piece[:] = from_bfloat16(halves[: piece.size])
