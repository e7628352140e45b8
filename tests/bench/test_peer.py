"""A peer's program, run for real with made-up programs; every message is read whole."""

import json
import os
import re
import stat
import sys

import pytest

from llmpy.bench import peer
from llmpy.bench.peer import Peer, PeerRun, check_python, find_peers, read_answer
from llmpy.bench.workloads import WORKLOADS
from llmpy.errors import BackendError, UsageError

from .sizes import TINY


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Write the program of torch."""
    monkeypatch.setattr(peer, "PROGRAMS", tmp_path)

    def write(source):
        (tmp_path / "peer_torch.py").write_text(source, encoding="utf-8")
        return Peer("torch", "eager", sys.executable)

    return write


ECHO = """
import json, os, sys
print("warming up")
print(json.dumps({"peer": "torch 9", "median_s": 0.5, "peak_rss_gb": 1.5, "argv": sys.argv[1:]}))
print("a warning", file=sys.stderr)
open("seen", "w").write(json.dumps([sys.argv[1:], os.environ.get("MINE")]))
"""


def test_a_run_of_a_program(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = program(ECHO).run(TINY, "bfloat16", 2, enough_s=1.5, environment={"MINE": "yes"})
    assert run == PeerRun("torch 9", 0.5, 1.5)
    words, mine = json.loads((tmp_path / "seen").read_text())
    assert mine == "yes"
    assert dict(zip(words[::2], words[1::2], strict=True)) == {
        "--B": "2", "--T": "8", "--V": "30", "--maxT": "16", "--L": "1", "--NH": "2", "--C": "8",
        "--warm-up": "1", "--steps": "5", "--dtype": "bfloat16", "--mode": "eager",
        "--threads": "2", "--enough-s": "1.5",
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["torch", "jax"])
def test_our_programs_take_all_words(kind, monkeypatch):
    """Read from the source, because the frameworks are not here."""
    source = (peer.PROGRAMS / f"peer_{kind}.py").read_text(encoding="utf-8")
    taken = set(re.findall(r'"--([\w-]+)"', source)) | set(
        re.search(r"for name in \(([^)]*)\)", source)[1].replace('"', "").split(", ")
    )
    words = [*peer._words(WORKLOADS["baby"])[::2], "--dtype", "--mode", "--threads", "--enough-s"]
    assert {word[2:] for word in words} <= taken
    for mode in peer.MODES[kind]:
        assert f'"{mode}"' in source


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "import sys\nprint('x', file=sys.stderr)\nraise ValueError('no such op')",
            "peer torch eager: process ended with status 1, expected status 0:"
            " ValueError: no such op",
        ),
        ("raise SystemExit(3)", "peer torch eager: process ended with status 3, expected status 0"),
        (
            "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
            "peer torch eager: process ended by signal 9, expected status 0",
        ),
        ("pass", "peer torch eager: last line is '', expected JSON with median_s"),
        ("print('{')", "peer torch eager: last line is '{', expected JSON with median_s"),
        ("print([1])", "peer torch eager: last line is '[1]', expected JSON with median_s"),
        (
            "import time\ntime.sleep(60)",
            "peer torch eager: not done after 0.5 s, expected less",
        ),
    ],
)
def test_a_program_that_fails(program, source, message):
    with pytest.raises(BackendError) as error:
        program(source).run(TINY, "float32", limit_s=0.5 if "sleep" in source else 60)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("line", "median"),
    [
        ("{}", "None"), ('{"median_s": "1"}', "'1'"), ('{"median_s": 0}', "0"),
        ('{"median_s": -1.5}', "-1.5"), ('{"median_s": true}', "True"),
        ('{"median_s": NaN}', "nan"), ('{"median_s": Infinity}', "inf"),
        ('{"median_s": null}', "None"), ('{"median_s": [1]}', "[1]"),
        (f'{{"median_s": {10**400}}}', f"1{'0' * 79}"),
    ],
)  # fmt: skip
def test_a_median_that_is_none(line, median):
    with pytest.raises(BackendError) as error:
        read_answer("peer jax compile", line)
    assert str(error.value) == (
        f"peer jax compile: median_s is {median}, expected a number above 0"
    )


def test_a_long_line_is_cut():
    with pytest.raises(BackendError) as error:
        read_answer("peer jax compile", "x" * 1000)
    assert str(error.value) == (
        f"peer jax compile: last line is {'x' * 80!r}, expected JSON with median_s"
    )


def test_a_program_has_no_keyboard(program):
    """What asks for an answer gets none, instead of waiting for one that nobody knows of."""
    kept, (theirs, ours) = os.dup(0), os.pipe()
    os.dup2(theirs, 0)
    try:
        with pytest.raises(BackendError, match=r"EOFError"):
            program("input()").run(TINY, "float32", limit_s=10)
    finally:
        os.dup2(kept, 0)
        for descriptor in (kept, theirs, ours):
            os.close(descriptor)


def test_json_without_end():
    with pytest.raises(BackendError, match=r"expected JSON with median_s$"):
        read_answer("peer jax compile", "[" * 100_000)


@pytest.mark.parametrize("name", ["null", "[1]", r'"a\nb"', r'"\u001b[31m"', r'"\ud800"'])
def test_a_name_that_is_no_line_of_text(name):
    line = f'{{"median_s": 2, "peer": {name}}}'
    assert read_answer("peer jax compile", line) == PeerRun("jax compile", 2.0, None)


@pytest.mark.parametrize("peak", ['"much"', "null", "NaN", "-1", "0", f"{10**400}"])
def test_memory_that_is_not_told(peak):
    line = f'{{"median_s": 2, "peak_rss_gb": {peak}}}'
    assert read_answer("peer jax compile", line) == PeerRun("jax compile", 2.0, None)


def test_an_installed_package_has_no_programs(tmp_path, monkeypatch):
    monkeypatch.setattr(peer, "PROGRAMS", tmp_path)
    with pytest.raises(UsageError) as error:
        find_peers("jax", sys.executable)
    assert str(error.value) == (
        "--peer jax needs bench/peer_jax.py of the source tree, which is not installed."
        " Run llmpy from a checkout."
    )


def script(path, text, mode=stat.S_IRWXU):
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return str(path)


def test_pythons_that_will_not_do(tmp_path):
    asked = {
        str(tmp_path / "none"): "does not exist",
        script(tmp_path / "text", "text", stat.S_IRUSR): "is no program",
        str(tmp_path): "is no program",
        script(tmp_path / "garbage", "\x00\x01"): "does not run: Exec format error",
        script(tmp_path / "shell", "#!/bin/sh\necho hello\n"): "is no Python",
        script(tmp_path / "bare", "#!/bin/sh\necho False\n"): "has no torch",
    }
    for python, because in asked.items():
        with pytest.raises(UsageError) as error:
            check_python("torch", python)
        assert str(error.value) == (
            f"--peer-python is {python}, which {because}, expected a Python that has torch"
        )


def test_a_python_that_has_it(monkeypatch):
    check_python("json", sys.executable)  # any module: what is asked is whether it is there
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))
    check_python("json", os.path.basename(sys.executable))  # found as a shell finds it
    with pytest.raises(UsageError, match="has no no_such_module"):
        check_python("no_such_module", sys.executable)


def test_the_modes_of_a_peer(monkeypatch):
    monkeypatch.setattr(peer, "check_python", lambda kind, python: None)
    assert [p.mode for p in find_peers("torch", "p")] == ["compile", "eager"]
    assert find_peers("jax", "p") == [Peer("jax", "compile", "p")]
