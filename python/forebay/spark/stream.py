"""Streams: ``spark.readStream.format("forebay")``.

Spark keeps one reader of a stream in a separate process beside the driver. At each trigger it asks
the reader how far the stream may read, and then for the tasks that do it. The answer covers only
durable messages (see `_forebay.bounds_below`): after a power loss, the offset of a message that was
not durable may go to another message.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from forebay.errors import (
    ForebayError,
    LogShrunkError,
    NotAStoreError,
    OffsetOutOfRangeError,
    StoreNotFoundError,
    UnknownTopicError,
)
from forebay.spark.offsets import Place, decode, encode, rotated, share
from forebay.spark.options import TopicQueue
from forebay.spark.pace import StreamOptions, share_bytes
from forebay.spark.plan import Planner
from forebay.spark.ranges import Range, cut
from forebay.spark.reader import BATCH_ROWS, ForebayPartition, ForebayReader
from forebay.spark.stores import UNREADABLE, expand
from forebay.spark.watch import Seen, Watch

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]

    from forebay._forebay import Fitted

#: A store, a topic and a queue.
At = tuple[str, TopicQueue]

#: How long an answer to Spark waits for a message. The other sources of a query wait meanwhile.
WAIT = timedelta(milliseconds=100)

_log = logging.getLogger(__name__)


class ForebayStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Decides how far a stream may read, divides that into tasks, and reads them."""

    def __init__(self, options: StreamOptions, parallelism: int) -> None:
        self._options = options
        self._parallelism = parallelism
        self._watches: dict[str, Watch] = {}
        self._logged: set[str] = set()
        #: The stores at the last check, for Spark's progress reports.
        self._last: dict[str, Seen] = {}
        #: End offsets of an available-now stream.
        self._target: dict[At, int] | None = None
        #: Start and end of the last planned batch, and the start offset of each queue in it.
        self._planned: tuple[dict[str, Any], dict[str, Any], dict[At, int]] | None = None
        self._triggered: float | None = None
        #: Number of batches limited by bytes, and the last of them in which each queue advanced.
        self._batches = 0
        self._moved: dict[At, int] = {}
        #: The offset that was last recorded as the progress of a group.
        self._recorded: dict[str, Any] | None = None

    # --- where the stream begins ------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new stream begins, according to its options."""
        planner = Planner(self._options.read)
        places = {}
        seen = self._check()
        for path, found in seen.items():
            store = self._watches[path].store
            given = planner.resolve(store, "starting", found.bounds)
            queues = {
                at: planner.inside(at, given[at], within) for at, within in found.bounds.items()
            }
            places[path] = found.place(queues)
        named = self._options.read.assignment or self._options.read.topics or ()
        there = {topic for found in seen.values() for topic, _ in found.bounds}
        if missing := sorted(set(named) - there):
            _log.warning("topics that do not exist yet: %s", ", ".join(missing))
        return encode(places)

    # --- how far it may read ----------------------------------------------------------------------

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return one limit, so that Spark knows of one; `latestOffset` applies all of them."""
        pace = self._options.pace
        if pace.offsets_max is not None:
            return ReadMaxRows(pace.offsets_max)
        if pace.bytes_max is not None:
            return ReadMaxBytes(pace.bytes_max)
        if pace.offsets_min is not None:
            return ReadMinRows(pace.offsets_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of an available-now stream at the current ends."""
        self._target = {
            (path, at): end
            for path, found in self._check().items()
            for at, (_, end) in found.bounds.items()
        }

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch; `start` if there is too little to read.

        Without a message that `start` leaves, this waits for one for a moment: Spark asks again 10
        ms after an answer without news, and each answer takes processor time.
        """
        # Spark plans a batch once the previous one is in the sink.
        self._record(start)
        end = self._next(start, limit)
        if end == start and self._has_news():
            end = self._next(start, limit)
        return end

    def _has_news(self) -> bool:
        """Wait for a message in the store of the stream, unless it has an end or several stores."""
        if self._target is not None or len(self._last) != 1:
            return False
        (path,) = self._last
        return self._watches[path].wait(WAIT)

    def _next(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        places = decode(start)
        seen = self._check(places)
        starts = self._starts(places, seen)
        ends = {
            (path, at): end for path, found in seen.items() for at, (_, end) in found.bounds.items()
        }
        if self._target is not None:
            ends = {at: min(end, self._target.get(at, starts[at])) for at, end in ends.items()}
        # A new store is recorded in the offset before any of its messages are planned. Otherwise a
        # repeated batch could not find where the store began, as retention may have removed files.
        ends = {
            at: max(end, starts[at]) if at[0] in places else starts[at] for at, end in ends.items()
        }
        if not isinstance(limit, ReadAllAvailable):
            ends = self._limited(starts, ends)
        reached = dict(places)
        for path, found in seen.items():
            before = places[path].queues if path in places else {}
            queues = dict(before)
            for at, (_, most) in found.bounds.items():
                # Leave out a queue that is still empty: it begins at 0.
                if at in before or most > 0:
                    queues[at] = ends[path, at]
            reached[path] = found.place(queues)
        if not self._differs(places, reached, starts, ends):
            return start
        end = encode(reached)
        self._planned = (start, end, starts)
        return end

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the durable ends at the last check."""
        if not self._last:
            return None
        return encode(
            {
                path: found.place({at: end for at, (_, end) in found.bounds.items()})
                for path, found in self._last.items()
            }
        )

    def _differs(
        self,
        places: Mapping[str, Place],
        reached: Mapping[str, Place],
        starts: Mapping[At, int],
        ends: Mapping[At, int],
    ) -> bool:
        """Return whether there are messages to read, a new store, or a queue that was set back.

        Places that differ only in epoch, position or empty new queues count as equal: Spark would
        run a batch without rows for them.
        """
        if reached.keys() != places.keys():
            return True
        if any(ends[at] > first for at, first in starts.items()):
            return True
        return any(
            reached[path].queues[at] != offset
            for path, place in places.items()
            for at, offset in place.queues.items()
        )

    def _limited(self, starts: Mapping[At, int], ends: dict[At, int]) -> dict[At, int]:
        """Apply the limits of the options to a batch."""
        pace = self._options.pace
        sizes = {at: ends[at] - first for at, first in starts.items()}
        if self._is_to_wait(sum(sizes.values())):
            return dict(starts)
        # Each batch advances the turn by its number of messages.
        turn = sum(starts.values())
        if pace.offsets_max is not None:
            parts = share(pace.offsets_max, sizes, turn)
            ends = {at: first + parts[at] for at, first in starts.items()}
        if pace.bytes_max is not None:
            # The queue that has waited longest comes first. A turn counted in messages could pick
            # the same queue every time.
            order = sorted(rotated(list(starts), turn), key=lambda at: self._moved.get(at, 0))
            ranges = {at: (starts[at], ends[at]) for at in order}
            ends = share_bytes(pace.bytes_max, ranges, self._fit)
            self._batches += 1
            self._moved |= {at: self._batches for at, end in ends.items() if end > starts[at]}
        return ends

    def _is_to_wait(self, waiting: int) -> bool:
        """Return whether to wait for more messages; an available-now stream never waits."""
        least = self._options.pace.offsets_min
        if least is None or self._target is not None:
            return False
        now = time.monotonic()
        last = self._triggered
        if waiting < least and last is not None and now - last < self._options.pace.delay_max:
            return True
        self._triggered = now
        return False

    def _fit(self, parts: Mapping[At, tuple[int, int, int]]) -> dict[At, Fitted]:
        by_store: dict[str, dict[TopicQueue, tuple[int, int, int]]] = {}
        for (path, at), part in parts.items():
            by_store.setdefault(path, {})[at] = part
        return {
            (path, at): found
            for path, own in by_store.items()
            for at, found in self._watches[path].fit(own).items()
        }

    # --- the state of the stores ------------------------------------------------------------------

    def _check(self, places: Mapping[str, Place] | None = None) -> dict[str, Seen]:
        """Return the current state of all stores that the paths match."""
        seen = {}
        given = self._options.read.paths
        paths = expand(given, must_match=False)
        for path in paths:
            watch = self._watches.get(path) or Watch(path, self._options.read)
            try:
                seen[path] = watch.check()
            except (StoreNotFoundError, NotAStoreError) as error:
                watch.close()
                if path not in given and path not in (places or {}):
                    # A pattern may match a store that is just being created.
                    self._log_once(f"skipping {path}, which is not a store, or not yet: {error}")
                    continue
                self._lose(error, path)
            except UNREADABLE as error:
                watch.close()
                self._lose(error, path)
            else:
                self._watches[path] = watch
        for path in (places or {}).keys() - set(paths):
            message = f"the store {path} no longer exists"
            self._lose(StoreNotFoundError(message, path=path), path)
        self._last = seen
        return seen

    def _starts(self, places: Mapping[str, Place], seen: Mapping[str, Seen]) -> dict[At, int]:
        """Return where each queue continues: at its place, or at the first message that is left.

        Raises
        ------
        LogShrunkError, OffsetOutOfRangeError, UnknownTopicError
            If unread messages no longer exist, and ``failOnDataLoss`` is true.
        """
        starts = {}
        for path, found in seen.items():
            place = places.get(path, Place())
            left = found.intact_until(place) if path in places else None
            unread: dict[TopicQueue, int] = {}
            if left is not None:
                self._lose(_shrunk(path, place.position, left), path)
                unread = self._watches[path].offsets_from(left)
            for at, (least, most) in found.bounds.items():
                # A queue that is missing from a place was empty, absent or not requested then, so
                # it begins at 0. A store that is missing from the offset begins at its first
                # message: nothing of it is lost.
                offset = place.queues.get(at, 0 if path in places else least)
                if left is not None:
                    offset = min(offset, unread.get(at, least))
                if not least <= offset <= most:
                    self._lose(_outside(path, at, offset, least, most), path)
                starts[path, at] = min(max(offset, least), most)
            for topic, queue in place.queues.keys() - found.bounds.keys():
                message = f"topic {topic!r} no longer has queue {queue} in {path}"
                self._lose(UnknownTopicError(message, topic=topic, queue=queue), path)
        return starts

    def _lose(self, error: Exception, path: str) -> None:
        """Raise an error that means lost data, or log it once if ``failOnDataLoss`` is false."""
        if self._options.read.fail_on_data_loss:
            error.add_note(
                f'store: {path}; set failOnDataLoss to "false" to continue with what remains'
            )
            raise error
        self._log_once(f"{path}: {error}")

    def _log_once(self, text: str) -> None:
        if text not in self._logged:
            self._logged.add(text)
            _log.warning("%s", text)

    # --- the tasks of a batch ---------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Divide the messages between two offsets into tasks."""
        places = decode(end)
        if self._planned is not None and self._planned[:2] == (start, end):
            starts = self._planned[2]
        else:
            # The batch was planned by an earlier run of the stream.
            starts = self._replayed(decode(start), places)
        ranges = [
            Range(path, *at, starts[path, at], offset)
            for path, place in sorted(places.items())
            for at, offset in sorted(place.queues.items())
            if (path, at) in starts and starts[path, at] < offset
        ]
        records = sum(len(found) for found in ranges)
        # A task for less than a batch costs more than it saves.
        parts = min(self._parallelism, -(-records // BATCH_ROWS))
        options = self._options.read
        groups = cut(ranges, options.min_partitions or parts, options.records_max)
        lives = {path: found.life for path, found in self._last.items() if found.life}
        plan = uuid.uuid4().hex
        return [ForebayPartition(plan, group, lives) for group in groups]

    def _replayed(self, begin: Mapping[str, Place], end: Mapping[str, Place]) -> dict[At, int]:
        seen = self._check(end)
        starts = self._starts(begin, seen)
        for path, found in seen.items():
            if path not in end:
                continue
            left = found.intact_until(end[path])
            if left is not None:
                self._lose(_shrunk(path, end[path].position, left), path)
            for at, offset in end[path].queues.items():
                least, most = found.bounds.get(at, (0, 0))
                if offset > most:
                    self._lose(_outside(path, at, offset, least, most), path)
        return starts

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Read the batches of a partition, as for a batch read."""
        return ForebayReader(self._options.read, self._parallelism).read(partition)

    # --- progress ---------------------------------------------------------------------------------

    def commit(self, end: dict[str, Any]) -> None:
        """Record that everything up to an offset is processed."""
        self._record(end)

    def _record(self, done: dict[str, Any]) -> None:
        """Record the progress under the group; only log a failure, as nothing depends on it."""
        if self._options.group is None or done == self._recorded:
            return
        from forebay.spark import group

        self._recorded = done
        for path, place in decode(done).items():
            try:
                group.record(path, self._options.group, place.queues)
            except (OSError, ForebayError) as error:
                self._log_once(
                    f"cannot record the progress of group {self._options.group}: {error}"
                )

    def stop(self) -> None:
        """Close all stores."""
        for watch in self._watches.values():
            watch.close()
        self._watches.clear()


def _shrunk(path: str, position: int, left: int) -> LogShrunkError:
    if left == 0:
        message = f"the log of {path}, durable up to {position} when read, was replaced"
        message += " by another one"
    else:
        message = f"the log of {path} was cut: it was durable up to {position} when read, "
        message += f"and is unchanged only up to {left}"
    return LogShrunkError(message, path=path, position=position, end=left)


def _outside(
    path: str, at: TopicQueue, offset: int, least: int, most: int
) -> OffsetOutOfRangeError:
    topic, queue = at
    if offset < least:
        what = f"messages {offset} to {least - 1} of {topic}-{queue} in {path} have been removed"
    else:
        what = f"{topic}-{queue} in {path} ends at {most}, but the stream is already at {offset}"
    return OffsetOutOfRangeError(
        what, topic=topic, queue=queue, offset=offset, min_offset=least, max_offset=most
    )
