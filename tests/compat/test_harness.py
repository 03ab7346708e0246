"""Tests of the harness itself, with stores that the real RocketMQ wrote and listed.

The fixtures are in a folder outside the repository, which ``FOREBAY_FIXTURES`` names. Without it,
or without Java or Maven, these tests are skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import rocketmq
import store_files
from rocketmq import Job, Listing, RocketMQError, Sizes

REPOSITORY = Path(__file__).resolve().parents[2]
FIXTURES = REPOSITORY / os.environ.get("FOREBAY_FIXTURES", "../shared/fixtures") / "rocketmq"
STORES = (
    *("big", "broker", "clean", "crashed", "lost-queues"),
    *("propcrc", "torn-hole", "torn-tail", "undispatched"),
)
CLOSED_CLEANLY = {"big", "broker", "clean", "propcrc"}
SMALL = Sizes(log=1 << 20, queue=6_000, slots=500, entries=2_000)

# If there is nothing to recover, RocketMQ does not change these folders when it opens a store. It
# does write `abort.bak`, `checkpoint` and `lock`; 5.5.0 also writes an empty RocksDB and the state
# of its compaction service.
DATA_FOLDERS = {"commitlog", "config", "consumequeue", "index"}

needs_fixtures = pytest.mark.skipif(
    not FIXTURES.is_dir() or shutil.which("zstd") is None,
    reason=f"needs the folder {FIXTURES} (FOREBAY_FIXTURES names it) and zstd to unpack it",
)


@dataclass(frozen=True)
class Expected:
    """The listing that was created with the fixture."""

    rows: list[dict[str, Any]]
    queues: dict[str, dict[int, tuple[int, int]]]
    summary: dict[str, Any]

    @classmethod
    def read(cls, name: str) -> Expected:
        packed = FIXTURES / f"{name}.jsonl.zst"
        rows = subprocess.run(["zstd", "-dcq", packed], check=True, capture_output=True).stdout
        verified = (FIXTURES / f"{name}.verify.jsonl").read_text(encoding="utf-8")
        lines = [json.loads(line) for line in verified.splitlines()]
        queues = {
            line["topic"]: {int(q): (low, high) for q, (low, high) in line["queues"].items()}
            for line in lines[:-1]
        }
        return cls([json.loads(line) for line in rows.splitlines()], queues, lines[-1])

    @property
    def sizes(self) -> Sizes:
        log, queue = self.summary["commitLogFile"], self.summary["consumeQueueFile"]
        slots = self.summary["hashSlots"]
        # A store without queues has no queue file with a size; new ones get the usual size.
        return Sizes(log, queue if queue > 0 else SMALL.queue, slots, 4 * slots)


def unpack(name: str, into: Path) -> Path:
    packed = FIXTURES / f"{name}.tar.zst"
    subprocess.run(["tar", "--zstd", "-xf", packed, "-C", into], check=True)
    return into / name


@pytest.fixture(scope="module")
def listings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Listing]:
    """List every fixture with RocketMQ 5.5.0, in one start of the JVM."""
    folder = tmp_path_factory.mktemp("fixtures")
    jobs = [
        Job(unpack(name, folder), Expected.read(name).sizes, record_checksum=name == "propcrc")
        for name in STORES
    ]
    found: dict[str, Listing] = {}
    for name, listing in zip(STORES, rocketmq.list_stores(jobs), strict=True):
        assert isinstance(listing, Listing), f"{name}: {listing}"
        found[name] = listing
    return found


@needs_fixtures
@pytest.mark.parametrize("name", STORES)
def test_listing_of_a_fixture_equals_the_one_it_came_with(
    name: str, listings: dict[str, Listing]
) -> None:
    listing, expected = listings[name], Expected.read(name)
    assert listing.messages + listing.hidden == expected.rows
    assert listing.topics == expected.queues
    assert listing.digest == expected.summary["digest"]
    assert listing.min_position == expected.summary["minPhyOffset"]
    assert listing.max_position == expected.summary["maxPhyOffset"]
    assert listing.keys_checked > 0
    assert (listing.keys_missed, listing.errors, listing.clean) == (0, (), True)


@needs_fixtures
@pytest.mark.parametrize("name", sorted(CLOSED_CLEANLY))
def test_opening_a_cleanly_closed_store_changes_no_data(
    name: str, listings: dict[str, Listing]
) -> None:
    changed = [Path(file) for file in listings[name].changed_files]
    assert Path("checkpoint") in changed
    assert not [file for file in changed if file.parts[0] in DATA_FOLDERS]
    assert (listings[name].cut, listings[name].deleted_files) == (0, ())


@needs_fixtures
def test_a_cut_by_the_real_store_is_reported(listings: dict[str, Listing]) -> None:
    assert listings["torn-hole"].cut > 60_000
    assert 0 < listings["torn-tail"].cut < 300
    assert listings["crashed"].cut == 0


@needs_fixtures
def test_4_9_cuts_the_log_at_the_first_record_of_version_2(tmp_path: Path) -> None:
    """4.9 does not know version 2, takes the record for damage, and deletes everything after it.

    It reports no error: the listing is short but consistent; only ``cut`` and ``deleted_files``
    reveal it.
    """
    expected = Expected.read("clean")
    version_2 = min(r["physicalOffset"] for r in expected.rows if r["magic"] == -626843477)
    clean = unpack("clean", tmp_path)
    shutil.rmtree(clean / "consumequeue")  # Without queues recovery starts at the first file.
    listing = rocketmq.list_store(clean, version="4.9.7", sizes=expected.sizes)
    below = [row for row in expected.rows if row["physicalOffset"] < version_2]
    assert listing.max_position == version_2
    assert listing.messages == [row for row in below if row["inQueue"]]
    assert listing.cut == expected.summary["maxPhyOffset"] - version_2
    assert "commitlog/00000000000001048576" in listing.deleted_files


def test_both_releases_list_what_both_have_appended(tmp_path: Path) -> None:
    store = tmp_path / "store"
    first = rocketmq.write(store, count=400, seed=1, sizes=SMALL)
    second = rocketmq.append(store, count=200, seed=2, sizes=SMALL, version="4.9.7")
    third = rocketmq.append(store, count=200, seed=3, sizes=SMALL, halt=True)
    assert (first.clean, second.clean, third.clean) == (True, True, False)
    appended = first.messages + second.messages + third.messages
    with ThreadPoolExecutor() as both:
        listings = both.map(lambda v: rocketmq.list_store(store, version=v), rocketmq.PROFILES)
    for listing in listings:
        listed = sorted(listing.messages + listing.hidden, key=lambda row: row["physicalOffset"])
        assert listed == appended
        assert len(listing.hidden) == 16
        # After a halt RocketMQ drops index files that are newer than its checkpoint. Whether there
        # are any depends on how long it ran, so missing keys are not checked.
        others = [error for error in listing.errors if not error.startswith("key ")]
        assert (others, listing.clean) == ([], True)
        assert listing.max_position == third.max_position


def test_damage_is_found_and_does_not_stop_a_batch(tmp_path: Path) -> None:
    store = tmp_path / "store"
    written = rocketmq.write(store, count=100, seed=4, sizes=SMALL, record_checksum=True)
    last = written.messages[-1]["physicalOffset"]
    flipped = store_files.copy(store, tmp_path / "flipped")
    with open(flipped / "commitlog" / "0".zfill(20), "r+b") as log:
        log.seek(last + 56)  # The store time, which only the whole-record checksum covers.
        log.write(b"\xff")
    unindexed = store_files.copy(store, tmp_path / "unindexed")
    (index,) = (unindexed / "index").iterdir()
    with open(index, "r+b") as slots:
        slots.seek(40)
        slots.write(bytes(4 * SMALL.slots))
    wrong_size = Sizes(log=1 << 19, queue=6_000, slots=500, entries=2_000)
    results = rocketmq.list_stores(
        [
            Job(store, SMALL, record_checksum=True),
            Job(flipped, SMALL, record_checksum=True),
            Job(unindexed, SMALL),
            Job(store, wrong_size),
            Job(store, SMALL),
        ]
    )
    whole, cut, lost_keys, refused, again = results
    assert isinstance(whole, Listing) and isinstance(again, Listing)
    assert (whole.errors, whole.digest) == ((), again.digest)
    assert isinstance(cut, Listing) and cut.max_position == last and cut.cut > 0
    assert isinstance(lost_keys, Listing)
    assert lost_keys.keys_missed == lost_keys.keys_checked == lost_keys.error_count > 0
    assert isinstance(refused, RocketMQError)


@needs_fixtures
def test_a_broker_delivers_copies_whose_checksum_is_stale(tmp_path: Path) -> None:
    """A broker copies ``__CRC32#`` into the records of delayed and retried messages.

    The checksum of the first record is wrong for the copy. Two listings show it: RocketMQ reads
    everything as long as it does not check, and cuts at the first copy when it must check.
    """
    before = Expected.read("propcrc")
    store = unpack("propcrc", tmp_path)
    run = rocketmq.broker(store, sizes=before.sizes, send_back=("orders", 0, 5))
    for kind, stale in (("scheduled", True), ("delayed", False), ("retried", True)):
        stored, delivered = run.stored[kind], run.delivered[kind]
        bodies = [(row["body"], row["properties"].get("__CRC32#")) for row in stored]
        assert sorted(bodies) == sorted(
            (row["body"], row["properties"].get("__CRC32#")) for row in delivered
        )
        assert all(("__CRC32#" in row["properties"]) == stale for row in delivered)
        assert all("REAL_TOPIC" in row["properties"] for row in delivered)
    assert len(run.stored["scheduled"]) == 2
    (retried,) = run.delivered["retried"]
    assert (retried["properties"]["RETRY_TOPIC"], retried["reconsumeTimes"]) == ("orders", 1)
    assert run.clean

    read, checked = rocketmq.list_stores(
        [Job(store, before.sizes), Job(store, before.sizes, record_checksum=True)]
    )
    assert isinstance(read, Listing) and isinstance(checked, Listing)
    assert (read.errors, read.cut) == ((), 0)
    added = [row for rows in run.delivered.values() for row in rows]
    assert all(row in read.messages for row in added)
    # Messages that pass through the topic of delayed messages have one more record each.
    assert len(read.messages) == before.summary["messages"] + len(added) + 2
    assert checked.max_position == before.summary["maxPhyOffset"]
    assert checked.digest == before.summary["digest"]
