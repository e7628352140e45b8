"""The vocabulary: llm.c's tokenizer file, magic number 20240328, and encoding with it.

    offset  type    meaning
    0       uint32  20240328
    4       uint32  version, 1 or 2
    8       uint32  n, the number of entries
    12      uint32  version 2: id of the end-of-text entry, or n if there is none; version 1: 0
    16      uint32 x 252  zero
    1024    n times: uint8 length (1 to 255), then so many bytes

Version 1 (April 2024) says nothing of end-of-text, which was GPT-2's 50256: so it is here if there
is an entry with that id, else there is none. Version 2 is written.

The file holds bytes for ids, all that decoding needs. Encoding follows from what the entries are:

- each exactly one character, in UTF-8: a character tokenizer, one id a character;
- all 256 single bytes among them: a byte-level BPE, whose ids are in the order of its merges. Text
  is split into words as GPT-2 does and merged by tiktoken;
- anything else decodes but does not encode.

`<|endoftext|>` in a text is ordinary text (a book may mention it) unless `allow_special` is given;
then it is the end-of-text id of a vocabulary that has an entry of these 13 bytes. Surrogates, which
are no characters, are joined where they pair and become U+FFFD where they don't.

Sources: llm.c, train_gpt2.py, write_tokenizer; GPT-2, https://github.com/openai/gpt-2, encoder.py.
"""

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..errors import FormatError, UsageError
from ..sizes import GPT2Config
from .header import HEADER_BYTES, TOKENIZER, InputFile, PathLike, atomic_write, pack_header

VERSIONS = (1, 2)
TOKENIZER_NAME = "tokenizer.bin"  # beside a model or its data
GPT2_EOT = 50256
EOT_TEXT = "<|endoftext|>"
MAX_ENTRY_BYTES = 255

# how GPT-2 splits text into words, as tiktoken spells it: `++` does not backtrack, so it is fast
GPT2_SPLIT = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""


class Tokenizer:
    """A vocabulary, to turn text into ids and ids into bytes.

    >>> tokenizer = Tokenizer([b"\\n", b"a", b"b"], eot=None)
    >>> tokenizer.encode("abba"), tokenizer.decode([1, 2])
    ([1, 2, 2, 1], b'ab')
    """

    def __init__(self, token_table: Sequence[bytes], eot: int | None) -> None:
        """Take the bytes of each id, and the id of end-of-text or None."""
        self.token_table = list(token_table)
        self.eot = eot
        if not self.token_table:
            raise UsageError("Tokenizer: token_table has 0 entries, expected at least 1")
        for i, entry in enumerate(self.token_table):
            if not 1 <= len(entry) <= MAX_ENTRY_BYTES:
                raise UsageError(
                    f"Tokenizer: entry {i} has {len(entry)} bytes, expected 1 to {MAX_ENTRY_BYTES}"
                )
        if eot is not None and not 0 <= eot < len(self.token_table):
            raise UsageError(
                f"Tokenizer: end-of-text id is {eot}, expected 0 to {len(self.token_table) - 1}"
            )

    @property
    def vocab_size(self) -> int:
        """The number of entries, V."""
        return len(self.token_table)

    @property
    def is_char(self) -> bool:
        """Whether each entry is exactly one character, and no two are the same."""
        return self._ids_of_characters is not None

    def encode(self, text: str, allow_special: bool = False) -> list[int]:
        """Turn text into ids; `<|endoftext|>` counts as text unless `allow_special`.

        Raises UsageError for a character that a character tokenizer does not have, or if the
        vocabulary is neither made of characters nor a byte-level BPE.
        """
        text = join_surrogates(text)
        ids_of_characters = self._ids_of_characters
        if ids_of_characters is not None:
            try:
                return [ids_of_characters[character] for character in text]
            except KeyError:
                raise UsageError(self._missing_character(text, ids_of_characters)) from None
        if allow_special:
            ids: list[int] = self._bpe.encode(text, allowed_special="all", disallowed_special=())
        else:
            ids = self._bpe.encode_ordinary(text)
        return ids

    def decode(self, ids: Iterable[int]) -> bytes:
        """Turn ids into the bytes they stand for; a character may be cut at either end.

        Raises UsageError for an id outside 0 to V - 1.
        """
        table = self.token_table
        pieces = []
        for i, token in enumerate(ids):
            if not 0 <= token < len(table):
                raise UsageError(
                    f"decode: id {i} is {token}, expected 0 to {len(table) - 1} "
                    f"(vocab_size is {len(table)})"
                )
            pieces.append(table[token])
        return b"".join(pieces)

    @functools.cached_property
    def _ids_of_characters(self) -> dict[str, int] | None:
        """The id of each character, or None if an entry is not exactly one, or comes twice."""
        ids: dict[str, int] = {}
        for i, entry in enumerate(self.token_table):
            try:
                character = entry.decode("utf-8")
            except UnicodeDecodeError:
                return None
            if len(character) != 1 or character in ids:
                return None
            ids[character] = i
        return ids

    @functools.cached_property
    def _bpe(self) -> Any:
        """The tiktoken encoding of a byte-level BPE; ids are ranks."""
        ranks: dict[bytes, int] = {}
        special = {}
        for i, entry in enumerate(self.token_table):
            if i == self.eot and entry == EOT_TEXT.encode():
                special[EOT_TEXT] = i
                continue
            if entry in ranks:
                raise UsageError(
                    f"encode: entry {i} of the vocabulary is {entry!r}, the same as entry "
                    f"{ranks[entry]}, expected each once. This vocabulary can only decode."
                )
            ranks[entry] = i
        for value in range(256):
            if bytes([value]) not in ranks:
                raise UsageError(
                    f"encode: byte 0x{value:02x} is not in the vocabulary, expected all 256 "
                    "(byte-level BPE) or one character an entry. This vocabulary can only decode."
                )
        import tiktoken  # here, because importing it takes a while

        return tiktoken.Encoding(
            "llmpy", pat_str=GPT2_SPLIT, mergeable_ranks=ranks, special_tokens=special
        )

    def _missing_character(self, text: str, known: dict[str, int]) -> str:
        index = next(i for i, character in enumerate(text) if character not in known)
        line = text.count("\n", 0, index) + 1
        column = index - text.rfind("\n", 0, index)
        character = text[index]
        return (
            f"encode: character {index} (line {line}, column {column}) is {character!r} "
            f"(U+{ord(character):04X}), expected one of the {len(known)} in the vocabulary"
        )


def join_surrogates(text: str) -> str:
    """Join pairs of surrogates, and put U+FFFD for single ones; other text is given back as is."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def check_vocabulary(tokenizer: Tokenizer, config: GPT2Config, who: str = "tokenizer") -> None:
    """Raise FormatError unless tokenizer and model agree on the size of the vocabulary."""
    if tokenizer.vocab_size != config.vocab_size:
        raise FormatError(
            f"{who}: tokenizer has {tokenizer.vocab_size} entries, "
            f"expected {config.vocab_size}, the vocab_size of the model"
        )


def read_tokenizer(path: PathLike) -> Tokenizer:
    """Read a vocabulary in llm.c's format, version 1 or 2.

    Raises FormatError if the magic number, the version, a size or the length is wrong.
    """
    with InputFile(path) as file:
        n, eot = tokenizer_header(file)
        body = np.empty(file.size - HEADER_BYTES, np.uint8)
        file.read_into(body, HEADER_BYTES)
        return Tokenizer(_split_table(file.path, body.tobytes(), n), eot)


def write_tokenizer(path: PathLike, tokenizer: Tokenizer) -> None:
    """Write a vocabulary in llm.c's format, version 2; the file appears whole or not at all."""
    n = tokenizer.vocab_size
    with atomic_write(path) as file:
        file.write(pack_header(TOKENIZER, 2, n, n if tokenizer.eot is None else tokenizer.eot))
        for entry in tokenizer.token_table:
            file.write(bytes([len(entry)]) + entry)


def tokenizer_header(file: InputFile) -> tuple[int, int | None]:
    """Check the header of a tokenizer file; give the number of entries and the end-of-text id."""
    _, version, n, eot = (value % 2**32 for value in file.header(TOKENIZER)[:4])  # uint32
    if version not in VERSIONS:
        raise FormatError(f"{file.path}: version is {version}, expected 1 or 2")
    if n < 1:
        raise FormatError(f"{file.path}: number of entries is {n}, expected at least 1")
    least, most = HEADER_BYTES + 2 * n, HEADER_BYTES + (1 + MAX_ENTRY_BYTES) * n
    if not least <= file.size <= most:
        remedy = ". The file may be cut short." if file.size < least else ""
        raise FormatError(
            f"{file.path}: {file.size:,} bytes, expected {least:,} to {most:,} "
            f"({HEADER_BYTES:,} of header and {n:,} entries of 2 to 256 bytes){remedy}"
        )
    if version == 1:
        return n, GPT2_EOT if n > GPT2_EOT else None
    if eot > n:
        raise FormatError(
            f"{file.path}: end-of-text id is {eot}, expected at most {n}, the number of entries, "
            "which means none"
        )
    return n, None if eot == n else eot


def _split_table(path: str, body: bytes, n: int) -> list[bytes]:
    table = []
    at = 0
    for i in range(n):
        length = body[at] if at < len(body) else None
        if length == 0:
            raise FormatError(
                f"{path}: length of entry {i} at byte {HEADER_BYTES + at:,} is 0, expected 1 to 255"
            )
        if length is None or at + 1 + length > len(body):
            raise FormatError(
                f"{path}: file ends in entry {i} at byte {HEADER_BYTES + len(body):,}, "
                f"expected {n:,} entries. The file may be cut short."
            )
        table.append(body[at + 1 : at + 1 + length])
        at += 1 + length
    if at != len(body):
        raise FormatError(
            f"{path}: {len(body) - at:,} bytes follow the last of {n:,} entries, expected none"
        )
    return table
