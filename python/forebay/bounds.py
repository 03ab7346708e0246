"""Where a read begins or ends, as offsets of a queue."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol, TypeAlias

from forebay.errors import OffsetOutOfRangeError

__all__ = ["Bound", "Queue", "offset_of", "out_of_range"]

#: ``"earliest"``, ``"latest"``, a time, or offsets by queue.
Bound: TypeAlias = str | datetime | Mapping[int, int]


class Queue(Protocol):
    """A queue of a store or an archive."""

    @property
    def id(self) -> int:
        """Number of the queue."""

    @property
    def min_offset(self) -> int:
        """Offset of its first message."""

    @property
    def max_offset(self) -> int:
        """Exclusive end offset."""


class _Source(Protocol):
    """A store or an archive."""

    def offset_at(self, topic: str, queue: int, time: datetime) -> int:
        """Return the offset of the first message stored at or after a time."""


def offset_of(source: _Source, topic: str, queue: Queue, bound: Bound, unnamed: int) -> int:
    """Return the offset that a bound means for a queue; `unnamed` if the bound omits the queue.

    Offsets given by queue are returned as given; they may be outside the queue.
    """
    if isinstance(bound, Mapping):
        return bound.get(queue.id, unnamed)
    if isinstance(bound, datetime):
        return source.offset_at(topic, queue.id, bound)
    return queue.min_offset if bound == "earliest" else queue.max_offset


def out_of_range(
    topic: str, queue: int, offset: int, bounds: tuple[int, int], hint: str = ""
) -> OffsetOutOfRangeError:
    """Return the error for an offset outside the bounds of its queue."""
    least, most = bounds
    return OffsetOutOfRangeError(
        f"{topic}-{queue} has no offset {offset}; its bounds are {least} to {most}{hint}",
        topic=topic,
        queue=queue,
        offset=offset,
        min_offset=least,
        max_offset=most,
    )
