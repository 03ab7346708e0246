"""Makes golden stores with a release of Forebay: its files, and the acknowledged messages.

It runs with the package of that release, and needs a C compiler:

    release=<checkout of the release, with its extension>
    PYTHONPATH=$release/python:tests/support python tests/golden/generate.py <folder>
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, TextIO

import child
import nursery
import pyarrow as pa
import store_files

import forebay
from forebay import _forebay

#: Files so small that a few hundred messages fill several of each kind.
OPTIONS: dict[str, Any] = {
    "commitlog_file_size": 16 << 10,
    "queue_file_entries": 32,
    "index_slots": 32,
    "index_entries": 128,
    "default_queues": 2,
    "max_message_size": 8 << 10,
    "disk_reserve": 0,
}
RETAINING = {**OPTIONS, "retention_bytes": 48 << 10, "queue_flush_interval": 0.05}
#: Nothing becomes durable unless a caller waits for it.
LAZY = {
    **OPTIONS,
    **dict.fromkeys(("flush_interval", "flush_thorough_interval", "queue_flush_interval"), 3600.0),
}
TOPICS = ("orders", "bills", "rare")
ROWS = 5
STAGED = 10

Row = dict[str, Any]
Say = Callable[[list[Row]], None]


def properties_of(number: int) -> dict[str, str]:
    """Return properties; those of an atomic batch include its number."""
    if number % 6 == 5:
        return {"batch": str(number)} if number % 4 == 1 else {}
    return {"n\u00fcmero": str(number)} if number % 2 else {}


def rows_of(number: int, offsets: list[int], topic: str, queue: int) -> list[Row]:
    """Describe the messages of one step: a single one, or the rows of a batch."""
    return [
        {
            "topic": topic,
            "queue": queue,
            "offset": offset,
            "body": f"{number}.{row} " * (1 + number * 7 % 40),
            "key": f"k{number}.{row}",
            "tags": ("paid", None, "l\u00e4nger")[number % 3],
            "properties": properties_of(number),
        }
        for row, offset in enumerate(offsets)
    ]


def step(store: forebay.Store, number: int, say: Say) -> None:
    """Send a message or a batch, and report what was acknowledged."""
    topic, queue = TOPICS[number % 7 % 3], number % 2
    one = number % 6 != 5
    rows = rows_of(number, [0] * (1 if one else ROWS), topic, queue)
    if one:
        first = rows[0]
        words = {name: first[name] for name in ("key", "tags", "properties")}
        body = first["body"].encode()
        offsets = [
            store.send(topic, body, queue=queue, flush=number % 4 == 0 or None, **words).offset
        ]
    else:
        words = {
            "keys": [row["key"] for row in rows],
            "tags": [row["tags"] for row in rows],
            "properties": [row["properties"] for row in rows],
        }
        bodies = [row["body"].encode() for row in rows]
        producer = store.producer(topic, queue)
        offsets = list(
            producer.send_batch(bodies, atomic="batch" in rows[0]["properties"], **words).ranges[
                queue
            ]
        )
    say(rows_of(number, offsets, topic, queue))


def live(root: Path, options: dict[str, Any], steps: int, end: str, *, first: int = 0) -> list[Row]:
    """Let a process write: it is killed in the middle, closes the store, or dies by itself."""
    numbers = count(first) if end == "killed" else range(first, first + steps)
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        with os.fdopen(writer, "w") as pipe:
            write(root, options, numbers, pipe, end)
    os.close(writer)
    told: list[Row] = []
    with os.fdopen(reader) as pipe:
        for number, line in enumerate(pipe):
            if line.endswith("\n"):
                told += json.loads(line)
            if end == "killed" and number == steps:
                os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == (0 if end == "closed" else -signal.SIGKILL)
    return told


def write(
    root: Path, options: dict[str, Any], numbers: Iterable[int], pipe: TextIO, end: str
) -> None:
    def say(rows: list[Row]) -> None:
        pipe.write(json.dumps(rows) + "\n")
        pipe.flush()

    store = forebay.open(root, **options)
    for number in numbers:
        step(store, number, say)
    while "retention_bytes" in options and not store.topics["orders"].queues[0].min_offset:
        pass
    if end == "closed":
        store.close()
        os._exit(0)
    # The index leads to the last message.
    while (stats := store.stats()).dispatched < stats.published:
        pass
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def copy_of(root: Path) -> Iterator[forebay.Store]:
    """Open a copy of a store, so that the store itself is not changed."""
    with tempfile.TemporaryDirectory() as folder:
        copy = store_files.copy(root, Path(folder) / "copy")
        with forebay.open(copy, "r") as store:
            yield store


def kept(root: Path, told: list[Row]) -> list[Row]:
    """Omit messages that retention deleted; the release itself returns all others."""
    with copy_of(root) as store:
        low = {(t, q.id): q.min_offset for t in store.topics for q in store.topics[t].queues}
        rows = [row for row in told if row["offset"] >= low[row["topic"], row["queue"]]]
        for row in rows:
            found = store.get(row["topic"], row["queue"], row["offset"])
            assert found.body == row["body"].encode()
    return rows


def last_of(root: Path, row: Row) -> tuple[int, int]:
    """Return position and size of a message."""
    with copy_of(root) as store:
        found = store.get(row["topic"], row["queue"], row["offset"])
        return found.position, found.size


def zero(root: Path, start: int, end: int) -> None:
    """Overwrite bytes of the log, all in one file."""
    length = OPTIONS["commitlog_file_size"]
    with open(root / "commitlog" / f"{start // length * length:020}", "r+b") as file:
        file.seek(start % length)
        file.write(bytes(end - start))


def closed(root: Path) -> list[Row]:
    """Close a store, then stage a commit of Spark that no process appends."""
    rows = kept(root, live(root, RETAINING, 400, "closed"))
    stager = _forebay.Stager(str(root), "query", "staged")
    bodies = pa.array([b"staged %d" % number for number in range(STAGED)], pa.binary())
    stager.write(pa.record_batch({"value": bodies}))
    staged = stager.finish()
    stager.close()
    assert _forebay.publish_commit(str(root), "query", 0, "stream", [staged])
    return rows


def killed(root: Path, flush: str = "async") -> list[Row]:
    """Kill a process while it writes a store that was closed cleanly before."""
    options = {**RETAINING, "flush": flush}
    rows = live(root, options, 300, "closed")
    return kept(root, rows + live(root, options, 200, "killed", first=300))


def killed_sync(root: Path) -> list[Row]:
    return killed(root, "sync")


def unsettled(root: Path) -> list[Row]:
    """Kill a process that never made queues and index durable."""
    return live(root, {**LAZY, "flush": "sync"}, 200, "killed")


def torn(root: Path) -> list[Row]:
    """Remove half of the last message, as a power loss may: it was not durable yet."""
    *rows, last = live(root, LAZY, 204, "dead")
    position, size = last_of(root, last)
    zero(root, position + size // 2, position + size)
    return rows


def repairing(root: Path) -> list[Row]:
    """Kill a repair that has filled a hole in the log, but not yet marked the queue entry."""
    rows = live(root, OPTIONS, 200, "closed")
    position, size = last_of(root, rows[100])
    zero(root, position + 90, position + size)
    environment = os.environ | {"LD_PRELOAD": str(nursery.shim())}
    died = subprocess.run([sys.executable, __file__, "repair", str(root)], env=environment)
    assert died.returncode == -signal.SIGKILL, died
    return rows[:100] + rows[101:]


def repair(root: str) -> None:
    store = forebay.open(root)
    child.arm({"call": "rename", "action": "kill after", "at": 1, "below": root})
    store.repair()


def pack(root: Path, rows: list[Row], folder: Path) -> None:
    """Save a store and its list; equal files give equal archives."""
    with gzip.GzipFile(folder / f"{root.name}.jsonl.gz", "wb", mtime=0) as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows).encode())
    with (
        gzip.GzipFile(folder / f"{root.name}.tar.gz", "wb", mtime=0) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        archive.add(root, root.name)


def main(folder: Path) -> None:
    scratch = Path(tempfile.mkdtemp())
    for make in (closed, killed, killed_sync, unsettled, torn, repairing):
        root = scratch / make.__name__.replace("_", "-")
        rows = make(root)
        pack(root, rows, folder)
        print(root.name, len(rows), "messages")
    shutil.rmtree(scratch)


if __name__ == "__main__":
    if sys.argv[1] == "repair":
        repair(sys.argv[2])
    else:
        main(Path(sys.argv[1]))
