"""Wrong uses: each marked line is an error of type checkers, which also report a mark that is none.

This file is checked, never run.
"""

from collections.abc import Callable

import forebay
import forebay.aio
import forebay.hooks
import forebay.serde
import forebay.testing


def opens() -> None:
    forebay.open("events", mode="w")  # type: ignore[arg-type]
    forebay.open("events", "rw")  # type: ignore[arg-type]
    forebay.open("events", flush="always")  # type: ignore[arg-type]
    forebay.open("events", engine="rocksdb")  # type: ignore[arg-type]
    forebay.open("events", append_lock="none")  # type: ignore[arg-type]
    forebay.open("events", "r", isolation="serializable")  # type: ignore[arg-type]
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
    store.send("orders", None)  # type: ignore[arg-type]
    store.send("orders", b"a", key=42)  # type: ignore[arg-type]
    store.send("orders", b"a", properties={"a": 1})  # type: ignore[dict-item]
    store.send("orders", b"a", timestamp=0)  # type: ignore[arg-type]
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


def consumes(store: forebay.Store, handle: Callable[[int, int], None]) -> None:
    store.consumer("orders", "billing")  # type: ignore[call-arg]
    store.consumer("orders", group="billing", order="key")  # type: ignore[arg-type]
    store.consumer("orders", group="billing", ack="later")  # type: ignore[arg-type]
    store.consumer("orders", group="billing", start={0: 17})  # type: ignore[dict-item]
    consumer = store.consumer("orders", group="billing")
    consumer.run(handle)  # type: ignore[arg-type]
    consumer.ack(17)  # type: ignore[arg-type]


def serdes(store: forebay.Store) -> None:
    numbers = forebay.serde.pydantic(int)
    numbers.producer(store.producer("orders")).send("three")  # type: ignore[arg-type]
    forebay.hooks.producer(store.producer("orders"), len)  # type: ignore[arg-type]
