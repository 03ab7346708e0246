"""What an archive consists of: topics, queues, ranges of offsets, and damage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

__all__ = ["ArchiveDamage", "ArchivedQueue", "ArchivedTopic", "Range"]

#: Topic, queue, first offset, exclusive end offset.
Range: TypeAlias = tuple[str, int, int, int]


@dataclass(frozen=True)
class ArchivedQueue:
    """A queue of an archive: its number, first offset, and exclusive end offset."""

    id: int
    min_offset: int
    max_offset: int


@dataclass(frozen=True)
class ArchivedTopic:
    """A topic of an archive, with the queues that have messages in it."""

    name: str
    queues: list[ArchivedQueue]


class ArchiveDamage(NamedTuple):
    """A damaged region of an archive, with the fields of `forebay.Damage`."""

    path: str
    position: int
    length: int
    reason: str
    #: Empty: it is not known which messages are lost.
    lost: list[tuple[str, int, int]] = []  # noqa: RUF012

    @property
    def kind(self) -> str:
        """What the region is part of: always the log."""
        return "log"
