"""The processes of bench: where ours find their modules, and what a peer's leave behind."""

import os
import select
import signal
import subprocess
import sys

import pytest

from llmpy.bench import Bench
from llmpy.bench.peer import check_python
from llmpy.bench.processes import run_group, run_ours
from llmpy.config import DeviceConfig
from llmpy.errors import BackendError, UsageError

NUMPY = DeviceConfig(backend="numpy")


def test_what_a_command_says():
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    done = run_group([sys.executable, "-c", code], 60)
    assert (done.returncode, done.stdout.split(), done.stderr.split()) == (3, [b"out"], [b"err"])


needs_groups = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no process groups")


@pytest.fixture
def starts_another(tmp_path):
    """Give a command that starts another, and what tells whether that has ended.

    The other would live for a minute. It holds a named pipe open, which ends with it.
    """
    path, begun = tmp_path / "pipe", tmp_path / "begun"
    os.mkfifo(path)
    pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def command(then, other=":"):
        wait = f'until test -e "{begun}"; do sleep 0.01; done'
        start = f'(echo here; : > "{begun}"; {other}; exec sleep 60) > "{path}" &'
        return ["/bin/sh", "-c", f"{start} {wait}; {then}"]

    def has_ended():
        assert os.read(pipe, 10) == b"here\n"
        return bool(select.select([pipe], [], [], 30)[0]) and os.read(pipe, 10) == b""

    yield command, has_ended
    os.close(pipe)


@needs_groups
def test_what_it_started_ends_when_it_takes_too_long(starts_another):
    command, has_ended = starts_another
    with pytest.raises(subprocess.TimeoutExpired):
        run_group(command("wait"), 2)
    assert has_ended()


@needs_groups
def test_what_it_started_ends_when_it_is_done(starts_another):
    command, has_ended = starts_another
    assert run_group(command("exit 3"), 60).returncode == 3
    assert has_ended()


class Interrupted(BaseException):
    """As `llmpy bench` has one for SIGTERM."""


@needs_groups
def test_what_it_started_ends_when_we_are_interrupted(starts_another):
    def interrupt(number, frame):
        raise Interrupted

    command, has_ended = starts_another
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(Interrupted):
            run_group(command("wait", other=f"sleep 1; kill -USR1 {os.getpid()}"), 60)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert has_ended()


@pytest.fixture
def anybodys_folder(tmp_path, monkeypatch):
    """Be in a folder whose modules have the names of ours."""
    (tmp_path / "llmpy").mkdir()
    for name in ("llmpy/__init__.py", "numpy.py", "json.py", "no_such_module.py"):
        (tmp_path / name).write_text("raise SystemExit('not ours')")
    monkeypatch.chdir(tmp_path)


def test_our_processes_do_not_look_in_the_current_folder(anybodys_folder, capfd):
    """What is unknown there shows that it came as far as to ask."""
    with pytest.raises(BackendError):
        Bench(device=NUMPY).run("unknown there")
    assert capfd.readouterr().err.splitlines()[-1] == "KeyError: 'unknown there'"


def test_our_processes_look_where_we_do(tmp_path, monkeypatch):
    (tmp_path / "llmpy").mkdir()
    (tmp_path / "llmpy" / "__init__.py").touch()
    (tmp_path / "llmpy" / "bench.py").write_text("import sys; print('from our path', sys.argv[1:])")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert run_ours(["x"]).stdout.split() == b"from our path ['x']".split()


def test_a_peer_is_not_sought_in_the_current_folder(anybodys_folder):
    check_python("decimal", sys.executable)
    with pytest.raises(UsageError, match="has no no_such_module"):
        check_python("no_such_module", sys.executable)
