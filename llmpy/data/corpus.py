"""The embedded corpus: nine plays of Shakespeare, 1.2 MB of 68 characters (see SOURCES.md)."""

import functools
import gzip
import hashlib
from importlib.resources import files

from ..errors import FormatError

CORPUS_FILE = "shakespeare.txt.gz"
CORPUS_SHA256 = "1ad48a9afa14e4f0d88166b4b951e67eaf02090b950e153af3781821768a1466"


def read_packaged(name: str, sha256: str) -> bytes:
    """Decompress a file of this folder and check it.

    Raises FormatError if its content has another SHA-256, or is no gzip data.
    """
    packed = files(__package__).joinpath(name).read_bytes()
    remedy = "Install llmpy again."
    try:
        content = gzip.decompress(packed)
    except (OSError, EOFError, ValueError) as error:
        raise FormatError(f"{name}: content is damaged ({error}). {remedy}") from None
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise FormatError(f"{name}: sha256 of its content is {found}, expected {sha256}. {remedy}")
    return content


@functools.cache
def corpus_text() -> str:
    """Give the plays as one ASCII text that ends in a newline.

    A play is its title, then the acts, with a blank line between any two of heading, speech and
    stage direction. Raises FormatError if the installed file is damaged.

    >>> corpus_text()[:33]
    'THE TRAGEDY OF CORIOLANUS\\n\\nACT I.'
    """
    return read_packaged(CORPUS_FILE, CORPUS_SHA256).decode("ascii")
