"""The processes under test: one writes until it ends or is killed, one checks.

This process imports everything once and then forks for each task, which takes a few milliseconds
instead of a few hundred. Tasks arrive over the socket that is its standard input, each with a pipe
for the child's output; the child's exit status is sent back.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import functools
import glob
import importlib
import json
import os
import pickle
import random
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import law
import pyarrow as pa
from law import Acknowledged, Fact

import forebay

#: Kinds of calls, in the order of the C file that makes them fail.
CALLS = (
    *("open", "fsync", "msync", "mmap", "fallocate", "ftruncate", "pwrite", "pread"),
    *("rename", "unlink", "mkdir", "syncfs", "opendir", "fchmod", "linkat", "stat"),
    *("thread", "readdir", "lseek", "lock"),
)
ACTIONS = ("pass", "fail", "kill before", "kill after", "lie")
TOPICS = ("orders", "bills", "rare")

_say_lock = threading.Lock()


def say(*lines: str) -> None:
    """Write lines unbuffered: the process may die after any call."""
    with _say_lock:
        data = "".join(line + "\n" for line in lines).encode()
        while data:
            data = data[os.write(1, data) :]


class Sender:
    """Sends messages that identify themselves, and reports which were acknowledged."""

    def __init__(
        self, store: forebay.Store, life: int, number: int, seed: int, patient: bool
    ) -> None:
        self.store, self.life, self.sender = store, life, number
        self.random = random.Random(f"{seed}.{life}.{number}")
        self.next = 0
        self.groups = 0
        self.patient = patient
        self.topics = TOPICS
        self.told: list[Acknowledged] = []

    def draft(self, group: int = -1, row: int = 0, rows: int = 1) -> tuple[Fact, bytes]:
        fact = Fact(self.life, self.sender, self.next, group, row, rows)
        self.next += 1
        size = self.random.choice((0, 20, 100, 400, 3_000))
        return fact, law.body_of(fact, size)

    def acknowledge(
        self, topic: str, queue: int, offset: int, fact: Fact, body: bytes, position: int = -1
    ) -> str:
        crc, key = int(body[:8], 16), law.key_of(fact)
        self.told.append(Acknowledged(topic, queue, offset, crc, key, position))
        return self.told[-1].line()

    def one(self, *, flush: bool | None = None) -> None:
        topic = self.random.choice(self.topics)
        fact, body = self.draft()
        queue = self.random.choice((None, 0, 1))
        key = law.key_of(fact)
        sent = self.store.send(topic, body, key=key, queue=queue, flush=flush)
        say(self.acknowledge(topic, sent.queue, sent.offset, fact, body, sent.position))

    def flushed(self) -> None:
        self.one(flush=True)

    def unwaited(self) -> None:
        topic = self.random.choice(self.topics)
        drafts = [self.draft() for _ in range(8)]
        producer = self.store.producer(topic)
        sent = [producer.send_nowait(body, key=law.key_of(fact)) for fact, body in drafts]
        for (fact, body), ticket in zip(drafts, sent, strict=True):
            result = ticket.result(30)
            place = (result.queue, result.offset)
            say(self.acknowledge(topic, *place, fact, body, result.position))

    def _many(self, atomic: bool, send: Callable[..., forebay.BatchResult]) -> None:
        topic, queue = self.random.choice(self.topics), self.random.randrange(2)
        rows = self.random.randrange(1, 25)
        group = self.groups if atomic else -1
        self.groups += 1
        drafts = [self.draft(group, row, rows) for row in range(rows)]
        result = send(topic, queue, drafts)
        offsets = result.ranges[queue]
        say(
            *(
                self.acknowledge(topic, queue, offset, fact, body)
                for offset, (fact, body) in zip(offsets, drafts, strict=True)
            )
        )

    def batch(self, *, atomic: bool = False) -> None:
        def send(topic: str, queue: int, drafts: list[tuple[Fact, bytes]]) -> forebay.BatchResult:
            return self.store.producer(topic, queue).send_batch(
                [body for _, body in drafts],
                keys=[law.key_of(fact) for fact, _ in drafts],
                atomic=atomic,
            )

        self._many(atomic, send)

    def atomic(self) -> None:
        self.batch(atomic=True)

    def arrow(self) -> None:
        atomic = self.random.random() < 0.5

        def send(topic: str, queue: int, drafts: list[tuple[Fact, bytes]]) -> forebay.BatchResult:
            table = pa.table(
                {
                    "body": pa.array([body for _, body in drafts], pa.binary()),
                    "key": [law.key_of(fact) for fact, _ in drafts],
                }
            )
            return self.store.producer(topic, queue).send_arrow(table, atomic=atomic)

        self._many(atomic, send)

    def mixed(self) -> None:
        kinds = (self.one, self.one, self.flushed, self.unwaited, self.batch, self.atomic)
        self.random.choice((*kinds, self.arrow))()

    def run(self, way: str, count: int) -> None:
        """Send ``count`` messages in one way. Report an error of Forebay, and try the next."""
        send = getattr(self, way)
        for _ in range(count):
            try:
                send()
            except forebay.ForebayError as error:
                if not self.patient:
                    raise
                say(f"error {type(error).__name__} {error}")


def arm(plan: dict[str, Any] | None) -> Callable[[str], int]:
    """Set up the fault library; return a function that counts the calls made."""
    if plan is None:
        return lambda _call: 0
    shim = ctypes.CDLL(os.environ["LD_PRELOAD"])
    if "per_million" in plan:
        haze = (ctypes.c_long(plan["per_million"]), ctypes.c_ulong(plan["seed"]))
        shim.shim_haze(plan["below"].encode(), *haze)
        return lambda name: int(shim.shim_count(CALLS.index(name)))
    call = CALLS.index(plan["call"])
    action = ACTIONS.index(plan["action"])
    at, forever, error = plan["at"], int(plan.get("forever", False)), plan.get("errno", 5)
    below = plan["below"].encode()
    shim.shim_arm(below, call, action, ctypes.c_long(at), forever, error)
    return lambda name: int(shim.shim_count(CALLS.index(name)))


def attempt(doing: Callable[[], object]) -> None:
    """Do something that an error of Forebay may end."""
    try:
        doing()
    except forebay.ForebayError as error:
        say(f"error {type(error).__name__} {error}")


def read(store: forebay.Store, told: list[Acknowledged]) -> None:
    """Read acknowledged messages in the process that sent them. Errors may end it, gaps must not.

    A message may be unreadable if its queue and index entries met a full or failing disk.
    """
    stats = store.stats()
    if stats.dispatched < stats.published:
        say("behind in reading")
        return
    for it in told:
        message = store.get(it.topic, it.queue, it.offset)
        if int(message.body[:8], 16) != it.crc:
            say(f"wrong (writing) replaced by another message: {it.line()}")
        # Without an index a query reads all of the topic.
        if store.engine != "partitionlog" and not store.query(it.topic, it.key):
            say(f"wrong (writing) no longer found by its key: {it.line()}")


def recover(store: forebay.Store, sender: Sender) -> None:
    """Check a store after a transient error: it must send and read again."""
    for last in (False, True):
        try:
            sender.one(flush=True)
            store.flush()
            it = sender.told[-1]
            if int(store.get(it.topic, it.queue, it.offset).body[:8], 16) != it.crc:
                say(f"wrong (again) replaced by another message: {it.line()}")
        except forebay.ForebayError as error:
            # The first send may be the one that meets the error.
            say(f"{'wrong (again)' if last else 'error'} {type(error).__name__} {error}")
        else:
            return


def write(task: dict[str, Any]) -> None:
    """Open, send, flush, close. With ``patient`` errors are reported, else they end the process.

    With ``dies`` the process is killed instead of a close; everything is flushed and dispatched
    by then.
    """
    counted = arm(task.get("plan"))
    patient = task.get("patient", False)
    store = None
    try:
        store = forebay.open(task["root"], **task["options"])
    except forebay.ForebayError as error:
        if not patient:
            raise
        say(f"error {type(error).__name__} {error}")
    if store is not None:
        say("ready")
        life, seed, way, count = task["life"], task["seed"], task["way"], task["count"]
        senders = [Sender(store, life, n, seed, patient) for n in range(task.get("senders", 1))]
        if task.get("sparse"):
            for one in senders:
                one.topics = tuple(f"topic-{number}" for number in range(task["sparse"]))
        threads = [threading.Thread(target=one.run, args=(way, count)) for one in senders[1:]]
        for thread in threads:
            thread.start()
        senders[0].run(way, count)
        for thread in threads:
            thread.join()
        told = [it for sender in senders for it in sender.told]
        if task.get("passes"):
            recover(store, senders[0])
        if task.get("dies"):
            attempt(store.flush)
            attempt(lambda: read(store, told))
            os.kill(os.getpid(), signal.SIGKILL)
        for doing in (store.flush, lambda: read(store, told), store.verify, store.close):
            if patient:
                attempt(doing)
            else:
                doing()
    counts = {name: counted(name) for name in CALLS}
    say("calls " + json.dumps(counts))


def begin(task: dict[str, Any]) -> None:
    """Open a store, which may fail; none of its threads goes on. Then open it again."""
    counted = arm(task["plan"])
    with contextlib.suppress(forebay.ForebayError):
        forebay.open(task["root"], **task["options"]).close()
    say("calls " + json.dumps({name: counted(name) for name in CALLS}))
    names = [Path(file).read_text().strip() for file in glob.glob("/proc/self/task/*/comm")]
    say(*(f"wrong: {name} goes on" for name in names if name.startswith("forebay")))
    arm({**task["plan"], "action": "pass"})
    with forebay.open(task["root"], **task["options"]) as store:
        store.send("orders", b"again", key="k")


def fill(task: dict[str, Any]) -> None:
    """Send until the disk is full, free some of it and send on; then close, or die."""
    ballast = Path(task["ballast"])
    store = forebay.open(task["root"], **task["options"])
    say("ready")
    sender = Sender(store, 0, 0, task["seed"], patient=False)
    refused = 0
    while refused < 5:
        try:
            getattr(sender, task["way"])()
        except forebay.DiskFullError:
            # A shorter message may still fit, but at the end none does.
            refused += 1
    say(f"records {store.verify().records}")
    read(store, sender.told)
    ballast.unlink()
    for _ in range(3):
        sender.one()
    say("room again")
    if task["settled"]:
        # Queues and index catch up with the log when they are read.
        assert store.topics
        stats = store.stats()
        assert stats.dispatched == stats.published, stats
    read(store, sender.told)
    if task["end"] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    store.close()


def commit(task: dict[str, Any]) -> None:
    """Commit stages, or process a commit, until a call ends the process."""
    from forebay import _forebay
    from forebay.spark.sink import _commit
    from forebay.spark.write import WriteOptions

    path, batch = task["path"], task["batch"]
    staged = [pickle.loads(bytes.fromhex(one)) for one in task["staged"]]
    store = forebay.open(path) if task["opened"] else None
    arm(task["plan"])
    if store is None:
        _commit(WriteOptions(path), "stream", "q", batch, staged)
    else:
        _forebay.publish_commit(path, "q", batch, "stream", staged)
        _forebay.take_commits(store)
    say("ready")


def exhaust(path: Path) -> None:
    """Fill the rest of a file system."""
    with open(path, "ab", buffering=0) as file:
        for size in (1 << 16, 1 << 10, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))


def look(store: forebay.Store, task: dict[str, Any], mode: str, told: list[Acknowledged]) -> None:
    """Check an open store against the law."""
    law_says = law.check(store, told, gapless=task["gapless"], seed=task["seed"])
    say(*(f"wrong ({mode}) {what}" for what in law_says[:20]))
    say(f"records {store.verify().records}")


def examine(task: dict[str, Any], mode: str, told: list[Acknowledged]) -> None:
    """Open a store in a mode and check it. With ``passes`` it is checked again after an error."""
    with forebay.open(task["root"], mode, **task["options"]) as store:
        try:
            look(store, task, mode, told)
        except forebay.ForebayError as error:
            if not task.get("passes"):
                raise
            say(f"error {type(error).__name__} {error}")
        else:
            return
        try:
            look(store, task, mode, told)
        except forebay.ForebayError as error:
            say(f"wrong (again) {type(error).__name__} {error}")


def check(task: dict[str, Any]) -> None:
    """Open as the task says, in one mode after another, and check each against the law.

    With ``patient`` errors are reported, else they end the process.
    """
    lines = Path(task["ledger"]).read_text().splitlines()
    acknowledged = [Acknowledged.of(line) for line in lines]
    counted = arm(task.get("plan"))
    for mode in task["modes"]:
        for path in task.get("fill", ()):
            exhaust(Path(path))
        if task.get("patient"):
            attempt(functools.partial(examine, task, mode, acknowledged))
        else:
            examine(task, mode, acknowledged)
    if "plan" in task:
        say("calls " + json.dumps({name: counted(name) for name in CALLS}))


def serve() -> None:
    """Fork for each task that arrives, one child at a time."""
    channel = socket.socket(fileno=os.dup(0))
    while True:
        data, ancillary, _, _ = channel.recvmsg(1 << 20, socket.CMSG_SPACE(4))
        if not data:
            return
        (pipe,) = array.array("i", ancillary[0][2])
        task = json.loads(data)
        child = os.fork()
        if child == 0:
            channel.close()
            os.dup2(pipe, 1)
            os.dup2(pipe, 2)
            os.close(pipe)
            status = 0
            try:
                module, _, role = task["role"].rpartition(".")
                vars(importlib.import_module(module or "__main__"))[role](task)
            except BaseException:
                say(*("wrong " + line for line in traceback.format_exc().splitlines()))
                status = 1
            os._exit(status)
        os.close(pipe)
        channel.send(str(child).encode())
        # Its process id is not reused until it is waited for, so it can be killed by it.
        channel.recv(64)
        _, status = os.waitpid(child, 0)
        channel.send(str(os.waitstatus_to_exitcode(status)).encode())


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    serve()
