"""Token ids of a text: llm.c's token files.

Since May 2024, magic number 20240520:

    offset  type    meaning
    0       int32   20240520
    4       int32   version, 1
    8       int32   ntok, the number of tokens, below 2^31
    12      int32 x 253  zero
    1024    uint16 x ntok  token ids

Before, in the files of the C program of April 2024, there was no header:

    0       int32 x (bytes / 4)  token ids

A file is taken for the second kind if nothing in its first bytes says that it is something else.
The token files of Llama 3 (magic number 20240801, version 7, uint32) are refused by name.

Sources: llm.c, dev/data/data_common.py, and prepro_tinyshakespeare.py in its history.
"""

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import FormatError, UsageError
from .header import (
    HEADER_BYTES,
    KINDS,
    TOKENS,
    InputFile,
    PathLike,
    atomic_write,
    pack_header,
    write_array,
)

VERSION = 1
MAX_TOKENS = 2**31 - 1  # what the int32 in the header can say
MAX_ID = 2**16 - 1  # what a uint16 can hold
EXPECTED = f"{KINDS[TOKENS]} (magic number {TOKENS}, or int32 ids without a header)"


class TokenFile:
    """A token file open for reading, one stretch at a time.

    >>> with TokenFile("tiny_shakespeare_val.bin") as file:
    ...     file.num_tokens, file.version, file.read(0, 4)
    (32768, '20240520', array([50256,  5962, 22307,    25], dtype=int32))
    """

    num_tokens: int
    version: str  # "20240520", or "int32" for the kind without a header

    def __init__(self, path: PathLike) -> None:
        """Open the file and check its header and length; no token is read yet.

        Raises FormatError for any other file, and for one that is cut or too long.
        """
        self._file = InputFile(path)
        self.path = self._file.path
        try:
            self._check()
        except BaseException:
            self._file.close()
            raise

    def _check(self) -> None:
        file = self._file
        head = file.head()
        magic = int.from_bytes(head[:4], "little")
        if magic in KINDS:
            header = file.header(TOKENS)
            if header[1] != VERSION:
                raise FormatError(f"{file.path}: version is {header[1]}, expected {VERSION}")
            if header[2] < 0:
                raise FormatError(
                    f"{file.path}: number of tokens is {header[2]}, expected at least 0"
                )
            self.num_tokens, self.version = header[2], str(TOKENS)
            self._offset, self._dtype = HEADER_BYTES, "uint16"
            file.check_size(
                HEADER_BYTES + 2 * self.num_tokens,
                f"{HEADER_BYTES:,} of header and {self.num_tokens:,} tokens of 2 bytes",
            )
            return
        file.refuse_others(head, EXPECTED)
        if file.size % 4:
            raise FormatError(
                f"{file.path}: {file.size:,} bytes, expected a multiple of 4, "
                "because without a header it holds int32 ids. The file may be cut short."
            )
        self.num_tokens, self.version = file.size // 4, "int32"
        self._offset, self._dtype = 0, "int32"

    def __enter__(self) -> "TokenFile":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        self._file.close()

    def read(self, start: int, count: int) -> NDArray[np.int32]:
        """Read tokens `start` to `start + count - 1`, and nothing else of the file.

        Returns a new int32 array (count).
        Raises UsageError for a stretch outside the file, FormatError for a negative id.
        """
        start, count = operator.index(start), operator.index(count)  # no int32 in the offsets
        if start < 0 or count < 0 or start + count > self.num_tokens:
            raise UsageError(
                f"{self.path}: read of {count:,} tokens from {start:,}, "
                f"expected a stretch within 0 to {self.num_tokens:,}"
            )
        ids: NDArray[Any] = np.empty(count, self._dtype)
        self._file.read_into(ids, self._offset + start * ids.itemsize)
        if self.version == "int32" and count and ids.min() < 0:
            i = int(np.argmax(ids < 0))
            raise FormatError(
                f"{self.path}: token {start + i:,} is {ids[i]}, expected at least 0. "
                "The file may not be a token file."
            )
        tokens: NDArray[np.int32] = ids.astype(np.int32, copy=False)
        return tokens


def write_tokens(path: PathLike, tokens: Sequence[int] | NDArray[Any]) -> None:
    """Write token ids as a token file 20240520; the file appears whole or not at all.

    tokens  (ntok), integers from 0 to 65535

    Raises UsageError, before anything is written, if an id does not fit or there are too many.
    """
    ids: NDArray[Any] = np.asarray(tokens)
    if ids.ndim != 1:
        raise UsageError(f"write_tokens: tokens has shape {ids.shape}, expected (ntok)")
    if ids.size > MAX_TOKENS:
        raise UsageError(
            f"write_tokens: {ids.size:,} tokens, expected at most {MAX_TOKENS:,}, because the "
            "header counts them in an int32. Write several files."
        )
    if ids.size == 0:
        ids = ids.astype(np.uint16)
    if ids.dtype.kind not in "iuO":  # O: a list with an int beyond 64 bits
        raise UsageError(f"write_tokens: tokens has dtype {ids.dtype}, expected integers")
    piece = 1 << 20
    for start in range(0, ids.size, piece):
        part = ids[start : start + piece]
        wrong = np.flatnonzero((part < 0) | (part > MAX_ID))
        if wrong.size:
            i = int(wrong[0])
            raise UsageError(
                f"write_tokens: token {start + i:,} is {part[i]}, expected 0 to {MAX_ID}, "
                "because the file holds uint16"
            )
    with atomic_write(path) as file:
        file.write(pack_header(TOKENS, VERSION, ids.size))
        write_array(file, ids, "u2")
