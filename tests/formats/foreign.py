"""Wrong files: those of other programs, with the name that a message should give them.

Their first bytes are written from each format's own specification, not from the code under test.
"""

import gzip
import json
import pickle
import struct
import zlib

import pytest

from llmpy.errors import FormatError

TEXT = "First Citizen:\nBefore we proceed any further, h\u00e9ar me speak.\n" * 30
SAFETENSORS_HEADER = b'{"wte":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'


def png() -> bytes:
    ihdr = b"IHDR" + struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + ihdr + struct.pack(">I", zlib.crc32(ihdr))


FOREIGN = {
    "zip": (
        b"PK\x03\x04" + bytes(1200),
        "a zip archive, as PyTorch and NumPy (.npz) save their files",
    ),
    "gguf": (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "a gguf file"),
    "png": (png(), "a PNG image"),
    "gzip": (gzip.compress(b"x" * 100), "gzip data"),
    "pickle": (
        pickle.dumps({"model": [1, 2]}, protocol=2),
        "a Python pickle, as older PyTorch saves its files",
    ),
    "torch_legacy": (
        pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2) + bytes(100),
        "a Python pickle, as older PyTorch saves its files",
    ),
    "safetensors": (
        struct.pack("<Q", len(SAFETENSORS_HEADER)) + SAFETENSORS_HEADER + bytes(4),
        "a safetensors file",
    ),
    "npy": (b"\x93NUMPY\x01\x00" + bytes(120), "a NumPy array (.npy)"),
    "json": (json.dumps({"n_layer": 12}).encode(), "JSON"),
    "json_list": (b"\xef\xbb\xbf\n [1, 2, 3]\n", "JSON"),
    "text": (TEXT.encode(), "text"),
    "short_text": (b"hi\n", "text"),
    "html": (b"<!DOCTYPE html><html>404</html>", "a web page"),
    "lfs": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
        "a Git LFS pointer: the file itself was not downloaded",
    ),
    "tar": (b"m\0".ljust(257, b"\0") + b"ustar\0" + bytes(300), "a tar archive"),
}

# magic number -> the name that a message should give another of llm.c's files
OF_LLMC = {
    20240326: "a checkpoint",
    20240327: "a debug state",
    20240328: "a tokenizer",
    20240520: "a token file",
    20240522: "an evaluation file",
    20240527: "a training state",
    20240801: "a token file of Llama 3",
    20240803: "a checkpoint or debug state of Llama 3",
}


def header(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values) + bytes(1024 - 4 * len(values))


def message(function, *arguments, error=FormatError):
    """Give the message with which a call is refused."""
    with pytest.raises(error) as caught:
        function(*arguments)
    return str(caught.value)
