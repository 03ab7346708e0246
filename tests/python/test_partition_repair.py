"""Verification and repair of partition logs: batches, indexes and the tables beside them."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import forebay
from forebay.cli import main

COMPACT = {"cleanup_policy": {"t": "compact"}}
OPTIONS = {
    "engine": "partitionlog",
    "segment_bytes": 16384,
    "index_interval_bytes": 1024,
    "default_queues": 1,
}
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a closed store with several segments, each message in a batch of its own."""
    path = tmp_path_factory.mktemp("whole") / "log"
    with forebay.open(path, **OPTIONS, **COMPACT) as store:
        for number in range(500):
            body, time = b"%d" % number + b"x" * 80, START + timedelta(seconds=number)
            store.send("t", body, key=str(number % 100), timestamp=time)
    return path


@pytest.fixture
def log(whole: Path, tmp_path: Path) -> Path:
    """Copy the store."""
    return shutil.copytree(whole, tmp_path / "log")


def segments(log: Path) -> list[Path]:
    return sorted((log / "t-0").glob("*.log"))


def flip(path: Path, at: int) -> bytes:
    """Damage a byte of a file. Return the damaged contents."""
    content = bytearray(path.read_bytes())
    content[at] ^= 0x55
    path.write_bytes(content)
    return bytes(content)


def files(log: Path, *endings: str) -> dict[str, bytes]:
    found = (path for path in (log / "t-0").iterdir() if path.name.endswith(endings))
    return {path.name: path.read_bytes() for path in found}


def offsets(log: Path) -> list[int]:
    with forebay.open(log, mode="r") as store:
        queue = store.topics["t"].queues[0]
        found, offset = [], queue.min_offset
        while offset < queue.max_offset:
            batch = store.read("t", queue=0, offset=offset, max_messages=100)
            found += [message.offset for message in batch]
            offset = batch.next_offset
        return found


def repair(log: Path) -> forebay.Repair:
    """Repair a damaged store, which the command line then finds intact."""
    assert main(["verify", str(log)]) == 1
    with forebay.open(log) as store:
        result = store.repair()
        assert (result.ok, store.damage, store.verify().damage) == (True, [], [])
        assert store.repair().steps == []
    assert main(["verify", str(log)]) == 0
    return result


@pytest.mark.parametrize("ending", [".index", ".timeindex"])
@pytest.mark.parametrize("segment", [1, -1], ids=["complete", "in-use"])
def test_a_damaged_index_is_damage_and_is_rebuilt_byte_for_byte(log, ending, segment):
    before = files(log, ending)
    path = segments(log)[segment].with_suffix(ending)
    damaged = flip(path, len(before[path.name]) // 2 + 3)
    (step,) = repair(log).steps
    assert (step.path, step.position, step.length) == (str(path), 0, len(damaged))
    assert step.saved == f"{path}.damaged"
    assert Path(step.saved).read_bytes() == damaged
    after = files(log, ending)
    assert {name: after[name] for name in before} == before


def test_entries_of_a_time_index_that_do_not_rise_are_damage(log):
    path = segments(log)[1].with_suffix(".timeindex")
    content = path.read_bytes()
    # Each leads to its batch.
    path.write_bytes(content[12:24] + content[:12] + content[24:])
    with forebay.open(log, mode="r") as store:
        (damage,) = store.verify().damage
    assert (damage.path, damage.position) == (str(path), 12)
    assert "entry 1 of partition t-0 is not after the one before it" in damage.reason


@pytest.mark.parametrize("ending", [".index", ".timeindex"])
def test_a_missing_index_is_rebuilt_by_a_repair_and_after_an_unclean_end(log, ending):
    before = files(log, ".index", ".timeindex")
    path = segments(log)[1].with_suffix(ending)
    path.unlink()
    # No message depends on it.
    assert main(["verify", str(log)]) == 0
    assert main(["repair", str(log)]) == 0
    assert files(log, ".index", ".timeindex") == before
    path.unlink()
    (log / ".kafka_cleanshutdown").unlink()
    forebay.open(log).close()
    assert files(log, ".index", ".timeindex") == before


def test_a_time_index_without_its_last_entries_is_completed_by_a_repair(log):
    path = segments(log)[1].with_suffix(".timeindex")
    content = path.read_bytes()
    path.write_bytes(content[:24])
    assert main(["repair", str(log)]) == 0
    assert path.read_bytes() == content


TABLES = [
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "t-0/leader-epoch-checkpoint",
    "t-0/partition.metadata",
    "forebay.partitionlog",
]


@pytest.mark.parametrize("name", TABLES)
def test_a_damaged_table_is_damage_and_is_saved_and_written_again(log, name):
    with forebay.open(log, **COMPACT) as store:
        store.delete_before("t", {0: 7})
        if name == "cleaner-offset-checkpoint":
            store.compact("t")
    path, before = log / name, offsets(log)
    content = path.read_bytes()
    path.write_bytes(b"\xff\x00garbage")
    with forebay.open(log, mode="r") as store:
        (damage,) = store.verify().damage
        assert (damage.path, damage.position, damage.length) == (str(path), 0, 9)
    (step,) = repair(log).steps
    assert (step.path, step.length) == (str(path), 9)
    assert step.saved == f"{path}.damaged"
    assert Path(step.saved).read_bytes() == b"\xff\x00garbage"
    if name not in ("forebay.partitionlog", "cleaner-offset-checkpoint"):
        assert path.read_bytes() == content
    assert offsets(log) == before
    with forebay.open(log) as store:
        assert store.damage == []
        assert store.send("t", b"more", key="k").offset == 500


def test_deleted_messages_stay_deleted_whatever_becomes_of_the_table_of_first_offsets(log):
    with forebay.open(log) as store:
        store.delete_before("t", {0: 7})
    (log / "log-start-offset-checkpoint").write_bytes(b"0\n1\nt 0")
    assert offsets(log)[0] == 7
    with forebay.open(log) as store:
        (damage,) = store.damage
        assert damage.path.endswith("log-start-offset-checkpoint")
        assert store.topics["t"].queues[0].min_offset == 7
        assert store.send("t", b"more", key="k").offset == 500
        assert store.repair().ok
    assert offsets(log)[0] == 7


def test_opening_saves_a_damaged_table_before_it_writes_it_again(log):
    path = log / "recovery-point-offset-checkpoint"
    path.write_bytes(b"0\n1\nt")
    with forebay.open(log) as store:
        (damage,) = store.damage
        assert damage.path == str(path)
        assert Path(f"{path}.damaged").read_bytes() == b"0\n1\nt"
    with forebay.open(log) as store:
        assert store.damage == []


def test_missing_tables_and_those_that_a_broker_leaves_empty_are_no_damage(log):
    (log / "cleaner-offset-checkpoint").write_bytes(b"")
    (log / "t-0" / "leader-epoch-checkpoint").write_bytes(b"")
    assert main(["verify", str(log)]) == 0
    for name in TABLES:
        (log / name).unlink(missing_ok=True)
    assert main(["verify", str(log)]) == 0


def place(log: Path, offset: int) -> tuple[Path, int, int]:
    """Find the batch of a message: its segment, position and length."""
    path = [it for it in segments(log) if int(it.stem) <= offset][-1]
    content, position = path.read_bytes(), 0
    while int.from_bytes(content[position : position + 8]) < offset:
        position += 12 + int.from_bytes(content[position + 8 : position + 12])
    return path, position, 12 + int.from_bytes(content[position + 8 : position + 12])


# Byte 8 is of the length of the batch, byte 70 of its record. The last message is 499.
@pytest.mark.parametrize(("offset", "at"), [(0, 8), (0, 70), (200, 8), (200, 70), (498, 70)])
def test_a_damaged_batch_is_saved_and_leaves_a_gap(log, tmp_path, offset, at):
    path, position, length = place(log, offset)
    damaged = flip(path, position + at)
    (step,) = repair(log).steps
    assert (step.path, step.position, step.length) == (str(path), position, length)
    assert step.lost == [("t", 0, offset)]
    assert step.saved is not None
    assert Path(step.saved).read_bytes() == damaged[position : position + length]
    assert Path(step.saved).parent == log / "t-0"
    assert path.read_bytes() == damaged[:position] + damaged[position + length :]
    assert offsets(log) == [it for it in range(500) if it != offset]
    with forebay.open(log, **COMPACT) as store:
        assert store.send("t", b"more", key="k").offset == 500
        store.roll()
        assert store.archive(tmp_path / "archive").offsets == {"t-0": 501}
        store.compact("t")
        assert store.damage == []
    done = forebay.convert(log, tmp_path / "converted", engine="commitlog", renumber=True)
    assert done.messages == 101


def test_a_segment_without_a_whole_batch_becomes_empty(log, tmp_path):
    path = segments(log)[1]
    end = int(segments(log)[2].stem)
    path.write_bytes(b"\x07" * path.stat().st_size)
    (step,) = repair(log).steps
    assert step.lost == [("t", 0, it) for it in range(int(path.stem), end)]
    with forebay.open(log, **COMPACT) as store:
        store.roll()
        assert store.archive(tmp_path / "archive").offsets == {"t-0": 500}
        store.compact("t")
        assert store.damage == []
    (log / ".kafka_cleanshutdown").unlink()
    with forebay.open(log) as store:
        assert store.damage == []
        assert store.send("t", b"more", key="k").offset == 500


def test_compaction_that_gave_up_for_a_damaged_batch_continues_after_a_repair(log):
    path, position, _ = place(log, 200)
    flip(path, position + 70)
    with forebay.open(log, **COMPACT) as store:
        store.roll()
        with pytest.raises(forebay.CorruptError):
            store.compact("t")
        assert store.repair().ok
        assert store.compact("t").partitions == 1
        assert store.damage == []
    assert len(offsets(log)) == 100
