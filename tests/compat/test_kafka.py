"""The real Kafka reads, recovers, continues and serves log directories, and Forebay agrees.

All tests use one start of the JVM, and so are in one file.
"""

from __future__ import annotations

import os
import random
import shutil
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow
import pytest
import store_files
from golden_stores import DIGESTS, digest, unpack_partitions
from kafka import Ended, Kafka, KafkaError, Produced, Row, Served, row

import forebay
from forebay import _forebay

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
#: Folders whose offsets have gaps.
COMPACTED = ("compacted-0", "compactedlz4-0")
#: Folders that were cut after a batch.
CUT = tuple(name for name, known in DIGESTS.items() if "sha256" not in known)


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with Kafka() as program:
        yield program


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a log directory with all golden partitions."""
    return unpack_partitions(tmp_path_factory.mktemp("golden"))


@pytest.fixture
def copy(golden: Path, tmp_path: Path) -> Path:
    """Return a copy of a golden partition that a test may change."""
    return Path(shutil.copytree(golden / "lz4-0", tmp_path / "lz4-0"))


def messages(store: forebay.Store, topic: str) -> list[forebay.Message]:
    return list(store.tail(topic, start="earliest", follow=False))


def rows(count: int, start: int = 0) -> list[Row]:
    """Return rows of many kinds."""
    made = []
    for number in range(start, start + count):
        key = None if number % 5 == 0 else b"" if number % 7 == 0 else f"key-{number % 11}".encode()
        value = None if key and number % 13 == 0 else f"value {number} ".encode() * (number % 9)
        headers: list[tuple[str, bytes | None]] = [("n", str(number).encode())] * (number % 3)
        headers += [("nil", None), ("", b"\xff")] if number % 4 == 0 else []
        time = 1_700_000_000_000 + 3 * number
        made.append(row(value, key=key, timestamp=time, headers=headers))
    return made


def listed(found: Iterable[forebay.Message]) -> list[Row]:
    """Return the rows of messages, without their offsets."""
    return [
        row(
            None if it.is_null else it.body,
            key=it.key_bytes,
            timestamp=it.store_timestamp,
            headers=it.headers,
        )
        for it in found
    ]


@pytest.mark.parametrize("name", DIGESTS)
def test_kafka_finds_its_own_folders_sound(kafka: Kafka, golden: Path, name: str):
    known = DIGESTS[name]
    dumped = kafka.dump(golden / name, gaps=name in COMPACTED)
    assert dumped.problems == ()
    found = kafka.files(golden / name)
    assert (found.records, found.problems) == (known["records"], ())
    assert dumped.counts["records"] == found.records + found.control_records
    assert dumped.counts["batches"] == found.batches
    with forebay.open(golden, mode="r") as store:
        assert digest(messages(store, name.removesuffix("-0"))) == found.sha256


def test_damage_is_reported(kafka: Kafka, copy: Path):
    """The harness must find what it is meant to find."""
    log, index, times = (copy / f"{0:020}.{kind}" for kind in ("log", "index", "timeindex"))
    whole = log.read_bytes(), index.read_bytes(), times.read_bytes()

    def with_change(file: Path, at: int, bits: int) -> tuple[str, ...]:
        data = bytearray(file.read_bytes())
        data[at] ^= bits
        file.write_bytes(data)
        problems = kafka.dump(copy).problems
        for restored, before in zip((log, index, times), whole, strict=True):
            restored.write_bytes(before)
        return problems

    assert kafka.dump(copy).problems == ()
    # The checksum of a batch; its exit status would be 0.
    assert any("isvalid: false" in it for it in with_change(log, 18, 1))
    # The offset and the position of an index entry.
    assert any("Index offset:" in it for it in with_change(index, 3, 1))
    assert with_change(index, 7, 1)
    # The time and the offset of an entry.
    assert any("Index timestamp:" in it for it in with_change(times, 7, 1))
    assert with_change(times, 11, 1)
    log.write_bytes(whole[0] + bytes(10))
    assert any("invalid bytes at the end" in it for it in kafka.dump(copy).problems)
    log.write_bytes(whole[0])
    data = bytearray(whole[0])
    data[100] ^= 1
    log.write_bytes(data)
    assert kafka.files(copy).problems
    with pytest.raises(KafkaError, match="unknown request"):
        kafka.ask("nothing")


@pytest.mark.parametrize("name", DIGESTS)
def test_recovery_rebuilds_the_indexes(kafka: Kafka, golden: Path, tmp_path: Path, name: str):
    copy = Path(shutil.copytree(golden / name, tmp_path / name))
    before = store_files.fingerprints(copy)
    for index in (*copy.glob("*.index"), *copy.glob("*.timeindex"), *copy.glob("*.snapshot")):
        index.unlink()
    opened = kafka.open(copy)
    assert opened.read.records == DIGESTS[name]["records"]
    assert opened.read.sha256 == DIGESTS[name].get("sha256", opened.read.sha256)
    changed = store_files.difference(before, store_files.fingerprints(copy))
    changed = tuple(it for it in changed if not it.endswith(".snapshot"))
    if name in CUT:
        # Kafka adds the entry for the newest time when a log ends.
        assert changed in ((), (f"{0:020}.timeindex",))
        times = f"{name}/{0:020}.timeindex"
        assert (tmp_path / times).read_bytes().startswith((golden / times).read_bytes())
    else:
        assert changed == ()


@pytest.mark.parametrize(("base", "left"), [(955, 5_000), (477, 60_000), (477, 20_000), (0, 9_000)])
def test_both_recoveries_leave_the_same_beside_the_log(
    kafka: Kafka, golden: Path, tmp_path: Path, base: int, left: int
):
    both = [tmp_path / it / "txn-0" for it in ("kafka", "forebay")]
    for folder in both:
        shutil.copytree(golden / "txn-0", folder)
        os.truncate(folder / f"{base:020}.log", left)
        if base != 477:
            # Kafka cuts a segment with such an index before it looks for later ones to delete.
            (folder / f"{477:020}.txnindex").write_bytes(bytes(100))
        (folder / "leader-epoch-checkpoint").write_text("0\n2\n3 0\n9 990\n")
    kafka.open(both[0])
    forebay.open(both[1].parent, adopt=True).close()
    kept = ("*.log", "*.index", "*.timeindex", "*.txnindex", "leader-epoch-checkpoint")
    theirs, ours = (
        {it.name: it.read_bytes() for pattern in kept for it in folder.glob(pattern)}
        for folder in both
    )
    assert ours == theirs


def test_both_find_the_same_offset_for_a_time(kafka: Kafka, golden: Path, tmp_path: Path):
    with forebay.open(golden, mode="r") as store:
        for name in ("txn-0", "appendtime-0", "compacted-0"):
            copy = Path(shutil.copytree(golden / name, tmp_path / name))
            topic = name.removesuffix("-0")
            (queue,) = store.topics[topic].queues
            known = {it.store_timestamp for it in messages(store, topic)}
            times = sorted({time + step for time in known for step in (-1, 0, 1)})[::17]
            ours = [store.offset_at(topic, 0, time) for time in times]
            theirs = kafka.open(copy, clean=True, times=times).offsets
            # Kafka may answer with a control record, which no reader is shown.
            shown = [it.offset for it in messages(store, topic)]
            theirs = [next((at for at in shown if at >= it >= 0), -1) for it in theirs]
            assert [-1 if it == queue.max_offset else it for it in ours] == theirs


def test_forebay_reads_what_kafka_appends(kafka: Kafka, tmp_path: Path):
    config = {"internal.segment.bytes": 4096, "index.interval.bytes": 512}
    batches = [(CODECS[n % 5], rows(1 + n, 100 * n)) for n in range(20)]
    folder = tmp_path / "logs" / "t-0"
    folder.mkdir(parents=True)
    first = kafka.open(folder, append=batches[:10], config=config)
    second = kafka.open(folder, clean=True, append=batches[10:], config=config, halt=True)
    assert second.opened.end == first.closed.end
    assert len(second.closed.segments) > 1
    with forebay.open(folder.parent, mode="r") as store:
        found = messages(store, "t")
        assert listed(found) == [it for _, part in batches for it in part]
        assert [it.offset for it in found] == list(range(second.closed.end))
        assert digest(found) == second.read.sha256
        assert store.verify().ok


def test_forebay_reads_what_the_cleaner_leaves(kafka: Kafka, tmp_path: Path):
    config = {"internal.segment.bytes": 2048, "cleanup.policy": "compact"}
    keyed = [it | {"key": it["key"] or "00"} for it in rows(300)]
    batches = [("none", keyed[at : at + 10]) for at in range(0, 300, 10)]
    folder = tmp_path / "logs" / "t-0"
    folder.mkdir(parents=True)
    opened = kafka.open(folder, append=batches, config=config)
    active = opened.closed.segments[-1][0]
    now = 1_900_000_000_000
    assert kafka.compact(folder, now=now, config=config) == active
    with forebay.open(folder.parent, mode="r") as store:
        found = messages(store, "t")
        assert digest(found) == kafka.files(folder).sha256
        cleaned = [it for it in found if it.offset < active]
        assert len({it.key_bytes for it in cleaned}) == len(cleaned)
        assert store.verify().ok
    assert kafka.dump(folder, gaps=True).problems == ()


#: Ways to send an empty message with each of some keys.
WAYS: dict[str, Callable[[forebay.Store, list[bytes]], object]] = {
    "send": lambda store, keys: [store.send("send", b"", key=key) for key in keys],
    "send_nowait": lambda store, keys: [
        store.producer("send_nowait").send_nowait(b"", key=key) for key in keys
    ],
    "send_batch": lambda store, keys: store.producer("send_batch").send_batch(
        [b""] * len(keys), keys=keys
    ),
    "send_arrow": lambda store, keys: store.producer("send_arrow").send_arrow(
        pyarrow.table({"value": [b""] * len(keys), "key": keys})
    ),
}


@pytest.mark.parametrize("count", [1, 7, 1000])
def test_keys_go_where_kafka_puts_them(kafka: Kafka, tmp_path: Path, count: int):
    keys = [b"", b"a", b"ab", b"abc", b"21", b"foobar", b"\xff\x00", bytes(range(256))]
    expected = kafka.partitions(keys, count)
    # Kafka's own tests state the hashes of two of them.
    for key, known in {b"21": -973932308, b"foobar": -790332482}.items():
        assert expected[keys.index(key)] == (known & 0x7FFFFFFF) % count
    options: Any = {"engine": "partitionlog", "default_queues": count}
    with forebay.open(tmp_path / "log", **options) as store:
        for topic, send in WAYS.items():
            send(store, keys)
            store.flush()
            found = {it.key_bytes: it.queue for it in messages(store, topic)}
            assert found == dict(zip(keys, expected, strict=True)), topic
        sent = [store.send("send", b"", key=key).queue for key in keys]
        assert sent == expected


def test_segments_end_where_kafka_ends_them(kafka: Kafka, tmp_path: Path):
    """An index of times is full before one of offsets, unless no time is later than the first."""
    config = {"segment.index.bytes": 36, "index.interval.bytes": 0}
    options: Any = {"segment_index_bytes": 36, "index_interval_bytes": 0, "default_queues": 1}
    for name, step in (("later", 1), ("same", 0)):
        times = [1_700_000_000_000 + step * number for number in range(12)]
        folder = tmp_path / "kafka" / f"{name}-0"
        folder.mkdir(parents=True)
        batches = [("none", [row(b"", key=b"k", timestamp=time)]) for time in times]
        theirs = kafka.open(folder, append=batches, config=config).closed.segments
        path = tmp_path / name
        with forebay.open(path, engine="partitionlog", **options) as store:
            for time in times:
                moment = datetime.fromtimestamp(time / 1000, UTC)
                store.send("t", b"", key="k", timestamp=moment)
        ours = sorted(int(it.stem) for it in path.glob("t-0/*.log"))
        assert ours == [base for base, _ in theirs]
        assert len(ours) > 2


def test_a_broker_serves_and_forebay_reads_what_it_stores(
    kafka: Kafka, golden: Path, tmp_path: Path
):
    names = ("none-0", "lz4-0", "v1gzip-0", "compacted-0", "txn-0")
    logs = tmp_path / "logs"
    for name in names:
        shutil.copytree(golden / name, logs / name)
        # All have the same id here, and a cluster wants one for each topic.
        identity = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        (logs / name / "partition.metadata").write_text(f"version: 0\ntopic_id: {identity}")
    sent = [{**it, "topic": "none"} for it in rows(50)]
    served = kafka.broker(logs, tmp_path / "cluster", produce=sent, codec="zstd", committed=True)
    with forebay.open(golden, mode="r", isolation="read_committed") as store:
        for name in names:
            found = messages(store, name.removesuffix("-0"))
            assert digest(found) == served.consumed[name].sha256
    end = served.bounds["none-0"][1]
    assert served.produced == [(0, end + number) for number in range(50)]
    with forebay.open(logs, mode="r") as store:
        assert listed(messages(store, "none")[-50:]) == rows(50)
        assert store.verify().ok


def written(path: Path, **options: object) -> forebay.Store:
    """Open a store in Kafka's form with one queue a topic."""
    given = {"default_queues": 1, "segment_bytes": 1 << 14, "index_interval_bytes": 512, **options}
    return forebay.open(path, engine="partitionlog", **given)  # type: ignore[arg-type]


def send(store: forebay.Store, topic: str, start: int = 0) -> None:
    producer = store.producer(topic)
    for number in range(start, start + 60):
        few = [f"value {number} {it} ".encode() * 7 for it in range(1 + number % 9)]
        keys = [f"key-{number % 11}"] * len(few)
        producer.send_batch(few, keys=keys, properties={"n": str(number)})
        made = 1_700_000_000 + number * number % 1000
        producer.send(b"alone", timestamp=datetime.fromtimestamp(made, UTC))


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_reads_what_forebay_writes(kafka: Kafka, tmp_path: Path, codec: str):
    with written(tmp_path / "log", compression=codec) as store:
        send(store, "t")
    folder = tmp_path / "log" / "t-0"
    assert len([*folder.glob("*.log")]) > (codec == "none")
    dumped = kafka.dump(folder)
    assert dumped.problems == ()
    with forebay.open(tmp_path / "log", mode="r") as store:
        found = messages(store, "t")
        assert kafka.files(folder).sha256 == digest(found)
    assert dumped.counts["records"] == len(found)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_kafka_reads_messages_that_lingered(kafka: Kafka, tmp_path: Path, codec: str):
    with written(tmp_path / "log", compression=codec, linger=3600, batch_bytes=2000) as store:
        producer = store.producer("t")
        tickets = [
            producer.send_nowait(b"value %d " % number * (number % 300), key=str(number % 11))
            for number in range(600)
        ]
    positions = [ticket.result().position for ticket in tickets]
    folder = tmp_path / "log" / "t-0"
    dumped = kafka.dump(folder)
    assert dumped.problems == ()
    assert dumped.counts["records"] == 600
    changes = sum(one != other for one, other in pairwise(positions))
    assert dumped.counts["batches"] == 1 + changes < 600
    with forebay.open(tmp_path / "log", mode="r") as store:
        assert kafka.files(folder).sha256 == digest(messages(store, "t"))


#: The settings of `written`, as Kafka has them.
AS_WRITTEN = {"internal.segment.bytes": 1 << 14, "index.interval.bytes": 512}


def send_mixed(store: forebay.Store, topic: str) -> None:
    """Send messages with keys, and bodies that compress and others that do not."""
    producer, draw = store.producer(topic), random.Random(7)
    for number in range(60):
        few = [f"value {number} {it} ".encode() * 7 for it in range(1 + number % 5)]
        few += [draw.randbytes(number * 7), b""]
        producer.send_batch(few, keys=[f"key-{draw.randrange(80)}" for _ in few])


def indexes_of_closed_segments(changed: Iterable[str], active: int) -> list[str]:
    """Return the changed files, but for those that Kafka writes on every start."""
    own = (f"{active:020}.", "leader-epoch-checkpoint")
    return [it for it in changed if not it.startswith(own) and ".snapshot" not in it]


@pytest.mark.parametrize(
    ("ending", "codec"),
    [
        ("clean", "none"),
        ("clean", "gzip"),
        ("halted", "none"),
        *(("stopped", codec) for codec in CODECS),
        *(("compacted", codec) for codec in CODECS),
    ],
)
def test_kafka_recovers_and_continues_what_forebay_writes(
    kafka: Kafka, tmp_path: Path, ending: str, codec: str
):
    """Kafka rebuilds the same indexes, byte for byte, and Forebay reads what Kafka adds."""
    cleaning: dict[str, object] = {"cleanup_policy": "compact", "log_cleaner_backoff_ms": 3_600_000}
    compacted = ending == "compacted"
    options: dict[str, object] = {"compression": codec, **(cleaning if compacted else {})}
    store = written(tmp_path / "log", **options)
    send_mixed(store, "t")
    store.roll()
    send_mixed(store, "t")
    if compacted:
        store.roll()
        assert store.compact().complete
        store.send("t", b"last", key="last")
    if ending != "halted":
        store.close()
    copy = Path(shutil.copytree(tmp_path / "log", tmp_path / "copy")) / "t-0"
    store.close()
    before = store_files.fingerprints(copy)
    if ending in ("stopped", "compacted"):
        for index in (*copy.glob("*.index"), *copy.glob("*.timeindex")):
            index.unlink()
    added = [("lz4", rows(20))]
    opened = kafka.open(copy, clean=ending == "clean", append=added, config=AS_WRITTEN)
    changed = store_files.difference(before, store_files.fingerprints(copy))
    assert len(opened.closed.segments) > 2
    if ending != "halted":
        active = opened.closed.segments[-1][0]
        assert indexes_of_closed_segments(changed, active) == []
    with forebay.open(copy.parent, mode="r") as store:
        found = messages(store, "t")
        assert listed(found)[-20:] == rows(20)
        assert digest(found) == opened.read.sha256
        if not compacted:
            assert [it.offset for it in found] == list(range(opened.closed.end))


def last_batch(log: Path) -> int:
    """Return the position of the last batch in a file, which zeros may follow."""
    data, at, end = log.read_bytes(), 0, 0
    while end + 12 <= len(data) and (size := int.from_bytes(data[end + 8 : end + 12])) > 0:
        at, end = end, end + 12 + size
    return at


@pytest.mark.parametrize(
    ("codec", "is_cut"), [("none", False), *((codec, True) for codec in CODECS)]
)
def test_both_recover_the_same_of_a_log_that_was_killed(
    kafka: Kafka, tmp_path: Path, codec: str, is_cut: bool
):
    """Kafka accepts the files that Forebay has recovered, and they are those it recovers itself."""
    with written(tmp_path / "log", compression=codec) as store:
        send_mixed(store, "t")
        store.roll()
        send_mixed(store, "t")
        store.flush()
        killed = Path(shutil.copytree(tmp_path / "log", tmp_path / "killed"))
        sent = messages(store, "t")
    ours = killed / "t-0"
    if is_cut:
        active = max(ours.glob("*.log"))
        os.truncate(active, last_batch(active) + 70)
    theirs = Path(shutil.copytree(ours, tmp_path / "kafka" / "t-0"))
    opened = kafka.open(theirs, config=AS_WRITTEN)
    with written(killed, compression=codec) as store:
        assert not store.recovery.clean
        found = messages(store, "t")
    assert found == sent[: len(found)]
    assert (len(found) < len(sent)) == is_cut
    assert opened.read.sha256 == digest(found)
    kept = ("*.log", "*.index", "*.timeindex")
    files = [
        {it.name: it.read_bytes() for pattern in kept for it in folder.glob(pattern)}
        for folder in (ours, theirs)
    ]
    assert files[0].keys() == files[1].keys()
    assert [name for name, data in files[0].items() if data != files[1][name]] == []
    dumped = kafka.dump(ours)
    assert dumped.problems == ()
    assert dumped.counts["records"] == len(found)
    assert kafka.files(ours).sha256 == digest(found)
    again = kafka.open(ours, clean=True, append=[(codec, rows(20))], config=AS_WRITTEN)
    with forebay.open(killed, mode="r") as store:
        assert digest(messages(store, "t")) == again.read.sha256


def test_forebay_takes_over_what_kafka_wrote(kafka: Kafka, golden: Path, tmp_path: Path):
    logs = Path(shutil.copytree(golden, tmp_path / "logs"))
    with pytest.raises(forebay.ForeignStoreError):
        forebay.open(logs)
    with forebay.open(logs, adopt=True) as store:
        for topic in ("none", "zstd", "txn", "compacted", "v1gzip"):
            before = digest(messages(store, topic))
            with forebay.open(golden, mode="r") as known:
                assert digest(messages(known, topic)) == before
            send(store, topic)
    with forebay.open(logs) as store:
        assert store.recovery.clean
        for topic in ("none", "zstd", "txn", "compacted", "v1gzip"):
            found = messages(store, topic)
            listing = kafka.files(logs / f"{topic}-0")
            assert (listing.sha256, listing.problems) == (digest(found), ())


def test_kafka_leaves_alone_what_a_repair_has_saved(kafka: Kafka, tmp_path: Path):
    with written(tmp_path / "log") as store:
        send(store, "t")
    folder = tmp_path / "log" / "t-0"
    log = min(folder.glob("*.log"))
    changed = bytearray(log.read_bytes())
    changed[70] ^= 1
    log.write_bytes(changed)
    (folder / "leader-epoch-checkpoint").write_bytes(b"\xff")
    with forebay.open(tmp_path / "log") as store:
        assert store.repair().ok
        before = digest(messages(store, "t"))
    saved = {it: it.read_bytes() for it in folder.glob("*.damaged")}
    assert len(saved) == 2
    config = {"internal.segment.bytes": 1 << 14, "index.interval.bytes": 512}
    for clean in (True, False):
        assert kafka.open(folder, clean=clean, config=config).read.sha256 == before
        assert {it: it.read_bytes() for it in folder.glob("*.damaged")} == saved


@pytest.mark.parametrize("how", ["append", "roll", "delete", "compact", "share", "kill"])
def test_kafka_knows_its_producers_in_what_forebay_continues(
    kafka: Kafka, tmp_path: Path, how: str
):
    """Kafka took the partition for one without producers.

    It stored what they sent again a second time, and did not record that a transaction was aborted.
    """
    logs = tmp_path / "logs"
    folder = logs / "t-0"
    folder.mkdir(parents=True)
    # Kafka forgets producers whose messages are old.
    sent = [row(b"value", key=b"key", timestamp=time.time_ns() // 1_000_000)]
    kafka.open(folder, append=[Produced(9, 0, sent, transactional=True), Produced(7, 0, sent)])
    (logs / ".kafka_cleanshutdown").touch()
    mode: Any = "share" if how == "share" else "a"
    options: Any = {"cleanup_policy": "compact"} if how == "compact" else {}
    start = 0
    with forebay.open(logs, mode=mode, adopt=True, **options) as store:
        for _ in range(3):
            store.send("t", b"ours", key="key")
            if how != "append":
                store.roll()
        if how == "compact":
            store.compact()
        if how == "delete":
            start = 4
            store.delete_before("t", {0: start})
        if how == "kill":
            store.flush()
            folder = shutil.copytree(logs, tmp_path / "killed") / "t-0"
    opened = kafka.open(
        folder,
        clean=how != "kill",
        start=start,
        append=[Ended(9, "ABORT"), Produced(7, 0, sent)],
    )
    assert opened.opened.producers == {7: 0, 9: 0}
    assert opened.opened.stable == start
    marker, again = opened.appended
    assert marker == (5, 5)
    assert again == (1, 1)
    assert opened.closed.aborted == [(9, 0, 5)]
    assert (opened.closed.stable, opened.closed.end) == (6, 6)


def test_a_broker_serves_what_forebay_writes(kafka: Kafka, tmp_path: Path):
    """It leaves Forebay's own files alone: tables, staged rows and what a repair has saved."""
    logs = tmp_path / "logs"
    with written(logs, default_queues=2, compression="zstd") as store:
        send(store, "orders")
        send(store, "bills")
        store.producer("orders", queue="own", name="owner").send(b"value")
        with store.consumer("orders", group="g") as consumer:
            taken = consumer.poll(20, timeout=60)
            for message in taken:
                consumer.ack(message)
    log = min((logs / "orders-0").glob("*.log"))
    changed = bytearray(log.read_bytes())
    changed[70] ^= 1
    log.write_bytes(changed)
    with written(logs, default_queues=2, compression="zstd") as store:
        assert store.repair().ok
        # Rows that Spark has committed, and others that are only staged.
        _forebay.publish_commit(logs, "q", 0, "stream", [staged(logs, "orders")])
        _forebay.take_commits(store)
        staged(logs, "bills")
        known = {
            f"{topic}-{queue}": digest(store.read(topic, queue, 0, max_messages=10_000).messages)
            for topic in ("orders", "bills")
            for queue in (0, 1)
        }
        assert any(found.name.startswith("forebay.stages.q.stage-") for found in logs.iterdir())
    own = {it: it.read_bytes() for it in (*logs.glob("forebay.*"), *logs.glob("*-?/*.damaged"))}
    tables = {"forebay.consumerOffset.json", "forebay.producers"}
    assert tables <= {it.name for it in own}
    assert any(it.suffix == ".damaged" for it in own)
    sent = [{**it, "topic": "orders"} for it in rows(30)]
    served = kafka.broker(logs, tmp_path / "cluster", produce=sent, codec="gzip")
    assert {it: it.read_bytes() for it in own} == own
    # A digest of Forebay's covers no headers of its own, and a marker has one.
    assert served.consumed.pop("rmq_sys_forebay_commits-0").records == 1
    assert {name: it.sha256 for name, it in served.consumed.items()} == known
    with forebay.open(logs) as store:
        assert not store.damage
        assert store.verify().ok
        assert len(messages(store, "orders")) == served_count(served, "orders") + 30
        with store.consumer("orders", group="g") as consumer:
            again = consumer.poll(20, timeout=60)
        assert {it.message_id for it in again}.isdisjoint(it.message_id for it in taken)
        assert taken and again
        send(store, "orders", 100)


def staged(logs: Path, topic: str) -> Any:
    """Stage rows as a task of Spark does."""
    stager = _forebay.Stager(logs, "q", topic)
    keys = [b"\xff%d" % number for number in range(20)]
    stager.write(pyarrow.record_batch({"value": keys, "key": keys}))
    return stager.finish()


def served_count(served: Served, topic: str) -> int:
    counts = [it.records for name, it in served.consumed.items() if name.startswith(topic)]
    return sum(counts)


def keyed(count: int) -> list[Row]:
    """Return rows with keys, tombstones among them."""
    return [it | {"key": it["key"] or "00"} for it in rows(count)]


@pytest.mark.parametrize("codec", CODECS)
def test_both_cleaners_keep_the_same(kafka: Kafka, tmp_path: Path, codec: str):
    config = {"internal.segment.bytes": 4096, "index.interval.bytes": 512}
    made = keyed(600)
    batches = [(codec, made[at : at + 10]) for at in range(0, 600, 10)]
    theirs = tmp_path / "theirs" / "t-0"
    theirs.mkdir(parents=True)
    opened = kafka.open(theirs, append=batches, config=config, clean=True)
    active = opened.closed.segments[-1][0]
    ours = Path(shutil.copytree(theirs.parent, tmp_path / "ours")) / "t-0"
    now = int(datetime.now(UTC).timestamp() * 1000)
    compacting = config | {"cleanup.policy": "compact"}
    assert kafka.compact(theirs, now=now, config=compacting) == active
    options = {"segment_bytes": 4096, "index_interval_bytes": 512}
    with forebay.open(ours.parent, adopt=True, cleanup_policy="compact", **options) as store:
        assert store.compact().complete
        found = messages(store, "t")
    with forebay.open(theirs.parent, mode="r") as store:
        expected = messages(store, "t")
    assert [it.offset for it in found] == [it.offset for it in expected]
    assert listed(found) == listed(expected)
    # The time of a batch without records is in the time index, which Kafka's tool does not expect.
    problems = kafka.dump(ours, gaps=True).problems
    assert all("Found timestamp mismatch" in it or "timestamp: -1" in it for it in problems)
    assert kafka.files(ours).sha256 == kafka.files(theirs).sha256
    checkpoint = (ours.parent / "cleaner-offset-checkpoint").read_text()
    assert checkpoint == f"0\n1\nt 0 {active}\n"
    # Kafka loads what is left, and rebuilds the same indexes.
    before = store_files.fingerprints(ours)
    for index in (*ours.glob("*.index"), *ours.glob("*.timeindex")):
        index.unlink()
    kafka.open(ours, config=compacting)
    after = store_files.difference(before, store_files.fingerprints(ours))
    kept = [it for it in after if not it.startswith(f"{active:020}.") and ".snapshot" not in it]
    assert [it for it in kept if it != "leader-epoch-checkpoint"] == []


@pytest.mark.parametrize("name", ["txn-0", "v0lz4-0", "v1-0", "v1gzip-0", "appendtime-0"])
def test_both_cleaners_keep_the_same_of_other_forms(
    kafka: Kafka, golden: Path, tmp_path: Path, name: str
):
    topic = name.removesuffix("-0")
    theirs = Path(shutil.copytree(golden / name, tmp_path / "theirs" / name))
    ours = Path(shutil.copytree(golden / name, tmp_path / "ours" / name))
    now = int(datetime.now(UTC).timestamp() * 1000)
    # Tombstones of the old formats go by the times of files, which opening leaves as they are.
    kafka.compact(theirs, now=now, config={"cleanup.policy": "compact"})
    with forebay.open(ours.parent, adopt=True, cleanup_policy="compact") as store:
        store.compact()
        found = messages(store, topic)
    with forebay.open(theirs.parent, mode="r") as store:
        expected = messages(store, topic)
    assert listed(found) == listed(expected)
    assert [it.offset for it in found] == [it.offset for it in expected]
    assert kafka.files(ours).sha256 == kafka.files(theirs).sha256


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_reads_an_archive(kafka: Kafka, tmp_path: Path, codec: str):
    with written(tmp_path / "log", compression=codec) as store:
        send(store, "t")
        store.roll()
        done = store.archive(tmp_path / "a")
        found = messages(store, "t")
    assert done.offsets == {"t-0": len(found)}
    folder = tmp_path / "a" / "t-0"
    dumped = kafka.dump(folder)
    assert dumped.problems == ()
    assert dumped.counts["records"] == len(found)
    assert kafka.files(folder).sha256 == digest(found)
    # A broker's log takes it up and continues it.
    copy = Path(shutil.copytree(folder, tmp_path / "copy" / "t-0"))
    opened = kafka.open(copy, append=[("none", rows(10))])
    assert (opened.opened.start, opened.opened.end) == (0, len(found))
    with forebay.open(copy.parent, mode="r") as store:
        assert digest(messages(store, "t")[: len(found)]) == digest(found)


def test_a_broker_serves_an_archive_that_went_on_over_a_compaction(kafka: Kafka, tmp_path: Path):
    options = {"cleanup_policy": "compact", "log_cleaner_backoff_ms": 3_600_000}
    with written(tmp_path / "log", **options) as store:
        for _ in range(2):
            store.producer("t").send_batch(
                [b"%d" % number for number in range(300)],
                keys=[str(number % 40) for number in range(300)],
            )
            store.roll()
            store.archive(tmp_path / "a")
            store.producer("t").send_batch([b"last"] * 9, keys=list("abcdefghi"))
            store.roll()
            assert store.compact().complete
        store.archive(tmp_path / "a")
    with forebay.open(tmp_path / "a", mode="r") as store:
        found = messages(store, "t")
        assert store.verify().ok
    folder = tmp_path / "a" / "t-0"
    assert len([*folder.glob("*.log")]) >= 3
    problems = kafka.dump(folder, gaps=True).problems
    assert all("Found timestamp mismatch" in it or "timestamp: -1" in it for it in problems)
    assert kafka.files(folder).sha256 == digest(found)
    logs = Path(shutil.copytree(tmp_path / "a", tmp_path / "logs"))
    served = kafka.broker(logs, tmp_path / "cluster")
    assert served.consumed["t-0"].sha256 == digest(found)


@pytest.mark.parametrize("start", [0, 40, 200, None])
def test_both_cut_the_epochs_where_the_log_begins(kafka: Kafka, tmp_path: Path, start: int | None):
    table = "0\n3\n2 0\n4 40\n7 90\n"
    with written(tmp_path / "log") as store:
        send(store, "t")
        end = store.topics["t"].queues[0].max_offset
    ours = tmp_path / "log" / "t-0"
    (ours / "leader-epoch-checkpoint").write_text(table)
    theirs = Path(shutil.copytree(ours, tmp_path / "kafka" / "t-0"))
    first = end if start is None else start
    kafka.open(theirs, clean=True, start=first)
    with written(tmp_path / "log") as store:
        store.delete_before("t", {0: first})
    cut = (ours / "leader-epoch-checkpoint").read_text()
    # Where nothing is left, Kafka has no epoch until its leader begins one at the end.
    known = f"0\n1\n7 {end}\n" if start is None else None
    assert cut == (known or (theirs / "leader-epoch-checkpoint").read_text())
