"""Directories made to exhaust the process that opens them.

Memory and time are proportional to the bytes of a directory on disk, whatever numbers its files
contain: a number beyond its bound is refused by name.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import LONG_S, lacks

import forebay

OPEN = """
import forebay, json, resource, sys
said = {}
try:
    store = forebay.open(sys.argv[1], sys.argv[2], adopt=sys.argv[2] == "a")
    said["topics"] = len(store.topics)
    said["read"] = sum(len(store.read(t, q.id, q.min_offset).messages)
        for t in list(store.topics)[:5] for q in store.topics[t].queues if q.max_offset)
    said["found"] = len(store.query("t0", key="nothing"))
    store.close()
except forebay.ForebayError as error:
    said["error"] = [type(error).__name__, str(error)]
# The resource usage includes the process before it ran this.
status = open("/proc/self/status").read()
said["peak"] = int(status.split("VmHWM:")[1].split()[0])
used = resource.getrusage(resource.RUSAGE_SELF)
said["cpu"] = used.ru_utime + used.ru_stime
print(json.dumps(said))
"""
#: Seconds of processor time, however long a busy machine takes: these attacks took up to 55 s.
CPU_S = 20.0
#: More memory than an interpreter with a store needs, and less than these attacks took.
PEAK_KIB = 200 << 10
SMALL = {"commitlog_file_size": 1 << 20, "index_slots": 64, "index_entries": 256}


def opened(root: Path, mode: str = "r") -> dict[str, Any]:
    """Open a store in a separate process, within bounds; return its result, and what it used."""
    command = [sys.executable, "-c", OPEN, str(root), mode]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LONG_S, check=False)
    assert ran.returncode == 0, ran.stderr
    said: dict[str, Any] = json.loads(ran.stdout)
    assert said["peak"] < PEAK_KIB and said["cpu"] < CPU_S, said
    return said


def record(topic: bytes, queue: int, offset: int, position: int) -> bytes:
    """Return a record in the form of RocketMQ 4."""
    host, now = bytes([127, 0, 0, 1, 0, 0, 0, 0]), 1_800_000_000_000
    head = (
        zlib.crc32(b"x") & 0x7FFFFFFF,
        queue,
        0,
        offset,
        position,
        0,
        now,
        host,
        now,
        host,
        0,
        0,
    )
    rest = struct.pack(">IIiiqqiq8sq8siq", 0xDAA320A7, *head)
    rest += struct.pack(">ic", 1, b"x")
    rest += bytes([len(topic)]) + topic + bytes(2)
    return struct.pack(">I", len(rest) + 4) + rest


def foreign(root: Path, places: list[tuple[bytes, int, int]], start: int = 0) -> None:
    """Create a broker's log of one file, with a record at each topic, queue and offset."""
    log = b""
    for topic, queue, offset in places:
        log += record(topic, queue, offset, start + len(log))
    (root / "commitlog").mkdir(parents=True)
    with open(root / "commitlog" / f"{start:020}", "wb") as file:
        file.write(log)
        file.truncate(16 << 20)


@pytest.mark.parametrize("mode", ["r", "a"])
def test_the_number_of_a_queue_takes_no_memory(tmp_path: Path, mode: str) -> None:
    """A table indexed by number would take 50 MiB for each record of 94 bytes."""
    root = tmp_path / "store"
    foreign(root, [(b"t%d" % topic, (1 << 20) - 1, 0) for topic in range(200)])
    said = opened(root, mode)
    assert (said.get("topics"), said.get("read")) == (200, 5), said


def test_the_offsets_of_a_queue_take_no_memory(tmp_path: Path) -> None:
    """Each queue begins at the end of a file, and then jumps by 60 million."""
    root = tmp_path / "store"
    far = [299_999, 60_000_000, 60_000_001]
    places = [(b"t%d" % topic, 0, offset) for topic in range(100) for offset in far]
    foreign(root, places, start=16 << 20)
    assert opened(root)["topics"] == 100


def nest(megabytes: int) -> bytes:
    return b'{"x":[' + b"[]," * (megabytes * (1 << 20) // 3) + b"0]}"


def many(megabytes: int) -> bytes:
    return b'{"x":[' + b"0," * (megabytes * (1 << 19)) + b"0]}"


def members(megabytes: int) -> bytes:
    names = (b'"%d":0,' % number for number in range(megabytes * (1 << 20) // 11))
    return b"{" + b"".join(names) + b'"z":0}'


def topics(table: bytes) -> bytes:
    return b'{"topicConfigTable":' + table + b"}"


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: nest(24), None),
        (lambda: many(24), None),
        (lambda: b"[" * (24 << 20), None),
        (lambda: b'{"x":' + b"[" * (12 << 20) + b"]" * (12 << 20) + b"}", None),
        (lambda: members(24), "more than 1024 members"),
        (lambda: topics(b'{"t0":' + members(24) + b"}"), None),
        (lambda: topics(members(16)), "more than 1048576 topics"),
    ],
    ids=["nest", "many", "deep", "deeper", "members", "entry", "topics"],
)
def test_a_table_of_topics_is_never_a_tree(
    tmp_path: Path, make: Callable[[], bytes], error: str | None
) -> None:
    """A careless reader would turn 250 MiB of text into 9 GiB of memory."""
    root = tmp_path / "store"
    with forebay.open(root, **SMALL) as store:
        store.send("t0", b"x")
    (root / "config" / "topics.json").write_bytes(make())
    said = opened(root)
    if error is None:
        assert "error" not in said and said["topics"] == 1, said
    else:
        assert said["error"][0] == "CorruptError" and error in said["error"][1], said


def test_a_table_that_is_too_long_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "store"
    forebay.open(root, **SMALL).close()
    with open(root / "config" / "topics.json", "wb") as file:
        file.truncate((256 << 20) + 1)
    said = opened(root)
    assert said["error"][0] == "CorruptError" and "limit" in said["error"][1], said


def header(count: int) -> bytes:
    return struct.pack(">qqqqii", 1, 1, 0, 5, 3, count)


def of_no_geometry(file: Path) -> None:
    """Give the file a length for which any guess at its slots must scan all its pages."""
    file.write_bytes(header(3))
    os.truncate(file, (1 << 32) - 16)


def of_holes(file: Path) -> None:
    """Make the header claim 200 million entries, although there are none."""
    slots, entries = 5_000_000, 200_000_000
    file.write_bytes(header(entries))
    os.truncate(file, 40 + 4 * slots + 20 * entries)


@pytest.mark.parametrize("make", [of_no_geometry, of_holes])
@pytest.mark.parametrize("mode", ["r", "a"])
def test_an_index_takes_no_more_memory_than_on_disk(
    tmp_path: Path, make: Callable[[Path], None], mode: str
) -> None:
    root = tmp_path / "store"
    with forebay.open(root, **SMALL) as store:
        store.send("t0", b"x", key="k")
    for file in (root / "index").iterdir():
        file.unlink()
    for number in range(4):
        make(root / "index" / f"2026010100000{number:04}")
    said = opened(root, mode)
    assert said.get("read") == 1, said


#: Opens stores as a user who may traverse the directory above them, but not list it.
AS_NOBODY = """
import forebay, os, sys
os.setgid(65534)
os.setuid(65534)
for name in ("own", "own/store"):
    with forebay.open(os.path.join(sys.argv[1], name)) as store:
        store.send("t", b"x")
        print(store.topics["t"].name)
"""


def test_a_directory_above_the_store_need_not_be_readable() -> None:
    """/home and /var/lib often have such modes. Only what was created is synced."""
    if os.geteuid() != 0:
        lacks("root", "becoming another user takes root")
    # Directories that pytest creates are closed to other users.
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder, "own")
        own.mkdir(mode=0o700)
        os.chown(own, 65534, 65534)
        Path(folder).chmod(0o711)
        command = [sys.executable, "-c", AS_NOBODY, folder]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=LONG_S, check=False)
    assert (ran.stdout, ran.returncode) == ("t\nt\n", 0), ran.stderr
