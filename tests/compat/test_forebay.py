"""The real RocketMQ opens stores that Forebay wrote, and Forebay opens them again afterwards.

RocketMQ must show the same messages at the same offsets and positions, find the same keys, cut
nothing, and be able to append. Forebay must then read what RocketMQ appended.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import rocketmq
import store_files
import workload
from golden_stores import unpack
from rocketmq import Job, Listing
from workload import OPTIONS, SIZES, body_hash, fill, messages, rows_in, rows_of

import forebay

# Sends the messages of `fill`, and dies without closing the store. The long interval keeps the
# checkpoint at zero, however slow the machine is. Otherwise keys could be missing: RocketMQ drops
# an index file that the checkpoint does not cover, and rebuilds it from the log file that the
# checkpoint names, which may begin after some of its keys.
KILLED = """
import os, signal, sys
sys.path.append(sys.argv[2])
import forebay, workload
options = workload.OPTIONS | {"queue_flush_interval": 3_600.0}
store = forebay.open(sys.argv[1], **options)
workload.fill(store)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Create a store that was closed, and one whose writer was killed."""
    root = tmp_path_factory.mktemp("stores")
    closed, killed = root / "closed", root / "killed"
    with forebay.open(closed, **OPTIONS) as store:
        fill(store)
    support = str(Path(workload.__file__).parent)
    died = subprocess.run([sys.executable, "-c", KILLED, str(killed), support])
    assert died.returncode == -9
    return {"closed": closed, "killed": killed}


@pytest.fixture(scope="module")
def listings(stores: dict[str, Path]) -> dict[tuple[str, str], Listing]:
    """List both stores with both releases."""
    found = {}
    for version in ("5.5.0", "4.9.7"):
        checked = version == "5.5.0"
        jobs = [Job(path, SIZES, record_checksum=checked) for path in stores.values()]
        listed = rocketmq.list_stores(jobs, version=version)  # type: ignore[arg-type]
        for name, listing in zip(stores, listed, strict=True):
            assert isinstance(listing, Listing), f"{version} {name}: {listing}"
            found[version, name] = listing
    return found


@pytest.mark.parametrize("name", ["closed", "killed"])
@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
def test_rocketmq_shows_what_forebay_stored(
    version: str, name: str, stores: dict[str, Path], listings: dict[tuple[str, str], Listing]
) -> None:
    listing = listings[version, name]
    with forebay.open(stores[name], mode="r") as store:
        expected = rows_of(store)
    assert rows_in(listing) == expected
    assert (listing.errors, listing.cut) == ((), 0)
    # After a crash RocketMQ removes empty log files that were created ahead of use. It also removes
    # index files that its checkpoint does not cover, and rebuilds them.
    removed = [file for file in listing.deleted_files if not file.startswith("index/")]
    assert len(removed) <= (0 if name == "closed" else 2)
    assert listing.keys_checked > 500
    assert listing.keys_missed == 0


@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
def test_rocketmq_appends_and_forebay_reads_and_continues(
    version: rocketmq.Version, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    with forebay.open(path, **OPTIONS) as store:
        fill(store)
        before = rows_of(store)
    appended = rocketmq.append(path, count=200, seed=5, sizes=SIZES, version=version)
    with forebay.open(path) as store:
        after = rows_of(store)
        positions = {row["physicalOffset"] for row in before}
        assert [row for row in after if row["physicalOffset"] in positions] == before
        added = [row for row in after if row["physicalOffset"] not in positions]
        theirs = [row for row in appended.messages if row["inQueue"]]
        assert {r["physicalOffset"]: r["body"] for r in added} == {
            r["physicalOffset"]: body_hash(r) for r in theirs
        }
        for row in theirs:
            for key in (row["keys"] or "").split():
                found = store.query(row["topic"], key=key, max_messages=1_000)
                assert row["physicalOffset"] in [message.position for message in found]
        fill(store)
        final = rows_of(store)
        assert not store.verify().damage
    listing = rocketmq.list_store(path, sizes=SIZES, version=version)
    assert rows_in(listing) == final
    assert (listing.errors, listing.cut, listing.keys_missed) == ((), 0, 0)


def test_rocketmq_continues_after_a_kill_and_halts_and_forebay_recovers(
    stores: dict[str, Path], tmp_path: Path
) -> None:
    path = tmp_path / "store"
    store_files.copy(stores["killed"], path)
    appended = rocketmq.append(path, count=150, seed=9, sizes=SIZES, halt=True)
    assert not appended.clean
    with forebay.open(path) as store:
        rows = rows_of(store)
    theirs = {row["physicalOffset"] for row in appended.messages if row["inQueue"]}
    assert theirs <= {row["physicalOffset"] for row in rows}


def test_a_broker_delivers_and_forebay_reads_the_copies_with_stale_checksums(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store"
    with forebay.open(path, **OPTIONS) as store:
        store.create_topic("orders", queues=4)
        store.send("orders", b"now", key="now", queue=0)
        store.send("orders", b"later", key="later", delay_level=1, queue=1)
        store.send("orders", b"again", key="again", properties={"try": "1"}, queue=2)
    run = rocketmq.broker(path, sizes=SIZES, send_back=("orders", 2, 0))
    assert {"scheduled", "delayed", "retried"} <= set(run.delivered)
    with forebay.open(path) as store:
        assert [m.body for m in store.query("orders", key="later")] == [b"later"]
        delivered = {m.position: m for m in messages(store)}
        for row in (row for rows in run.delivered.values() for row in rows):
            assert delivered[row["physicalOffset"]].stored_body == base64.b64decode(row["body"])
        retried = [m for m in delivered.values() if m.topic.startswith("%RETRY%")]
        assert retried
        assert all(m.body in (b"again", b"later") or m.keys for m in retried)
        assert not store.damage
        assert not store.verify().damage


def json_of(path: Path) -> Any:
    """Read a table of a broker, whose numbers have no quotes as names."""
    return json.loads(re.sub(r"(?m)^(\s*)(\d+):", r'\1"\2":', path.read_text()))


def test_a_brokers_group_goes_on_in_forebay_and_forebays_group_in_a_broker(tmp_path: Path) -> None:
    """The broker left a retried message, a dead letter, and a message delayed by two hours."""
    path = unpack("broker", tmp_path)
    before = json_of(path / "config" / "consumerOffset.json")["offsetTable"]
    group = {"group": "fx-group"}
    with forebay.open(path, adopt=True) as store, store.consumer("fx-orders", **group) as consumer:
        # The overdue message is all that the group has not consumed.
        (late,) = consumer.poll(timeout=60)
        assert late.key == "delayed-2h"
        consumer.ack(late)
        producers = [store.producer("fx-orders", queue=queue) for queue in range(4)]
        for number in range(8):
            producers[number % 4].send(b"%d" % number, key=f"new-{number}")
        got = {message.key: message for message in consumer.poll(100, timeout=60)}
        assert len(got) == 8 and consumer.poll(timeout=0) == []
        consumer.ack([got[f"new-{number}"] for number in (0, 1, 4, 6)])
        consumer.reject(got["new-2"], "no such apples")
        consumer.commit()
        progress = store.groups["fx-group"]
        committed = {str(it.queue): it.committed for it in progress if it.topic == "fx-orders"}
        consumer.nack(got["new-5"], delay_level=2)
    committed["1"] += 1
    run = rocketmq.broker(path, consume=("fx-group", "fx-orders"))
    offsets = run.tables["offsets"]
    assert offsets.pop("fx-orders@fx-group") == committed
    assert offsets == {
        name: row for name, row in before.items() if not name.startswith("fx-orders")
    }
    assert run.tables["levels"] == {"1": 3, "18": 1}
    assert run.tables["retries"]["fx-group"] == 16
    assert [row["keys"] for row in run.delivered["consumed"]] == ["new-3", "new-7"]
    (retried,) = run.delivered["scheduled"]
    assert (retried["topic"], retried["keys"]) == ("%RETRY%fx-group", "new-5")
    with forebay.open(path) as store, store.consumer("fx-orders", **group) as consumer:
        (again,) = consumer.poll(100, timeout=60)
        assert (again.key, again.topic, again.reconsume_times) == ("new-5", "fx-orders", 1)
        letters = store.read("%DLQ%fx-group", queue=0, offset=0).messages
        assert [letter.key for letter in letters] == ["order-13", "new-2"]
        assert store.verify().ok


def damage(path: Path, positions: list[int]) -> None:
    """Flip a byte in the fixed fields, and one after them, of the records at these positions."""
    for position in positions:
        start = position - position % SIZES.log
        with open(path / "commitlog" / f"{start:020}", "r+b") as file:
            for at in (position - start + 4, position - start + 60):
                file.seek(at)
                byte = file.read(1)
                file.seek(at)
                file.write(bytes([byte[0] ^ 0x5A]))


@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
def test_rocketmq_reads_all_intact_messages_after_a_repair_and_continues(
    version: rocketmq.Version, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    with forebay.open(path, **OPTIONS) as store:
        fill(store)
        before = rows_of(store)
    positions = sorted(row["physicalOffset"] for row in before)
    second = next(p for p in positions if p >= SIZES.log)
    at = positions.index(second)
    # A single record, two adjacent ones, the last of a file and the first of the next, and the last
    # of a queue.
    last = max(r["physicalOffset"] for r in before if r["topic"] == "payments")
    gone = {positions[20], positions[40], positions[41], positions[at - 1], second, last}
    damage(path, sorted(gone))
    with forebay.open(path) as store:
        repair = store.repair()
        assert repair.ok
        assert sum(len(step.lost) for step in repair.steps) == len(gone)
        kept = rows_of(store)
        assert kept == [row for row in before if row["physicalOffset"] not in gone]
    checked = version == "5.5.0"
    listing = rocketmq.list_store(path, sizes=SIZES, version=version, record_checksum=checked)
    found = {row["physicalOffset"]: row for row in rows_in(listing)}
    assert sorted(found) == sorted(row["physicalOffset"] for row in kept)
    assert [found[row["physicalOffset"]] for row in kept] == kept
    assert (listing.cut, listing.keys_missed) == (0, 0)
    assert listing.deleted_files == ()
    # In place of each lost message RocketMQ returns the record that fills the hole.
    assert len(listing.errors) == len(gone)
    assert all("shows rmq_sys_forebay_repair" in error for error in listing.errors)
    appended = rocketmq.append(path, count=100, seed=7, sizes=SIZES, version=version)
    theirs = {row["physicalOffset"] for row in appended.messages if row["inQueue"]}
    with forebay.open(path) as store:
        after = rows_of(store)
        assert store.verify().ok
    assert [row for row in after if row["physicalOffset"] in found] == kept
    assert theirs == {row["physicalOffset"] for row in after} - found.keys()
    listing = rocketmq.list_store(path, sizes=SIZES, version=version)
    assert {row["physicalOffset"] for row in rows_in(listing)} == {
        row["physicalOffset"] for row in after
    }


@pytest.mark.parametrize("mode", ["a", "share"])
def test_rocketmq_is_refused_beside_a_process_that_writes(tmp_path: Path, mode: str) -> None:
    """RocketMQ wants the lock of byte 0 for itself, also where processes share it."""
    path = tmp_path / "store"
    with forebay.open(path, mode=mode, **OPTIONS) as store:  # type: ignore[call-overload]
        sent = store.send("orders", b"x")
        with pytest.raises(rocketmq.RocketMQError, match="Lock failed"):
            rocketmq.append(path, count=1, seed=1, sizes=SIZES)
    with forebay.open(path, mode="r") as store:
        assert store.get("orders", sent.queue, sent.offset).body == b"x"
    assert rocketmq.append(path, count=1, seed=1, sizes=SIZES).messages
