"""The job `report`: counts messages by topic, queue, hour and key, and the lag of groups."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import forebay
from forebay.options import Progress
from forebay.spark.jobs.figures import (
    BEYOND_END,
    NO_QUEUE,
    NO_TOPIC,
    HourFigures,
    KeyFigures,
    LagFigures,
    QueueFigures,
    Report,
    TopicFigures,
)
from forebay.spark.jobs.work import chosen_topics, named_topics, read_ranges, reporting
from forebay.spark.options import TopicQueue, local
from forebay.spark.plan import Bounds, is_system_topic
from forebay.spark.ranges import Range

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EPOCH = datetime.fromtimestamp(0, UTC)
_HOUR_MICROS = 3_600_000_000


def report(
    spark: SparkSession,
    path: str | os.PathLike[str],
    html: str | os.PathLike[str] | None = None,
    *,
    topics: Iterable[str] | None = None,
    keys: int = 20,
    progress: Progress | None = None,
) -> Report:
    """Count messages and bytes by topic, queue, hour and key, and report the lag of groups.

    Messages sent up to now are counted, even if the store is being written.
    Messages lost to damage are logged and not counted; use `audit` to look for damage.

    Parameters
    ----------
    spark
        The session. The format ``forebay`` is registered in it.
    path
        Directory of the store, live, closed, or written by RocketMQ, which every worker must reach
        under this path.
    html
        Where to write the report as a self-contained page with plots, replacing an existing file.
        This needs ``pip install 'forebay[report]'``.
    topics
        Topics to count; by default all but RocketMQ's system topics.
    keys
        How many keys to list, those with the most messages first; with 0 no keys are read.
    progress
        Called with the number of finished tasks and of all tasks; not in a remote session.

    Returns
    -------
    Report
        The figures, as rows and as Arrow tables.

    Examples
    --------
    >>> forebay.spark.report(spark, "events", "events.html").table("hours")  # doctest: +SKIP
    """
    asked = named_topics(topics)
    if html is not None:
        # Find out before the work whether Plotly is missing.
        from forebay.spark.jobs.page import check_plotly

        check_plotly()
    began = time.monotonic()
    root = local("path", path)
    taken = datetime.now(UTC)
    with forebay.open(root, mode="r") as store:
        named = chosen_topics(store, asked)
        bounds = {
            (name, queue.id): (queue.min_offset, queue.max_offset)
            for name, topic in named.items()
            for queue in topic.queues
        }
    with reporting(spark, progress):
        # Both reads end at the same offsets, whatever is sent meanwhile.
        ranges = [Range(root, *queue, *ends) for queue, ends in bounds.items() if ends[0] < ends[1]]
        rows = _count(spark, root, ranges)
        top = _top_keys(spark, root, ranges, keys)
    queues = _queues(rows, bounds)
    hours = _hours(rows)
    made = Report(
        path=root,
        taken=taken,
        topics=tuple(_topic(name, rows, hours, bounds) for name in named),
        queues=queues,
        hours=hours,
        keys=top,
        lag=_lag(root, bounds, set(named), chosen=asked is not None),
        html=None if html is None else os.path.abspath(html),
        seconds=time.monotonic() - began,
    )
    if made.html is not None:
        from forebay.spark.jobs.page import write_page

        write_page(made, made.html)
    return made


def _count(spark: SparkSession, root: str, ranges: list[Range]) -> list[Any]:
    """Return a row per queue, without an hour, and a row per hour of a topic, without a queue."""
    from pyspark.sql import functions

    if not ranges:
        return []
    columns = "topic,queue,store_timestamp,size"
    frame = read_ranges(spark, root, ranges, columns, fail_on_data_loss=False)
    micros = functions.unix_micros("store_timestamp")
    frame = frame.withColumn("micros", micros).drop("store_timestamp")
    # Hours since the epoch, as integers: the session's time zone may be off by half an hour.
    frame = frame.withColumn("hour", functions.expr(f"micros div {_HOUR_MICROS}"))
    sets = [[frame.topic, frame.queue], [frame.topic, frame.hour]]
    counted = frame.groupingSets(sets, frame.topic, frame.queue, frame.hour).agg(
        functions.count("*").alias("messages"),
        functions.sum("size").alias("bytes"),
        functions.min("micros").alias("first"),
        functions.max("micros").alias("last"),
    )
    return counted.collect()


def _top_keys(
    spark: SparkSession, root: str, ranges: list[Range], count: int
) -> tuple[KeyFigures, ...]:
    from pyspark.sql import functions

    if not ranges or count <= 0:
        return ()
    frame = read_ranges(spark, root, ranges, "topic,keys,size", fail_on_data_loss=False)
    frame = frame.where("keys is not null")
    words = functions.explode(functions.split("keys", " +"))
    frame = frame.select("topic", words.alias("key"), "size").where("key != ''")
    counted = frame.groupBy("topic", "key").agg(
        functions.count("*").alias("messages"), functions.sum("size").alias("bytes")
    )
    ordered = counted.orderBy(functions.desc("messages"), "topic", "key").limit(count)
    return tuple(KeyFigures(**row.asDict()) for row in ordered.collect())


def _at(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _rate(messages: int, first: int, last: int) -> float:
    """Return messages per second; 0 if all came at the same time, as the rate is unknown then."""
    return messages * 1e6 / (last - first) if last > first else 0.0


def _queues(rows: list[Any], bounds: dict[TopicQueue, Bounds]) -> tuple[QueueFigures, ...]:
    counted = {(row.topic, row.queue): row for row in rows if row.queue is not None}
    found = []
    for (topic, queue), (low, high) in sorted(bounds.items()):
        row = counted.get((topic, queue))
        if row is None:
            found.append(QueueFigures(topic, queue, low, high, 0, 0, 0.0))
            continue
        rate = _rate(row.messages, row["first"], row["last"])
        found.append(QueueFigures(topic, queue, low, high, row.messages, row.bytes, rate))
    return tuple(found)


def _hours(rows: list[Any]) -> tuple[HourFigures, ...]:
    found = [
        HourFigures(
            row.topic, _at(row.hour * _HOUR_MICROS), row.messages, row.bytes, row.messages / 3600
        )
        for row in rows
        if row.hour is not None
    ]
    return tuple(sorted(found))


def _topic(
    name: str,
    rows: list[Any],
    hours: tuple[HourFigures, ...],
    bounds: dict[TopicQueue, Bounds],
) -> TopicFigures:
    own = [row for row in rows if row.topic == name and row.queue is not None]
    queues = sum(topic == name for topic, _ in bounds)
    if not own:
        return TopicFigures(name, queues, 0, 0, None, None, 0.0, 0.0)
    messages = sum(row.messages for row in own)
    first, last = min(row["first"] for row in own), max(row["last"] for row in own)
    peak = max(found.rate for found in hours if found.topic == name)
    size = sum(row.bytes for row in own)
    rate = _rate(messages, first, last)
    return TopicFigures(name, queues, messages, size, _at(first), _at(last), rate, peak)


def _lag(
    root: str, bounds: dict[TopicQueue, Bounds], named: set[str], *, chosen: bool
) -> tuple[LagFigures, ...]:
    """Compare RocketMQ's table of group offsets with the ends of the queues.

    A topic that is not in `named` is reported as missing, unless it is a system topic or the caller
    chose the topics.
    """
    from forebay.spark.group import read_table

    found = []
    try:
        table = read_table(Path(root, "config"))
    except OSError:
        table = {}
    for name, queues in table.get("offsetTable", {}).items():
        topic, _, group = name.partition("@")
        if topic not in named and (chosen or is_system_topic(topic)):
            continue
        for queue, offset in queues.items() if isinstance(queues, dict) else ():
            if not isinstance(offset, int) or not str(queue).isdecimal():
                continue
            place = (group, topic, int(queue), offset)
            end = bounds.get((topic, int(queue)))
            if end is None:
                missing = NO_QUEUE if topic in named else NO_TOPIC
                found.append(LagFigures(*place, None, None, missing))
                continue
            # A group that has not started has -1. Retired messages do not count: they can no longer
            # be consumed.
            begin = min(max(offset, end[0]), end[1])
            remark = BEYOND_END if offset > end[1] else None
            found.append(LagFigures(*place, end[1], end[1] - begin, remark))
    return tuple(sorted(found))
