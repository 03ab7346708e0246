"""What goes to the terminal or into a pipe.

Standard output is written as bytes, so that a message comes out in UTF-8 whatever the locale is.
Colour and frames appear on a terminal only, and only where rich is installed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import Any, BinaryIO

__all__ = ["Progress", "human", "plain", "stdout", "write_json", "write_line", "write_table"]

#: Seconds between two pictures of the progress.
_INTERVAL = 0.1


def stdout() -> BinaryIO:
    """Return standard output, for bytes."""
    if sys.stdout is None:
        raise OSError("standard output is closed")
    return sys.stdout.buffer


def plain(text: str) -> str:
    """Replace what is not printable: names come from a disk, and a terminal obeys some bytes."""
    return "".join(character if character.isprintable() else "?" for character in text)


def human(size: int) -> str:
    """Return a number of bytes as a person says it."""
    value = float(size)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{size} bytes" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def write_line(text: str = "") -> None:
    """Write a line for people."""
    stdout().write(plain(text).encode("utf-8", "backslashreplace") + b"\n")


def write_json(value: Any) -> None:
    """Write a JSON document on a line of its own."""
    text = json.dumps(value, ensure_ascii=False)
    stdout().write(text.encode("utf-8", "backslashreplace") + b"\n")


def write_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write rows in columns; columns of numbers are aligned to the right."""
    cells = [[_cell(value) for value in row] for row in rows]
    right = [
        # A bool is an int, and "1" would not say what it means.
        all(type(row[column]) is int for row in rows)
        for column in range(len(head))
    ]
    if stdout().isatty() and _write_rich(head, cells, right):
        return
    widths = [
        max(len(title), *(len(row[column]) for row in cells), 0)
        for column, title in enumerate(head)
    ]
    for line in [list(head), *cells]:
        parts = (
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(line, widths, right, strict=True)
        )
        write_line("  ".join(parts).rstrip())


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else plain(str(value))


def _write_rich(head: Sequence[str], cells: list[list[str]], right: list[bool]) -> bool:
    try:
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return False
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title, to_right in zip(head, right, strict=True):
        table.add_column(title, justify="right" if to_right else "left", overflow="fold")
    for row in cells:
        # Text, for a name in brackets is no markup.
        table.add_row(*(Text(cell) for cell in row))
    sys.stdout.flush()
    Console(file=sys.stdout).print(table)
    return True


class Progress:
    """How far long work has come, on a terminal; nothing in a pipe."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown = sys.stderr is not None and sys.stderr.isatty()
        self._next = time.monotonic() + _INTERVAL

    def __call__(self, done: int, total: int) -> None:
        """Show that `done` of `total` is done."""
        if not self._shown or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _INTERVAL
        share = f"{min(done / total, 1):4.0%}" if total else f"{done:,}"
        print(f"\r\x1b[K{self._what} {share}", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
