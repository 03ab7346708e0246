"""Messages for RocketMQ to read, and how to compare its rows with Forebay's."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from typing import Any

from rocketmq import Listing, Sizes

import forebay

# Small files, so that a few hundred messages fill several of each kind.
OPTIONS: dict[str, Any] = {
    "commitlog_file_size": 256 << 10,
    "queue_file_entries": 100,
    "index_slots": 100,
    "index_entries": 400,
    "max_message_size": 128 << 10,
}
SIZES = Sizes(log=256 << 10, queue=2_000, slots=100, entries=400)


def fill(store: forebay.Store) -> None:
    """Send messages of every kind: sizes, keys, tags, properties, batches, delays."""
    for number in range(300):
        store.send(
            ("orders", "payments")[number % 2],
            bytes(number % 256 for _ in range(number * 37 % 4_000)),
            keys=[f"key-{number}", "shared"] if number % 3 else None,
            tags=("paid", "l\u00e4nger", None)[number % 3],
            properties={"region": "eu", "n\u00fcmero": str(number)} if number % 5 else None,
        )
    store.send("orders", b"")
    store.send("large", b"x" * (100 << 10), key="large")
    producer = store.producer("batches")
    producer.send_batch([b"row %d" % row for row in range(250)], keys=[f"b{r}" for r in range(250)])
    producer.send_batch([b"whole %d" % row for row in range(50)], atomic=True)
    # Two hours: while open, the 4.9 store itself delivers messages that are due.
    store.send("orders", b"later", key="later", delay_level=18)


def as_row(message: forebay.Message) -> dict[str, Any]:
    """Return the fields of a harness row, by its names, with the body as a hash."""
    properties = dict(message.properties) | dict(message.system_properties)
    if message.keys:
        properties["KEYS"] = " ".join(message.keys)
    if message.tags is not None:
        properties["TAGS"] = message.tags
    return {
        "topic": message.topic,
        "queueId": message.queue,
        "queueOffset": message.offset,
        "physicalOffset": message.position,
        "size": message.size,
        "storeTimestamp": message.store_timestamp,
        "bornTimestamp": message.born_timestamp,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "reconsumeTimes": message.reconsume_times,
        "properties": properties,
        "body": hashlib.sha256(message.stored_body).hexdigest(),
    }


def body_hash(row: dict[str, Any]) -> str:
    """Hash a row's body; for a large body the row contains the hash."""
    if "bodySha256" in row:
        return str(row["bodySha256"])
    return hashlib.sha256(base64.b64decode(row["body"])).hexdigest()


def messages(store: forebay.Store) -> Iterator[forebay.Message]:
    """Every message of every queue, in the order of a listing."""
    for name in sorted(store.topics, key=str.encode):
        for queue in store.topics[name].queues:
            offset = queue.min_offset
            while offset < queue.max_offset:
                batch = store.read(name, queue=queue.id, offset=offset, max_messages=1_000)
                yield from batch
                offset = batch.next_offset


def rows_of(store: forebay.Store) -> list[dict[str, Any]]:
    return [as_row(message) for message in messages(store)]


def rows_in(listing: Listing) -> list[dict[str, Any]]:
    names = [*as_row_names()]
    rows = []
    for row in listing.messages:
        properties = {k: v for k, v in row["properties"].items() if k != "__CRC32#"}
        fields = {name: row[name] for name in names if name != "body"}
        rows.append(fields | {"properties": properties, "body": body_hash(row)})
    return rows


def as_row_names() -> tuple[str, ...]:
    return (
        *("topic", "queueId", "queueOffset", "physicalOffset", "size", "storeTimestamp"),
        *("bornTimestamp", "flag", "sysFlag", "reconsumeTimes", "properties", "body"),
    )
