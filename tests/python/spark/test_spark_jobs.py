"""The jobs `audit` and `rebuild`: ranges find and build what one process does."""

from __future__ import annotations

import dataclasses
import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import store_files
from golden_stores import unpack

import forebay
from forebay.spark import audit, rebuild
from forebay.spark.jobs.work import grouped, run

SIZES = {
    "commitlog_file_size": 1 << 18,
    "queue_file_entries": 500,
    "index_slots": 100,
    "index_entries": 400,
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a closed store with several files of each kind; no test changes it."""
    path = tmp_path_factory.mktemp("jobs") / "store"
    with forebay.open(path, **SIZES) as store:
        for number in range(6000):
            topic = ("orders", "bills", "one")[number % 3]
            keys = [f"k{number % 50}"] if number % 2 else None
            store.send(topic, b"x" * (number % 200), keys=keys, queue=number % 4)
    return path


@pytest.fixture
def store(built: Path, tmp_path: Path) -> Path:
    """Return a copy of the store."""
    return store_files.copy(built, tmp_path / "store")


def facts(found: Any) -> dict[str, Any]:
    """Return the findings of a verification."""
    names = ("ok", "records", "queue_entries", "index_entries", "stale_checksums")
    facts = {name: getattr(found, name) for name in names}
    return facts | {"damage": [place._asdict() for place in found.damage]}


def caches(root: Path) -> tuple[dict[str, bytes], list[bytes]]:
    """Return queue files by name, and index files in order, as their names are times."""
    queues, index = root / "consumequeue", root / "index"
    by_name = {
        str(path.relative_to(queues)): path.read_bytes()
        for path in queues.rglob("*")
        if path.is_file()
    }
    return by_name, [path.read_bytes() for path in sorted(index.iterdir())]


def test_groups_hold_every_number_once() -> None:
    weights = [5, 1, 1, 1, 9, 0, 3]
    groups = grouped(weights, 3, 4)
    assert sorted(number for group in groups for number in group) == list(range(7))
    sums = [sum(weights[number] for number in group) for group in groups]
    assert sums == sorted(sums, reverse=True)
    assert grouped([], 3, 4) == []


def test_tasks_return_results_in_order_and_raise_the_original_errors(spark: Any) -> None:
    told: list[tuple[int, int]] = []

    # Defined in the test, so that it is pickled by value: workers do not have this module.
    def double(number: int) -> int:
        if number < 0:
            raise forebay.InvalidOptionError("below 0", name="number", value="-1", reason="below")
        return 2 * number

    assert run(spark, [3, 1, 2], double, lambda *at: told.append(at)) == [6, 2, 4]
    assert run(spark, [], double) == []
    assert all(done <= total == 3 for done, total in told)
    with pytest.raises(forebay.InvalidOptionError) as raised:
        run(spark, [1, -1], double)
    assert raised.value.name == "number"


def test_progress_is_reported_while_tasks_run(spark: Any, tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    told: list[tuple[int, int]] = []

    def tell(done: int, total: int) -> None:
        told.append((done, total))
        if done:
            heard.touch()

    def wait(number: int) -> bool:
        # The last task ends once progress has been reported for others.
        deadline = time.monotonic() + 60
        while number == 4 and not heard.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        return heard.exists()

    assert run(spark, [1, 2, 3, 4], wait, tell)[-1]
    assert all(done <= total == 4 for done, total in told)
    assert {done for done, _ in told} & {1, 2, 3}


def test_an_audit_of_an_intact_store_counts_everything(spark: Any, built: Path) -> None:
    found = audit(spark, built)
    with forebay.open(built, mode="r") as opened:
        assert facts(found) == facts(opened.verify())
    assert found.ok
    assert found.queue_entries == 6000
    assert found.index_entries == 3000


def test_an_audit_follows_a_writer(spark: Any, store: Path) -> None:
    with forebay.open(store) as writer:
        writer.send("orders", b"later", key="k")
        writer.flush()
        found = audit(spark, store)
    assert found.ok
    assert found.records == 6001


def test_an_audit_finds_the_damage_that_verify_finds(spark: Any, store: Path) -> None:
    chosen = random.Random(3)
    logs = sorted((store / "commitlog").iterdir())
    # Across the end of a file, within one, and in both kinds of entries.
    damage(logs[0], (1 << 18) - 4000, 4000)
    damage(logs[1], 0, 3000)
    damage(logs[1], 100_000, 1)
    for path in [*(store / "consumequeue").rglob("0000*"), *(store / "index").iterdir()]:
        if chosen.random() < 0.4:
            damage(path, chosen.randrange(0, 4000), chosen.randrange(1, 60))
    found = audit(spark, store)
    with forebay.open(store, mode="r") as opened:
        expected = opened.verify()
    assert facts(found) == facts(expected)
    assert not found.ok
    assert any(place.lost for place in found.damage)


def damage(path: Path, at: int, length: int) -> None:
    """Overwrite bytes of a file with others."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes([0xA5]) * length)


@pytest.mark.parametrize("name", ["broker", "torn-hole", "propcrc"])
def test_an_audit_of_a_rocketmq_directory(spark: Any, tmp_path: Path, name: str) -> None:
    found = audit(spark, unpack(name, tmp_path))
    with forebay.open(tmp_path / name, mode="r") as opened:
        assert facts(found) == facts(opened.verify())


def test_a_rebuild_writes_the_same_bytes_as_dispatch(
    spark: Any, built: Path, tmp_path: Path
) -> None:
    target = tmp_path / "built"
    done = rebuild(spark, built, target)
    assert caches(target) == caches(built)
    assert sorted(path.name for path in target.iterdir()) == ["consumequeue", "index"]
    assert (done.queue_entries, done.index_entries, done.fillers) == (6000, 3000, 0)
    assert not done.replaced
    with pytest.raises(forebay.StoreExistsError):
        rebuild(spark, built, target)
    # Together with the log they are a store.
    store_files.copy(built / "commitlog", target / "commitlog")
    with forebay.open(target, mode="r") as opened:
        assert opened.recovery.queue_entries_rebuilt == 0
        assert facts(opened.verify())["damage"] == []
        assert len(opened.query("orders", "k3", max_messages=1000)) > 10


def test_a_rebuild_replaces_what_is_lost_and_damaged(spark: Any, built: Path, store: Path) -> None:
    shutil.rmtree(store / "index")
    shutil.rmtree(store / "consumequeue" / "bills")
    for path in (store / "consumequeue").rglob("0000*"):
        damage(path, 0, 2000)
    done = rebuild(spark, store)
    assert done.replaced
    assert caches(store) == caches(built)
    assert not any(path.name.startswith("rebuild") for path in store.iterdir())
    with forebay.open(store) as opened:
        assert opened.recovery.records_checked == 0
        assert opened.recovery.queue_entries_rebuilt == 0
        assert opened.verify().ok
        opened.send("orders", b"goes on", key="k", queue=0)
        assert opened.get("orders", 0, 500).body == b"goes on"


def test_a_rebuild_keeps_queues_whose_messages_are_retired(spark: Any, store: Path) -> None:
    # As retention leaves it: the queue's last file stays, and has its next offset.
    lost = store / "consumequeue" / "gone" / "2"
    store_files.copy(store / "consumequeue" / "orders" / "0", lost)
    before = {path.name: path.read_bytes() for path in lost.iterdir()}
    rebuild(spark, store)
    assert {path.name: path.read_bytes() for path in lost.iterdir()} == before


def test_a_rebuild_succeeds_after_an_interrupted_one(spark: Any, built: Path, store: Path) -> None:
    # Between the two renames: the old queues are away, the new ones not yet there.
    (store / "rebuild.old").mkdir()
    (store / "consumequeue").rename(store / "rebuild.old" / "consumequeue")
    (store / "rebuild.new" / "keys").mkdir(parents=True)
    rebuild(spark, store)
    assert caches(store) == caches(built)
    assert not any(path.name.startswith("rebuild") for path in store.iterdir())


def test_a_rebuild_refuses_what_it_cannot_decide(spark: Any, store: Path, tmp_path: Path) -> None:
    with pytest.raises(forebay.StoreNotFoundError):
        rebuild(spark, tmp_path / "nothing", tmp_path / "target")
    with forebay.open(store):
        for target in (None, tmp_path / "other"):
            with pytest.raises(forebay.StoreLockedError) as raised:
                rebuild(spark, store, target)
            assert raised.value.pid == os.getpid()
        halted = store_files.copy(store, tmp_path / "halted")
    with pytest.raises(forebay.UnsupportedError):
        rebuild(spark, halted)
    (store / "forebay.state").unlink()
    with pytest.raises(forebay.ForeignStoreError):
        rebuild(spark, store)
    assert rebuild(spark, store, adopt=True).replaced


def test_figures_are_plain_values(spark: Any, built: Path, tmp_path: Path) -> None:
    found = rebuild(spark, built, tmp_path / "built", index=False)
    assert found._asdict() == dataclasses.asdict(found)
    assert found.index_files == 0
    assert not (tmp_path / "built" / "index").exists()
