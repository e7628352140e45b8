"""The vocabulary: its file, byte for byte, and encoding and decoding with it."""

import itertools
import os
import random
import struct
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmpy.data.vocabulary import gpt2_tokenizer
from llmpy.errors import UsageError
from llmpy.formats.tokenizer import (
    Tokenizer,
    check_vocabulary,
    read_tokenizer,
    write_tokenizer,
)
from llmpy.sizes import GPT2Config

from .foreign import FOREIGN, OF_LLMC, header, message

FILE = "v.bin"  # of the fixture `write`

# three entries: newline; an accented e, which is two bytes; a byte that is no character
TABLE = [b"\n", "\u00e9".encode(), b"\xff"]
BODY = b"\x01\x0a" + b"\x02\xc3\xa9" + b"\x01\xff"
CHARACTERS = Tokenizer([b"\n", b"a", b"b", "\u00e9".encode(), "\U0001f44d".encode()], eot=None)
BYTES = [bytes([i]) for i in range(256)]


@pytest.fixture(scope="module")
def gpt2():
    return gpt2_tokenizer()


class TestFile:
    def test_golden_bytes_are_read(self, write):
        for values, eot in (((1, 3, 0), None), ((2, 3, 3), None), ((2, 3, 1), 1), ((2, 3, 0), 0)):
            tokenizer = read_tokenizer(write(header(20240328, *values) + BODY))
            assert tokenizer.token_table == TABLE
            assert (tokenizer.vocab_size, tokenizer.eot) == (3, eot)

    def test_version_1_has_end_of_text_if_it_has_gpt2s_id(self, write):
        for n, eot in ((50256, None), (50257, 50256)):
            tokenizer = read_tokenizer(write(header(20240328, 1, n) + b"\x01x" * n))
            assert (tokenizer.vocab_size, tokenizer.eot) == (n, eot)

    @pytest.mark.parametrize(("eot", "third"), [(None, 3), (0, 0), (2, 2)])
    def test_golden_bytes_are_written(self, tmp_path, eot, third):
        write_tokenizer(tmp_path / "v.bin", Tokenizer(TABLE, eot))
        assert (tmp_path / "v.bin").read_bytes() == header(20240328, 2, 3, third) + BODY
        assert os.listdir(tmp_path) == ["v.bin"]

    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.binary(min_size=1, max_size=255), min_size=1, max_size=20), st.data())
    def test_round_trip(self, tmp_path_factory, table, data):
        eot = data.draw(st.none() | st.integers(0, len(table) - 1))
        path = tmp_path_factory.mktemp("v") / "v.bin"
        write_tokenizer(path, Tokenizer(table, eot))
        back = read_tokenizer(path)
        assert (back.token_table, back.eot) == (table, eot)

    def test_every_truncation(self, write):
        whole = header(20240328, 2, 3, 3) + BODY
        for size in [*range(0, 1024, 31), *range(1020, len(whole))]:
            assert message(read_tokenizer, write(whole[:size])).startswith("v.bin: ")

    def test_the_table_is_checked(self, write):
        head = header(20240328, 2, 3, 3)
        assert message(read_tokenizer, write(head + BODY[:-1])) == (
            "v.bin: file ends in entry 2 at byte 1,030, expected 3 entries. "
            "The file may be cut short."
        )
        assert message(read_tokenizer, write(head + b"\x05abcde\x02")) == (
            "v.bin: file ends in entry 1 at byte 1,031, expected 3 entries. "
            "The file may be cut short."
        )
        assert message(read_tokenizer, write(head + b"\x07abcdefg")) == (
            "v.bin: file ends in entry 1 at byte 1,032, expected 3 entries. "
            "The file may be cut short."
        )
        assert message(read_tokenizer, write(head + BODY + bytes(4))) == (
            "v.bin: 4 bytes follow the last of 3 entries, expected none"
        )
        assert message(read_tokenizer, write(head + b"\x01a\x00\x01b\x01c")) == (
            "v.bin: length of entry 1 at byte 1,026 is 0, expected 1 to 255"
        )
        assert message(read_tokenizer, write(head + BODY[:3])) == (
            "v.bin: 1,027 bytes, expected 1,030 to 1,792 (1,024 of header and 3 entries of 2 to "
            "256 bytes). The file may be cut short."
        )

    @pytest.mark.parametrize(
        ("values", "want"),
        [
            ((0, 3, 3), "version is 0, expected 1 or 2"),
            ((3, 3, 3), "version is 3, expected 1 or 2"),
            ((2, 0, 0), "number of entries is 0, expected at least 1"),
            (
                (2, 3, 4),
                "end-of-text id is 4, expected at most 3, the number of entries, which means none",
            ),
            (
                (2, 3, -1),
                "end-of-text id is 4294967295, expected at most 3, the number of entries, "
                "which means none",
            ),
            (
                (2, -1, 0),
                "1,031 bytes, expected 8,589,935,614 to 1,099,511,628,544 (1,024 of header and "
                "4,294,967,295 entries of 2 to 256 bytes). The file may be cut short.",
            ),
            (
                (2, 1, 0),
                "5 bytes follow the last of 1 entries, expected none",
            ),
        ],
    )
    def test_every_wrong_field(self, write, values, want):
        content = header(20240328, *values) + BODY
        assert message(read_tokenizer, write(content)) == f"v.bin: {want}"

    def test_a_file_too_long_is_not_read(self, write):
        path = write(header(20240328, 2, 3, 3) + BODY)
        os.truncate(path, 2**33)
        assert message(read_tokenizer, path) == (
            "v.bin: 8,589,934,592 bytes, expected 1,030 to 1,792 "
            "(1,024 of header and 3 entries of 2 to 256 bytes)"
        )

    def test_other_files(self, write):
        for content, kind in FOREIGN.values():
            assert message(read_tokenizer, write(content)) == (
                f"v.bin: content looks like {kind}, expected a tokenizer (magic number 20240328)"
            )
        for magic, kind in OF_LLMC.items():
            if magic != 20240328:
                assert message(read_tokenizer, write(header(magic, 2, 3))) == (
                    f"v.bin: magic number is {magic} ({kind}), expected 20240328 (a tokenizer)"
                )

    @pytest.mark.parametrize(
        ("table", "eot", "want"),
        [
            ([], None, "token_table has 0 entries, expected at least 1"),
            ([b"a", b""], None, "entry 1 has 0 bytes, expected 1 to 255"),
            ([b"a", b"b" * 256], None, "entry 1 has 256 bytes, expected 1 to 255"),
            ([b"a", b"b"], 2, "end-of-text id is 2, expected 0 to 1"),
            ([b"a", b"b"], -1, "end-of-text id is -1, expected 0 to 1"),
        ],
    )
    def test_impossible_tables(self, table, eot, want):
        assert message(Tokenizer, table, eot, error=UsageError) == f"Tokenizer: {want}"


class TestGpt2:
    def test_the_file_round_trips(self, gpt2, tmp_path):
        write_tokenizer(tmp_path / "v.bin", gpt2)
        content = (tmp_path / "v.bin").read_bytes()
        assert content[:16] == struct.pack("<4I", 20240328, 2, 50257, 50256)
        assert content[-14:] == b"\x0d<|endoftext|>"
        back = read_tokenizer(tmp_path / "v.bin")
        assert back.token_table == gpt2.token_table
        assert back.encode("hello world") == gpt2.encode("hello world") == [31373, 995]
        assert not back.is_char

    @pytest.mark.parametrize(
        ("text", "ids"),
        [
            ("", []),
            ("Hello world", [15496, 995]),
            ("y is ?", [88, 318, 5633]),  # R07
            (" ?", [5633]),
            ("their 'studio'", [24571, 705, 19149, 952, 6]),
            ("a <|endoftext|> b", [64, 1279, 91, 437, 1659, 5239, 91, 29, 275]),  # R04
        ],
    )
    def test_known_ids(self, gpt2, text, ids):
        assert gpt2.encode(text) == ids
        assert gpt2.decode(ids) == text.encode()
        assert gpt2.decode(np.array(ids, np.int32)) == text.encode()

    def test_end_of_text_on_request(self, gpt2):  # R04
        assert gpt2.encode("a <|endoftext|> b", allow_special=True) == [64, 220, 50256, 275]
        assert gpt2.decode([50256]) == b"<|endoftext|>"

    @pytest.mark.parametrize("allow_special", [False, True])
    @pytest.mark.parametrize(
        ("text", "ids"),
        [("\udbc0", [4210]), ("\ud83d\udc4d", [41840, 235]), ("\U0001f44d", [41840, 235])],
    )
    def test_surrogates(self, gpt2, text, ids, allow_special):  # R06
        assert gpt2.encode(text, allow_special=allow_special) == ids
        ok = gpt2.encode("ok")
        assert gpt2.encode("ok \udc97", allow_special=allow_special) == [
            *ok,
            *gpt2.encode(" \ufffd"),
        ]

    def test_one_unbroken_word(self, gpt2):  # R01
        gpt2.encode("warm up")
        start = time.perf_counter()
        assert gpt2.encode("a" * 100_000) == [24794] * 25_000
        letters = "".join(random.Random(0).choices("abcdefghijklmnopqrstuvwxyz", k=100_000))
        assert gpt2.decode(gpt2.encode(letters)) == letters.encode()
        assert time.perf_counter() - start < 5  # a quadratic loop takes minutes

    def test_long_runs_that_a_regular_expression_could_choke_on(self, gpt2):
        for text in (" " * 300_000 + "x", "\n" * 300_000, "\n " * 100_000, "'" * 300_000):
            assert gpt2.decode(gpt2.encode(text)) == text.encode()

    @settings(max_examples=100, deadline=None)
    @given(st.text())
    def test_decoding_gives_the_same_bytes(self, gpt2, text):  # R07
        assert gpt2.decode(gpt2.encode(text)) == text.encode()
        assert gpt2.decode(gpt2.encode(text, allow_special=True)) == text.encode()

    @settings(max_examples=100, deadline=None)
    @given(st.text(alphabet=" \t\n'stdmrelv?!10", max_size=40))
    def test_spaces_and_endings_survive(self, gpt2, text):  # R07
        assert gpt2.decode(gpt2.encode(text)) == text.encode()

    def test_merging_follows_the_ranks(self, gpt2):
        """The words of a text against merging done the slow and plain way."""
        ranks = {entry: i for i, entry in enumerate(gpt2.token_table)}

        def merge(word):
            parts = [bytes([b]) for b in word]
            while True:
                pairs = [ranks.get(a + b, 1 << 30) for a, b in itertools.pairwise(parts)]
                if not pairs or min(pairs) == 1 << 30:
                    return [ranks[part] for part in parts]
                i = pairs.index(min(pairs))
                parts[i : i + 2] = [parts[i] + parts[i + 1]]

        rng = random.Random(5)
        for _ in range(100):
            word = "".join(rng.choices("etaoinshrdlu\u00e9\u0436", k=rng.randint(1, 30)))
            assert gpt2.encode(word) == merge(word.encode()), word

    def test_ids_outside_the_vocabulary(self, gpt2):
        for wrong in (50257, -1):
            assert message(gpt2.decode, [0, 1, wrong], error=UsageError) == (
                f"decode: id 2 is {wrong}, expected 0 to 50256 (vocab_size is 50257)"
            )

    def test_the_vocabulary_of_a_model(self, gpt2):  # R33
        sizes = {"max_seq_len": 8, "num_layers": 1, "num_heads": 1, "channels": 4}
        check_vocabulary(gpt2, GPT2Config(vocab_size=50257, **sizes))
        small = Tokenizer([b"x"] * 50000, None)
        config = GPT2Config(vocab_size=50257, **sizes)
        assert message(check_vocabulary, small, config, "v.bin") == (
            "v.bin: tokenizer has 50000 entries, expected 50257, the vocab_size of the model"
        )


class TestCharacters:
    def test_encodes_and_decodes(self):
        assert CHARACTERS.is_char
        text = "ab\n\u00e9\U0001f44d\n"
        assert CHARACTERS.encode(text) == [1, 2, 0, 3, 4, 0]
        assert CHARACTERS.decode([1, 2, 0, 3, 4, 0]) == text.encode()
        assert CHARACTERS.encode("\ud83d\udc4d", allow_special=True) == [4]
        assert CHARACTERS.encode("") == []

    def test_any_order_of_entries(self, tmp_path):
        write_tokenizer(tmp_path / "v.bin", Tokenizer([b"z", b"\n", b"a"], eot=1))
        back = read_tokenizer(tmp_path / "v.bin")
        assert back.is_char
        assert back.eot == 1
        assert back.encode("az\n") == [2, 0, 1]

    @pytest.mark.parametrize(
        ("text", "place"),
        [
            ("x", "character 0 (line 1, column 1) is 'x' (U+0078)"),
            ("ab\nbax", "character 5 (line 2, column 3) is 'x' (U+0078)"),
            ("a\n\nx\nx", "character 3 (line 3, column 1) is 'x' (U+0078)"),
            ("a\tb", "character 1 (line 1, column 2) is '\\t' (U+0009)"),
            ("a\udc97", "character 1 (line 1, column 2) is '\ufffd' (U+FFFD)"),  # R06
            ("\U0001f44d\U0001f44e", "character 1 (line 1, column 2) is '\U0001f44e' (U+1F44E)"),
        ],
    )
    def test_names_the_first_character_that_it_lacks(self, text, place):
        assert message(CHARACTERS.encode, text, error=UsageError) == (
            f"encode: {place}, expected one of the 5 in the vocabulary"
        )

    @pytest.mark.parametrize(
        "table", [[b"a", b"bc"], [b"a", b"\xff"], [b"a", b"\xc3"], [b"a", b"a"], [b"e\xcc\x81"]]
    )
    def test_other_tables_are_not_characters(self, table):
        assert not Tokenizer(table, None).is_char


class TestBytes:
    def test_a_vocabulary_of_bytes(self):
        tokenizer = Tokenizer(BYTES, None)
        assert not tokenizer.is_char
        assert tokenizer.encode("h\u00e9") == [104, 0xC3, 0xA9]
        assert tokenizer.encode("<|endoftext|>", allow_special=True) == list(b"<|endoftext|>")

    def test_merges_in_the_order_of_ids(self):
        tokenizer = Tokenizer([*BYTES, b"ab", b"bc", b"<|endoftext|>"], eot=258)
        assert tokenizer.encode("abc bc") == [256, 99, 32, 257]
        assert tokenizer.encode("a<|endoftext|>", allow_special=True) == [97, 258]
        assert tokenizer.encode("<|endoftext|>") == list(b"<|endoftext|>")

    def test_end_of_text_with_another_name_is_no_special_text(self):
        tokenizer = Tokenizer([*BYTES, b"<|endoftext|>", b"</s>"], eot=257)
        text = "x</s> <|endoftext|>"
        assert tokenizer.encode(text, allow_special=True) == list(text.encode())

    def test_tables_that_can_only_decode(self):
        missing = Tokenizer([*BYTES[:10], *BYTES[11:], b"ab"], None)
        assert missing.decode([255]) == b"ab"
        assert message(missing.encode, "a", error=UsageError) == (
            "encode: byte 0x0a is not in the vocabulary, expected all 256 (byte-level BPE) or one "
            "character an entry. This vocabulary can only decode."
        )
        twice = Tokenizer([*BYTES, b"ab", b"ab"], None)
        assert twice.decode([257]) == b"ab"
        assert message(twice.encode, "a", error=UsageError) == (
            "encode: entry 257 of the vocabulary is b'ab', the same as entry 256, expected each "
            "once. This vocabulary can only decode."
        )
