"""What an archive consists of: topics, queues, ranges of offsets, and damage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["ArchiveDamage", "ArchivedQueue", "ArchivedTopic", "Range"]


class Range(NamedTuple):
    """Offsets of a queue of an archive: `start` to `end` (exclusive)."""

    topic: str
    queue: int
    start: int
    end: int


@dataclass(frozen=True)
class ArchivedQueue:
    """A queue of an archive.

    Attributes
    ----------
    id
        Number of the queue.
    min_offset, max_offset
        Its first offset, and the one after the last.
    """

    id: int
    min_offset: int
    max_offset: int


@dataclass(frozen=True)
class ArchivedTopic:
    """A topic of an archive.

    Attributes
    ----------
    name
        Its name.
    queues
        The queues that have messages in the archive.
    """

    name: str
    queues: list[ArchivedQueue]


class ArchiveDamage(NamedTuple):
    """A damaged region of an archive, with the fields of `forebay.Damage`."""

    path: str
    """The file of the archive."""
    position: int
    """The position in the log at which the region begins."""
    length: int
    """Its length in bytes."""
    reason: str
    """What was found there."""
    lost: list[tuple[str, int, int]] = []  # noqa: RUF012
    """Empty: it is not known which messages are lost."""

    @property
    def kind(self) -> str:
        """What the region is part of: always the log."""
        return "log"
