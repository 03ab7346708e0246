"""The demo: reads a dead broker's directory, writes a million messages, runs Spark over both.

Every figure it prints is measured while it runs. It works in a temporary directory and removes it
at the end, also when it is interrupted.
"""

from __future__ import annotations

import importlib.util
import os
import random
import statistics
import tarfile
import tempfile
import time
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import forebay
from forebay.options import BodyType
from forebay.output import human, stdout, write_line, write_table
from forebay.progress import Bar

__all__ = ["run"]

_T = TypeVar("_T")

#: Messages sent to the new store, by way of sending. Each way has a topic of its own.
_BATCHED, _SINGLE, _FROM_ARROW = 500_000, 300_000, 200_000
_BATCH = 1000
_BODY_BYTES = 100
_DURABLE = 200
_QUERIES = 2000


def run(*, with_spark: bool = True) -> int:
    """Run the demo and return the exit status.

    Parameters
    ----------
    with_spark
        Whether to start Spark for the last part.
    """
    write_line(f"Forebay {forebay.__version__}: a message log inside this process, {os.getpid()}")
    with tempfile.TemporaryDirectory(prefix="forebay-demo-") as folder:
        broker, events = Path(folder, "broker"), Path(folder, "events")
        _read_broker(broker)
        with forebay.open(events, mode="x") as store:
            _send(store)
            _read(store)
            _scan(store)
            _close(store, events)
        _aggregate(broker, events, with_spark=with_spark)
    _title(f"removed {folder}")
    return 0


def _read_broker(path: Path) -> None:
    _title("1. A directory that a real RocketMQ 5.5.0 broker wrote")
    archive = resources.files("forebay").joinpath("data", "rocketmq-broker.tar.gz")
    with archive.open("rb") as packed, tarfile.open(fileobj=packed) as tar:
        # Python before 3.11.4 has no such filter. The archive is our own, so it is safe without.
        safe: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        tar.extractall(path.parent, **safe)
    before = _fingerprint(path)
    with forebay.open(path, mode="r") as store:
        found = store.recovery
        records = f"{found.records_checked} records checked"
        _point(
            f"opened read-only in {_time(found.elapsed)}: {records}, {len(store.damage)} damaged"
        )
        rows = [
            (name, len(topic.queues), _messages(topic))
            for name, topic in sorted(store.topics.items())
            if _messages(topic)
        ]
        write_line()
        write_table(("topic", "queues", "messages"), rows)
        write_line()
        (message,), took = _timed(lambda: store.query("fx-orders", key="order-13"))
        _point(f'query("fx-orders", key="order-13") in {_time(took)}:')
        _point(f"  {message!r}")
        _point(f"  stored {message.store_time}, tag {message.tags}, {message.properties}")
        if _has("pyarrow"):
            import pyarrow  # type: ignore[import-untyped]

            table, took = _timed(lambda: pyarrow.table(store.scan()))
            size = human(table.nbytes)
            _point(f"scan() to an Arrow table: {table.num_rows} rows, {size}, in {_time(took)}")
        else:
            _skip("the Arrow scan", "pyarrow is not installed: pip install 'forebay[arrow]'")
    if _fingerprint(path) != before:
        raise RuntimeError(f"reading changed {path}")
    _point("no file in the directory changed: same names, sizes, times and bytes")


def _send(store: forebay.Store) -> None:
    total = _BATCHED + _SINGLE + _FROM_ARROW
    _title(f"2. A new store: {total:,} messages of {_BODY_BYTES} bytes, each with a key")
    bodies = [random.randbytes(_BODY_BYTES) for _ in range(_BATCH)]
    orders = store.producer("orders")

    def send_batches() -> None:
        for first in range(0, _BATCHED, _BATCH):
            keys = [f"o{number:07}" for number in range(first, first + _BATCH)]
            orders.send_batch(bodies, keys=keys)

    def send_singly() -> None:
        producer = store.producer("payments")
        for number in range(_SINGLE):
            producer.send(bodies[number % _BATCH], key=f"p{number:07}")

    _rate(f"send_batch({_BATCH:,})", "orders", _BATCHED, send_batches)
    _rate("producer.send, one at a time", "payments", _SINGLE, send_singly)
    _send_audit(store, bodies)
    _, took = _timed(store.flush)
    _point(f"flush() in {_time(took)}: durable up to byte {store.durable_position:,}")

    def send_durably() -> None:
        producer = store.producer("ledger")
        for number in range(_DURABLE):
            producer.send(bodies[number], key=f"l{number}", flush=True)

    _rate("producer.send(flush=True), each flushed to disk", "ledger", _DURABLE, send_durably)


def _send_audit(store: forebay.Store, bodies: list[bytes]) -> None:
    if not _has("pyarrow"):
        _skip("send_arrow", "pyarrow is not installed: pip install 'forebay[arrow]'")
        return
    import pyarrow

    keys = [f"a{number:07}" for number in range(_FROM_ARROW)]
    table = pyarrow.table({"key": keys, "body": bodies * (_FROM_ARROW // _BATCH)})
    producer = store.producer("audit")
    _rate("send_arrow of a table", "audit", _FROM_ARROW, lambda: producer.send_arrow(table))


def _read(store: forebay.Store) -> None:
    _title("3. Reading them back, by offset and by key")

    def read_all() -> None:
        for queue in store.topics["orders"].queues:
            offset = queue.min_offset
            while offset < queue.max_offset:
                offset = store.read("orders", queue.id, offset, max_messages=1000).next_offset

    _rate("read(max_messages=1000) as Message objects", "orders", _BATCHED, read_all)
    keys = [f"o{random.randrange(_BATCHED):07}" for _ in range(_QUERIES)]
    took = []
    for key in keys:
        begin = time.perf_counter()
        found = store.query("orders", key)
        took.append(time.perf_counter() - begin)
        if [message.key for message in found] != [key]:
            raise RuntimeError(f"the query for {key} found {found}")
    took.sort()
    median, slow = statistics.median(took), took[len(took) * 99 // 100]
    _point(f"{_QUERIES:,} queries by key: median {_time(median)}, 99th percentile {_time(slow)}")


def _scan(store: forebay.Store) -> None:
    _title("4. The same bytes as Arrow")
    if not _has("pyarrow"):
        _skip("the scan", "pyarrow is not installed: pip install 'forebay[arrow]'")
        return
    import pyarrow

    columns = ["offset", "body"]

    def scan(body_type: BodyType) -> int:
        batches = store.scan(columns=columns, body_type=body_type)
        reader = pyarrow.RecordBatchReader.from_stream(batches)
        return sum(batch.num_rows for batch in reader)

    rows = sum(_messages(topic) for topic in store.topics.values())
    _rate('scan(body_type="binary"): bodies gathered', "all", rows, lambda: scan("binary"))
    views = 'scan(body_type="binary_view"): the mapped log itself'
    _rate(views, "all", rows, lambda: scan("binary_view"))
    _query_frames(store)


def _query_frames(store: forebay.Store) -> None:
    if _has("polars"):
        import polars

        def count_by_queue() -> int:
            frame = polars.DataFrame(store.scan("orders", columns=["queue", "body"]))
            return int(frame.group_by("queue").agg(polars.len())["len"].sum())

        rows, took = _timed(count_by_queue)
        _point(f"Polars groups {rows:,} rows by queue in {_time(took)}")
    else:
        _skip("Polars", "polars is not installed")
    if _has("duckdb"):
        import duckdb

        def sum_bodies() -> tuple[int, int]:
            # DuckDB finds the scan by this variable's name.
            messages = store.scan(columns=["topic", "body"])  # noqa: F841
            query = "select count(*), sum(octet_length(body)) from messages"
            ((rows, size),) = duckdb.execute(query).fetchall()
            return rows, int(size)

        (rows, size), took = _timed(sum_bodies)
        _point(f"DuckDB sums {rows:,} bodies to {human(size)} in {_time(took)}")
    else:
        _skip("DuckDB", "duckdb is not installed")


def _close(store: forebay.Store, path: Path) -> None:
    _, took = _timed(store.close)
    files = [file.stat() for file in path.rglob("*") if file.is_file()]
    size = human(sum(file.st_blocks * 512 for file in files))
    _point(f"closed in {_time(took)}; {size} on disk in {len(files)} files")


def _aggregate(broker: Path, events: Path, *, with_spark: bool) -> None:
    from forebay import demo_spark

    _title("5. Both stores in one Spark job")
    reason = demo_spark.missing() if with_spark else "--without-spark was given"
    if reason:
        _skip("Spark", reason)
        return
    with Bar("starting Spark") as progress:
        progress(0, 0)
        found = demo_spark.aggregate([broker, events], Path(broker.parent, "spark"))
    if isinstance(found, str):
        _skip("Spark", f"it failed: {found}")
        return
    write_table(("topic", "messages", "bytes of bodies", "queues"), found["rows"])
    write_line()
    messages = sum(row[1] for row in found["rows"])
    parts = f"{found['partitions']} partitions on {found['cores']} cores"
    _point(f"Spark {found['version']} started in {_time(found['start'])}")
    _point(f"{messages:,} messages grouped by topic in {_time(found['took'])}: {parts}")


def _messages(topic: forebay.Topic) -> int:
    return sum(queue.max_offset - queue.min_offset for queue in topic.queues)


def _fingerprint(path: Path) -> list[Any]:
    found = []
    for file in sorted(path.rglob("*")):
        stat = file.lstat()
        content = file.read_bytes() if file.is_file() else b""
        found.append((file, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, content))
    return found


def _has(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _timed(work: Callable[[], _T]) -> tuple[_T, float]:
    start = time.perf_counter()
    found = work()
    return found, time.perf_counter() - start


def _rate(what: str, topic: str, count: int, work: Callable[[], object]) -> None:
    _, took = _timed(work)
    rate = count / took
    said = f"{rate / 1e6:.2f} million" if rate >= 1e6 else f"{rate:,.0f}"
    where = "all topics" if topic == "all" else topic
    _point(f"{what}: {count:,} of {where} in {_time(took)}, {said} a second")


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.2f} {unit}"
    return f"{seconds * 1e6:.1f} us"


def _title(text: str) -> None:
    write_line()
    write_line(text)
    _show()


def _point(text: str) -> None:
    write_line(f"   {text}")
    _show()


def _skip(what: str, reason: str) -> None:
    _point(f"skipped {what}: {reason}")


def _show() -> None:
    """Flush, so that each line appears as soon as it is written."""
    stdout().flush()
