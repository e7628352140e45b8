"""Compiled kernels on the disk, for the next run: Numba's cache, safe among processes and crashes.

Numba takes a cached kernel for valid while its own file is the same; ours call functions of other
files. It numbers the files of a kernel, one for each type of its arguments, and writes the index of
the numbers before the files: of two processes that compile at once, one may find the other's code
under its number, and after a crash in between, code of an older source. So here a file is named by
a hash of all that it depends on, and there is no index:

    <kernel>.<sources>.<key>.nbc    sources, a hash of all modules of this folder
                                    key, one of Numba's version, the types and the processor

    offset  content
    0       SHA-256 of the rest
    32      pickled machine code

What cannot be read, or is damaged, is compiled again. What cannot be written, on a full disk, is
told once and done without.
"""

import hashlib
import pickle
import re
from functools import cache
from pathlib import Path

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile

from ..console import note

DIGEST_BYTES = 32


@cache
def sources_stamp() -> str:
    """Give a hash of all modules of this folder."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


class KernelFiles(IndexDataCacheFile):  # type: ignore[misc]  # numba has no types
    """The files of one kernel."""

    def path(self, key) -> Path:
        """Give the file of the code for a key: the types of the arguments, and the processor."""
        digest = hashlib.sha256(repr((numba.__version__, key)).encode()).hexdigest()
        return Path(self._cache_path, f"{self._prefix}{self._source_stamp[:16]}.{digest[:16]}.nbc")

    def load(self, key):
        """Give what was saved for a key; None if there is nothing, or it is damaged."""
        try:
            content = self.path(key).read_bytes()
        except OSError:
            return None
        digest, data = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
        return pickle.loads(data) if hashlib.sha256(data).digest() == digest else None

    def save(self, key, data):
        """Save code for a key, and remove that of other sources."""
        content = self._dump(data)
        with self._open_for_write(str(self.path(key))) as file:
            file.write(hashlib.sha256(content).digest() + content)
        own = f"{self._prefix}{self._source_stamp[:16]}."
        for path in Path(self._cache_path).iterdir():
            if path.name.startswith(self._prefix) and not path.name.startswith(own):
                path.unlink(missing_ok=True)

    @property
    def _prefix(self) -> str:
        """What the names of the kernel's files begin with: without its line, which may move."""
        return re.sub(r"-\d+(\.py\d+.*)\.nbi$", r"\1.", self._index_name)


class KernelCache(FunctionCache):  # type: ignore[misc]
    """The cache of one kernel, in place of what `njit(cache=True)` makes."""

    def __init__(self, function):
        """Find a folder. Raises RuntimeError if there is none that can be written."""
        super().__init__(function)
        base = self._impl.filename_base
        self._cache_file = KernelFiles(self._cache_path, base, sources_stamp())

    def load_overload(self, sig, target_context):
        """Load the code for some types; None if it must be compiled."""
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # whatever the loading of what is no code of ours may raise
            return None

    def save_overload(self, sig, data):
        """Save the code for some types, if that is possible."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            tell_once(f"compiled kernels are not kept: {self._cache_path}: {error.strerror}")


@cache
def tell_once(text: str) -> None:
    """Write a line to stderr, the first time."""
    note(f"llmpy: {text}. Set NUMBA_CACHE_DIR to a directory to keep them.")
