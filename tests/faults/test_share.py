"""Processes that share a store are killed, and the others go on.

Four processes send to one store and are killed at random moments, also inside an append, and
started again. Two others read. What was acknowledged must be there once, at its place; offsets have
no gaps; the readers see messages in order. One of the processes removes old files and takes up
commits for all; when it is killed, another one goes on.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from harness import LONG_S, PROOF, lacks, seed
from nursery import shim

import forebay
from forebay import _forebay

SEED = seed()
#: Seconds that each kind of flush is tested with a store, and the number of stores. Everything that
#: was sent to a store is compared in memory, so a long run takes several stores.
SECONDS, STORES = (30.0, 20) if PROOF else (3.0, 1)
SENDERS = 4
#: Small files, so that the processes roll often.
SIZES: dict[str, dict[str, Any]] = {
    "commitlog": {
        "commitlog_file_size": 256 << 10,
        "queue_file_entries": 1024,
        "index": False,
        "default_queues": 4,
    },
    "partitionlog": {"engine": "partitionlog", "segment_bytes": 64 << 10, "default_queues": 4},
}
ENGINES = list(SIZES)

#: Sends until it is killed. A line of the journal follows the acknowledgement of its messages.
SENDER = """
import os, sys, forebay
path, flush, name, journal, sizes = sys.argv[1:6]
store = forebay.open(path, mode="share", flush=flush, busy_timeout=60, **eval(sizes))
orders = store.producer("orders")
out = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
number = 0
while True:
    body = f"{name}-{number}".encode()
    if number % 40 == 39:
        orders.send_batch([body + b"-%d" % row for row in range(30)], atomic=number % 80 == 79)
    else:
        sent = orders.send(body + b" " * (number * 37 % 900))
        os.write(out, b"%d %d %d %d\\n" % (number, sent.queue, sent.offset, sent.position))
    number += 1
"""

#: Reads all queues until its input ends; prints the number of messages of each queue.
READER = """
import sys, threading, forebay
path, mode, options = sys.argv[1:4]
store = forebay.open(path, mode=mode, **eval(options))
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
seen = {}
last = False
while True:
    for queue in store.topics["orders"].queues:
        offset = max(seen.get(queue.id, 0), queue.min_offset)
        while messages := store.read("orders", queue=queue.id, offset=offset, max_messages=500):
            for message in messages:
                assert message.offset == offset, (message, offset)
                assert message.body.startswith(b"c"), message
                offset += 1
        seen[queue.id] = offset
    if last:
        break
    last = over.wait(0.01)
print(sorted(seen.items()))
"""


class Herd:
    """The processes that share one store."""

    def __init__(
        self, root: Path, flush: str, draw: random.Random, engine: str, **options: Any
    ) -> None:
        self.path, self.flush, self.draw = root / "store", flush, draw
        self.options = {**SIZES[engine], **options}
        self.journals = root / "journals"
        self.journals.mkdir()
        self.names: list[str] = []
        self.living: dict[str, subprocess.Popen[bytes]] = {}
        self.readers: list[subprocess.Popen[bytes]] = []

    def end(self) -> None:
        """Kill all processes that are left."""
        for process in (*self.living.values(), *self.readers):
            process.kill()
            process.communicate()

    def start(self) -> None:
        """Start a sender."""
        name = f"c{len(self.names)}"
        self.names.append(name)
        journal = str(self.journals / name)
        arguments = [str(self.path), self.flush, name, journal, repr(self.options)]
        self.living[name] = subprocess.Popen(
            [sys.executable, "-c", SENDER, *arguments], stderr=subprocess.PIPE
        )

    def kill(self, name: str) -> None:
        """Kill a sender, which must be alive."""
        sender = self.living.pop(name)
        alive = sender.poll() is None
        sender.send_signal(signal.SIGKILL)
        _, errors = sender.communicate()
        assert alive, errors.decode()

    def acknowledged(self) -> dict[tuple[int, int], tuple[bytes, int]]:
        """Return body and position of each message in a journal, by queue and offset."""
        found: dict[tuple[int, int], tuple[bytes, int]] = {}
        for name in self.names:
            journal = self.journals / name
            if not journal.exists():
                continue
            for line in journal.read_bytes().splitlines(keepends=True):
                if line.endswith(b"\n"):
                    number, queue, offset, position = map(int, line.split())
                    place = (queue, offset)
                    assert place not in found, f"{place} was acknowledged twice"
                    found[place] = (b"%s-%d" % (name.encode(), number), position)
        return found

    def has_enough(self) -> bool:
        """Whether something is acknowledged, and retention, if it is on, has files to remove."""
        acknowledged = self.acknowledged().values()
        if self.options.get("engine") == "partitionlog":
            # Each queue has its retention, and positions are those in a segment.
            return len(acknowledged) * 450 > 4 * 4 * self.options.get("retention_bytes", 0)
        last = max((position for _, position in acknowledged), default=0)
        return last > 4 * self.options.get("retention_bytes", 0)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("flush", "options"),
    [("async", {}), ("sync", {}), ("async", {"retention_bytes": 1 << 20, "disk_reserve": 0})],
    ids=["async", "sync", "retention"],
)
def test_processes_that_share_a_store_outlive_one_another(
    tmp_path: Path, flush: str, options: dict[str, Any], engine: str
):
    if engine == "partitionlog" and "retention_bytes" in options:
        options = {**options, "retention_bytes": options["retention_bytes"] // 8}
    draw = random.Random(f"{SEED} {flush} {options} {engine}")
    processes = messages = 0
    for root in roots(tmp_path):
        herd = Herd(root, flush, draw, engine, **options)
        try:
            outlive_one_another(herd)
        finally:
            herd.end()
        processes += len(herd.names)
        messages += len(herd.acknowledged())
    told = f"{engine}, {flush} {options}: {processes} processes, {messages} messages"
    print(f"FOREBAY_SEED={SEED}, {told}")


def roots(folder: Path) -> Iterator[Path]:
    """Yield a folder for each store, and remove it afterwards."""
    for number in range(STORES):
        root = folder / str(number)
        root.mkdir()
        yield root
        shutil.rmtree(root)


def outlive_one_another(herd: Herd) -> None:
    """Have processes send and read, kill them at random, and check what is in the store."""
    for _ in range(SENDERS):
        herd.start()
    for mode in ("share", "r"):
        read_from(herd, mode)
    end = time.monotonic() + SECONDS
    # On a busy machine most are killed before they send anything.
    while time.monotonic() < end or not herd.has_enough():
        assert time.monotonic() < end + LONG_S, f"seed {SEED}: too little was sent"
        time.sleep(herd.draw.uniform(0.005, 0.25))
        herd.kill(herd.draw.choice(list(herd.living)))
        herd.start()
    for name in list(herd.living):
        herd.kill(name)
    counts = []
    for reader in herd.readers:
        out, errors = reader.communicate(b"")
        assert reader.returncode == 0, f"seed {SEED}: {errors.decode()}"
        counts.append(dict(eval(out)))
    check(herd, counts)


def read_from(herd: Herd, mode: str) -> None:
    """Start a reader once there is something to read."""
    deadline = time.monotonic() + 60
    while not any(herd.journals.iterdir()):
        assert time.monotonic() < deadline, f"seed {SEED}: nothing was sent"
        time.sleep(0.01)
    pipe = subprocess.PIPE
    # It may join while no sender lives; then its options are those of the senders that follow.
    options = herd.options if mode == "share" else {}
    arguments = [sys.executable, "-c", READER, str(herd.path), mode, repr(options)]
    herd.readers.append(subprocess.Popen(arguments, stdin=pipe, stdout=pipe, stderr=pipe))


def removed_from_all(store: forebay.Store) -> bool:
    return all(queue.min_offset > 0 for queue in store.topics["orders"].queues)


def check(herd: Herd, counts: list[dict[int, int]]) -> None:
    """Compare the store with the journals and with what the readers have counted."""
    acknowledged = herd.acknowledged()
    assert acknowledged, f"seed {SEED}"
    if "retention_bytes" in herd.options:
        # The last leader may have died before it came to all queues, and the store does not keep
        # the options of retention.
        with forebay.open(herd.path, mode="share", **herd.options) as store:
            deadline = time.monotonic() + LONG_S
            while not removed_from_all(store):
                assert time.monotonic() < deadline, f"seed {SEED}: nothing was removed"
                time.sleep(0.02)
    with forebay.open(herd.path, mode="share") as store:
        last: dict[int, int] = defaultdict(lambda: -1)
        bodies = set()
        for queue in store.topics["orders"].queues:
            offset = queue.min_offset
            assert (offset > 0) == ("retention_bytes" in herd.options), f"seed {SEED}: {queue}"
            for gone in range(offset):
                acknowledged.pop((queue.id, gone), None)
            while batch := store.read("orders", queue=queue.id, offset=offset, max_messages=1000):
                for message in batch:
                    assert message.offset == offset, f"seed {SEED}: {message}"
                    body = message.body.rstrip()
                    assert body not in bodies, f"seed {SEED}: {body!r} is there twice"
                    bodies.add(body)
                    expected = acknowledged.pop((queue.id, offset), None)
                    assert expected in (None, (body, message.position)), f"seed {SEED}: {message}"
                    offset += 1
            last[queue.id] = offset
        assert not acknowledged, f"seed {SEED}: lost {list(acknowledged.items())[:5]}"
        for count in counts:
            for number, read in count.items():
                assert read <= last[number], f"seed {SEED}: queue {number}"
    rows = defaultdict(set)
    for body in bodies:
        if body.count(b"-") == 2:
            batch_name, _, row = body.rpartition(b"-")
            rows[batch_name].add(row)
    for name, found in rows.items():
        whole = int(name.rpartition(b"-")[2]) % 80 == 79 and "retention_bytes" not in herd.options
        assert not whole or len(found) == 30, f"seed {SEED}: half of {name!r}"
    with forebay.open(herd.path) as store:
        assert store.recovery.clean
        found = store.verify()
        assert found.ok, f"seed {SEED}: {found}"
        if store.engine == "commitlog":
            assert found.records == found.queue_entries, f"seed {SEED}: {found}"


#: Has the store open until it is killed.
MEMBER = """
import sys, forebay
store = forebay.open(sys.argv[1], mode="share", flush=sys.argv[2], default_queues=1, index=False)
print("open", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_commits_are_taken_up_once_while_processes_die(tmp_path: Path, flush: str):
    """Each process takes commits up once those that did before are killed."""
    draw = random.Random(f"{SEED} commits {flush}")
    for root in roots(tmp_path):
        take_commits_up(root / "s", flush, draw)


def take_commits_up(path: Path, flush: str, draw: random.Random) -> None:
    """Publish commits while processes that take them up are killed, and check the log."""
    living: list[subprocess.Popen[str]] = []

    def start() -> None:
        pipe = subprocess.PIPE
        arguments = [sys.executable, "-c", MEMBER, str(path), flush]
        member = subprocess.Popen(arguments, stdin=pipe, stdout=pipe, text=True)
        assert member.stdout and member.stdout.readline() == "open\n", f"seed {SEED}"
        living.append(member)

    for _ in range(3):
        start()
    rows, batch, end = 0, 0, time.monotonic() + SECONDS / 2
    while time.monotonic() < end:
        stager = _forebay.Stager(path, "q", "orders")
        count = draw.choice([1, 20, 3000])
        values = [b"%d" % number + b" " * 2000 for number in range(rows, rows + count)]
        stager.write(pyarrow.record_batch({"value": values}))
        assert _forebay.publish_commit(path, "q", batch, "stream", [stager.finish()])
        rows, batch = rows + count, batch + 1
        time.sleep(draw.uniform(0, 0.1))
        # The first one leads, or the second if the first was just killed.
        victim = living.pop(draw.choice([0, 0, 1]))
        victim.kill()
        victim.communicate()
        start()
    deadline = time.monotonic() + 120
    for number in range(batch):
        while (state := _forebay.wait_for_commit(path, "q", number, 1).state) != "gone":
            assert time.monotonic() < deadline, f"seed {SEED}: batch {number} is {state}"
    for member in living:
        member.communicate("")
        assert member.returncode == 0, f"seed {SEED}"
    with forebay.open(path) as store:
        assert store.recovery.clean
        found = [int(it.body) for it in store.tail("orders", start="earliest", follow=False)]
        assert found == list(range(rows)), f"seed {SEED}: {len(found)} of {rows}"
        assert store.verify().ok


#: Opens a store whose directory seems to lie on a file system of a kind.
ELSEWHERE = """
import ctypes, sys
import forebay
path, kind, mode = sys.argv[1:4]
ctypes.CDLL(None).shim_file_system(path.encode(), ctypes.c_long(int(kind, 16)))
try:
    forebay.open(path, mode=mode).close()
except forebay.UnsupportedError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("kind", "name"), [("6969", "NFS"), ("65735546", "FUSE"), ("fe534d42", "SMB"), ("ef53", "")]
)
def test_file_systems_that_processes_cannot_share_are_refused_by_name(
    tmp_path: Path, kind: str, name: str
):
    made = shim()
    if made is None:
        lacks("cc", "there is no C compiler")
    environment = dict(os.environ, LD_PRELOAD=str(made))
    for mode in ("share", "a"):
        arguments = [sys.executable, "-c", ELSEWHERE, str(tmp_path / "s"), kind, mode]
        done = subprocess.run(
            arguments, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        refused = bool(name) and mode == "share"
        assert (f'mode="share" on {name}' in done.stdout) == refused, done.stdout


#: Opens a store where the kernel does not know the locks that processes need.
WITHOUT_LOCKS = """
import ctypes, sys
import forebay
path, error, mode = sys.argv[1:4]
ctypes.CDLL(None).shim_no_ofd_locks(int(error))
try:
    forebay.open(path, mode=mode).close()
except forebay.UnsupportedError as error:
    print(error)
"""


@pytest.mark.parametrize("error", [errno.EINVAL, errno.ENOSYS])
def test_a_kernel_without_the_locks_that_processes_need_is_refused_by_name(
    tmp_path: Path, error: int
):
    made = shim()
    if made is None:
        lacks("cc", "there is no C compiler")
    environment = dict(os.environ, LD_PRELOAD=str(made))
    arguments = [sys.executable, "-c", WITHOUT_LOCKS, str(tmp_path / "s"), str(error), "share"]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert 'mode="share"' in done.stdout
    assert "F_OFD_SETLK" in done.stdout


class Told(Herd):
    """A store that the test itself writes, with journals that it makes up."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, "async", random.Random(SEED), "commitlog")
        self.names.append("c0")
        self.store = forebay.open(self.path, mode="share", **self.options)
        self.orders = self.store.producer("orders", queue=0)
        for number in range(3):
            self.send(number)
        self.batch(range(30))

    def send(self, number: int) -> None:
        """Send as a sender does, and note it."""
        sent = self.orders.send(b"c0-%d" % number)
        self.note(number, sent.offset, sent.position)

    def batch(self, rows: range) -> None:
        """Send rows of a batch that must be all there or not at all."""
        self.orders.send_batch([b"c0-79-%d" % row for row in rows])

    def note(self, number: int, offset: int, position: int) -> None:
        with (self.journals / "c0").open("a") as journal:
            journal.write(f"{number} 0 {offset} {position}\n")

    def check(self, read: int = 0) -> None:
        """Check the journals, and that a reader has counted so many messages."""
        self.store.close()
        check(self, [{0: read}])


def lose(told: Told) -> None:
    told.note(3, 33, 1 << 16)


def misplace(told: Told) -> None:
    sent = told.orders.send(b"c0-3")
    told.note(3, sent.offset, sent.position + 8)


def confuse(told: Told) -> None:
    sent = told.orders.send(b"c0-4")
    told.note(3, sent.offset, sent.position)


def double(told: Told) -> None:
    told.orders.send(b"c0-1")


def acknowledge_twice(told: Told) -> None:
    told.note(9, 0, 0)


def halve(told: Told) -> None:
    told.orders.send_batch([b"c0-159-%d" % row for row in range(15)])


@pytest.mark.parametrize(
    ("tell", "complaint"),
    [
        (lose, "lost"),
        (misplace, "position"),
        (confuse, "c0-4"),
        (double, "is there twice"),
        (acknowledge_twice, "was acknowledged twice"),
        (halve, "half of b'c0-159'"),
    ],
)
def test_the_check_refuses_what_breaks_the_law(
    tmp_path: Path, tell: Callable[[Told], None], complaint: str
):
    told = Told(tmp_path)
    tell(told)
    with pytest.raises(AssertionError, match=complaint):
        told.check()


def test_the_check_accepts_the_truth_and_no_reader_that_saw_more(tmp_path: Path):
    told = Told(tmp_path)
    told.check(read=33)
    with pytest.raises(AssertionError, match="queue 0"):
        told.check(read=34)
