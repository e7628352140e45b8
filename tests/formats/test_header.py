"""Reading by header, the names of foreign files, and writing that leaves all or nothing."""

import errno
import io
import os
import stat
import subprocess
import sys

import numpy as np
import pytest

from llmpy.errors import FormatError, UsageError
from llmpy.formats.header import (
    CHECKPOINT,
    InputFile,
    atomic_write,
    foreign_kind,
    pack_header,
    read_all,
)

from .foreign import FOREIGN, OF_LLMC, header


@pytest.fixture
def refusal(tmp_path, monkeypatch):
    """Write bytes to m.bin, ask for a checkpoint, give the message of the refusal."""
    monkeypatch.chdir(tmp_path)

    def refuse(content, magic=CHECKPOINT):
        (tmp_path / "m.bin").write_bytes(content)
        with InputFile("m.bin") as file, pytest.raises(FormatError) as caught:
            file.header(magic)
        return str(caught.value)

    return refuse


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_files_are_named(refusal, name):
    content, kind = FOREIGN[name]
    expected = "a checkpoint (magic number 20240326)"
    assert refusal(content) == f"m.bin: content looks like {kind}, expected {expected}"


@pytest.mark.parametrize("magic", OF_LLMC)
def test_other_files_of_llmc_are_named(refusal, magic):
    wanted = 20240326 if magic != 20240326 else 20240328
    assert refusal(header(magic, 1), wanted) == (
        f"m.bin: magic number is {magic} ({OF_LLMC[magic]}), expected {wanted} ({OF_LLMC[wanted]})"
    )


def test_swapped_bytes_are_named(refusal):
    swapped = np.array([20240326, 3], ">i4").tobytes().ljust(1024, b"\0")
    assert refusal(swapped) == (
        "m.bin: magic number is 20240326 (a checkpoint) in big-endian byte order, "
        "expected little-endian"
    )


def test_tokens_without_a_header_are_suspected(refusal):
    assert refusal(np.array([50256, 5962], "<i4").tobytes()) == (
        "m.bin: magic number is 50256 (perhaps tokens without a header), "
        "expected 20240326 (a checkpoint)"
    )


def test_unknown_and_short_files_are_refused(refusal):
    assert refusal(b"") == ("m.bin: file is empty, expected a checkpoint (magic number 20240326)")
    assert refusal(b"\x00\x01") == ("m.bin: 2 bytes, expected a checkpoint (magic number 20240326)")
    assert refusal(b"\xde\xad\xbe\xef" * 9) == (
        "m.bin: magic number is -272716322, expected 20240326 (a checkpoint)"
    )
    assert refusal(pack_header(20240326, 3)[:100]) == (
        "m.bin: 100 bytes, expected at least 1,024 (the header). The file may be cut short."
    )


def test_token_ids_are_never_taken_for_a_foreign_file():
    ids = np.zeros((65536, 3), "<i4")  # every first id, with the two next that could mislead most
    ids[:, 0] = np.arange(65536)
    for rest in ((0, 0), (0, 0x227B), (65535, 65535), (0x227B, 0x7B22)):
        ids[:, 1:] = rest
        for row in ids:
            assert foreign_kind(row.tobytes()) is None


def test_paths_that_are_no_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError) as missing:
        InputFile("m.bin")
    assert missing.value.filename == "m.bin"
    os.mkdir("d")
    with pytest.raises(UsageError) as directory:
        InputFile("d")
    assert str(directory.value) == "d: path is a directory, expected a file"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names on this system")
def test_a_pipe_is_refused_and_does_not_block(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("p")
    with pytest.raises(UsageError) as caught:
        InputFile("p")
    assert str(caught.value) == "p: path is a pipe or device, expected a file"
    with pytest.raises(UsageError), atomic_write("p"):
        pass
    assert stat.S_ISFIFO(os.stat("p").st_mode)


def test_a_file_that_shrinks_while_it_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.bin").write_bytes(bytes(100))
    with InputFile("m.bin") as file:
        os.truncate("m.bin", 50)
        with pytest.raises(FormatError) as caught:
            file.read_into(np.empty(20, np.int32), 20)
    assert str(caught.value) == (
        "m.bin: file ends at byte 50, expected 100 bytes, the size it had when it was opened"
    )


def test_a_read_that_fails_names_the_file(tmp_path, monkeypatch):
    class Broken:
        def seek(self, offset):
            pass

        def readinto(self, buffer):
            raise OSError(errno.EIO, "Input/output error")

        read = readinto

    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.bin").write_bytes(bytes(100))
    file = InputFile("m.bin")
    file.close()
    file._file = Broken()
    with pytest.raises(OSError, match=r"Input/output error: 'm.bin'$"):
        file.head()
    with pytest.raises(OSError, match=r"Input/output error: 'x'$"):
        read_all(Broken(), "x", 5)


def test_what_has_no_end_is_not_read_to_it():
    assert read_all(io.BytesIO(b"12345"), "x", 5) == b"12345"
    with pytest.raises(FormatError) as caught:
        read_all(io.BytesIO(b"123456"), "x", 5)
    assert str(caught.value) == "x: content goes on after 5 bytes, expected at most so many"


class TestAtomicWrite:
    def test_writes_and_leaves_nothing_beside(self, tmp_path):
        with atomic_write(tmp_path / "m.bin") as file:
            file.write(b"new")
            assert not (tmp_path / "m.bin").exists()
        assert (tmp_path / "m.bin").read_bytes() == b"new"
        assert os.listdir(tmp_path) == ["m.bin"]

    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError, MemoryError])
    def test_a_failure_keeps_the_old_file(self, tmp_path, error):
        (tmp_path / "m.bin").write_bytes(b"old")

        def fail_halfway():
            with atomic_write(tmp_path / "m.bin") as file:
                file.write(b"half")
                raise error

        with pytest.raises(error):
            fail_halfway()
        assert (tmp_path / "m.bin").read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["m.bin"]

    def test_keeps_permissions_and_links(self, tmp_path):
        (tmp_path / "m.bin").write_bytes(b"old")
        os.chmod(tmp_path / "m.bin", 0o600)
        (tmp_path / "link").symlink_to("m.bin")
        with atomic_write(tmp_path / "link") as file:
            file.write(b"new")
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "m.bin").read_bytes() == b"new"
        assert stat.S_IMODE(os.stat(tmp_path / "m.bin").st_mode) == 0o600

    def test_a_new_file_follows_the_umask(self, tmp_path):
        old = os.umask(0o027)
        try:
            with atomic_write(tmp_path / "m.bin"):
                pass
        finally:
            os.umask(old)
        assert stat.S_IMODE(os.stat(tmp_path / "m.bin").st_mode) == 0o640

    def test_paths_that_cannot_be_written(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(UsageError) as missing, atomic_write("no/m.bin"):
            pass
        folder = os.path.join(os.path.realpath(tmp_path), "no")
        assert str(missing.value) == f"no/m.bin: folder {folder} does not exist. Make it first."
        os.mkdir("d")
        with pytest.raises(UsageError) as directory, atomic_write("d"):
            pass
        assert str(directory.value) == "d: path is a directory, expected a file"
        assert os.listdir(tmp_path) == ["d"]

    def test_a_file_that_is_read_only_is_kept(self, tmp_path, monkeypatch):
        """Replacing it would only ask for the folder."""
        monkeypatch.chdir(tmp_path)
        (tmp_path / "m.bin").write_bytes(b"old")
        access = os.access
        monkeypatch.setattr(  # root may write anywhere
            os, "access", lambda path, mode: os.path.isdir(path) and access(path, mode)
        )
        with pytest.raises(PermissionError) as caught, atomic_write("m.bin"):
            pass
        assert str(caught.value) == "[Errno 13] Permission denied: 'm.bin'"
        assert (tmp_path / "m.bin").read_bytes() == b"old"
        with atomic_write("new.bin") as file:
            file.write(b"new")

    def test_a_folder_that_is_not_writable_names_the_wanted_path(self, tmp_path, monkeypatch):
        def refuse(path, mode):
            raise PermissionError(errno.EACCES, "Permission denied", path)

        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("builtins.open", refuse)  # root may write anywhere
        with pytest.raises(PermissionError) as caught, atomic_write("m.bin"):
            pass
        assert str(caught.value) == "[Errno 13] Permission denied: 'm.bin'"

    @pytest.mark.skipif(sys.platform == "win32", reason="no limit on file sizes on this system")
    def test_a_full_disk_names_the_path_and_leaves_nothing(self, tmp_path):
        program = (
            "import resource\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
            "from llmpy.formats.header import atomic_write\n"
            "try:\n"
            "    with atomic_write('m.bin') as file:\n"
            "        file.write(bytes(5000))\n"
            "except OSError as error:\n"
            "    print(error)\n"
        )
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        result = subprocess.run(
            [sys.executable, "-B", "-c", program],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": root},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.stdout == "[Errno 27] File too large: 'm.bin'\n", result.stderr
        assert os.listdir(tmp_path) == []
