"""A store lives long: senders of all kinds, retention, upkeep, readers, and kills in between.

Acknowledged messages survive unless retention deleted them, no offset is assigned twice, a
verification finds no damage, and memory and descriptors are bounded.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import law
import pytest
import store_files
from harness import LONG_S, PROOF, seed
from law import Acknowledged
from nursery import Nursery, Outcome
from small import SMALL_LOG

import forebay

SEED = seed()
#: Duration of the soak; two hours in its long form.
SECONDS = float(os.environ.get("FOREBAY_SOAK_S", 7_200 if PROOF else 3))
READERS = 6 if PROOF else 2
#: Lives of writers in a short soak; average and longest life in a long one.
LIVES = 8
LIFE_S, LIFE_S_MAX = 40.0, 300.0
LIFE_S_MIN = 0.2
#: How many writers are killed; the others close the store.
KILLED = 0.8
BOTH: dict[str, Any] = {
    "default_queues": 2,
    "max_message_size": 16 << 10,
    "flush_interval": 0.05,
    "queue_flush_interval": 0.1,
    "roll_after": 1.0,
    "disk_reserve": 0,
    # A machine that is busy may take long to create the next file.
    "busy_timeout": 60.0,
    "flush_timeout": 60.0,
}
OPTIONS: dict[str, Any] = {
    **BOTH,
    "commitlog_file_size": 256 << 10,
    "queue_file_entries": 256,
    "index_slots": 256,
    "index_entries": 1_024,
    "retention_bytes": 4 << 20,
}
LOG_OPTIONS: dict[str, Any] = {**SMALL_LOG, **BOTH, "retention_bytes": 1 << 20}
#: A short soak draws its engine.
ENGINES = (OPTIONS, LOG_OPTIONS) if PROOF else (random.Random(SEED).choice((OPTIONS, LOG_OPTIONS)),)
#: More than any process needs: its own memory in KiB, and descriptors.
OWN_KIB_MAX = 150 << 10
DESCRIPTORS_MAX = 64

Place = tuple[str, int, int]


@dataclass
class Soak:
    """One store, the processes that use it, and what was acknowledged to them."""

    root: Path
    seconds: float
    options: dict[str, Any] = field(default_factory=lambda: OPTIONS)
    #: Descriptors that each step of upkeep leaks.
    leaks: ClassVar[int] = 0
    #: Average life of a writer in a soak that must fail.
    planted_life_s: ClassVar[float] = 2 * LIFE_S_MIN
    ledger: dict[Place, Acknowledged] = field(default_factory=dict)
    #: Offset after the last acknowledged one, by queue.
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    lives: int = 0
    kills: int = 0
    acknowledged: int = 0
    retired: int = 0
    read: int = 0
    own_kib: int = 0
    descriptors: int = 0
    begun: threading.Event = field(default_factory=threading.Event)

    @property
    def stop(self) -> Path:
        return self.root.with_name("stop")

    def task(self, role: str, number: int, **rest: Any) -> dict[str, Any]:
        about: dict[str, Any] = {"role": f"soaking.{role}", "root": str(self.root)}
        about["seed"] = SEED + number
        about |= {"options": self.options, "stop": str(self.stop), "leaks": self.leaks}
        return {**about, **rest}

    def take(self, outcome: Outcome, *, killed: bool) -> None:
        """Record what a process acknowledged, and what it used."""
        wrong = [line for line in outcome.complaints if not line.startswith(("uses ", "reads "))]
        if outcome.status != (-signal.SIGKILL if killed else 0):
            wrong.append(f"status {outcome.status}, {killed=}")
        self.wrong += wrong[:20]
        for line in outcome.of("uses"):
            own, descriptors = map(int, line.split(" ")[1:])
            self.own_kib = max(self.own_kib, own)
            self.descriptors = max(self.descriptors, descriptors)
        if self.own_kib > OWN_KIB_MAX or self.descriptors > DESCRIPTORS_MAX:
            self.wrong.append(f"uses {self.own_kib} KiB and {self.descriptors} descriptors")
        self.read += sum(int(line.split(" ")[1]) for line in outcome.of("reads"))
        before = dict(self.ends)
        for line in outcome.of("ack"):
            it = Acknowledged.of(line)
            queue = (it.topic, it.queue)
            known = self.ledger.setdefault((*queue, it.offset), it) is not it
            # Messages of an earlier life may be retired.
            if known or it.offset < before.get(queue, 0):
                self.wrong.append(f"given twice: {line}")
            self.ends[queue] = max(self.ends.get(queue, 0), it.offset + 1)
            self.acknowledged += 1

    def live(self, nursery: Nursery, draw: random.Random, seconds: float) -> None:
        """Let a process write, then kill it or have it close the store."""
        # The first one is killed, so that the shortest soak has a kill.
        killed = not self.lives or draw.random() < KILLED
        archive = str(self.root.with_name("archive"))
        flush = draw.choice(("async", "sync"))
        task = self.task("write", 0, life=self.lives, archive=archive, seconds=seconds)
        task["options"] = self.written(flush)
        if killed:
            task["seconds"] = LONG_S + LIFE_S_MAX

        def hear(line: str, _child: int) -> None:
            if line == "ready":
                self.begun.set()

        kill_after_s = seconds if killed else None
        about = {"kill_after_s": kill_after_s, "from_ready": True, "heard": hear}
        hangs_s = LONG_S + LIFE_S_MAX
        self.take(nursery.run(task, **about, hangs_s=hangs_s), killed=killed)
        self.lives += 1
        self.kills += killed

    def written(self, flush: str) -> dict[str, Any]:
        """Return the options of a writer."""
        return {**self.options, "flush": flush}

    def check(self, mode: str) -> None:
        """Check the store against the law, and forget what retention has deleted."""
        # Opened without the options, nothing is retired meanwhile.
        with forebay.open(self.root, mode) as store:
            wrong = law.check(store, self.ledger.values(), retires=True, seed=SEED)
            begins = law.begins_of(store)
            wrong += self.missed(store, begins)
        self.wrong += [f"life {self.lives} ({mode}): {what}" for what in wrong[:20]]
        before = len(self.ledger)
        self.ledger = {
            place: it for place, it in self.ledger.items() if place[2] >= begins.get(place[:2], 0)
        }
        self.retired += before - len(self.ledger)

    def missed(self, store: forebay.Store, begins: law.Begins) -> list[str]:
        """Find what is gone although retention may not take it.

        It takes whole files, and leaves as many bytes as it was told to. One file more or less: a
        file that is empty counts while its writer lives.
        """
        least = self.options["retention_bytes"]
        if store.engine == "commitlog":
            begin, size = store.stats().min_position, self.options["commitlog_file_size"]
            wrong = law.hidden(self.ledger.values(), begins, begin)
            end = max((int(file.name) + size for file in self.logs("commitlog/")), default=0)
            if begin > 0 and end - begin < least - 2 * size:
                wrong.append(f"too short: the log from {begin} to {end}")
            return wrong
        wrong = []
        least -= self.options["segment_bytes"]
        for (topic, queue), begin in begins.items():
            logs = self.logs(f"{topic}-{queue}/", ".log")
            left = {base: file.stat().st_size for file in logs if (base := int(file.stem)) >= begin}
            if begin > 0 and begin not in left:
                wrong.append(f"hidden: {topic} {queue} begins at {begin}, within a file")
            elif begin > 0 and sum(left.values()) < least:
                wrong.append(f"too short: {topic} {queue} from {begin} on")
        return wrong

    def logs(self, folder: str, suffix: str = "") -> list[Path]:
        return sorted(self.root.glob(folder + "[0-9]" * 20 + suffix))

    def follow(self, number: int) -> None:
        with Nursery() as nursery:
            self.begun.wait(LONG_S)
            task = self.task("follow", number)
            self.take(nursery.run(task, hangs_s=self.seconds + LONG_S), killed=False)

    def run(self, nursery: Nursery, life_s: float = LIFE_S) -> None:
        """Run writers one after another, beside readers, until the time is up."""
        draw = random.Random(SEED)
        end = time.monotonic() + self.seconds
        life_s = min(self.seconds / LIVES, life_s)
        with ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(READERS))
            stack.callback(self.stop.touch)
            stack.callback(self.begun.set)
            readers: list[Future[None]] = [pool.submit(self.follow, n + 1) for n in range(READERS)]
            while not self.wrong and (left := end - time.monotonic()) > 0:
                length = min(draw.expovariate(1 / life_s), LIFE_S_MAX, left)
                self.live(nursery, draw, max(length, LIFE_S_MIN))
                self.check("r")
                self.plant()
        for reader in readers:
            reader.result()
        for mode in ("a", "r"):
            self.check(mode)

    def plant(self) -> None:
        """Do nothing; a soak that must fail overrides this."""


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    with Nursery() as one:
        yield one


@pytest.mark.parametrize("options", ENGINES, ids=lambda it: it.get("engine", "commitlog"))
def test_a_long_lived_store_loses_nothing_and_leaks_nothing(
    nursery: Nursery, tmp_path: Path, options: dict[str, Any]
) -> None:
    soak = Soak(tmp_path / "store", SECONDS, options)
    soak.run(nursery)
    told = [f"{name} {value}" for name, value in vars(soak).items() if isinstance(value, int)]
    print(f"FOREBAY_SEED={SEED}, {SECONDS:.0f} s: {', '.join(told)}")
    assert not soak.wrong, "\n".join([f"FOREBAY_SEED={SEED}", *soak.wrong])
    assert soak.kills and soak.read


class Loses(Soak):
    """A record of the log is overwritten while no process has the store open."""

    def plant(self) -> None:
        # A process that is killed early has written no file.
        if files := sorted((self.root / "commitlog").iterdir()):
            with open(files[len(files) // 2], "r+b") as file:
                file.seek(100)
                file.write(bytes(300))


class Forgets(Soak):
    """A store is reset to its state one life ago: its offsets are assigned again."""

    def plant(self) -> None:
        kept = self.root.with_name("kept")
        if kept.exists():
            shutil.rmtree(self.root)
            kept.rename(self.root)
        else:
            store_files.copy(self.root, kept)


class Greedy(Soak):
    """Retention leaves nothing but the file that is being written."""

    planted_life_s = 2.0

    def written(self, flush: str) -> dict[str, Any]:
        return {**super().written(flush), "retention_bytes": 1}


class Hides(Soak):
    """The first offset of a queue of a partition log is raised to one within its first file."""

    def plant(self) -> None:
        if self.ends.get(("orders", 0), 0) > 10:
            with forebay.open(self.root) as store:
                store.delete_before("orders", {0: 5})


class Leaks(Soak):
    """Upkeep leaves descriptors open."""

    leaks = 100


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        (Loses, OPTIONS, ("lost: ", "verify: ")),
        (Forgets, OPTIONS, ("lost: ", "another message", "given twice: ", "was read and is gone")),
        (Leaks, OPTIONS, ("uses ",)),
        (Greedy, OPTIONS, ("too short: ",)),
        (Hides, LOG_OPTIONS, ("hidden: ",)),
    ],
)
def test_a_soak_notices_planted_faults(
    nursery: Nursery,
    tmp_path: Path,
    kind: type[Soak],
    options: dict[str, Any],
    says: tuple[str, ...],
) -> None:
    soak = kind(tmp_path / "store", LONG_S, options)
    # It ends with the first life in which something is wrong.
    soak.run(nursery, life_s=kind.planted_life_s)
    assert any(one in what for what in soak.wrong for one in says), soak.wrong
