"""Right uses: type checkers have no complaint. This file is checked, never run."""

import array
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Unpack, assert_type

import forebay
import forebay.aio
import forebay.hooks
import forebay.serde
import forebay.testing
from forebay.options import ArrowStream, Bound, Duration, Headers, Mode, Options, Start
from forebay.progress import Bar


def passes_on(
    store: forebay.Store,
    at: Bound,
    start: Start,
    wait: Duration,
    headers: Headers,
    rows: ArrowStream,
) -> None:
    store.tail("orders", at, timeout=wait)
    store.consumer("orders", group="billing", start=start, visibility_timeout=wait)
    store.send("orders", b"a", headers=headers)
    store.producer("orders").send_arrow(rows)
    rows = store.scan("orders", start=at)


def open_with(path: Path, mode: Mode, **options: Unpack[Options]) -> forebay.Store:
    return forebay.open(path, mode, **options)


def every_option() -> None:
    store = forebay.open(
        "events", "x", engine="commitlog", flush="sync", adopt=False, lock_timeout=5,
        commitlog_file_size=1 << 30, queue_file_entries=300_000, index_slots=5_000_000,
        index_entries=20_000_000, index=True, default_queues=8, max_message_size=4 << 20,
        checksum=True, unique_ids=False, delay_levels="1s 1m", store_host="10.0.0.1:10911",
        flush_interval=0.5, flush_least_pages=4, flush_thorough_interval=10,
        flush_timeout=timedelta(seconds=5), queue_flush_interval=1, transient_pool=0,
        transient_pool_fail_fast=False, commit_interval=0.2, commit_least_pages=4,
        roll_after=timedelta(hours=1), warm_up=False, warm_up_flush_pages=4096, lock_memory=False,
        guard_maps=True, read_ahead=True,
        append_lock="spin", busy_timeout=1, retention=timedelta(days=3), retention_bytes=1 << 40,
        keep_unconsumed=True, keep_unarchived=False, disk_reserve=1 << 28, delete_when="04",
        disk_warning_ratio=0.9, isolation=None,
    )  # fmt: skip
    assert_type(store, forebay.Store)
    assert_type(store.mode, Literal["a", "r", "share", "x"])
    open_with(Path("events"), "r", default_queues=None)


def kafka() -> None:
    store = forebay.open("logs", "r", engine="partitionlog", isolation="read_committed")
    forebay.open(
        "logs", engine="partitionlog", linger=timedelta(milliseconds=5), batch_bytes=65_536,
        flush_messages=10_000,
        segment_bytes=1 << 30, segment_ms=604_800_000, index_interval_bytes=4096,
        segment_index_bytes=10 << 20, compression="zstd", message_timestamp_type="LogAppendTime",
        cleanup_policy={"orders": "compact", "bills": "compact,delete"},
        min_cleanable_dirty_ratio=0.5, delete_retention_ms=86_400_000, min_compaction_lag_ms=0,
        max_compaction_lag_ms=None, log_cleaner_dedupe_buffer_size=128 << 20,
        log_cleaner_io_max_bytes_per_second=None, log_cleaner_backoff_ms=15_000,
    ).close()  # fmt: skip
    forebay.open("logs", cleanup_policy="compact", linger=0.005, flush_messages=None).close()
    forebay.convert(Path("logs"), "events", engine="commitlog", topics=["orders"], flush="sync")
    assert_type(store.engine, Literal["commitlog", "partitionlog", "memory"])
    message = store.get("orders", 0, 0)
    assert_type(message.key_bytes, bytes | None)
    assert_type(message.is_null, bool)
    assert_type(message.headers, tuple[tuple[str, bytes | None], ...])


def sends(store: forebay.Store) -> None:
    for body in (b"a", bytearray(b"a"), memoryview(b"a"), array.array("i", [1])):
        store.send("orders", body)
        store.send("orders", None, key=b"\xff", headers=[("trace", body), ("trace", None)])
    sent = store.send("orders", b"a", key="42", tags=b"paid", properties={"a": "b"}, delay=90)
    assert_type(sent.offset, int)
    orders = store.producer("orders", queue=0)
    orders.send_batch([b"a"], keys=["1"], tags=[None], properties=[{}], atomic=True)
    assert_type(orders.send_nowait(b"a").result(1.0), forebay.SendResult)
    with store.producer("orders", "own", name="till-1") as own:
        assert_type(own.name, str | None)
    with store.producer("orders", queue="own", name="p1") as own:
        assert_type(own, forebay.Producer)
        assert_type(own.name, str | None)
    store.send("orders", store.get("orders", 0, 0))


def reads(store: forebay.Store) -> None:
    for message in store.tail("orders", {0: 17}, timeout=timedelta(seconds=1)):
        assert_type(message.key, str | None)
    store.tail("orders", datetime.now(UTC), follow=False)
    scan = store.scan(["a", "b"], columns=("offset", "body"), end="latest", body_type="binary_view")
    assert_type(scan.columns, list[str])
    store.query("orders", key=b"42", begin=0, end=datetime.now(UTC))
    batch = store.read("orders", 0, 0, tags=["paid", "open"])
    assert_type(batch.status, forebay.ReadStatus)
    writer = store.stats().writer
    assert_type(writer, forebay.WriterStats | None)
    assert_type(writer and writer.put_latency.p99, float | None)


def consumes(
    store: forebay.Store,
    handle: Callable[[forebay.Message], None],
    handle_all: Callable[[list[forebay.Message]], None],
) -> None:
    with store.consumer(
        ["orders"], group="billing", start={("orders", 0): 5}, order="queue", ack="manual"
    ) as consumer:
        consumer.ack(consumer.poll(10, timeout=1))
        consumer.run(handle, threads=2)
        consumer.run(handle, 2, 1)
        consumer.run(handle_all, batch=10)
        consumer.run(handle_all, 2, 10)
        consumer.run(lambda message: print(message.body))
        assert_type(consumer.lag(), dict[tuple[str, int], int])


def settles(store: forebay.Store, message: forebay.Message) -> None:
    consumer = store.consumer(
        "orders", group="billing", start=timedelta(hours=1), tags=["paid"], prefetch=8,
        visibility_timeout=timedelta(minutes=5), max_unsettled=100, retry_in_place=3,
    )  # fmt: skip
    consumer.ack(message)
    consumer.nack(message, delay_level=3)
    consumer.reject(message, "no such fruit")
    consumer.extend(message, timedelta(minutes=1))
    consumer.seek({("orders", 0): 17})
    assert_type(consumer.assignment, list[tuple[str, int]])
    assert_type(store.groups["billing"][0].owner, int | None)
    store.reset_offsets("billing", "orders", {0: 17})
    store.send("orders", b"a", deliver_at=datetime.now(UTC))


def shares(path: Path) -> None:
    with forebay.open(path, "share", lock_timeout=timedelta(seconds=5)) as store:
        assert_type(store.producer("orders").send_batch_nowait([b"a"]), forebay.BatchTicket)
        assert_type(store.closed, bool)


def long_work(store: forebay.Store) -> None:
    with Bar("verifying", "bytes") as bar:
        assert_type(store.verify(bar), forebay.Verification)
    store.archive("archive", progress=lambda done, total: print(done, total))


async def awaits() -> None:
    async with forebay.aio.open("events", "a", flush="sync", default_queues=2) as store:
        assert_type(await store.send("orders", b"a", key="42", delay=90), forebay.SendResult)
        await store.producer("orders").send_batch([b"a", None], headers=[[("a", b"1")], None])
        orders = await store.producer("orders", queue=0)
        assert_type(await orders.send_batch([b"a"], atomic=True, flush=False), forebay.BatchResult)
        async for message in store.tail("orders", start="earliest", timeout=1):
            assert_type(message, forebay.Message)
        async with store.consumer("orders", group="billing", order="queue") as consumer:
            await consumer.ack(await consumer.poll(10, timeout=1))
            assert_type(await consumer.lag(), dict[tuple[str, int], int])
            assert_type(await consumer.assignment, list[tuple[str, int]])
        assert_type(await store.topics, dict[str, forebay.Topic])
        assert_type(store.scan("orders", body_type="binary_view"), forebay.Scan)
    shared = await forebay.aio.open("events", "share")
    await shared.close()


def serdes(store: forebay.Store) -> None:
    numbers = forebay.serde.pydantic(int)
    orders = numbers.producer(store.producer("orders"))
    orders.send(3, key="42")
    for received in numbers.consumer(store.consumer("orders", group="billing")):
        assert_type(received.value, int)
    with numbers.consumer(store.consumer("orders", group="stock")) as consumer:
        taken = consumer.poll()
        consumer.ack(taken)
        consumer.ack([taken[0], taken[1].message])
        consumer.nack(taken[0], delay_level=3)
        consumer.reject(taken[0].message, reason="no such fruit")
        assert_type(consumer.lag(), dict[tuple[str, int], int])


def hook(topic: str, properties: dict[str, str]) -> AbstractContextManager[None] | None:
    properties["topic"] = topic
    return None


def hooks(store: forebay.Store) -> None:
    forebay.hooks.producer(store.producer("orders"), hook).send(b"a")
    on_send, on_consume = forebay.hooks.tracing()
    forebay.hooks.consumer(store.consumer("orders", group="billing"), on_consume).run(print)
    forebay.hooks.producer(store.producer("orders"), on_send)


def tests(given: Mapping[str, Any]) -> None:
    clock = forebay.testing.Clock(at=datetime(2026, 1, 1, tzinfo=UTC))
    clock.advance(90)
    clock.advance(timedelta(hours=1), minutes=30)
    assert_type(clock.now, datetime)
    forebay.testing.open(clock=clock, engine="memory").close()
