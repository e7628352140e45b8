"""What is embedded: the plays and GPT-2's vocabulary."""

import gzip
import hashlib
import re
import subprocess
import sys

import pytest

from llmpy.data import corpus
from llmpy.data.corpus import corpus_text, read_packaged
from llmpy.data.vocabulary import char_tokenizer, find_tokenizer, gpt2_tokenizer
from llmpy.errors import FormatError, UsageError
from llmpy.formats.tokenizer import Tokenizer, write_tokenizer
from llmpy.sizes import GPT2Config


def test_corpus_is_nine_plays_of_few_characters():
    text = corpus_text()
    assert 1_100_000 <= len(text) <= 1_300_000
    assert len(set(text)) == 68
    assert set(text) <= set(map(chr, range(32, 127))) | {"\n"}
    assert len(re.findall(r"^ACT (I|FIRST)\.$", text, re.M)) == 9
    assert len(re.findall(r"^ACT (V|FIFTH)\.$", text, re.M)) == 9
    assert "gutenberg" not in text.lower()
    assert "BRUTUS.\nThe games are done, and Caesar is returning." in text


def test_corpus_has_one_layout():
    text = corpus_text()
    assert "\n\n\n" not in text
    assert not re.search(r"^ | $|  ", text, re.M)
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    blocks = text.split("\n\n")
    speeches = [block for block in blocks if re.match(r"[A-Z][A-Z' -]+\.\n", block)]
    assert len(speeches) > 0.75 * len(blocks)
    lone = {block for block in blocks if re.fullmatch(r"[A-Z][A-Z' -]+\.", block)}
    headings = {"PROLOGUE.", "EPILOGUE.", "ACT FIRST.", "ACT THIRD.", "ACT FIFTH."}
    assert lone == headings | {f"ACT {number}." for number in ("I", "II", "III", "IV", "V")}


def test_damaged_package_data_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "files", lambda package: tmp_path)
    packed = gzip.compress(b"To be", mtime=0)
    (tmp_path / "play.gz").write_bytes(packed)
    found = hashlib.sha256(b"To be").hexdigest()
    with pytest.raises(FormatError) as caught:
        read_packaged("play.gz", "0" * 64)
    assert str(caught.value) == (
        f"play.gz: sha256 of its content is {found}, expected {'0' * 64}. Install llmpy again."
    )
    assert read_packaged("play.gz", found) == b"To be"

    (tmp_path / "play.gz").write_bytes(packed[:-4])
    with pytest.raises(FormatError) as caught:
        read_packaged("play.gz", found)
    assert str(caught.value) == (
        "play.gz: content is damaged (Compressed file ended before the end-of-stream marker was "
        "reached). Install llmpy again."
    )
    (tmp_path / "play.gz").write_bytes(packed[:12] + b"\xff\xff" + packed[14:])
    with pytest.raises(FormatError, match=r"^play.gz: .*\. Install llmpy again\.$"):
        read_packaged("play.gz", found)


def test_gpt2_vocabulary():
    tokenizer = gpt2_tokenizer()
    assert tokenizer.vocab_size == 50257
    assert tokenizer.eot == 50256
    assert tokenizer.token_table[50256] == b"<|endoftext|>"
    assert tokenizer.token_table[:3] == [b"!", b'"', b"#"]
    assert not tokenizer.is_char
    ids = tokenizer.encode("Hello world")
    assert ids == [15496, 995]
    assert tokenizer.decode(ids) == b"Hello world"


def test_gpt2_vocabulary_needs_no_network_and_no_home():
    program = """
import socket
def refuse(*args, **kwargs):
    raise OSError("no network in this test")
socket.socket.connect = socket.getaddrinfo = refuse
from llmpy.data.vocabulary import gpt2_tokenizer
print(gpt2_tokenizer().encode("their 'studio'"))
"""
    environment = {"HOME": "/nonexistent", "PATH": ""}
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert (result.stdout, result.stderr) == ("[24571, 705, 19149, 952, 6]\n", "")


def test_char_tokenizer_is_in_code_point_order():
    tokenizer = char_tokenizer("zebra \u00e9\U0001f600\n")
    assert tokenizer.is_char
    assert tokenizer.eot is None
    table = ["\n", " ", "a", "b", "e", "r", "z", "\u00e9", "\U0001f600"]
    assert tokenizer.token_table == [character.encode() for character in table]
    ids = tokenizer.encode("\u00e9bra")
    assert ids == [7, 3, 5, 2]
    assert tokenizer.decode(ids).decode() == "\u00e9bra"


def test_char_tokenizer_takes_surrogates():
    assert char_tokenizer("a\ud83d\ude00\udc00").token_table == [
        b"a",
        "\ufffd".encode(),
        "\U0001f600".encode(),
    ]


def test_char_tokenizer_of_nothing_is_refused():
    with pytest.raises(UsageError) as caught:
        char_tokenizer("")
    assert str(caught.value) == "char_tokenizer: text is empty, expected at least one character"


def test_find_tokenizer(tmp_path):
    sizes = GPT2Config(max_seq_len=4, vocab_size=2, num_layers=1, num_heads=1, channels=1)
    model, data = tmp_path / "m" / "model.bin", tmp_path / "d" / "train_*.bin"
    beside = (str(model), str(data))
    assert find_tokenizer(sizes, None, *beside) is None
    for entries, path in ((b"ab", data), (b"cd", model)):  # the model's goes before the data's
        path.parent.mkdir()
        write_tokenizer(path.parent / "tokenizer.bin", Tokenizer([entries[:1], entries[1:]], None))
        assert find_tokenizer(sizes, None, *beside).decode([0, 1]) == entries
        assert find_tokenizer(sizes, None, None, str(path)).decode([0, 1]) == entries
    given = str(data.parent / "tokenizer.bin")
    assert find_tokenizer(sizes, given, *beside).decode([0, 1]) == b"ab"


def test_gpt2s_vocabulary_is_found_by_its_size():
    gpt2 = GPT2Config(max_seq_len=4, vocab_size=50257, num_layers=1, num_heads=1, channels=1)
    assert find_tokenizer(gpt2, None, None).decode([15496, 995]) == b"Hello world"
