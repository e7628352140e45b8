"""Token files: bytes worked by hand, round trips, offsets past 2 GiB, and wrong files refused."""

import os
import struct
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmpy.errors import UsageError
from llmpy.formats.tokens import TokenFile, write_tokens

from .foreign import FOREIGN, OF_LLMC, header, message

FILE = "t.bin"  # of the fixture `write`

GOLDEN = header(20240520, 1, 4) + bytes.fromhex("50c4 4a17 2357 ffff")
GOLDEN_IDS = [50256, 5962, 22307, 65535]  # 0xc450, 0x174a, 0x5723, 0xffff
HEADERLESS = bytes.fromhex("50c40000 4a170000 23570000 ffff0000")
EXPECTED = "a token file (magic number 20240520, or int32 ids without a header)"


@pytest.mark.parametrize(("content", "version"), [(GOLDEN, "20240520"), (HEADERLESS, "int32")])
def test_golden_bytes_are_read(write, content, version):
    with TokenFile(write(content)) as file:
        assert (file.num_tokens, file.version) == (4, version)
        for start in range(5):
            for count in range(5 - start):
                ids = file.read(start, count)
                assert ids.dtype == np.int32
                assert ids.tolist() == GOLDEN_IDS[start : start + count]


@pytest.mark.parametrize("kind", [list, tuple, np.uint16, np.int32, np.int64, np.uint64])
def test_golden_bytes_are_written(tmp_path, kind):
    ids = kind(GOLDEN_IDS) if kind in (list, tuple) else np.array(GOLDEN_IDS, kind)
    write_tokens(tmp_path / "t.bin", ids)
    assert (tmp_path / "t.bin").read_bytes() == GOLDEN


@settings(max_examples=40, deadline=None)
@given(ids=st.lists(st.integers(0, 65535)), data=st.data())
def test_round_trip(tmp_path_factory, ids, data):
    path = tmp_path_factory.mktemp("t") / "t.bin"
    write_tokens(path, ids)
    start = data.draw(st.integers(0, len(ids)))
    stop = data.draw(st.integers(start, len(ids)))
    with TokenFile(path) as file:
        assert file.num_tokens == len(ids)
        assert file.read(start, stop - start).tolist() == ids[start:stop]


def test_reads_outside_the_file_are_refused(write):
    with TokenFile(write(GOLDEN)) as file:
        for start, count in ((0, 5), (4, 1), (-1, 2), (2, -1), (2**40, 1)):
            assert message(file.read, start, count, error=UsageError) == (
                f"t.bin: read of {count:,} tokens from {start:,}, expected a stretch within 0 to 4"
            )


class TestLargeFiles:
    """R25: 1.2 billion tokens, with marked ones past 2 GiB, in a file with a hole."""

    NUM_TOKENS = 1_200_000_000
    MARKS = (11, 22, 33)

    def test_tokens_past_2_gib(self, tmp_path):
        path = tmp_path / "t.bin"
        path.write_bytes(header(20240520, 1, self.NUM_TOKENS))
        os.truncate(path, 1024 + 2 * self.NUM_TOKENS)
        start = self.NUM_TOKENS - 3
        assert 2 * start > 2**31
        with open(path, "r+b") as file:
            file.seek(1024 + 2 * start)
            file.write(struct.pack("<3H", *self.MARKS))
        # in a process that may not hold the file: 2.4 GB, against a limit of 1 GB for data
        program = (
            "import resource, sys\n"
            "import numpy as np\n"
            "from llmpy.formats.tokens import TokenFile\n"
            "resource.setrlimit(resource.RLIMIT_DATA, (2**30, 2**30))\n"
            "with TokenFile(sys.argv[1]) as file:\n"
            "    start = np.int32(file.num_tokens - 4)  # an int32 that must not reach the offset\n"
            "    print(file.num_tokens, file.read(start, np.int32(4)).tolist())\n"
            "status = open('/proc/self/status').read()\n"
            "print(int(status.split('VmHWM:')[1].split()[0]) < 200_000)\n"  # most memory, in kB
        )
        if sys.platform != "linux":
            pytest.skip("limits on memory are set as Linux has them")
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        result = subprocess.run(
            [sys.executable, "-B", "-c", program, str(path)],
            env=os.environ | {"PYTHONPATH": root},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.stdout == "1200000000 [0, 11, 22, 33]\nTrue\n", result.stderr

    def test_headerless_ids_past_2_gib(self, tmp_path):
        path = tmp_path / "t.bin"
        path.write_bytes(struct.pack("<i", 50256))
        os.truncate(path, 4 * 600_000_000)
        with open(path, "r+b") as file:
            file.seek(4 * 599_999_997)
            file.write(struct.pack("<3i", *self.MARKS))
        with TokenFile(path) as file:
            assert (file.num_tokens, file.version) == (600_000_000, "int32")
            assert file.read(599_999_996, 4).tolist() == [0, 11, 22, 33]


class TestRefusals:
    def test_every_truncation(self, write):
        for size in [*range(0, 1024, 31), *range(1020, len(GOLDEN))]:
            assert message(TokenFile, write(GOLDEN[:size])).startswith("t.bin: ")
        for size in range(len(HEADERLESS)):
            if size % 4 or not size:
                assert message(TokenFile, write(HEADERLESS[:size])).startswith("t.bin: ")

    def test_lengths(self, write):
        parts = "(1,024 of header and 4 tokens of 2 bytes)"
        assert message(TokenFile, write(GOLDEN[:-1])) == (
            f"t.bin: 1,031 bytes, expected 1,032 {parts}. The file may be cut short."
        )
        assert message(TokenFile, write(GOLDEN + bytes(4))) == (
            f"t.bin: 1,036 bytes, expected 1,032 {parts}"
        )
        assert message(TokenFile, write(HEADERLESS[:-1])) == (
            "t.bin: 15 bytes, expected a multiple of 4, because without a header it holds int32 "
            "ids. The file may be cut short."
        )
        assert message(TokenFile, write(b"")) == f"t.bin: file is empty, expected {EXPECTED}"

    @pytest.mark.parametrize(
        ("values", "want"),
        [
            ((0, 4), "version is 0, expected 1"),
            ((2, 4), "version is 2, expected 1"),
            ((1, -4), "number of tokens is -4, expected at least 0"),
            (
                (1, 2**31 - 1),
                "1,032 bytes, expected 4,294,968,318 "
                "(1,024 of header and 2,147,483,647 tokens of 2 bytes). The file may be cut short.",
            ),
        ],
    )
    def test_every_wrong_field(self, write, values, want):
        assert message(TokenFile, write(header(20240520, *values) + GOLDEN[1024:])) == (
            f"t.bin: {want}"
        )

    def test_other_files(self, write):
        for content, kind in FOREIGN.values():
            assert message(TokenFile, write(content)) == (
                f"t.bin: content looks like {kind}, expected {EXPECTED}"
            )
        for magic, kind in OF_LLMC.items():  # 20240801 is Llama's: uint32 ids, R19
            if magic != 20240520:
                assert message(TokenFile, write(header(magic, 7, 4) + bytes(16))) == (
                    f"t.bin: magic number is {magic} ({kind}), expected 20240520 (a token file)"
                )
        swapped = struct.pack(">3i", 20240520, 1, 4).ljust(1024, b"\0")
        assert message(TokenFile, write(swapped)) == (
            "t.bin: magic number is 20240520 (a token file) in big-endian byte order, "
            "expected little-endian"
        )

    def test_negative_ids_without_a_header(self, write):
        with TokenFile(write(struct.pack("<4i", 1, 2, -7, -8))) as file:
            assert file.read(0, 2).tolist() == [1, 2]
            assert message(file.read, 1, 3) == (
                "t.bin: token 2 is -7, expected at least 0. The file may not be a token file."
            )

    @pytest.mark.parametrize(
        ("ids", "want"),
        [
            ([5, 65536], "token 1 is 65536, expected 0 to 65535, because the file holds uint16"),
            ([-1], "token 0 is -1, expected 0 to 65535, because the file holds uint16"),
            (
                np.array([0, 0, 70000], np.int64),
                "token 2 is 70000, expected 0 to 65535, because the file holds uint16",
            ),
            (
                [1, 2**70],
                f"token 1 is {2**70}, expected 0 to 65535, because the file holds uint16",
            ),
            (np.zeros(3), "tokens has dtype float64, expected integers"),
            (np.ones(3, bool), "tokens has dtype bool, expected integers"),
            (np.zeros((2, 2), int), "tokens has shape (2, 2), expected (ntok)"),
            (
                np.broadcast_to(np.uint16(0), (2**31,)),  # 4 GiB in name only
                "2,147,483,648 tokens, expected at most 2,147,483,647, because the header counts "
                "them in an int32. Write several files.",
            ),
        ],
    )
    def test_what_cannot_be_written(self, tmp_path, ids, want):
        got = message(write_tokens, tmp_path / "t.bin", ids, error=UsageError)
        assert got == f"write_tokens: {want}"
        assert os.listdir(tmp_path) == []

    def test_a_wrong_id_far_into_the_file(self, tmp_path):
        ids = np.zeros(3_000_000, np.int32)
        ids[2_500_000] = -3
        got = message(write_tokens, tmp_path / "t.bin", ids, error=UsageError)
        assert got == (
            "write_tokens: token 2,500,000 is -3, expected 0 to 65535, because the file "
            "holds uint16"
        )
