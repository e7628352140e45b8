"""The header that llm.c's files begin with, and safe reading and writing around it.

    offset  type         meaning
    0       int32        magic number: the kind of file
    4       int32        version of that kind
    8       int32 x 254  sizes and settings by kind; 0 where unused

1024 bytes; little-endian, as everything behind it. The kinds are in KINDS below.

A reader here trusts nothing: it compares the magic number, the version, each value and the exact
length of the file before it allocates. A writer makes the file under another name beside the
wanted one and renames it when it is on the disk: a crash leaves the old file or the new one, never
half of it.
"""

import codecs
import contextlib
import errno
import os
import secrets
import stat
import struct
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from ..errors import FormatError, UsageError

PathLike = str | os.PathLike[str]

HEADER_INTS = 256
HEADER_BYTES = 1024

CHECKPOINT = 20240326
DEBUG_STATE = 20240327
TOKENIZER = 20240328
TOKENS = 20240520
EVALUATION = 20240522
TRAINING_STATE = 20240527
LLAMA_TOKENS = 20240801
LLAMA_MODEL = 20240803

KINDS = {
    CHECKPOINT: "a checkpoint",
    DEBUG_STATE: "a debug state",
    TOKENIZER: "a tokenizer",
    TOKENS: "a token file",
    EVALUATION: "an evaluation file",
    TRAINING_STATE: "a training state",
    LLAMA_TOKENS: "a token file of Llama 3",
    LLAMA_MODEL: "a checkpoint or debug state of Llama 3",
}

# first bytes -> what other programs write so
SIGNATURES = (
    (b"PK\x03\x04", "a zip archive, as PyTorch and NumPy (.npz) save their files"),
    (b"GGUF", "a gguf file"),
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"\x1f\x8b\x08", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\x00", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"\x93NUMPY", "a NumPy array (.npy)"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (b"\x7fELF", "a program (ELF)"),
    (b"version https://git-lfs", "a Git LFS pointer: the file itself was not downloaded"),
    (b"<!DOCTYPE", "a web page"),
    (b"<html", "a web page"),
)


def foreign_kind(head: bytes) -> str | None:
    """Say what a file of another program is, by its first bytes; None if they say nothing.

    A file of int32 token ids is never taken for another: below 65536, its bytes 2 and 3 are zero,
    and each test wants something else there.
    """
    for signature, kind in SIGNATURES:
        if head.startswith(signature):
            return kind
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05") and any(head[2:4]):
        return "a Python pickle, as older PyTorch saves its files"
    if head[8:9] == b"{" and head[9:10] in (b'"', b" ", b"}") and any(head[10:12]):
        return "a safetensors file"
    if head[257:262] == b"ustar":
        return "a tar archive"
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head)  # may end inside a character
    except UnicodeDecodeError:
        return None
    if not text or not all(c.isprintable() or c in "\t\n\r\f\ufeff" for c in text):
        return None
    return "JSON" if text.lstrip("\ufeff \t\r\n")[:1] in ("{", "[") else "text"


def check_regular(path: PathLike) -> int:
    """Give the size in bytes of an ordinary file; a missing one raises FileNotFoundError."""
    status = os.stat(path)
    if stat.S_ISDIR(status.st_mode):
        raise UsageError(f"{os.fspath(path)}: path is a directory, expected a file")
    if not stat.S_ISREG(status.st_mode):  # a pipe has no length to check, and may block
        raise UsageError(f"{os.fspath(path)}: path is a pipe or device, expected a file")
    return status.st_size


def read_all(file: BinaryIO, name: str, most: int) -> bytes:
    """Read all that a file or pipe has, which is at most `most` bytes.

    Raises FormatError if there is more: /dev/zero, for one, has no end.
    """
    try:
        content = file.read(most + 1)
    except OSError as error:
        raise OSError(error.errno, error.strerror, name) from None
    if len(content) > most:
        raise FormatError(f"{name}: content goes on after {most:,} bytes, expected at most so many")
    return content


class InputFile:
    """A file open for reading, with what its messages need: the path as given, and the size."""

    def __init__(self, path: PathLike) -> None:
        self.path = os.fspath(path)
        self.size = check_regular(path)
        self._file = open(path, "rb", buffering=0)  # closed in close()  # noqa: SIM115

    def __enter__(self) -> "InputFile":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        self._file.close()

    def head(self) -> bytes:
        """Give the bytes of the header, fewer if the file is shorter."""
        buffer = bytearray(min(HEADER_BYTES, self.size))
        self._fill(memoryview(buffer), 0)
        return bytes(buffer)

    def header(self, magic: int) -> tuple[int, ...]:
        """Give the 256 values of the header, with `magic` as the first.

        Raises FormatError that names the file for what it is, if it is something else.
        """
        expected = f"{KINDS[magic]} (magic number {magic})"
        head = self.head()
        found = int.from_bytes(head[:4], "little", signed=True)
        if found != magic or len(head) < 4:
            self.refuse_others(head, expected)
            kind = KINDS.get(found)
            if kind is None and 0 <= found < 2**17 and self.size % 4 == 0:
                kind = "perhaps tokens without a header"
            raise FormatError(
                f"{self.path}: magic number is {found}{f' ({kind})' if kind else ''}, "
                f"expected {magic} ({KINDS[magic]})"
            )
        if len(head) < HEADER_BYTES:
            raise FormatError(
                f"{self.path}: {self.size:,} bytes, expected at least {HEADER_BYTES:,} "
                "(the header). The file may be cut short."
            )
        return struct.unpack(f"<{HEADER_INTS}i", head)

    def refuse_others(self, head: bytes, expected: str) -> None:
        """Raise FormatError if `head` is empty or of a file of another program or byte order."""
        if not head:
            raise FormatError(f"{self.path}: file is empty, expected {expected}")
        kind = foreign_kind(head)
        if kind is not None:
            raise FormatError(f"{self.path}: content looks like {kind}, expected {expected}")
        swapped = int.from_bytes(head[:4], "big")
        if swapped in KINDS:
            raise FormatError(
                f"{self.path}: magic number is {swapped} ({KINDS[swapped]}) in big-endian byte "
                f"order, expected little-endian"
            )
        if len(head) < 4:
            raise FormatError(f"{self.path}: {len(head)} bytes, expected {expected}")

    def check_size(self, expected: int, parts: str) -> None:
        """Raise FormatError unless the file has exactly `expected` bytes, made up of `parts`."""
        if self.size == expected:
            return
        remedy = ". The file may be cut short." if self.size < expected else ""
        raise FormatError(
            f"{self.path}: {self.size:,} bytes, expected {expected:,} ({parts}){remedy}"
        )

    def read_into(self, array: np.ndarray[Any, Any], offset: int) -> None:
        """Fill a contiguous array with the little-endian values at byte `offset`."""
        self._fill(array.reshape(-1).view(np.uint8).data, offset)
        if sys.byteorder == "big":
            array.byteswap(inplace=True)

    def _fill(self, buffer: memoryview, offset: int) -> None:
        self._file.seek(offset)
        done = 0
        while done < len(buffer):  # the system gives at most 2 GiB at once
            try:
                count = self._file.readinto(buffer[done:])
            except OSError as error:  # such as EIO, which names no file
                raise OSError(error.errno, error.strerror, self.path) from None
            if not count:
                raise FormatError(
                    f"{self.path}: file ends at byte {offset + done:,}, expected {self.size:,} "
                    "bytes, the size it had when it was opened"
                )
            done += count


def pack_header(*values: int) -> bytes:
    """Give the 1024 bytes of a header that begins with `values`."""
    return struct.pack(f"<{len(values)}i", *values).ljust(HEADER_BYTES, b"\0")


def write_array(file: BinaryIO, array: np.ndarray[Any, Any], dtype: str) -> None:
    """Write an array's values as `dtype`, little-endian, without a second copy of all of them."""
    flat = array.reshape(-1)
    piece = 1 << 20
    with np.errstate(over="ignore"):  # a float64 too large for float32 is written as infinity
        for start in range(0, flat.size, piece):
            values = flat[start : start + piece].astype(f"<{dtype}", copy=False)
            file.write(np.ascontiguousarray(values).data)


def check_target(path: PathLike) -> str:
    """Check that a file can be written at `path`; give its path behind all links.

    A link stays a link, and what it points to is replaced. Raises UsageError for a missing folder
    or a `path` that is no ordinary file, PermissionError for a folder or file that is read-only.
    """
    name = os.fspath(path)
    target = os.path.realpath(name)
    folder = os.path.dirname(target)
    there = os.path.exists(target)
    if there:
        check_regular(path)
    elif not os.path.isdir(folder):
        raise UsageError(f"{name}: folder {folder} does not exist. Make it first.")
    # replacing asks for the folder alone; but who makes a file read-only wants to keep it
    if not os.access(folder, os.W_OK | os.X_OK) or (there and not os.access(target, os.W_OK)):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
    return target


@contextlib.contextmanager
def atomic_write(path: PathLike) -> Iterator[BinaryIO]:
    """Open a file for writing that takes the place of `path` at the end, if nothing fails.

    On any failure, Ctrl-C too, `path` is as it was and the temporary file beside it is removed.
    Raises what `check_target` does, and OSError with the wanted path, not the temporary one, if the
    disk is full.

    >>> with atomic_write("model.bin") as file:
    ...     file.write(b"all or nothing")
    """
    name = os.fspath(path)
    target = check_target(path)
    folder = os.path.dirname(target)
    temporary = os.path.join(folder, f".llmpy-{secrets.token_hex(8)}.tmp")
    file = None
    try:
        file = open(temporary, "xb")  # closed below, before the rename  # noqa: SIM115
        yield file
        file.flush()
        os.fsync(file.fileno())
        file.close()
        if os.path.exists(target):
            os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
        os.replace(temporary, target)
    except BaseException as error:
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()  # tries to flush once more
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        if isinstance(error, OSError) and error.filename in (None, temporary):
            raise OSError(error.errno, error.strerror, name) from None
        raise
    _sync_folder(folder)


def _sync_folder(folder: str) -> None:
    """Make the rename last through a power cut, where the system can."""
    if os.name != "posix":
        return
    with contextlib.suppress(OSError):  # a folder may be closed to reading; the file is complete
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
