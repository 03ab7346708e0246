"""Ranges of offsets, and how to divide them evenly among tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise


@dataclass(frozen=True)
class Range:
    """A half-open range of offsets of one queue."""

    #: Absolute path of the store.
    store: str
    topic: str
    queue: int
    start: int
    end: int
    #: Estimated average size of a record in bytes; used only to weigh ranges.
    record_bytes: int = field(default=1, compare=False)

    def __len__(self) -> int:
        return self.end - self.start


def cut(ranges: Iterable[Range], parts: int, records_max: int | None = None) -> list[list[Range]]:
    """Cut ranges into groups of about equal size in bytes, in the order of the ranges.

    There are `parts` groups; more if a group would exceed `records_max` messages; fewer if there
    are fewer messages than that, or if single messages are larger than a part. A group may hold a
    part of one queue, or many queues of several stores. So a topic of one queue uses every core,
    and one of 10,000 queues does not take 10,000 tasks.
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
    """Lay all records end to end, divide the whole into equal parts, and assign records to parts.

    A record belongs to the part that contains its middle. If all records have one size, the record
    counts of the groups differ by at most one, and no group is empty.
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
            # Take the records from `first` on whose middle is before the end of the group.
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
    """Divide ranges that are read by key among tasks, without splitting a topic of a store.

    The cost of such a read depends on the number of messages found, which is unknown, and not on
    the number of messages in the ranges.
    """
    topics = [list(found) for _, found in groupby(ranges, lambda one: (one.store, one.topic))]
    parts = min(parts, len(topics))
    places = [len(topics) * part // parts for part in range(parts)] + [len(topics)]
    return [
        [one for topic in topics[first:last] for one in topic] for first, last in pairwise(places)
    ]
