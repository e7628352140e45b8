"""Where vocabularies come from: a file beside a model, GPT-2's own, the characters of a text.

GPT-2's is embedded, in a file of tiktoken's: a line for each entry, its bytes in base64 and its
rank, which is its id. End-of-text is not in it and has the id after the last (see SOURCES.md).
"""

import base64
import functools
from pathlib import Path

from ..errors import UsageError
from ..formats.tokenizer import (
    EOT_TEXT,
    GPT2_EOT,
    TOKENIZER_NAME,
    Tokenizer,
    check_vocabulary,
    join_surrogates,
    read_tokenizer,
)
from ..sizes import VOCAB_SIZE, GPT2Config
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


def find_tokenizer(config: GPT2Config, given: str | None, *beside: str | None) -> Tokenizer | None:
    """Find the vocabulary of a model.

    given   path of a tokenizer file, or None
    beside  paths of files beside which a tokenizer.bin may lie, or None: the first counts

    Else it is GPT-2's if V is 50257. None if there is none. Raises FormatError if sizes disagree.
    """
    neighbours = [Path(path).parent / TOKENIZER_NAME for path in beside if path is not None]
    found = [given] if given is not None else [str(p) for p in neighbours if p.is_file()]
    if found:
        tokenizer = read_tokenizer(found[0])
        check_vocabulary(tokenizer, config, found[0])
        return tokenizer
    return gpt2_tokenizer() if config.vocab_size == VOCAB_SIZE else None
