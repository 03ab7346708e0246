"""Bars of long work: on a terminal, by rich or without it, and silent elsewhere."""

import fcntl
import io
import os
import re
import struct
import sys
import termios

import pytest

import forebay
import forebay.progress
from forebay.cli import main
from forebay.progress import Bar

#: Control sequences, of which a terminal shows no character.
CONTROL = re.compile("\x1b\\[[0-9;?]*[A-Za-z]")


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        """Return the lines that were shown one after another, without colours."""
        text = CONTROL.sub("", self.getvalue())
        found = [line.rstrip() for line in re.split("[\r\n]+", text) if line.strip()]
        return [line for line, before in zip(found, [None, *found], strict=False) if line != before]


@pytest.fixture(params=["rich", "plain"])
def face(request, monkeypatch):
    """Who draws the bar."""
    if request.param == "plain":
        monkeypatch.setitem(sys.modules, "rich.progress", None)
    monkeypatch.delenv("TERM", raising=False)
    return request.param


@pytest.fixture
def clock(monkeypatch):
    """Return the time that bars see, in a list of one."""
    now = [1000.0]
    monkeypatch.setattr(forebay.progress.time, "monotonic", lambda: now[0])
    return now


def test_a_bar_shows_share_amount_and_time_left(face, clock):
    terminal = Terminal()
    with Bar("verifying", "bytes", file=terminal) as bar:
        bar(0, 4 << 20)
        clock[0] += 10
        bar(1 << 20, 4 << 20)
    (line,) = terminal.lines()
    assert re.fullmatch(r"verifying .* 25%\s+1.0 MiB of 4.0 MiB\s+0:30 left", line)


def test_a_bar_without_a_total_shows_what_is_done(face, clock):
    terminal = Terminal()
    with Bar("redriving", "messages", file=terminal) as bar:
        clock[0] += 1
        bar(1234, 0)
    (line,) = terminal.lines()
    assert line.startswith("redriving") and line.endswith("1,234 messages") and "%" not in line


def test_a_second_phase_is_not_guessed_from_the_first(face, clock):
    terminal = Terminal()
    with Bar("auditing", "tasks", file=terminal) as bar:
        bar(0, 10)
        clock[0] += 100
        bar(10, 10)
        clock[0] += 1
        bar(0, 4)
        clock[0] += 2
        bar(1, 4)
    assert terminal.lines()[-1].endswith("0:06 left")


def test_a_bar_is_drawn_ten_times_a_second_at_most_and_erased(face, clock):
    terminal = Terminal()
    with Bar("copying", "bytes", file=terminal) as bar:
        for done in range(1000):
            clock[0] += 0.001
            bar(done, 1000)
        bar_of_a_second = len(terminal.lines())
    assert 5 <= bar_of_a_second <= 10
    assert re.search("\x1b\\[[0-9]?K[^ ]*$", terminal.getvalue())


def test_short_work_shows_nothing(face, clock):
    terminal = Terminal()
    with Bar("copying", "bytes", file=terminal) as bar:
        bar(1, 2)
        bar(2, 2)
    assert terminal.getvalue() == ""


def test_a_pipe_and_a_dumb_terminal_get_nothing(face, clock, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    for stream in (io.StringIO(), Terminal()):
        with Bar("copying", file=stream) as bar:
            clock[0] += 1
            bar(1, 2)
        assert stream.getvalue() == ""


def test_text_of_a_bar_is_no_markup_and_controls_no_terminal(face, clock):
    terminal = Terminal()
    with Bar("[red]a\x1b[31m", file=terminal) as bar:
        clock[0] += 1
        bar(1, 2)
    assert terminal.lines()[0].startswith("[red]a?[31m")


def test_a_plain_bar_fits_a_narrow_terminal(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    monkeypatch.setattr(forebay.progress, "_INTERVAL", 0)
    monkeypatch.delenv("TERM", raising=False)
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 30, 0, 0))
    with open(theirs, "w") as terminal, Bar("verifying", "bytes", file=terminal) as bar:
        bar(1 << 20, 2 << 20)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    first = CONTROL.sub("", shown.split("\r")[1])
    assert first.startswith("verifying  [###") and len(first) == 29


@pytest.mark.parametrize("verb", ["verify", "repair", "archive", "export", "convert"])
def test_a_long_verb_shows_a_bar_on_a_terminal(face, verb, tmp_path, monkeypatch, capfd):
    store = tmp_path / "store"
    with forebay.open(store, commitlog_file_size=1 << 20) as opened:
        opened.producer("orders").send_batch([bytes(1000)] * 2000)
    targets = {"archive": ["archive"], "export": ["orders.jsonl"], "convert": ["log"]}
    target = targets.get(verb, [])
    words = [verb, str(store), *(str(tmp_path / name) for name in target)]
    words += ["--engine", "partitionlog"] if verb == "convert" else []
    monkeypatch.setattr(forebay.progress, "_INTERVAL", 0)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert main(words) == 0
    assert any("%" in line for line in terminal.lines())
    # Nothing of it is in the result.
    assert "%" not in capfd.readouterr().out
