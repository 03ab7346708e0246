"""Which messages each task reads."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay.errors import OffsetOutOfRangeError, UnknownTopicError
from forebay.spark.errors import invalid
from forebay.spark.options import EARLIEST, LATEST, Limit, ReadOptions, TopicQueue

if TYPE_CHECKING:
    from forebay import Store

#: System topics of RocketMQ, beside those with the prefix: a pattern passes over them, as the
#: connector's does over Kafka's internal topics.
_SYSTEM_TOPICS = {
    "TBW102",
    "SCHEDULE_TOPIC_XXXX",
    "BenchmarkTest",
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC",
    "OFFSET_MOVED_EVENT",
    "CHECKPOINT_TOPIC",
}
_SYSTEM_PREFIX = "rmq_sys_"


@dataclass(frozen=True)
class Range:
    """Offsets of a queue, half-open."""

    topic: str
    queue: int
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


def processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cut(ranges: Iterable[Range], parts: int, records_max: int | None) -> list[list[Range]]:
    """Cut ranges into groups of nearly as many messages each, in the order of the ranges.

    There are `parts` groups, or more where `records_max` messages in each demand it, or fewer where
    there are not that many messages. A group may hold a part of one queue or all of many, so a
    topic of one queue occupies every core, and one of 10,000 queues does not make 10,000 tasks.
    """
    ranges = [found for found in ranges if len(found) > 0]
    total = sum(len(found) for found in ranges)
    if records_max is not None:
        parts = max(parts, -(-total // records_max))
    parts = min(parts, total)
    groups: list[list[Range]] = [[] for _ in range(parts)]
    done = 0
    group = 0
    for found in ranges:
        start = found.start
        while start < found.end:
            room = total * (group + 1) // parts - done
            end = min(start + room, found.end)
            groups[group].append(Range(found.topic, found.queue, start, end))
            done += end - start
            start = end
            if done == total * (group + 1) // parts:
                group += 1
    return groups


class Planner:
    """Looks into an open store for what the options mean there, at this moment."""

    def __init__(self, store: Store, options: ReadOptions) -> None:
        self._store = store
        self._options = options

    def ranges(self) -> list[Range]:
        """Return the range of each queue that is asked for, in the order of topics and queues.

        Raises
        ------
        UnknownTopicError
            If a topic or queue that is named is not there.
        InvalidOptionError
            If offsets or times do not name the queues that are asked for, if a queue has no message
            from a starting time on, or ends before it starts.
        OffsetOutOfRangeError
            If offsets are named that the queue does not have, and data loss is to fail.
        """
        bounds = dict(self._bounds())
        starts = self._resolve("starting", self._options.start, bounds)
        ends = self._resolve("ending", self._options.end, bounds)
        ranges = []
        for (topic, queue), (least, most) in bounds.items():
            start = self._inside(topic, queue, starts[topic, queue], least, most)
            end = self._inside(topic, queue, ends[topic, queue], least, most)
            if start > end and self._options.fail_on_data_loss:
                reason = f"the read of {topic}-{queue} would end at {end}, before its start"
                raise invalid("startingOffsets", start, reason)
            ranges.append(Range(topic, queue, start, max(start, end)))
        return ranges

    def _bounds(self) -> Iterator[tuple[TopicQueue, tuple[int, int]]]:
        options = self._options
        topics = self._store.topics
        if options.assignment is not None:
            named = list(options.assignment)
        elif options.pattern is not None:
            named = [name for name in sorted(topics) if self._matches(name)]
        else:
            named = list(options.topics or ())
        for name in named:
            if name not in topics:
                message = f"there is no topic {name!r} in {self._store.path}"
                raise UnknownTopicError(message, topic=name)
            queues = {queue.id: queue for queue in topics[name].queues}
            wanted = queues if options.assignment is None else options.assignment[name]
            for number in wanted:
                if number not in queues:
                    message = f"topic {name!r} has no queue {number}; it has {len(queues)}"
                    raise UnknownTopicError(message, topic=name, queue=number)
                queue = queues[number]
                yield (name, number), (queue.min_offset, queue.max_offset)

    def _matches(self, topic: str) -> bool:
        pattern = self._options.pattern
        if topic in _SYSTEM_TOPICS or topic.lower().startswith(_SYSTEM_PREFIX):
            return False
        return pattern is not None and pattern.fullmatch(topic) is not None

    def _resolve(
        self, side: str, limit: Limit, bounds: dict[TopicQueue, tuple[int, int]]
    ) -> dict[TopicQueue, int]:
        """Return the offset that a limit means for each queue; it may lie outside the bounds."""
        if limit.offsets is not None:
            _check_all_named(f"{side}Offsets", limit.offsets, bounds)
            offsets = limit.offsets
        elif limit.times is not None:
            _check_all_named(f"{side}OffsetsByTimestamp", limit.times, bounds)
            times = limit.times
            offsets = {at: self._at(side, at, times[at], bounds[at]) for at in bounds}
        elif limit.time is not None:
            time = limit.time
            offsets = {at: self._at(side, at, time, bounds[at]) for at in bounds}
        else:
            offsets = dict.fromkeys(bounds, limit.everywhere)
        ends = {EARLIEST: 0, LATEST: 1}
        return {
            at: bounds[at][ends[offset]] if offset in ends else offset
            for at, offset in offsets.items()
        }

    def _at(self, side: str, at: TopicQueue, time: int, bounds: tuple[int, int]) -> int:
        topic, queue = at
        least, most = bounds
        # The bounds are the snapshot: what was sent since they were taken is not in it.
        offset = most
        if least < most:
            offset = min(self._store.offset_at(topic, queue, time), most)
        if offset == most and side == "starting" and not self._options.latest_if_no_match:
            reason = (
                f"{topic}-{queue} has no message from then on; "
                'startingOffsetsByTimestampStrategy "latest" begins at its end'
            )
            raise invalid("startingTimestamp", time, reason)
        return offset

    def _inside(self, topic: str, queue: int, offset: int, least: int, most: int) -> int:
        if least <= offset <= most:
            return offset
        if self._options.fail_on_data_loss:
            message = (
                f"{topic}-{queue} has no offset {offset}: it has {least} to {most}; "
                'set failOnDataLoss to "false" to read what there is'
            )
            raise OffsetOutOfRangeError(
                message, topic=topic, queue=queue, offset=offset, min_offset=least, max_offset=most
            )
        return min(max(offset, least), most)


def _check_all_named(
    option: str, numbers: dict[TopicQueue, int], bounds: dict[TopicQueue, tuple[int, int]]
) -> None:
    if numbers.keys() != bounds.keys():
        given, there = (
            ", ".join(f"{topic}-{queue}" for topic, queue in sorted(names)) or "none"
            for names in (numbers, bounds)
        )
        reason = f"it must name every partition; use -1 for latest, -2 for earliest; there: {there}"
        raise invalid(option, given, reason)
