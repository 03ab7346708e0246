"""Wrong uses: each marked line is an error of type checkers, which also report a mark that is none.

This file is checked, never run.
"""

from collections.abc import Callable

import forebay
import forebay.aio
import forebay.hooks
import forebay.serde
import forebay.testing
from forebay.progress import Bar


def opens() -> None:
    forebay.open("events", mode="w")  # type: ignore[arg-type]
    forebay.open("events", "rw")  # type: ignore[arg-type]
    forebay.open("events", flush="always")  # type: ignore[arg-type]
    forebay.open("events", engine="rocksdb")  # type: ignore[arg-type]
    forebay.open("events", append_lock="none")  # type: ignore[arg-type]
    forebay.open("events", "r", isolation="serializable")  # type: ignore[arg-type]
    forebay.open("logs", compression="brotli")  # type: ignore[arg-type]
    forebay.open("logs", message_timestamp_type="BirthTime")  # type: ignore[arg-type]
    forebay.open("logs", cleanup_policy="drop")  # type: ignore[arg-type]
    forebay.open("logs", cleanup_policy={"orders": "drop"})  # type: ignore[dict-item]
    forebay.open("logs", linger="5 ms")  # type: ignore[arg-type]
    forebay.open("logs", flush_messages="all")  # type: ignore[arg-type]
    forebay.open("logs", segment_ms=0.5)  # type: ignore[arg-type]
    forebay.open("logs", batch_bytes="64 KiB")  # type: ignore[arg-type]
    forebay.open("logs", min_cleanable_dirty_ratio="half")  # type: ignore[arg-type]
    forebay.convert("logs", "events")  # type: ignore[call-arg]
    forebay.convert("logs", "events", engine="memory")  # type: ignore[arg-type]
    forebay.open("events", defualt_queues=2)  # type: ignore[call-arg]
    forebay.open("events", default_queues="2")  # type: ignore[arg-type]
    forebay.open("events", retention="3d")  # type: ignore[arg-type]
    forebay.open("events", "a", "commitlog")  # type: ignore[call-arg]
    forebay.open(7)  # type: ignore[arg-type]
    forebay.aio.open("events", "w")  # type: ignore[arg-type]
    forebay.aio.open("events", flush="always")  # type: ignore[arg-type]
    forebay.testing.open("events")  # type: ignore[call-arg]


def sends(store: forebay.Store) -> None:
    store.send("orders", "text")  # type: ignore[arg-type]
    store.send("orders", b"a", key=42)  # type: ignore[arg-type]
    store.send("orders", b"a", properties={"a": 1})  # type: ignore[dict-item]
    store.send("orders", b"a", timestamp=0)  # type: ignore[arg-type]
    store.producer("orders", "mine")  # type: ignore[arg-type]
    store.producer("orders", "own", "till-1")  # type: ignore[call-arg]
    store.producer("orders").send_batch(["text"])  # type: ignore[list-item]
    store.producer("orders").send_arrow([b"a"])  # type: ignore[arg-type]
    store.send("orders", b"a").offset = 3  # type: ignore[misc]


def reads(store: forebay.Store) -> None:
    store.tail("orders", "begin")  # type: ignore[arg-type]
    store.tail("orders", 17)  # type: ignore[arg-type]
    store.scan("orders", body_type="large_binary")  # type: ignore[arg-type]
    store.scan("orders", start={"0": 17})  # type: ignore[dict-item]
    store.scan("orders", colums=["body"])  # type: ignore[call-arg]
    store.get("orders", 0, "17")  # type: ignore[arg-type]
    store.message(0).boddy  # type: ignore[attr-defined]  # noqa: B018


def consumes(
    store: forebay.Store,
    handle: Callable[[int, int], None],
    handle_text: Callable[[str], None],
    handle_one: Callable[[forebay.Message], None],
    handle_all: Callable[[list[forebay.Message]], None],
) -> None:
    store.consumer("orders", "billing")  # type: ignore[call-arg]
    store.consumer("orders", group="billing", order="key")  # type: ignore[arg-type]
    store.consumer("orders", group="billing", ack="later")  # type: ignore[arg-type]
    store.consumer("orders", group="billing", start={0: 17})  # type: ignore[dict-item]
    consumer = store.consumer("orders", group="billing")
    consumer.run(handle)  # type: ignore[arg-type]
    consumer.run(handle_text)  # type: ignore[arg-type]
    consumer.run(handle_one, batch=10)  # type: ignore[arg-type]
    consumer.run(handle_one, 2, 10)  # type: ignore[arg-type]
    consumer.run(handle_all)  # type: ignore[arg-type]
    hooked = forebay.hooks.consumer(consumer, print)
    hooked.run(handle_one, batch=10)  # type: ignore[arg-type]
    hooked.run(handle_all, threads=2)  # type: ignore[arg-type]
    consumer.ack(17)  # type: ignore[arg-type]


def settles(store: forebay.Store, consumer: forebay.Consumer, message: forebay.Message) -> None:
    consumer.ack(message.offset)  # type: ignore[arg-type]
    consumer.nack([message])  # type: ignore[arg-type]
    consumer.nack(message, "3")  # type: ignore[arg-type]
    consumer.reject(message, reason=3)  # type: ignore[arg-type]
    consumer.extend(message)  # type: ignore[call-arg]
    consumer.seek(17)  # type: ignore[arg-type]
    consumer.assignment.append("orders")  # type: ignore[arg-type]
    consumer.poll(max_message=3)  # type: ignore[call-arg]
    store.consumer("orders", group="billing", visibility="5")  # type: ignore[call-arg]
    store.reset_offsets("billing", "orders", 17)  # type: ignore[arg-type]
    store.groups["billing"].lag  # type: ignore[attr-defined]  # noqa: B018
    store.send("orders", b"a", delay="90")  # type: ignore[arg-type]
    store.send("orders", b"a", deliver_at=90)  # type: ignore[arg-type]


def shares() -> None:
    forebay.open("events", "shared")  # type: ignore[arg-type]
    forebay.open("events", "share", lock_timeout="5 s")  # type: ignore[arg-type]


async def awaits(store: forebay.aio.Store) -> None:
    store.send("orders", b"a").offset  # type: ignore[attr-defined]  # noqa: B018
    await store.send("orders", "text")  # type: ignore[arg-type]
    await store.send("orders", b"a", dealy=90)  # type: ignore[call-arg]
    store.producer("orders").send(b"a").offset  # type: ignore[attr-defined]  # noqa: B018
    len(store.topics)  # type: ignore[arg-type]
    for _ in store.tail("orders"):  # type: ignore[attr-defined]
        pass
    store.consumer("orders", group="billing", order="key")  # type: ignore[arg-type]
    store.scan("orders", body_type="large_binary")  # type: ignore[arg-type]
    with forebay.aio.open("events"):  # type: ignore[attr-defined]
        pass


def tests(clock: forebay.testing.Clock) -> None:
    clock.advance("90")  # type: ignore[arg-type]
    clock.advance(90, 30)  # type: ignore[call-arg]
    clock.now = 90  # type: ignore[misc,assignment]
    forebay.testing.Clock(at=0)  # type: ignore[arg-type]
    forebay.testing.open(clock=90)  # type: ignore[arg-type]


def long_work(store: forebay.Store) -> None:
    store.verify(progress=lambda done: done)  # type: ignore[arg-type,misc]
    Bar()  # type: ignore[call-arg]


def serdes(store: forebay.Store) -> None:
    numbers = forebay.serde.pydantic(int)
    numbers.producer(store.producer("orders")).send("three")  # type: ignore[arg-type]
    forebay.hooks.producer(store.producer("orders"), len)  # type: ignore[arg-type]
    consumer = numbers.consumer(store.consumer("orders", group="billing"))
    consumer.ack(17)  # type: ignore[arg-type]
    consumer.nack(consumer.poll())  # type: ignore[arg-type]
    consumer.reject("apples")  # type: ignore[arg-type]
    consumer.extend(consumer.poll()[0], "5 s")  # type: ignore[arg-type]
    forebay.serde.json().loads("{}")  # type: ignore[arg-type]


def makes(store: forebay.Store) -> None:
    forebay.BatchResult()  # type: ignore[call-arg]
    forebay.BatchTicket()  # type: ignore[call-arg]
    forebay.Compaction()  # type: ignore[call-arg]
    forebay.Consumer()  # type: ignore[call-arg]
    forebay.Conversion()  # type: ignore[call-arg]
    forebay.Damage()  # type: ignore[call-arg]
    forebay.GroupQueue()  # type: ignore[call-arg]
    forebay.Latency()  # type: ignore[call-arg]
    forebay.Message()  # type: ignore[call-arg]
    forebay.Producer()  # type: ignore[call-arg]
    forebay.Queue()  # type: ignore[call-arg]
    forebay.ReadBatch()  # type: ignore[call-arg]
    forebay.Recovery()  # type: ignore[call-arg]
    forebay.Repair()  # type: ignore[call-arg]
    forebay.RepairStep()  # type: ignore[call-arg]
    forebay.Scan()  # type: ignore[call-arg]
    forebay.SendResult()  # type: ignore[call-arg]
    forebay.Stats()  # type: ignore[call-arg]
    forebay.Store()  # type: ignore[call-arg]
    forebay.Tail()  # type: ignore[call-arg]
    forebay.Ticket()  # type: ignore[call-arg]
    forebay.Topic()  # type: ignore[call-arg]
    forebay.Verification()  # type: ignore[call-arg]
    forebay.WriterStats()  # type: ignore[call-arg]
    forebay.Store("events")  # type: ignore[arg-type]
    forebay.Message(b"apples")  # type: ignore[arg-type]
    forebay.Producer(store, "orders")  # type: ignore[arg-type,call-arg]
    forebay.Topic(name="orders")  # type: ignore[call-arg]
