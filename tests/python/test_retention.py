"""Deleted log files, and readers that still hold them."""

import gc
import json
import time
from datetime import timedelta
from pathlib import Path

import pyarrow
import pytest
from harness import LONG_S

import forebay

FILE = 16384
BODY = b"b" * 3000


def until(holds):
    deadline = time.monotonic() + LONG_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def retired(store, position):
    """Wait until the log begins at a position: queues move their first offsets before that."""
    first = Path(store.path, "commitlog", f"{position - FILE:020}")
    until(lambda: store.stats().min_position == position and not first.exists())


@pytest.fixture
def open_small(tmp_path):
    stores = []

    def open_small(mode="a", **options):
        sizes = {"commitlog_file_size": FILE, "flush_interval": 0.01, "default_queues": 1}
        stores.append(forebay.open(tmp_path / "store", mode, **sizes, **options))
        return stores[-1]

    yield open_small
    for store in stores:
        store.close()


def send(store, count):
    for number in range(count):
        store.send("orders", b"%d" % number + BODY, key="k")


def test_old_files_are_deleted_and_messages_held_by_readers_stay_valid(open_small):
    store = open_small(retention_bytes=2 * FILE, disk_reserve=0)
    send(store, 3)
    message = store.get("orders", 0, 1)
    view = memoryview(message)
    table = pyarrow.table(store.scan("orders", body_type="binary_view"))
    assert store.stats().retired_bytes_mapped == 0
    send(store, 40)
    retired(store, 7 * FILE)
    bounds = store.topics["orders"].queues[0]
    assert (bounds.min_offset > 3, bounds.max_offset) == (True, 43)
    with pytest.raises(forebay.OffsetOutOfRangeError) as error:
        store.get("orders", 0, 1)
    assert error.value.min_offset == bounds.min_offset
    assert error.value.max_offset == 43
    batch = store.read("orders", 0, 0)
    assert batch.status == forebay.ReadStatus.OFFSET_TOO_SMALL
    assert batch.next_offset == bounds.min_offset
    assert len(store.query("orders", "k", max_messages=100)) == 43 - bounds.min_offset
    assert bytes(view) == message.body == b"1" + BODY
    assert table["body"][2].as_py() == b"2" + BODY
    # Counted once its file is deleted.
    until(lambda: store.stats().retired_bytes_mapped >= FILE)
    assert store.stats()._asdict()["retired_bytes_mapped"] >= FILE
    del message, view, table
    gc.collect()
    until(lambda: store.stats().retired_bytes_mapped == 0)
    assert store.damage == []


def test_files_are_deleted_by_the_time_of_their_last_message(open_small):
    store = open_small(retention=timedelta(milliseconds=1), disk_reserve=0)
    send(store, 12)
    retired(store, 2 * FILE)
    beside = open_small("r")
    assert beside.topics["orders"].queues[0].min_offset == 10
    store.close()
    store = open_small()
    assert store.send("orders", b"x").offset == 12


def test_unconsumed_messages_are_kept_unless_keep_unconsumed_is_off(open_small, tmp_path):
    store = open_small(retention_bytes=1, disk_reserve=1 << 62)
    offsets = {"offsetTable": {"orders@billing": {0: 7}}}
    path = tmp_path / "store" / "config" / "consumerOffset.json"
    path.write_text(json.dumps(offsets))
    send(store, 22)
    # A file holds five messages.
    retired(store, FILE)
    store.close()
    store = open_small(retention_bytes=1, keep_unconsumed=False, disk_reserve=0)
    retired(store, 4 * FILE)


def test_retention_options_take_the_documented_types(open_small):
    store = open_small(
        retention=3600,
        retention_bytes=None,
        delete_when="04; 16",
        disk_warning_ratio=0.9,
        keep_unconsumed=True,
        disk_reserve=1 << 20,
    )
    send(store, 1)
    assert store.get("orders", 0, 0).body == b"0" + BODY


def test_a_sealed_file_of_a_quiet_store_is_deleted_by_its_age(tmp_path):
    options = {"retention": 0.01, "roll_after": timedelta(milliseconds=1), "disk_reserve": 0}
    with forebay.open(tmp_path / "store", commitlog_file_size=1 << 20, **options) as store:
        store.producer("orders", queue=0).send_batch([b"a", b"b"])
        until(lambda: store.stats().min_position > 0)
        assert store.send("orders", b"c", queue=0).offset == 2
    with pytest.raises(forebay.InvalidOptionError, match="roll_after"):
        forebay.open(tmp_path / "store", roll_after=0)
