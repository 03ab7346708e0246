"""Planning: which messages a read covers, and the sizes of its ranges."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from forebay.archive import Archive
from forebay.errors import (
    ForebayError,
    InvalidOptionError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from forebay.spark.errors import invalid, must
from forebay.spark.options import EARLIEST, LATEST, Limit, ReadOptions, TopicQueue, names_of
from forebay.spark.ranges import Range

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from forebay import Store
    from forebay.spark.filters import Pushed
    from forebay.spark.stores import Source

#: Internal topics of Kafka, and RocketMQ's system topics, besides those with `_SYSTEM_PREFIX`. A
#: pattern skips them, as the connector's pattern skips Kafka's.
_SYSTEM_TOPICS = {
    "__consumer_offsets",
    "__transaction_state",
    "__share_group_state",
    "__cluster_metadata",
    "TBW102",
    "SCHEDULE_TOPIC_XXXX",
    "BenchmarkTest",
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC",
    "OFFSET_MOVED_EVENT",
    "CHECKPOINT_TOPIC",
}
_SYSTEM_PREFIX = "rmq_sys_"

#: First offset and end offset of a queue.
Bounds = tuple[int, int]


#: Maximum number of records of a store to sample for their sizes; this takes a few milliseconds.
_SAMPLES_MAX = 2_000
#: Maximum number of records of one queue to sample.
_SAMPLES_QUEUE_MAX = 16


def processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def parallelism(spark: SparkSession) -> int | None:
    """Return how many tasks a session runs at once; `None` if it is a remote session."""
    from pyspark.errors import PySparkException

    try:
        return int(spark.sparkContext.defaultParallelism)
    except (AttributeError, PySparkException):
        return None


class Planner:
    """Turns the options of a read into ranges of offsets, one store after another.

    Each topic and queue that the options name must be in at least one of the stores. That is known
    only after the last store; call `check` then.
    """

    def __init__(self, options: ReadOptions, pushed: Pushed | None = None) -> None:
        self._options = options
        self._pushed = pushed
        self._stores: list[str] = []
        self._topics: set[str] = set()
        self._queues: set[TopicQueue] = set()

    def bounds(self, store: Source) -> dict[TopicQueue, Bounds]:
        """Return the bounds of each requested queue that the store has, by topic and queue."""
        options = self._options
        topics = store.topics
        self._stores.append(store.path)
        bounds = {}
        for name in self.named(store):
            if name not in topics:
                continue
            self._topics.add(name)
            queues = {queue.id: queue for queue in topics[name].queues}
            wanted = queues if options.assignment is None else options.assignment[name]
            for number in wanted:
                if number in queues:
                    queue = queues[number]
                    bounds[name, number] = (queue.min_offset, queue.max_offset)
        self._queues.update(bounds)
        return bounds

    def named(self, store: Source) -> list[str]:
        """Return the names of the requested topics; the store need not have all of them."""
        options = self._options
        if options.pattern is not None:
            # Like the connector's, it matches anywhere in the name.
            found = filter(options.pattern.search, store.topics)
            return sorted(name for name in found if not is_system_topic(name))
        return list(options.assignment or options.topics or ())

    def ranges(self, store: Source) -> list[Range]:
        """Return the range of each requested queue, by topic and queue.

        The options are checked against the full ranges; then the filters narrow them.

        Raises
        ------
        InvalidOptionError
            If offsets or times do not name the requested queues, if a queue has no message at or
            after its starting time, or if a range ends before it starts.
        OffsetOutOfRangeError
            If a named offset is not in its queue, and ``failOnDataLoss`` is true.
        """
        bounds = self.bounds(store)
        starts = self.resolve(store, "starting", bounds)
        ends = self.resolve(store, "ending", bounds)
        ranges = []
        for at, within in bounds.items():
            topic, queue = at
            start = self.inside(at, starts[at], within)
            end = self.inside(at, ends[at], within)
            if start > end and self._options.fail_on_data_loss:
                reason = f"the read of {topic}-{queue} would end at {end}, before its start"
                raise invalid("startingOffsets", start, reason)
            ranges.append(Range(store.path, topic, queue, start, max(start, end)))
        if self._pushed is not None:
            ranges = self._pushed.narrow(store, ranges)
        return weigh(store, ranges)

    def check(self) -> None:
        """Check that each topic and queue that the options name is in one of the stores.

        Raises
        ------
        UnknownTopicError
            If a topic or queue is in none of them.
        InvalidOptionError
            If offsets or times name a queue that does not exist, or a store that is not read.
        """
        options = self._options
        where = self._stores[0]
        if len(self._stores) > 1:
            where = f"any of {len(self._stores)} stores, of which the first is {where}"
        for name in options.assignment or options.topics or ():
            if name not in self._topics:
                raise UnknownTopicError(f"there is no topic {name!r} in {where}", topic=name)
        for name, queues in (options.assignment or {}).items():
            for queue in queues:
                if (name, queue) not in self._queues:
                    message = f"topic {name!r} has no queue {queue} in {where}"
                    raise UnknownTopicError(message, topic=name, queue=queue)
        for side, limit in (("starting", options.start), ("ending", options.end)):
            for store in (limit.by_store or {}).keys() - set(self._stores):
                rule = "name only stores that are read"
                raise must(_option(side, limit), store, rule)
            for kind, numbers in _numbers_of(limit):
                if not numbers.keys() <= self._queues:
                    raise _not_all_named(f"{side}{kind}", numbers, self._queues)

    def resolve(
        self, store: Source, side: str, bounds: dict[TopicQueue, Bounds]
    ) -> dict[TopicQueue, int]:
        """Return the offset that a limit means for each queue; it may be outside the bounds.

        `side` is ``"starting"`` or ``"ending"``.
        """
        given = self._options.start if side == "starting" else self._options.end
        limit = given.of(store.path)
        if limit is None:
            rule = f"name every store, but {store.path} is missing"
            raise must(_option(side, given), sorted(given.by_store or {}), rule)
        for kind, numbers in _numbers_of(limit):
            # A limit for all stores may name queues that this store does not have.
            missing = bounds.keys() - numbers.keys()
            if missing or (given is not limit and numbers.keys() != bounds.keys()):
                raise _not_all_named(f"{side}{kind}", numbers, bounds)
        times, offsets = limit.times, limit.offsets
        if limit.time is not None:
            times = dict.fromkeys(bounds, limit.time)
        if times is not None:
            return {at: self._at(store, side, at, times[at], bounds[at]) for at in bounds}
        if offsets is None:
            offsets = dict.fromkeys(bounds, limit.everywhere)
        return {
            at: {EARLIEST: least, LATEST: most}.get(offsets[at], offsets[at])
            for at, (least, most) in bounds.items()
        }

    def _at(self, store: Source, side: str, at: TopicQueue, time: int, bounds: Bounds) -> int:
        topic, queue = at
        least, most = bounds
        # The bounds are the snapshot; messages sent since are not in it.
        offset = most
        if least < most:
            offset = min(store.offset_at(topic, queue, time), most)
        if offset == most and side == "starting" and not self._options.latest_if_no_match:
            reason = (
                f"{topic}-{queue} has no message stored at or after it; "
                'set startingOffsetsByTimestampStrategy to "latest" to start at its end'
            )
            raise invalid("startingTimestamp", time, reason)
        return offset

    def inside(self, at: TopicQueue, offset: int, bounds: Bounds) -> int:
        """Return the offset if it is within the bounds; else fail, or return the nearest bound."""
        topic, queue = at
        least, most = bounds
        if least <= offset <= most:
            return offset
        if self._options.fail_on_data_loss:
            raise OffsetOutOfRangeError(
                f"{topic}-{queue} has no offset {offset}; its bounds are {least} to {most}; "
                'set failOnDataLoss to "false" to read what remains',
                topic=topic,
                queue=queue,
                offset=offset,
                min_offset=least,
                max_offset=most,
            )
        return min(max(offset, least), most)


def _numbers_of(limit: Limit) -> list[tuple[str, dict[TopicQueue, int]]]:
    """Return the numbers that a limit gives by queue, each with its option's name less the side."""
    found = (("Offsets", limit.offsets), ("OffsetsByTimestamp", limit.times))
    return [(kind, numbers) for kind, numbers in found if numbers is not None]


def _option(side: str, limit: Limit) -> str:
    """Return the name of the option that gave the limits by store."""
    times = any(own.times is not None for own in (limit.by_store or {}).values())
    return f"{side}OffsetsByTimestamp" if times else f"{side}Offsets"


def _not_all_named(
    option: str, numbers: Iterable[TopicQueue], there: Iterable[TopicQueue]
) -> InvalidOptionError:
    given, known = names_of(numbers) or "none", names_of(there) or "none"
    rule = f"name every partition ({known}), with -1 for latest and -2 for earliest"
    return must(option, given, rule)


def weigh(store: Source, ranges: Iterable[Range]) -> list[Range]:
    """Return the ranges with the average sizes of their records, from a sample of each.

    Ranges of an archive are divided into pieces in log order; see `Archive._segments`.

    If there are more queues than samples, the smaller queues get the average of their topic.
    """
    ranges = list(ranges)
    if isinstance(store, Archive):
        return [
            Range(store.path, part.topic, part.queue, part.start, part.end, size)
            for part, size in store._segments(ranges)
        ]
    by_len = sorted((found for found in ranges if len(found)), key=len, reverse=True)
    largest = by_len[:_SAMPLES_MAX]
    samples = min(_SAMPLES_QUEUE_MAX, _SAMPLES_MAX // max(len(largest), 1))
    sizes = {}
    for found in largest:
        sizes[found.topic, found.queue] = _sample(store, found, min(samples, len(found)))
    by_topic: dict[str, list[int]] = {}
    for (topic, _), seen in sizes.items():
        by_topic.setdefault(topic, []).extend(seen)
    anywhere = [size for seen in by_topic.values() for size in seen]
    weighed = []
    for found in ranges:
        seen = sizes.get((found.topic, found.queue)) or by_topic.get(found.topic) or anywhere
        size = sum(seen) // len(seen) if seen else 1
        weighed.append(replace(found, record_bytes=max(size, 1)))
    return weighed


def _sample(store: Store, found: Range, samples: int) -> list[int]:
    sizes = []
    for number in range(samples):
        offset = found.start + len(found) * (2 * number + 1) // (2 * samples)
        # Damage is reported by the task that reads it.
        with contextlib.suppress(ForebayError):
            sizes.append(store.get(found.topic, found.queue, offset).size)
    return sizes


def is_system_topic(topic: str) -> bool:
    """Return whether a topic is a system topic, of RocketMQ, Kafka or Forebay."""
    return topic in _SYSTEM_TOPICS or topic.lower().startswith(_SYSTEM_PREFIX)
