"""Ranges of offsets, and how tasks get like shares of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise


@dataclass(frozen=True)
class Range:
    """Offsets of a queue of a store, half-open."""

    #: The absolute path of the store.
    store: str
    topic: str
    queue: int
    start: int
    end: int
    #: Bytes of a record on the average: an estimate, by which ranges are weighed and nothing more.
    record_bytes: int = field(default=1, compare=False)

    def __len__(self) -> int:
        return self.end - self.start


def cut(ranges: Iterable[Range], parts: int, records_max: int | None = None) -> list[list[Range]]:
    """Cut ranges into groups of nearly as many bytes each, in the order of the ranges.

    There are `parts` groups, or more where `records_max` messages in each demand it, or fewer where
    there are not that many messages, or single ones are larger than a part. A group may hold a part
    of one queue or all of many, of many stores, so a topic of one queue occupies every core, and
    one of 10,000 queues does not make 10,000 tasks.
    """
    ranges = [found for found in ranges if len(found) > 0]
    records = sum(len(found) for found in ranges)
    if records_max is not None:
        parts = max(parts, -(-records // records_max))
    groups = _by_bytes(ranges, min(parts, records))
    if records_max is None:
        return groups
    return [smaller for group in groups for smaller in _by_records(group, records_max)]


def _by_bytes(ranges: list[Range], parts: int) -> list[list[Range]]:
    """Lay all records end to end, divide that into equal parts, and give each the records in it.

    A record is in the part that its middle is in. Records of one size so come to groups whose
    numbers differ by one at the most, of which none is empty.
    """
    if parts == 1:
        return [ranges]
    total = sum(len(found) * found.record_bytes for found in ranges)
    groups: list[list[Range]] = [[] for _ in range(parts)]
    before = 0
    group = 0
    for found in ranges:
        start, size = found.start, found.record_bytes
        while start < found.end:
            # Of the records from `first` on, those whose middle lies before the end of the group.
            first = before + (start - found.start) * size
            room = 2 * total * (group + 1) - 2 * first * parts - size * parts
            end = min(start + max(-(-room // (2 * size * parts)), 0), found.end)
            if end > start:
                groups[group].append(replace(found, start=start, end=end))
            if end < found.end:
                group += 1
            start = end
        before += len(found) * size
    return [group for group in groups if group]


def _by_records(group: list[Range], records_max: int) -> list[list[Range]]:
    records = sum(len(found) for found in group)
    even = [replace(found, record_bytes=1) for found in group]
    return _by_bytes(even, -(-records // records_max))


def share(ranges: Iterable[Range], parts: int) -> list[list[Range]]:
    """Share ranges that are read by key among tasks: a topic of a store is asked for them at once.

    What that costs hangs on the number of messages found, which nobody knows, and not on that of
    the messages there.
    """
    topics = [list(found) for _, found in groupby(ranges, lambda one: (one.store, one.topic))]
    parts = min(parts, len(topics))
    places = [len(topics) * part // parts for part in range(parts)] + [len(topics)]
    return [
        [one for topic in topics[first:last] for one in topic] for first, last in pairwise(places)
    ]
