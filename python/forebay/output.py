"""Output to a terminal or a pipe.

Standard output is written as bytes, so that messages are UTF-8 in any locale. Colour and frames
appear only on a terminal, and only if rich is installed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, BinaryIO

__all__ = [
    "ago",
    "counted",
    "human",
    "lasting",
    "plain",
    "stdout",
    "write_json",
    "write_line",
    "write_table",
]


def stdout() -> BinaryIO:
    """Return standard output as a binary stream."""
    if sys.stdout is None:
        raise OSError("standard output is closed")
    return sys.stdout.buffer


def plain(text: str) -> str:
    """Replace unprintable characters: names come from a disk and may hold terminal escapes."""
    return "".join(character if character.isprintable() else "?" for character in text)


def counted(number: int, noun: str, nouns: str | None = None) -> str:
    """Return a number with its noun, such as ``"1 queue"`` and ``"3,000 queues"``."""
    plural = f"{noun}s" if nouns is None else nouns
    return f"{number:,} {noun if number == 1 else plural}"


def human(size: int) -> str:
    """Return a number of bytes with a readable unit."""
    value = float(size)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024:
            whole = "1 byte" if size == 1 else f"{size} bytes"
            return whole if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def lasting(seconds: float) -> str:
    """Return a length of time in its largest unit, such as ``"3 min"``."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


def ago(time: datetime) -> str:
    """Return how long ago a time was, such as ``"3 min ago"``; clocks may differ a little."""
    return f"{lasting(max((datetime.now(UTC) - time).total_seconds(), 0))} ago"


def write_line(text: str = "") -> None:
    """Write a line of text, without unprintable characters."""
    stdout().write(plain(text).encode("utf-8", "backslashreplace") + b"\n")


def write_json(value: Any) -> None:
    """Write a JSON document on one line."""
    text = json.dumps(value, ensure_ascii=False)
    stdout().write(text.encode("utf-8", "backslashreplace") + b"\n")


def write_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write a table; columns of integers are right-aligned."""
    cells = [[_cell(value) for value in row] for row in rows]
    right = [
        # Not isinstance: a bool is an int, and is shown as "yes" or "no".
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
        # Text, because a str with brackets would be parsed as markup.
        table.add_row(*(Text(cell) for cell in row))
    sys.stdout.flush()
    Console(file=sys.stdout).print(table)
    return True
