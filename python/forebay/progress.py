"""Progress of long work on a terminal.

Every long call takes a callable as ``progress`` and calls it with what is done and the total. A
`Bar` is one. It draws by rich where rich is installed, else by itself, and it writes nothing into
a pipe or a file.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, TextIO

from forebay.output import human, plain

if TYPE_CHECKING:
    from typing import Self

    from rich.progress import Progress

__all__ = ["Bar"]

#: Seconds between two drawings, and before the first one: short work shows no bar.
_INTERVAL = 0.1
#: Seconds of work before the time that is left is guessed.
_GUESS_AFTER = 1.0
#: Characters of a bar that is drawn without rich.
_WIDTH = 24
#: Moves to the first column and erases the line.
_ERASE = "\r\x1b[K"


class Bar:
    """A bar on standard error that shows how far long work has come.

    It appears after a tenth of a second and is erased when the ``with`` block ends. It shows
    nothing if standard error is not a terminal.

    Parameters
    ----------
    what
        Text before the bar, such as ``"verifying"``.
    unit
        What is counted: ``"bytes"``, or another noun in the plural.
    file
        A stream to use instead of standard error.

    Examples
    --------
    >>> from forebay.progress import Bar
    >>> with forebay.open(":memory:") as store, Bar("verifying", "bytes") as bar:
    ...     store.verify(progress=bar).ok
    True
    """

    def __init__(self, what: str, unit: str = "", *, file: TextIO | None = None) -> None:
        self._what = what
        self._unit = unit
        self._file = sys.stderr if file is None else file
        dumb = os.environ.get("TERM") == "dumb"
        self._shown = self._file is not None and self._file.isatty() and not dumb
        self._begun = time.monotonic()
        self._next = self._begun + _INTERVAL
        self._last = (0, 0)
        self._face: _Plain | _Rich | None = None

    def __call__(self, done: int, total: int) -> None:
        """Show that `done` of `total` is done, or only `done` if the total is 0."""
        if not self._shown:
            return
        now = time.monotonic()
        if total != self._last[1] or done < self._last[0]:
            # Another phase of the work: the speed so far says nothing about its remaining time.
            self._begun = now
        self._last = (done, total)
        # A report of 0 of 0 is drawn at once: it may be the only one.
        if now < self._next and (done or total):
            return
        self._next = now + _INTERVAL
        if self._face is None:
            self._face = _face(self._what, self._file)
        share = min(done / total, 1.0) if total else None
        self._face.draw(share, self._amount(done, total), self._left(share, now))

    def _amount(self, done: int, total: int) -> str:
        if self._unit == "bytes":
            return f"{human(done)} of {human(total)}" if total else human(done)
        counted = f"{done:,} of {total:,}" if total else f"{done:,}" if done else ""
        return f"{counted} {self._unit}" if self._unit and counted else counted

    def _left(self, share: float | None, now: float) -> str:
        """Return how long the rest takes at the speed so far."""
        took = now - self._begun
        if not share or took < _GUESS_AFTER:
            return ""
        seconds = round(took * (1 - share) / share)
        minutes, seconds = divmod(seconds, 60)
        hours, minutes = divmod(minutes, 60)
        clock = f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
        return f"{clock} left"

    def __enter__(self) -> Self:
        """Return the bar."""
        return self

    def __exit__(self, *_exception: object) -> None:
        """Erase the bar."""
        self._shown = False
        if self._face is not None:
            self._face.erase()


def _face(what: str, file: TextIO) -> _Plain | _Rich:
    try:
        import rich.progress  # noqa: F401
    except ImportError:
        return _Plain(what, file)
    return _Rich(what, file)


class _Plain:
    """A bar of ASCII characters, drawn again over itself."""

    def __init__(self, what: str, file: TextIO) -> None:
        self._what = plain(what)
        self._file = file

    def draw(self, share: float | None, amount: str, left: str) -> None:
        parts = [self._what]
        if share is not None:
            full = int(share * _WIDTH)
            parts += [f"[{'#' * full}{'-' * (_WIDTH - full)}]", f"{share:.0%}"]
        parts += [part for part in (amount, left) if part]
        # A line that wraps could not be erased.
        self._print(_ERASE + "  ".join(parts)[: self._columns() - 1])

    def erase(self) -> None:
        self._print(_ERASE)

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._file.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    def _print(self, text: str) -> None:
        print(text, end="", file=self._file, flush=True)


class _Rich:
    """The same, by rich."""

    def __init__(self, what: str, file: TextIO) -> None:
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        self._progress: Progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[amount]}", style="progress.download"),
            TextColumn("{task.fields[left]}", style="progress.remaining"),
            console=Console(file=file),
            # Without this, a thread would draw it; and standard output is for the result alone.
            auto_refresh=False,
            redirect_stdout=False,
            transient=True,
        )
        self._task = self._progress.add_task(escape(plain(what)), total=None, amount="", left="")

    def draw(self, share: float | None, amount: str, left: str) -> None:
        # Rich takes None for "as before": a bar without a total moves back and forth.
        total = None if share is None else 1.0
        self._progress.update(self._task, completed=share, total=total, amount=amount, left=left)
        self._progress.start()
        self._progress.refresh()

    def erase(self) -> None:
        self._progress.stop()
