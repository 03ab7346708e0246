"""Log directories in Kafka's form, made to exhaust or to mislead the process that opens them.

A reader takes memory and time in proportion to what is on disk, shows every message that is whole,
and says what is wrong with the rest.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kafka_batches as kafka
import pytest
from harness import LONG_S, lacks

import forebay

READ = """
import forebay, json, os, sys
if len(sys.argv) > 2:
    os.setgid(int(sys.argv[2]))
    os.setuid(int(sys.argv[2]))
said = {}
try:
    with forebay.open(sys.argv[1], "r", isolation="read_committed") as store:
        bodies, at = [], 0
        while at < store.topics["t"].queues[0].max_offset:
            batch = store.read("t", 0, at, 1000)
            bodies += [message.body.rstrip(bytes(1)).decode() for message in batch]
            at = batch.next_offset
        said["bodies"] = bodies
        said["by_time"] = store.offset_at("t", 0, 1)
        said["found"] = len(store.query("t", key="nothing"))
        said["damage"] = [damage.reason for damage in store.verify().damage + store.damage]
except (forebay.ForebayError, OSError) as error:
    said["error"] = [type(error).__name__, str(error)]
status = open("/proc/self/status").read()
said["peak"] = int(status.split("VmHWM:")[1].split()[0])
print(json.dumps(said))
"""
#: One and a half times the memory of an interpreter that has read the message of a small store.
PEAK_KIB = 200 << 10


def read(root: Path, *user: str, peak_kib: int = PEAK_KIB) -> dict[str, Any]:
    """Read partition 0 of topic `t` in a process of its own; return its result or error."""
    command = [sys.executable, "-c", READ, str(root), *user]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LONG_S, check=False)
    assert ran.returncode == 0, ran.stderr
    said: dict[str, Any] = json.loads(ran.stdout)
    assert said["peak"] < peak_kib, said
    return said


def one(base: int) -> bytes:
    """Return a batch of one message, whose body is its offset."""
    return kafka.batch(base, [(1, b"k", b"%d" % base, [])])


def sealed(batch: bytes) -> bytes:
    """Return a batch with the checksum of its bytes."""
    return batch[:17] + struct.pack(">I", kafka.crc32c(batch[21:])) + batch[21:]


def changed(batch: bytes, at: int, form: str, value: int) -> bytes:
    """Return a batch with another number in it, and the right checksum."""
    size = struct.calcsize(form)
    return sealed(batch[:at] + struct.pack(form, value) + batch[at + size :])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Partition 0 of topic `t`: offset 0 in the first segment, 10 in the last."""
    return made_in(tmp_path)


def made_in(root: Path) -> Path:
    """Make the partition in a directory."""
    folder = root / "logs" / "t-0"
    folder.mkdir(parents=True)
    log(folder, 0).write_bytes(one(0))
    log(folder, 10).write_bytes(one(10))
    return folder


def log(folder: Path, base: int, ending: str = "log") -> Path:
    """Return the path of a segment's file."""
    return folder / f"{base:020}.{ending}"


#: A record that states lengths and numbers far beyond its bytes.
HUGE = b"\xfe\xff\xff\xff\x0f"


def packed(records: bytes, count: int) -> bytes:
    """Return a batch from offset 1 on with these bytes for its records."""
    empty = one(1)
    head = struct.pack(">qi", 1, 49 + len(records)) + empty[12:57] + struct.pack(">i", count)
    return sealed(head + records)


@pytest.mark.parametrize(
    "batch",
    [
        changed(one(1), 57, ">i", 2**31 - 1),
        changed(one(1), 57, ">i", 0),
        changed(one(1), 23, ">i", 1000),
        changed(one(1), 27, ">q", -(2**63)),
        packed(HUGE, 1),
        packed(b"\x10\x00\x00\x00" + HUGE + b"\x00", 1),
        packed(b"\x14\x00\x00\x00\x01\x01" + HUGE, 1),
        packed(b"\x0c\x00\x00\x00\x01\x01" * 100_000, 100_000),
    ],
    ids=["many", "fewer", "far", "early", "record", "key", "headers", "torn"],
)
def test_numbers_in_a_batch_take_no_memory(folder: Path, batch: bytes) -> None:
    """The batch has the right checksum; the messages around it are read."""
    log(folder, 0).write_bytes(one(0) + batch + one(9))
    said = read(folder.parent)
    assert [said["bodies"][0], said["bodies"][-2:]] == ["0", ["9", "10"]], said
    assert said["found"] == 0, said


def test_a_length_beyond_the_file_ends_a_segment_and_not_the_partition(folder: Path) -> None:
    for length in (2**31 - 1, 2**27 + 1, 61, 14, 0, -1, -(2**31)):
        log(folder, 0).write_bytes(one(0) + struct.pack(">qi", 1, length) + bytes(80))
        said = read(folder.parent)
        assert said["bodies"] == ["0", "10"] and said["damage"], (length, said)


@pytest.mark.parametrize("ending", ["index", "timeindex", "snapshot", "txnindex"])
def test_garbage_beside_a_segment_costs_no_message(folder: Path, ending: str) -> None:
    """Ten megabytes of it; of the kinds that fool a binary search, too."""
    draw = random.Random(ending)
    step = struct.pack(">ii", 0, 1)
    for garbage in (
        draw.randbytes(10 << 20),
        b"\xff" * (10 << 20),
        step * (10 << 17),
        bytes(5 << 20) + b"\x7f" * (5 << 20),
    ):
        for base in (0, 10):
            log(folder, base, ending).write_bytes(garbage)
        said = read(folder.parent)
        assert (said["bodies"], said["by_time"]) == (["0", "10"], 0), said


@pytest.mark.parametrize(
    ("text", "is_damage"),
    [
        (b"0\n3000000\n" + b"".join(b"other%d 0 5\n" % n for n in range(3_000_000)), False),
        (b"0\n1\nt 0 99999999999999999999\n", True),
        (b"0\n1\nt 0 -5\n", True),
        (b"0\n18446744073709551615\nt 0 5\n", True),
        (b"\xff" * (1 << 20), True),
        (b"0\n" * (8 << 20), True),
        (b"", True),
    ],
    ids=["others", "far", "negative", "count", "bytes", "lines", "empty"],
)
def test_a_checkpoint_of_nonsense_hides_no_message(
    folder: Path, text: bytes, is_damage: bool
) -> None:
    (folder.parent / "log-start-offset-checkpoint").write_bytes(text)
    said = read(folder.parent)
    assert (said["bodies"], bool(said["damage"])) == (["0", "10"], is_damage), said


def test_a_hole_of_two_gigabytes_is_passed_over(fast_path: Path) -> None:
    """The file takes a few kilobytes, and the index names a batch at its end.

    A disk's file system would keep all of the hole in memory as it is read.
    """
    folder = made_in(fast_path)
    far = (1 << 31) - 4096
    with open(log(folder, 0), "r+b") as file:
        file.seek(far)
        file.write(one(1))
    log(folder, 0, "index").write_bytes(struct.pack(">ii", 1, far))
    said = read(folder.parent)
    assert said["bodies"] == ["0", "1", "10"] and said["damage"], said


def test_little_that_unpacks_to_much_is_read_a_part_at_a_time(folder: Path) -> None:
    """240 MB of zeros in 240 KB. A reader holds a few of these messages at once."""
    batches = []
    for base in range(1, 61):
        record = kafka.record(0, 0, b"k", b"%d" % base + bytes(4 << 20), [])
        zipped = gzip.compress(record)
        head = struct.pack(">qi", base, 49 + len(zipped)) + one(base)[12:61]
        batches.append(changed(head + zipped, 21, ">h", 1))
    log(folder, 0).write_bytes(one(0) + b"".join(batches))
    log(folder, 10).rename(log(folder, 61))
    log(folder, 61).write_bytes(one(61))
    said = read(folder.parent, peak_kib=400 << 10)
    assert said["bodies"] == [str(number) for number in range(62)], said


def of_fifos(folder: Path) -> None:
    for ending in ("index", "timeindex", "snapshot"):
        os.mkfifo(log(folder, 10, ending))
    os.mkfifo(log(folder, 5))
    os.mkfifo(folder.parent / "log-start-offset-checkpoint")
    os.mkfifo(folder.parent / "u-0")


def of_links(folder: Path) -> None:
    for ending in ("index", "timeindex", "snapshot"):
        log(folder, 10, ending).symlink_to("/dev/zero")
    log(folder, 5).symlink_to("/dev/zero")
    (folder.parent / "log-start-offset-checkpoint").symlink_to("/dev/zero")
    (folder.parent / "u-0").symlink_to(folder)


def of_folders(folder: Path) -> None:
    for ending in ("index", "timeindex", "snapshot"):
        log(folder, 10, ending).mkdir()
    log(folder, 5).mkdir()
    (folder.parent / "log-start-offset-checkpoint").mkdir()


@pytest.mark.parametrize("make", [of_fifos, of_links, of_folders])
def test_what_is_no_file_is_neither_followed_nor_waited_for(
    folder: Path, make: Callable[[Path], None]
) -> None:
    make(folder)
    said = read(folder.parent)
    assert said["bodies"] == ["0", "10"], said


def test_a_partition_that_cannot_be_listed_is_an_error_that_names_it() -> None:
    """It is not taken for an empty one."""
    if os.geteuid() != 0:
        lacks("root", "becoming another user takes root")
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root, "t-0")
        folder.mkdir()
        log(folder, 0).write_bytes(one(0))
        Path(root).chmod(0o755)
        for closed in (folder, log(folder, 0)):
            closed.chmod(0)
            error = read(Path(root), "65534")["error"]
            assert error[0] == "DiskPermissionError" and str(closed) in error[1], error
            closed.chmod(0o755)
        assert read(Path(root), "65534")["bodies"] == ["0"]


@pytest.mark.parametrize("time", [-(2**63), 2**62])
def test_a_time_that_python_has_no_datetime_for_is_there_as_milliseconds(
    tmp_path: Path, time: int
) -> None:
    kafka.write(tmp_path / "t-0", [[(time, None, b"body", [])]])
    with forebay.open(tmp_path, "r") as store:
        message = store.get("t", 0, 0)
        assert (message.body, message.store_timestamp) == (b"body", time)
        with pytest.raises(forebay.UnsupportedError, match="the years 1 to 9999"):
            _ = message.store_time
        assert "Message" in repr(message)
