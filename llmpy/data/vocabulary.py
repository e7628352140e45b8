"""Vocabularies that need no file: GPT-2's, which is embedded, and the characters of a text.

The embedded file is tiktoken's: a line for each entry, its bytes in base64 and its rank, which is
its id. End-of-text is not in it and has the id after the last (see SOURCES.md).
"""

import base64
import functools

from ..errors import UsageError
from ..formats.tokenizer import EOT_TEXT, GPT2_EOT, Tokenizer, join_surrogates
from .corpus import read_packaged

VOCABULARY_FILE = "gpt2.tiktoken.gz"
VOCABULARY_SHA256 = "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"


@functools.cache
def gpt2_tokenizer() -> Tokenizer:
    """Give GPT-2's tokenizer: 50257 entries, end-of-text 50256.

    Raises FormatError if the installed file is damaged.
    """
    lines = read_packaged(VOCABULARY_FILE, VOCABULARY_SHA256).splitlines()
    ranks = dict(line.split() for line in lines)
    table = [
        base64.b64decode(entry) for entry in sorted(ranks, key=lambda entry: int(ranks[entry]))
    ]
    table.append(EOT_TEXT.encode())
    return Tokenizer(table, eot=GPT2_EOT)


def char_tokenizer(text: str) -> Tokenizer:
    """Make a tokenizer of the characters of a text, ids in the order of their code points.

    >>> char_tokenizer("abba\\n").encode("ab")
    [1, 2]
    """
    characters = sorted(set(join_surrogates(text)))
    if not characters:
        raise UsageError("char_tokenizer: text is empty, expected at least one character")
    return Tokenizer([character.encode() for character in characters], eot=None)
