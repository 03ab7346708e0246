"""Names of the files of an archive."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["folder_of", "name_of", "table_of", "tables_in"]


def name_of(start: int) -> str:
    """Return the name of the log file that starts at a position."""
    return f"{start:020}"


def folder_of(topic: str, queue: int) -> str:
    """Return the name of the folder of a queue."""
    return f"{topic}-{queue}"


def table_of(base: int) -> str:
    """Return the name of the table of blocks of the segment with this base offset."""
    return f"forebay.{base:020}.blocks"


def tables_in(names: Iterable[str]) -> list[int]:
    """Return the base offsets of the segments whose tables are among these names, in order."""
    found = []
    for name in names:
        digits = name.removeprefix("forebay.").removesuffix(".blocks")
        if len(digits) == 20 and digits.isdecimal() and name == table_of(int(digits)):
            found.append(int(digits))
    return sorted(found)
