"""Metrics of stores, for Prometheus and OpenTelemetry.

Names are those of RocketMQ's exporter where it has the same metric, and begin with ``forebay_``
otherwise. ``pip install 'forebay[metrics]'`` installs prometheus-client and OpenTelemetry's API.

Examples
--------
>>> import forebay.metrics
>>> import prometheus_client
>>> registry = prometheus_client.CollectorRegistry()
>>> with forebay.open(":memory:", default_queues=1) as store:
...     registry.register(forebay.metrics.Collector({"events": store}))
...     _ = store.send("orders", b"body")
...     labels = {"cluster": "forebay", "broker": "events", "topic": "orders"}
...     registry.get_sample_value("rocketmq_producer_offset", labels)
1
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from forebay._forebay import GroupQueue, Latency, Stats, Store
from forebay.dead_letters import prefixes
from forebay.errors import StoreClosedError
from forebay.given import check, check_text
from forebay.selection import require

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation
    from prometheus_client.metrics_core import Metric

__all__ = ["Collector", "instrument"]

#: Upper ends of the buckets of histograms, in seconds. A bucket of the store ends at each of them.
_ENDS = tuple(2**power / 1e9 for power in range(10, 36, 2))
#: Seconds for which instruments share one reading of the stores.
_FRESH = 0.1


@dataclass
class _Family:
    """A metric with its values by label."""

    name: str
    text: str
    kind: Literal["gauge", "counter", "histogram"] = "gauge"
    unit: str = ""
    labels: tuple[str, ...] = ()
    rows: list[tuple[tuple[str, ...], Any]] = field(default_factory=list)


class Collector:
    """A collector of Prometheus: register it once, and each scrape reads the stores.

    Parameters
    ----------
    stores
        The store, or several by name. The name is the label ``broker``; by default it is that of
        the store's directory. Stores of one registry belong into one collector.
    cluster
        The label ``cluster``.

    Examples
    --------
    >>> import forebay.metrics
    >>> with forebay.open(":memory:") as store:
    ...     families = list(forebay.metrics.Collector(store).collect())
    >>> families[0].name, families[0].samples[0].value
    ('forebay_up', 1)
    """

    def __init__(self, stores: Store | Mapping[str, Store], *, cluster: str = "forebay") -> None:
        require("prometheus_client", "metrics")
        check_text("cluster", cluster, "a str")
        self._stores = _named(stores)
        self._cluster = cluster

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics. A closed store has only ``forebay_up``, with the value 0."""
        from prometheus_client import core

        kinds: dict[str, Any] = {
            "gauge": core.GaugeMetricFamily,
            "counter": core.CounterMetricFamily,
        }
        for family in _families(self._stores, self._cluster):
            if family.kind == "histogram":
                shown = core.HistogramMetricFamily(family.name, family.text, labels=family.labels)
                for labels, latency in family.rows:
                    shown.add_metric(labels, _buckets(latency), latency.mean * latency.count)
                yield shown
                continue
            plain = kinds[family.kind](family.name, family.text, labels=family.labels)
            for labels, value in family.rows:
                plain.add_metric(labels, value)
            yield plain


def instrument(
    meter: Meter, stores: Store | Mapping[str, Store], *, cluster: str = "forebay"
) -> None:
    """Make observable instruments of OpenTelemetry for stores.

    They have the names and labels of `Collector`. Histograms are left out: OpenTelemetry observes
    none; percentiles of put latencies are gauges.

    Parameters
    ----------
    meter
        Makes the instruments; they live as long as its provider.
    stores, cluster
        As for `Collector`.
    """
    metrics = require("opentelemetry.metrics", "metrics")
    check("meter", meter, metrics.Meter, "a Meter of OpenTelemetry")
    check_text("cluster", cluster, "a str")
    reading = _Reading(_named(stores), cluster)
    for family in _families({}, cluster):
        if family.kind == "histogram":
            continue

        def observe(_options: CallbackOptions, name: str = family.name) -> Iterable[Observation]:
            found = reading.family(name)
            for labels, value in found.rows:
                yield metrics.Observation(value, dict(zip(found.labels, labels, strict=True)))

        makes = {
            "gauge": meter.create_observable_gauge,
            "counter": meter.create_observable_counter,
        }
        makes[family.kind](family.name, [observe], unit=family.unit, description=family.text)


class _Reading:
    """One reading of the stores for all instruments, which are observed one after another."""

    def __init__(self, stores: dict[str, Store], cluster: str) -> None:
        self._stores = stores
        self._cluster = cluster
        self._lock = threading.Lock()
        self._stale = 0.0
        self._families: dict[str, _Family] = {}

    def family(self, name: str) -> _Family:
        with self._lock:
            if time.monotonic() >= self._stale:
                found = _families(self._stores, self._cluster)
                self._families = {family.name: family for family in found}
                self._stale = time.monotonic() + _FRESH
            return self._families[name]


def _named(stores: Store | Mapping[str, Store]) -> dict[str, Store]:
    check("stores", stores, (Store, Mapping), "a store, or a mapping of names to stores")
    if isinstance(stores, Store):
        name = Path(stores.path).name or stores.path
        # A label is UTF-8, and the name of a directory need not be.
        return {os.fsencode(name).decode(errors="replace"): stores}
    for name, store in stores.items():
        check_text("a name in stores", name, "a str")
        check(f'stores["{name}"]', store, Store, "a store")
    return dict(stores)


def _buckets(latency: Latency) -> list[tuple[str, float]]:
    """Return cumulative counts of durations by the upper ends of buckets."""
    buckets: list[tuple[str, float]] = []
    for end in _ENDS:
        # Ends are powers of two of nanoseconds; the factor covers the rounding of seconds.
        count = sum(count for upper, count in latency.buckets if upper <= end * (1 + 1e-9))
        buckets.append((f"{end:.9f}", count))
    return [*buckets, ("+Inf", latency.count)]


_STORE = ("cluster", "broker")
_TOPIC = (*_STORE, "topic")
_GROUP = (*_STORE, "topic", "group")

#: Metrics of a store, from its `Stats`: name, what it is, kind, unit, value.
_OF_STATS: tuple[tuple[str, str, Literal["gauge", "counter"], str, Any], ...] = (
    ("rocketmq_broker_tps", "Messages stored per second, over ten seconds", "gauge", "",
     lambda stats: stats.recent_messages_per_second),
    ("rocketmq_brokeruntime_put_tps10", "Messages stored per second, over ten seconds", "gauge", "",
     lambda stats: stats.recent_messages_per_second),
    ("rocketmq_brokeruntime_putmessage_times_total", "Messages stored since opening", "gauge", "",
     lambda stats: stats.messages_sent),
    ("rocketmq_brokeruntime_put_message_size_total", "Bytes stored since opening", "gauge", "By",
     lambda stats: stats.bytes_sent),
    ("rocketmq_brokeruntime_put_message_average_size", "Mean size of a message", "gauge", "By",
     lambda stats: stats.bytes_sent / max(stats.messages_sent, 1)),
    ("rocketmq_brokeruntime_putmessage_entire_time_max", "Longest put", "gauge", "ms",
     lambda stats: stats.put_latency.max * 1000),
    ("rocketmq_brokeruntime_put_latency_99", "99% of puts took at most", "gauge", "ms",
     lambda stats: stats.put_latency.p99 * 1000),
    ("rocketmq_brokeruntime_put_latency_999", "99.9% of puts took at most", "gauge", "ms",
     lambda stats: stats.put_latency.p999 * 1000),
    ("rocketmq_brokeruntime_pagecache_lock_time_mills", "Age of the append that runs", "gauge",
     "ms", lambda stats: stats.append_held * 1000),
    ("rocketmq_brokeruntime_dispatch_behind_bytes", "Bytes not yet in queues and index", "gauge",
     "By", lambda stats: stats.dispatch_behind),
    ("rocketmq_brokeruntime_remain_howmanydata_toflush", "Bytes that are not durable yet", "gauge",
     "By", lambda stats: stats.flush_behind),
    ("rocketmq_brokeruntime_commitlog_minoffset", "First position in the log", "gauge", "By",
     lambda stats: stats.min_position),
    ("rocketmq_brokeruntime_commitlog_maxoffset", "End of the log", "gauge", "By",
     lambda stats: stats.published),
    ("rocketmq_brokeruntime_commitlogdir_capacity_free", "Free bytes of the disk", "gauge", "By",
     lambda stats: stats.disk_free),
    ("forebay_sends_failed", "Sends that failed since opening", "counter", "",
     lambda stats: stats.sends_failed),
    ("forebay_sends_busy", "Sends that failed because the log was busy", "counter", "",
     lambda stats: stats.busy),
    ("forebay_slow_puts", "Puts above 500 ms", "counter", "", lambda stats: stats.slow_puts),
    ("forebay_flushes", "Syncs of the log", "counter", "", lambda stats: stats.flushes),
    ("forebay_flush_seconds", "Time spent in syncs of the log", "counter", "s",
     lambda stats: stats.flush_time),
    ("forebay_longest_flush_seconds", "Longest sync of the log", "gauge", "s",
     lambda stats: stats.longest_flush),
    ("forebay_log_bytes", "Length of the log files", "gauge", "By", lambda stats: stats.log_bytes),
    ("forebay_damaged_regions", "Known damaged regions", "gauge", "", lambda stats: stats.damaged),
    ("forebay_retired_mapped_bytes", "Bytes of deleted log files that are still in use", "gauge",
     "By", lambda stats: stats.retired_bytes_mapped),
)  # fmt: skip


def _families(stores: Mapping[str, Store], cluster: str) -> list[_Family]:
    """Return all metrics; those of no store have no values."""
    up = _Family("forebay_up", "Whether the store is open", labels=_STORE)
    ratio = _Family(
        "rocketmq_brokeruntime_commitlog_disk_ratio", "Share of the disk in use", labels=_STORE
    )
    puts = _Family("forebay_put_seconds", "Duration of puts", "histogram", "s", _STORE)
    waits = _Family("forebay_flush_wait_seconds", "Waits for the disk", "histogram", "s", _STORE)
    plain = [
        (_Family(name, text, kind, unit, _STORE), value)
        for name, text, kind, unit, value in _OF_STATS
    ]
    topics, groups = _Topics(), _Groups()
    for name, store in stores.items():
        labels = (cluster, name)
        try:
            stats = store.stats()
            topics.add(labels, store)
            groups.add(labels, store)
        except StoreClosedError:
            up.rows.append((labels, 0))
            continue
        up.rows.append((labels, 1))
        _add_stats(labels, stats, plain)
        puts.rows.append((labels, stats.put_latency))
        waits.rows.append((labels, stats.flush_wait))
        if os.path.isdir(store.path):
            disk = shutil.disk_usage(store.path)
            ratio.rows.append((labels, disk.used / max(disk.total, 1)))
    families = [up, ratio, puts, waits, *(family for family, _ in plain)]
    return [*families, *topics.families, *groups.families]


def _add_stats(labels: tuple[str, str], stats: Stats, plain: list[tuple[_Family, Any]]) -> None:
    for family, value in plain:
        found = value(stats)
        if found is not None:
            family.rows.append((labels, found))


class _Topics:
    """Metrics of topics."""

    def __init__(self) -> None:
        self._ends = _Family("rocketmq_producer_offset", "Sum of end offsets", labels=_TOPIC)
        self._retries = _Family(
            "rocketmq_topic_retry_offset", "The same of topics of retries", labels=_TOPIC
        )
        self._dead = _Family(
            "rocketmq_topic_dlq_offset", "The same of dead letters", labels=(*_STORE, "group")
        )
        self._messages = _Family("forebay_topic_messages", "Messages that are kept", labels=_TOPIC)
        self.families = [self._ends, self._retries, self._dead, self._messages]

    def add(self, labels: tuple[str, str], store: Store) -> None:
        retry, dead = prefixes(store)
        for name, topic in sorted(store.topics.items()):
            end = sum(queue.max_offset for queue in topic.queues)
            start = sum(queue.min_offset for queue in topic.queues)
            self._messages.rows.append(((*labels, name), end - start))
            if name.startswith(dead):
                self._dead.rows.append(((*labels, name.removeprefix(dead)), end))
            elif name.startswith(retry):
                self._retries.rows.append(((*labels, name), end))
            else:
                self._ends.rows.append(((*labels, name), end))


class _Groups:
    """Metrics of groups of consumers."""

    def __init__(self) -> None:
        def family(name: str, text: str, unit: str = "") -> _Family:
            return _Family(name, text, unit=unit, labels=_GROUP)

        self._offset = family("rocketmq_consumer_offset", "Sum of committed offsets")
        self._lag = family("rocketmq_group_diff", "Messages not yet consumed")
        self._retry_lag = family("rocketmq_group_retrydiff", "Retries not yet consumed")
        self._age = family(
            "rocketmq_group_get_latency_by_storetime", "Age of the oldest of them", "ms"
        )
        self._bytes = family("forebay_group_lag_bytes", "Bytes not yet consumed", "By")
        self._unsettled = family("forebay_group_unsettled", "Delivered and not settled")
        self._retries = family("forebay_group_retries", "Messages that wait for another delivery")
        self.families = [
            *(self._offset, self._lag, self._retry_lag, self._age),
            *(self._bytes, self._unsettled, self._retries),
        ]

    def add(self, labels: tuple[str, str], store: Store) -> None:
        retry, _ = prefixes(store)
        for group, queues in sorted(store.groups.items()):
            topics: defaultdict[str, list[GroupQueue]] = defaultdict(list)
            for queue in queues:
                topics[queue.topic].append(queue)
            for topic, some in topics.items():
                place = (*labels, topic, group)
                lag = self._retry_lag if topic.startswith(retry) else self._lag
                lag.rows.append((place, sum(queue.lag for queue in some)))
                self._offset.rows.append((place, sum(queue.committed for queue in some)))
                age = max(queue.lag_seconds for queue in some)
                self._age.rows.append((place, age * 1000))
                self._bytes.rows.append((place, sum(queue.lag_bytes for queue in some)))
                self._unsettled.rows.append((place, sum(queue.unsettled for queue in some)))
                self._retries.rows.append((place, sum(queue.retries for queue in some)))
