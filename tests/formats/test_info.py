"""`llmpy info`: every format described, and other files named."""

import os
import struct

import pytest

from llmpy.errors import FormatError, UsageError
from llmpy.formats.info import describe_file

from .foreign import FOREIGN, header
from .test_checkpoint import GOLDEN as CHECKPOINTS
from .test_debug_state import GOLDEN as DEBUG_STATES
from .test_tokenizer import BODY
from .test_tokens import GOLDEN, HEADERLESS


@pytest.fixture
def describe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def describe(content):
        (tmp_path / "f.bin").write_bytes(content)
        return describe_file("f.bin")

    return describe


@pytest.mark.parametrize(
    ("version", "padded", "dtype", "count", "size"),
    [
        (1, "none", "float32", "88", "1,376"),
        (3, "128", "float32", "338", "2,376"),
        (5, "128", "bfloat16", "338", "1,700"),
    ],
)
def test_checkpoint(describe, version, padded, dtype, count, size):
    assert describe(CHECKPOINTS[version]) == [
        f"f.bin: a checkpoint (magic number 20240326), version {version}",
        "max_seq_len        2",
        "vocab_size         3",
        f"padded_vocab_size  {padded}",
        "num_layers         1",
        "num_heads          1",
        "channels           2",
        f"dtype              {dtype}",
        f"num_parameters     {count}",
        f"bytes              {size}",
    ]


def test_debug_state(describe):
    assert describe(DEBUG_STATES[2]) == [
        "f.bin: a debug state (magic number 20240327), version 2",
        "B                     1",
        "T                     2",
        "dtype                 float32",
        "logits and gradients  344",
        "bytes                 2,420",
    ]
    with pytest.raises(FormatError) as caught:
        describe(DEBUG_STATES[2][:-2])
    assert str(caught.value) == (
        "f.bin: 2,418 bytes, expected 1,044 (1,024 of header, batch of B*T = 1*2, loss) and "
        "float32 logits and gradients. The file may be cut short."
    )


def test_tokens(describe):
    assert describe(GOLDEN) == [
        "f.bin: a token file (magic number 20240520), version 1",
        "num_tokens  4",
        "dtype       uint16",
        "bytes       1,032",
    ]
    assert describe(HEADERLESS) == [
        "f.bin: a token file without a header",
        "num_tokens  4",
        "dtype       int32",
        "bytes       16",
    ]


def test_tokenizer(describe):
    assert describe(header(20240328, 2, 3, 3) + BODY) == [
        "f.bin: a tokenizer (magic number 20240328), version 2",
        "vocab_size   3",
        "end-of-text  none",
        "entries      bytes",
        "bytes        1,031",
    ]
    assert describe(header(20240328, 2, 2, 1) + b"\x01a\x01b")[2:4] == [
        "end-of-text  1",
        "entries      characters",
    ]


@pytest.mark.parametrize(
    ("magic", "kind"),
    [
        (20240522, "an evaluation file"),
        (20240527, "a training state"),
        (20240801, "a token file of Llama 3"),
        (20240803, "a checkpoint or debug state of Llama 3"),
    ],
)
def test_formats_that_are_known_but_not_read(describe, magic, kind):
    assert describe(header(magic, 1, 4, 0, 1) + bytes(10)) == [
        f"f.bin: {kind} (magic number {magic}), version 1",
        "header[2]      4",
        "header[4]      1",
        "read by llmpy  no",
        "bytes          1,034",
    ]


def test_other_files(describe):
    for content, kind in FOREIGN.values():
        with pytest.raises(FormatError) as caught:
            describe(content)
        want = f"f.bin: content looks like {kind}, expected one of llm.c's files"
        assert str(caught.value) == want
    with pytest.raises(FormatError) as unknown:
        describe(struct.pack("<2f", 1, 2))
    assert str(unknown.value) == (
        "f.bin: magic number is 1065353216, expected that of one of llm.c's files, or token ids"
    )
    with pytest.raises(FormatError) as empty:
        describe(b"")
    assert str(empty.value) == "f.bin: file is empty, expected one of llm.c's files"


def test_wrong_files_are_refused_as_by_their_readers(describe):
    with pytest.raises(FormatError, match=r"^f.bin: version is 2 \(bfloat16 .* again as version"):
        describe(header(20240326, 2, 2, 3, 1, 1, 2))
    with pytest.raises(FormatError, match="The file may be cut short"):
        describe(CHECKPOINTS[3][:-1])
    with pytest.raises(FormatError, match="expected 1 or 2"):
        describe(header(20240328, 3, 3, 3) + BODY)


def test_missing_files_and_directories(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError):
        describe_file("f.bin")
    os.mkdir("d")
    with pytest.raises(UsageError, match=r"^d: path is a directory, expected a file$"):
        describe_file("d")
