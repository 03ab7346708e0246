"""What the disk and the kernel give a log, and what message stores in a Python program cost.

Three groups: ``files`` (ways to write a file), ``socket`` (a file to a socket, by ``sendfile`` and
by a copy) and ``stores`` (Forebay, SQLite and RocksDB as stores of messages of 100 bytes).
Figures are medians of FOREBAY_BENCH_ROUNDS runs (default 3), each of FOREBAY_BENCH_BYTES (default
256 MiB); contestants take turns. RocksDB is measured if ``rocksdict`` is installed.

    python benches/io.py [files] [socket] [stores]
"""

import contextlib
import importlib
import itertools
import mmap
import os
import pathlib
import shutil
import socket
import sqlite3
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator

import forebay

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROUNDS = int(os.environ.get("FOREBAY_BENCH_ROUNDS", "3"))
BYTES = int(os.environ.get("FOREBAY_BENCH_BYTES", str(256 << 20)))
BLOCK = 64 << 10
BODY = b"Z" * 100
BATCH = 1000
MESSAGES = BYTES // 256 // BATCH * BATCH
#: Batches that are durable one by one.
SYNCED = 200

Ways = dict[str, Callable[[pathlib.Path], dict[str, float]]]


@contextlib.contextmanager
def scratch() -> Iterator[pathlib.Path]:
    """Make a folder on the disk of the sources."""
    path = ROOT / "target" / "bench-data" / f"io-{os.getpid()}"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def contest(title: str, ways: Ways) -> None:
    """Run all ways in turn, and print the medians. The first round warms up."""
    figures: dict[str, dict[str, list[float]]] = {}
    for number in range(ROUNDS + 1):
        for name, way in ways.items():
            with scratch() as folder:
                found = way(folder)
            for figure, value in found.items() if number else ():
                figures.setdefault(name, {}).setdefault(figure, []).append(value)
    print(title)
    for name, found in figures.items():
        medians = (f"{key} {statistics.median(all_):>10,.0f}" for key, all_ in found.items())
        print(f"  {name:<28} {'  '.join(medians)}", flush=True)


# --- files ----------------------------------------------------------------------------------------


def timed_write(path: pathlib.Path, flags: int, write: Callable[[int], None]) -> dict[str, float]:
    """Time the writes to a new file, and then the sync."""
    file = os.open(path / "file", os.O_RDWR | os.O_CREAT | flags)
    try:
        began = time.perf_counter()
        write(file)
        written = time.perf_counter() - began
        os.fdatasync(file)
        synced = time.perf_counter() - began
    finally:
        os.close(file)
    return {"MiB/s written": BYTES / written / (1 << 20), "and synced": BYTES / synced / (1 << 20)}


def buffered(file: int) -> None:
    record = BODY * 2
    with open(file, "wb", buffering=BLOCK, closefd=False) as to:
        for _ in range(BYTES // len(record)):
            to.write(record)


def by_pwrite(file: int) -> None:
    block = bytes(BLOCK)
    for at in range(0, BYTES, BLOCK):
        os.pwrite(file, block, at)


def by_pwrite_of_records(file: int) -> None:
    record = BODY * 2
    for at in range(0, BYTES - len(record), len(record)):
        os.pwrite(file, record, at)


def direct(file: int) -> None:
    # A map of no file begins at a page, as O_DIRECT asks.
    block = mmap.mmap(-1, BLOCK)
    for at in range(0, BYTES, BLOCK):
        os.pwrite(file, block, at)


def mapped(file: int) -> None:
    os.posix_fallocate(file, 0, BYTES)
    block = bytes(BLOCK)
    with mmap.mmap(file, BYTES) as to:
        for at in range(0, BYTES, BLOCK):
            to[at : at + BLOCK] = block


def files() -> None:
    ways: list[tuple[str, int, Callable[[int], None]]] = [
        ("buffered, 200 B", 0, buffered),
        ("pwrite, 200 B", 0, by_pwrite_of_records),
        ("pwrite, 64 KiB", 0, by_pwrite),
        ("pwrite, 64 KiB, O_DIRECT", os.O_DIRECT, direct),
        ("map, 64 KiB", 0, mapped),
    ]
    contest(
        "a file is written",
        {
            name: lambda path, flags=flags, write=write: timed_write(path, flags, write)
            for name, flags, write in ways
        },
    )


# --- socket ---------------------------------------------------------------------------------------


def timed_send(path: pathlib.Path, send: Callable[[socket.socket, int], None]) -> dict[str, float]:
    """Time sending a file that is in the page cache to a thread that discards it."""
    with open(path / "file", "wb") as to:
        for _ in range(BYTES // BLOCK):
            to.write(bytes(BLOCK))
    server = socket.create_server(("127.0.0.1", 0))
    ours = socket.create_connection(server.getsockname())
    theirs, _ = server.accept()

    def discard() -> None:
        buffer = bytearray(1 << 20)
        while theirs.recv_into(buffer):
            pass

    reader = threading.Thread(target=discard)
    reader.start()
    file = os.open(path / "file", os.O_RDONLY)
    began, on_cpu = time.perf_counter(), time.thread_time()
    send(ours, file)
    ours.shutdown(socket.SHUT_WR)
    on_cpu = time.thread_time() - on_cpu
    reader.join()
    took = time.perf_counter() - began
    for it in (server, ours, theirs):
        it.close()
    os.close(file)
    return {"MiB/s": BYTES / took / (1 << 20), "ms of the sender": on_cpu * 1e3}


def by_sendfile(to: socket.socket, file: int) -> None:
    at = 0
    while at < BYTES:
        at += os.sendfile(to.fileno(), file, at, 1 << 20)


def by_copy(to: socket.socket, file: int) -> None:
    buffer = memoryview(bytearray(1 << 20))
    while read := os.readv(file, [buffer]):
        to.sendall(buffer[:read])


def sockets() -> None:
    contest(
        "a file in the page cache is sent over loopback",
        {
            "sendfile": lambda path: timed_send(path, by_sendfile),
            "read and send": lambda path: timed_send(path, by_copy),
        },
    )


# --- stores ---------------------------------------------------------------------------------------


class OfForebay:
    """Batches of messages in one queue."""

    def __init__(self, path: pathlib.Path, engine: str) -> None:
        self._store = forebay.open(path / "store", engine=engine, default_queues=1)
        self._producer = self._store.producer("bench", queue=0)
        self._bodies = [BODY] * BATCH

    def put(self, keys: list[str], *, synced: bool) -> None:
        self._producer.send_batch(self._bodies, keys=keys, flush=synced)

    def read(self) -> int:
        offset, count = 0, 0
        while found := self._store.read("bench", 0, offset, max_messages=BATCH):
            count += sum(1 for message in found.messages if message.body)
            offset = found.next_offset
        return count

    def close(self) -> None:
        self._store.close()


class OfSqlite:
    """Rows of a table, a transaction for each batch, in WAL mode."""

    def __init__(self, path: pathlib.Path, *, synced: bool) -> None:
        self._db = sqlite3.connect(path / "db", isolation_level=None)
        self._db.execute("pragma journal_mode=wal")
        # Without a sync at each commit, or with one.
        self._db.execute(f"pragma synchronous={'full' if synced else 'normal'}")
        self._db.execute("create table messages (id integer primary key, key text, body blob)")

    def put(self, keys: list[str], *, synced: bool) -> None:
        del synced  # the connection's
        rows = zip(keys, itertools.repeat(BODY))
        self._db.execute("begin")
        self._db.executemany("insert into messages (key, body) values (?, ?)", rows)
        self._db.execute("commit")

    def read(self) -> int:
        rows = self._db.execute("select key, body from messages order by id")
        return sum(1 for _, body in rows if body)

    def close(self) -> None:
        self._db.close()


class OfRocks:
    """Pairs with rising numbers as keys, a write for each batch."""

    def __init__(self, path: pathlib.Path) -> None:
        self._rocks = importlib.import_module("rocksdict")
        options = self._rocks.Options(raw_mode=True)
        self._db = self._rocks.Rdict(str(path / "db"), options)
        self._next = 0

    def put(self, keys: list[str], *, synced: bool) -> None:
        batch = self._rocks.WriteBatch(raw_mode=True)
        for key in keys:
            batch.put(self._next.to_bytes(8, "big"), key.encode() + BODY)
            self._next += 1
        options = self._rocks.WriteOptions()
        options.sync = synced
        self._db.write(batch, options)

    def read(self) -> int:
        return sum(1 for _, body in self._db.items() if body)

    def close(self) -> None:
        self._db.close()


def timed_store(store: OfForebay | OfSqlite | OfRocks, *, synced: bool) -> dict[str, float]:
    """Time writing batches, and then reading everything."""
    count = SYNCED * BATCH if synced else MESSAGES
    batches = [
        [f"{number:08}" for number in range(start, start + BATCH)]
        for start in range(0, count, BATCH)
    ]
    began = time.perf_counter()
    for keys in batches:
        store.put(keys, synced=synced)
    took = time.perf_counter() - began
    if synced:
        store.close()
        return {"messages/s durable": count / took}
    began = time.perf_counter()
    if store.read() != count:
        raise RuntimeError("messages are missing")
    read = time.perf_counter() - began
    store.close()
    return {"messages/s written": count / took, "read": count / read}


def stores() -> None:
    makers: dict[str, Callable[[pathlib.Path, bool], OfForebay | OfSqlite | OfRocks]] = {
        "commit log": lambda path, _: OfForebay(path, "commitlog"),
        "partition log": lambda path, _: OfForebay(path, "partitionlog"),
        "SQLite": lambda path, synced: OfSqlite(path, synced=synced),
    }
    try:
        importlib.import_module("rocksdict")
        makers["RocksDB"] = lambda path, _: OfRocks(path)
    except ImportError:
        print("RocksDB is left out: pip install rocksdict")
    for synced in (False, True):
        kind = "each synced" if synced else "not synced"
        contest(
            f"batches of {BATCH:,} messages of {len(BODY)} bytes, {kind}",
            {
                name: lambda path, make=make, synced=synced: timed_store(
                    make(path, synced), synced=synced
                )
                for name, make in makers.items()
            },
        )


def main() -> None:
    wanted = sys.argv[1:] or ["files", "socket", "stores"]
    for name, group in (("files", files), ("socket", sockets), ("stores", stores)):
        if name in wanted:
            group()


if __name__ == "__main__":
    main()
