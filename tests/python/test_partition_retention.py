"""Retention of partition logs: in the background, before an offset, and refusals."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from harness import LONG_S

import forebay
from forebay import ReadStatus

SMALL = {"engine": "partitionlog", "segment_bytes": 4096, "default_queues": 1}
BODY = b"b" * 1000


def send(store, topic="orders", count=9, **given):
    return [store.send(topic, BODY, **given).offset for _ in range(count)]


def until(holds):
    deadline = time.monotonic() + LONG_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def begins(store, topic="orders"):
    return store.topics[topic].queues[0].min_offset


@pytest.mark.parametrize(
    "limit", [{"retention_bytes": 1}, {"retention": timedelta(hours=1)}], ids=["bytes", "age"]
)
def test_old_segments_go_and_readers_see_where_the_queue_begins(tmp_path, limit):
    before = datetime.now(UTC) - timedelta(hours=2)
    with forebay.open(tmp_path / "log", flush_interval=0.01, **SMALL) as store:
        send(store, timestamp=before)
    with (
        forebay.open(tmp_path / "log", mode="r") as reader,
        forebay.open(tmp_path / "log", flush_interval=0.01, **SMALL, **limit) as store,
    ):
        assert begins(reader) == 0
        until(lambda: begins(store) == begins(reader) == 6)
        for opened in (store, reader):
            batch = opened.read("orders", queue=0, offset=0)
            assert batch.status == ReadStatus.OFFSET_TOO_SMALL
            assert (batch.next_offset, batch.min_offset, batch.max_offset) == (6, 6, 9)
            with pytest.raises(forebay.OffsetOutOfRangeError) as raised:
                opened.get("orders", queue=0, offset=2)
            assert raised.value.min_offset == 6
        folder = tmp_path / "log" / "orders-0"
        until(lambda: len(list(folder.glob("*.log"))) == 1)
        assert send(store, count=1) == [9]


def test_what_groups_and_delays_need_stays(tmp_path):
    path, limit = tmp_path / "log", {"retention_bytes": 1, "flush_interval": 0.01}
    with forebay.open(path, **SMALL) as store:
        send(store)
        send(store, "free")
        send(store, delay=3600)
        with store.consumer("orders", group="billing") as consumer:
            consumer.ack(consumer.poll(4, timeout=10))
    with forebay.open(path, **SMALL, **limit) as store:
        # Three messages make a segment; the fifth is the first that is not consumed.
        until(lambda: begins(store) == 3 and begins(store, "free") == 6)
        assert begins(store, "rmq_sys_forebay_delay") == 0
        with store.consumer("orders", group="billing") as consumer:
            messages = consumer.poll(9, timeout=10)
            assert [message.offset for message in messages] == [4, 5, 6, 7, 8]
            consumer.ack(messages)
            consumer.commit()
            until(lambda: begins(store) == 6)
    table = path / "forebay.consumerOffset.json"
    text = table.read_text()
    table.write_text("{torn")
    table.with_name(f"{table.name}.bak").unlink()
    with forebay.open(path, **SMALL, **limit) as store:
        send(store, "free")
        until(lambda: store.damage)
        assert "cannot read what it must keep" in str(store.damage[0])
        assert begins(store, "free") == 6
    table.write_text(text)
    with forebay.open(path, **SMALL, keep_unconsumed=False, **limit) as store:
        send(store, count=6)
        until(lambda: begins(store) == 12)
        assert begins(store, "rmq_sys_forebay_delay") == 0


def test_messages_before_an_offset_or_a_time_are_deleted(tmp_path):
    path = tmp_path / "log"
    start = datetime(2024, 1, 1, tzinfo=UTC)
    with forebay.open(path, **SMALL | {"default_queues": 2}) as store:
        for minute in range(8):
            for queue in range(2):
                sent = start + timedelta(minutes=minute)
                store.send("orders", BODY, queue=queue, timestamp=sent)
        assert store.delete_before("orders", {1: 2}) == {1: 2}
        assert store.delete_before("orders", start + timedelta(minutes=5)) == {0: 5, 1: 5}
        assert store.delete_before("orders", {1: 3}) == {1: 5}
        left = [m.offset for m in store.tail("orders", start="earliest", follow=False)]
        assert left == [5, 6, 7] * 2
        with pytest.raises(forebay.OffsetOutOfRangeError):
            store.delete_before("orders", {0: 9})
        with pytest.raises(forebay.UnknownTopicError):
            store.delete_before("orders", {2: 0})
        with pytest.raises(forebay.UnknownTopicError):
            store.delete_before("bills", "latest")
    with forebay.open(path, mode="r") as reader:
        assert begins(reader) == 5
        with pytest.raises(forebay.ReadOnlyError):
            reader.delete_before("orders", "latest")
    with forebay.open(path, **SMALL) as store:
        assert store.delete_before("orders", "latest") == {0: 8, 1: 8}
        assert store.send("orders", BODY, queue=0).offset == 8


def test_epochs_begin_where_the_queue_does(tmp_path):
    """As a broker cuts them, so that it does not take an epoch for one that has messages."""
    path = tmp_path / "log"
    epochs = path / "orders-0" / "leader-epoch-checkpoint"
    with forebay.open(path, **SMALL) as store:
        send(store)
        assert epochs.read_text() == "0\n1\n0 0\n"
        store.delete_before("orders", {0: 5})
        assert epochs.read_text() == "0\n1\n0 5\n"
    epochs.write_text("0\n3\n2 0\n4 6\n7 8\n")
    with forebay.open(path, **SMALL) as store:
        store.delete_before("orders", {0: 7})
        assert epochs.read_text() == "0\n2\n4 7\n7 8\n"
        send(store, count=1)
    assert epochs.read_text() == "0\n2\n4 7\n7 8\n"


def test_what_has_no_meaning_is_refused(tmp_path):
    with pytest.raises(forebay.InvalidOptionError, match="disk_warning_ratio"):
        forebay.open(tmp_path / "log", retention_bytes=1, **SMALL, disk_warning_ratio=0.5)
    with forebay.open(tmp_path / "commits", default_queues=1) as store:
        store.send("orders", BODY)
        with pytest.raises(forebay.UnsupportedError):
            store.delete_before("orders", "latest")
