"""Output on consoles of any kind."""

import io
import sys
import threading
from types import SimpleNamespace

from llmpy import console
from llmpy.console import Progress, TextStream, note, passing, write


def latin_stdout(monkeypatch):
    """Put a cp1252 console in the place of stdout; give its bytes."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="cp1252"))
    return raw


def test_text_is_utf8_whatever_the_console_says(monkeypatch):
    raw = latin_stdout(monkeypatch)
    write("caf\u00e9 \u4e2d\n")
    write(b"\xff")
    assert raw.getvalue() == "caf\u00e9 \u4e2d\n".encode() + b"\xff"


def test_a_stdout_without_bytes_gets_text(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    write(b"caf\xc3\xa9 \xff")
    assert stream.getvalue() == "caf\u00e9 \ufffd"


def test_notes_are_escaped_where_the_console_lacks_a_character(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(raw, encoding="cp1252"))
    note("caf\u00e9 \u4e2d \udc80")
    note("a file of\ntwo lines, \x1b[31mred")
    assert raw.getvalue() == (b"caf\xe9 \\u4e2d \\udc80\na file of\\ntwo lines, \\x1b[31mred\n")
    monkeypatch.setattr(sys, "stderr", None)
    note("nobody listens")


def test_characters_come_whole(monkeypatch):
    raw = latin_stdout(monkeypatch)
    stream = TextStream()
    seen = []
    for piece in (b"a\xe4", b"\xb8", b"\xad", b"\xc3", b"b", b"\xe4\xb8"):
        stream.write(piece)
        seen.append(raw.getvalue().decode())
    stream.end()
    assert seen == ["a", "a", "a\u4e2d", "a\u4e2d", "a\u4e2d\ufffdb", "a\u4e2d\ufffdb"]
    assert raw.getvalue().decode() == "a\u4e2d\ufffdb\ufffd"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def screen(text):
    """Give the lines that a terminal shows after `text`."""
    lines = []
    for line in text.split("\n"):
        shown = ""
        for part in line.split("\r"):
            shown = part + shown[len(part) :]
        lines.append(shown.rstrip())
    return lines


def test_a_passing_line_gives_way_to_what_comes_after(monkeypatch):
    """It is never left on the terminal, nor the tail of it."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "40")
    passing("compiling a kernel of a very long name indeed")
    assert screen(terminal.getvalue()) == ["compiling a kernel of a very long name"]
    passing("validation 1/20")
    assert screen(terminal.getvalue()) == ["validation 1/20"]
    note("a note")
    passing("sample 2/64")
    write("text\n")
    passing("step 3/9")
    passing("")
    assert screen(terminal.getvalue()) == ["a note", "text", ""]


def test_a_passing_line_is_for_terminals_alone(capfd):
    passing("validation 1/20")
    note("a note")
    assert capfd.readouterr() == ("", "a note\n")


def test_the_bar_shows_what_is_done_between_steps(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    progress = Progress(10, shown=True)
    progress.working("validation 1/20")  # the bar comes with the first step
    assert screen(terminal.getvalue()) == ["validation 1/20"]
    progress.advance("loss 1")
    progress.working("sample 2/64")
    progress.close()
    assert "1/10" in terminal.getvalue()
    assert "sample 2/64" in terminal.getvalue()


def test_the_bar_takes_little_of_the_time_of_short_steps(monkeypatch):
    """It is drawn twice a second at most, and by no thread of its own."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    now = [100.0]
    monkeypatch.setattr(console, "time", SimpleNamespace(monotonic=lambda: now[0]))
    threads = threading.active_count()
    progress = Progress(1000, shown=True)
    pictures = []
    for i in range(200):  # of 30 ms each, 6 seconds in all
        now[0] += 0.03
        before = len(terminal.getvalue())
        progress.advance(f"loss {i}")
        pictures.append(len(terminal.getvalue()) > before)
    assert pictures[0]
    assert 10 <= sum(pictures) <= 13
    assert threading.active_count() == threads
    progress.close()
    assert "200/1000" in terminal.getvalue()


def test_the_bar_is_on_stderr_alone_and_goes_away(monkeypatch, capsys):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    progress = Progress(10, shown=True)
    for i in range(10):
        progress.advance(f"loss {i}")
        with progress.hidden():
            write("line\n")
    progress.close()
    assert "10/10" in terminal.getvalue()
    assert "loss 9" in terminal.getvalue()
    assert capsys.readouterr().out == "line\n" * 10


def test_no_bar_writes_nothing(capfd):
    progress = Progress(10, shown=False)
    progress.advance("x")
    with progress.hidden():
        pass
    progress.close()
    assert capfd.readouterr() == ("", "")


def test_closed_streams_are_no_terminals():
    closed = io.StringIO()
    closed.close()
    assert not console.is_terminal(closed)
    assert not console.is_terminal(None)
    assert console.is_terminal(Terminal())
