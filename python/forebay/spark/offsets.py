"""How far a stream has come: what Spark keeps in its checkpoint, and the arithmetic on it.

An offset of a stream is JSON: for each store, by its absolute path, the place up to which the
stream has planned its reading::

    {"version": 1, "stores": {"/data/events": {
        "epoch": 3, "began": 1764000000000000000, "position": 73400320,
        "topics": {"orders": {"0": 17, "1": 23}}}}}

``topics`` has the next offset of each queue. The rest tells whether the log is still the one that
was read: the epoch in which it was, when that began (ns since 1970), and the end of what was
durable then. Keys are sorted, for Spark compares offsets as texts.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from forebay.errors import UnsupportedError
from forebay.spark.options import TopicQueue

VERSION = 1

#: The number of the newest epoch of a store, and the last ones: number, beginning, end of the log.
Epochs = tuple[int, list[tuple[int, int, int]]]

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Place:
    """How far a stream has come in one store."""

    #: Number of the epoch; 0 where Forebay has not written to the store.
    epoch: int = 0
    #: When the epoch began, in ns since 1970; 0 where that is unknown.
    began: int = 0
    #: End of what was durable.
    position: int = 0
    #: Next offset by queue.
    queues: dict[TopicQueue, int] = field(default_factory=dict)


def encode(places: Mapping[str, Place]) -> dict[str, Any]:
    """Return places by path as what Spark keeps."""
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
    """Return the places that Spark has kept.

    Raises
    ------
    UnsupportedError
        If another version of Forebay, or another source, wrote the checkpoint.
    """
    if offset.get("version") != VERSION:
        given = repr(dict(offset))[:200]
        raise UnsupportedError(
            f"the checkpoint holds an offset that is none of version {VERSION} of Forebay's: "
            f"{given}; go on with the version that wrote it, or begin with a new checkpoint"
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


def intact_until(place: Place, epochs: Epochs | None, durable: int) -> int | None:
    """Return up to which position a log is still the one that a place is in.

    `None` means that it is whole: whatever was durable when the place was taken still is. A log
    that is another one altogether is intact up to 0.

    An epoch begins at the end that the writer found. So the smallest beginning since the place was
    taken is the least that was left, however much was appended later. The beginnings of the last
    128 epochs are known; a log that became shorter in an earlier one, and longer again, is not
    noticed.
    """
    number, known = epochs or (0, [])
    began = {epoch: time for epoch, time, _ in known}
    if place.epoch > number:
        return 0
    if place.began and began.get(place.epoch, place.began) != place.began:
        return 0
    left = min([durable, *(start for epoch, _, start in known if epoch > place.epoch)])
    return left if left < place.position else None


def share(limit: int, sizes: Mapping[K, int], turn: int) -> dict[K, int]:
    """Share a limit among queues in proportion to what they have, and never exceed it.

    Each queue that has something gets at least one, so that a large one starves no small one.
    Where there are more queues than the limit, those get one whose turn it is: `turn` counts the
    messages that were handed out before, so the next ones follow the last ones.
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
    # One each, and of the rest what each would get in proportion; what rounding leaves goes to
    # those who lost most by it.
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
    """Return the items from the one on whose turn it is."""
    at = turn % len(items) if items else 0
    return items[at:] + items[:at]
