"""The progress of a stream: the offsets in Spark's checkpoint, and the arithmetic on them.

A stream offset is JSON. For each store, by absolute path, it has the place up to which the stream
has planned its reads::

    {"version": 1, "stores": {"/data/events": {
        "epoch": 3, "began": 1764000000000000000, "position": 73400320,
        "topics": {"orders": {"0": 17, "1": 23}}}}}

``topics`` has the next offset of each queue. The other fields show whether the log is still the one
that was read: the epoch at the time, when it began (ns since 1970), and the durable end of the log.
Keys are sorted, because Spark compares offsets as text.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from forebay.errors import UnsupportedError
from forebay.spark.options import TopicQueue

VERSION = 1

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Place:
    """The progress of a stream in one store."""

    #: Number of the epoch; 0 if Forebay has not written to the store.
    epoch: int = 0
    #: When the epoch began, in ns since 1970; 0 if unknown.
    began: int = 0
    #: Durable end of the log.
    position: int = 0
    #: Next offset by queue.
    queues: dict[TopicQueue, int] = field(default_factory=dict)


def encode(places: Mapping[str, Place]) -> dict[str, Any]:
    """Return places, given by path, in the form that Spark stores."""
    stores: dict[str, Any] = {}
    for path, place in sorted(places.items()):
        topics: dict[str, dict[str, int]] = {}
        for (topic, queue), offset in sorted(place.queues.items()):
            topics.setdefault(topic, {})[str(queue)] = offset
        stores[path] = {
            "epoch": place.epoch,
            "began": place.began,
            "position": place.position,
            "topics": topics,
        }
    return {"version": VERSION, "stores": stores}


def decode(offset: Mapping[str, Any]) -> dict[str, Place]:
    """Return the places that Spark has stored.

    Raises
    ------
    UnsupportedError
        If another version of Forebay, or another source, wrote the checkpoint.
    """
    if offset.get("version") != VERSION:
        given = repr(dict(offset))[:200]
        raise UnsupportedError(
            f"the checkpoint holds an offset that is not a Forebay offset of version {VERSION}: "
            f"{given}; continue with the version that wrote it, or start with a new checkpoint"
        )
    places = {}
    for path, found in offset["stores"].items():
        queues = {
            (topic, int(queue)): next_offset
            for topic, by_queue in found["topics"].items()
            for queue, next_offset in by_queue.items()
        }
        places[path] = Place(found["epoch"], found["began"], found["position"], queues)
    return places


def share(limit: int, sizes: Mapping[K, int], turn: int) -> dict[K, int]:
    """Share a limit among queues in proportion to their sizes, and never exceed it.

    Each queue that is not empty gets at least one message, so that a large queue cannot starve a
    small one. If there are more such queues than `limit`, they get one message each in turn.
    `turn` counts the messages handed out before, so each call continues where the last one stopped.
    """
    some = {at: size for at, size in sizes.items() if size > 0}
    total = sum(some.values())
    if total <= limit:
        return dict(sizes)
    parts = dict.fromkeys(sizes, 0)
    if limit <= len(some):
        for at in rotated(list(some), turn)[:limit]:
            parts[at] = 1
        return parts
    # Give each queue one, and its proportional share of the rest, rounded down. What rounding
    # leaves over goes to the queues that lost most by it.
    spare, rest = limit - len(some), total - len(some)
    lost = {}
    for at, size in some.items():
        extra, lost[at] = divmod(spare * (size - 1), rest)
        parts[at] = 1 + extra
    left = limit - sum(parts.values())
    for at in sorted(lost, key=lambda at: -lost[at])[:left]:
        parts[at] += 1
    return parts


def rotated(items: list[K], turn: int) -> list[K]:
    """Return the items rotated to begin at index `turn`, modulo their number."""
    at = turn % len(items) if items else 0
    return items[at:] + items[:at]
