"""Writers are killed, and every message that they acknowledged must still be there."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import maven
import pytest
import rocketmq
import store_files
from child import CALLS
from harness import PROOF, lacks, part, seed
from law import Acknowledged
from nursery import Nursery, Outcome, shim
from small import SMALL, SMALL_LOG

import forebay

#: The seed of half of the stores; the other half has a fixed seed.
SEED = seed()
FIXED_SEED = 1
KILLS = 20_000 if PROOF else 64
#: Lives of one store, so that later lives meet what earlier deaths left.
LIVES = 8
WAYS = ("one", "flushed", "unwaited", "batch", "atomic", "arrow", "mixed", "mixed")
#: Kills of a partition log.
LOG_KILLS = KILLS // 6
#: Kinds of calls at which a store is in the middle of an operation.
UNMARKED = ("pread", "opendir", "fchmod", "thread", "readdir", "lseek", "lock")
MARKED = tuple(name for name in CALLS if name not in UNMARKED)
#: Sends of a life that is to die at a call; it ends in order if the call does not come.
SENDS = 150
#: Minimum share of planned kills that must reach their call, and of lives that must have a message
#: acknowledged before they end.
MET_MIN = 0.8
ACKNOWLEDGED_MIN = 0.5

#: How often each kind of call occurs in a life, by the kind of flush and whether it is the first
#: life of its store.
Counts = dict[tuple[str, bool], dict[str, int]]


@dataclass
class Tally:
    """What became of the lives of a test."""

    lives: int = 0
    acknowledged: int = 0
    planned: int = 0
    met: int = 0

    def judge(self) -> None:
        assert self.met >= least(MET_MIN, self.planned), self
        assert self.acknowledged >= least(ACKNOWLEDGED_MIN, self.lives), self


def least(share: float, drawn: int) -> float:
    """Return how many of the drawn cases must be there: three standard deviations below a share."""
    return share * drawn - 3 * math.sqrt(share * (1 - share) * drawn)


@dataclass
class Series:
    """One store, and the processes that wrote it, one after another."""

    root: Path
    seed: int
    options: dict[str, Any]
    counts: Counts
    tally: Tally
    small: dict[str, Any]
    lives: int = 0
    killed: int = 0
    told: list[str] = field(default_factory=list)

    @property
    def ledger(self) -> Path:
        return self.root.with_name("ledger")

    @property
    def exists(self) -> bool:
        marks = ("commitlog", "forebay.partitionlog")
        return any((self.root / mark).exists() for mark in marks)

    def task(self, role: str, **rest: Any) -> dict[str, Any]:
        return {
            "role": role,
            "root": str(self.root),
            "seed": self.seed,
            "options": self.options,
            **rest,
        }

    def live(self, nursery: Nursery, draw: random.Random) -> Outcome:
        """Let a process write, and kill it; keep what it acknowledged."""
        flush = draw.choice(("async", "sync"))
        self.options = {**self.small, "flush": flush}
        way, senders = draw.choice(WAYS), draw.choice((1, 1, 1, 3))
        task = self.task("write", life=self.lives, way=way, count=100_000, senders=senders)
        kind = draw.choice(("timer", "opening", "lines", "lines", "call", "call", "call"))
        after = {"timer": draw.uniform(0, 0.08), "opening": draw.uniform(0, 0.01)}.get(kind)
        lines = draw.randrange(1, 300) if kind == "lines" else None
        # A process that died while it created its store left one that is created again.
        counts = self.counts.get((flush, not self.exists), {})
        calls = [call for call in MARKED if counts.get(call)]
        if kind == "call" and calls:
            call = draw.choice(calls)
            task["count"] = SENDS
            task["plan"] = {
                "call": call,
                "action": draw.choice(("kill before", "kill after")),
                "at": draw.randrange(counts[call]) + 1,
                "below": str(self.root.parent),
            }
        elif kind == "call":
            lines = 50
        heard = 0

        def hear(_line: str, child: int) -> None:
            nonlocal heard
            heard += 1
            if heard == lines:
                os.kill(child, signal.SIGKILL)

        self.told.append(f"life {self.lives}: {way}, {senders} senders, {kind} {task.get('plan')}")
        outcome = nursery.run(task, heard=hear, kill_after_s=after, from_ready=kind == "timer")
        with open(self.ledger, "a") as ledger:
            ledger.writelines(line + "\n" for line in outcome.of("ack"))
        killed = outcome.status == -signal.SIGKILL
        assert killed or ("plan" in task and outcome.status == 0), self.story(outcome)
        self.lives += 1
        self.killed += killed
        self.tally.lives += 1
        self.tally.acknowledged += any(outcome.of("ack"))
        self.tally.planned += "plan" in task
        self.tally.met += "plan" in task and killed
        return outcome

    def misshapen(self) -> list[str]:
        """Return files without the length of their kind: RocketMQ 4 would refuse the directory.

        If a file cannot be created without a name, it gets its length after the name.
        """
        try:
            os.close(os.open(self.root.parent, os.O_TMPFILE | os.O_RDWR, 0o600))
        except OSError:
            return []
        log, queue = SMALL["commitlog_file_size"], SMALL["queue_file_entries"] * 20
        lengths = {"commitlog/*": log, "consumequeue/*/*/*": queue}
        return [
            f"{file.relative_to(self.root)}: {file.stat().st_size} bytes"
            for pattern, length in lengths.items()
            for file in self.root.glob(pattern)
            if file.stat().st_size != length
        ]

    def check(self, nursery: Nursery, modes: list[str]) -> None:
        """Check the store against the law, in a separate process."""
        task = self.task("check", ledger=str(self.ledger), modes=modes, gapless=True)
        outcome = nursery.run(task)
        assert outcome.status == 0 and not outcome.complaints, self.story(outcome)

    def story(self, outcome: Outcome) -> str:
        lines = [f"FOREBAY_SEED={SEED}, series {self.seed}, store {self.root}", *self.told]
        return "\n".join([*lines, f"status {outcome.status}", *outcome.complaints[:30]])


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery(failing_calls=shim() is not None) as one:
        yield one


@pytest.fixture(scope="module")
def counts(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Counts:
    """Count the calls of lives that end in order."""
    return count(nursery, tmp_path_factory.mktemp("counted"), SMALL)


def count(nursery: Nursery, folder: Path, small: dict[str, Any]) -> Counts:
    """Count the calls of lives that end in order: a plan for a later call would never be met."""
    found: Counts = {}
    for flush in ("async", "sync") if nursery.failing_calls else ():
        root = folder / flush / "store"
        root.parent.mkdir()
        plan = {"call": "open", "action": "pass", "at": 1, "below": str(root.parent)}
        options = {**small, "flush": flush}
        task = {"role": "write", "root": str(root), "seed": 0, "options": options, "plan": plan}
        for life in (0, 1):
            outcome = nursery.run({**task, "life": life, "way": "one", "count": SENDS})
            assert outcome.status == 0 and not outcome.complaints, outcome
            (line,) = outcome.of("calls")
            found[flush, life == 0] = json.loads(line.removeprefix("calls "))
    return found


def run_series(
    nursery: Nursery,
    root: Path,
    number: int,
    counts: Counts,
    tally: Tally | None = None,
    small: dict[str, Any] = SMALL,
) -> Series:
    """Let a store live and die several times; leave it as the last death did."""
    draw = random.Random(f"{FIXED_SEED if number // 2 % 2 else SEED}.{number}")
    root = root / f"series-{number}" / "store"
    series = Series(root, number, dict(small), counts, tally or Tally(), small)
    series.root.parent.mkdir()
    series.ledger.touch()
    died = False
    while series.lives < LIVES or not died:
        killed = series.killed
        outcome = series.live(nursery, draw)
        died = series.killed > killed
        wrong = [*outcome.complaints, *series.misshapen()]
        assert not wrong, series.story(outcome)
        if series.exists and any(outcome.of("ack")):
            series.check(nursery, ["r"])
    return series


def test_acknowledged_messages_survive_a_killed_process(
    nursery: Nursery, counts: Counts, tmp_path: Path, fast_path: Path
) -> None:
    kills, killed, tally = part(KILLS), 0, Tally()
    # A store has a kill at least, so no other piece has its number.
    number = kills.start
    while killed < len(kills):
        # A cheap sync lets the next kill come sooner.
        series = run_series(nursery, fast_path if number % 2 else tmp_path, number, counts, tally)
        series.check(nursery, ["r", "a", "a", "r"])
        killed += series.killed
        number += 1
        shutil.rmtree(series.root.parent)
    print(f"{killed} kills, {number - kills.start} stores, FOREBAY_SEED={SEED}, {tally}")
    tally.judge()


def test_acknowledged_messages_of_a_partition_log_survive_a_killed_process(
    nursery: Nursery, tmp_path: Path, fast_path: Path
) -> None:
    kills, killed, tally = part(LOG_KILLS), 0, Tally()
    number = kills.start
    (tmp_path / "counted").mkdir()
    counts = count(nursery, tmp_path / "counted", SMALL_LOG)
    while killed < len(kills):
        place = fast_path if number % 2 else tmp_path
        series = run_series(nursery, place, 30_000 + number, counts, tally, SMALL_LOG)
        series.check(nursery, ["r", "a", "a", "r"])
        killed += series.killed
        number += 1
        shutil.rmtree(series.root.parent)
    print(f"{killed} kills, {number - kills.start} stores, FOREBAY_SEED={SEED}, {tally}")
    tally.judge()


def test_the_real_rocketmq_shows_what_a_killed_process_had_acknowledged(
    nursery: Nursery, counts: Counts, tmp_path: Path
) -> None:
    if reason := maven.unavailable():
        lacks("maven", reason)
    numbers = range(10_000, 10_000 + (100 if PROOF else 3))
    series = [run_series(nursery, tmp_path, number, counts) for number in numbers]
    recovered = [store_files.copy(one.root, one.root.with_name("recovered")) for one in series]
    for path in recovered:
        forebay.open(path, **SMALL).close()
    listings = rocketmq.list_stores([one.root for one in series] + recovered)
    for one, listing in zip(series * 2, listings, strict=True):
        assert isinstance(listing, rocketmq.Listing), one.told
        # RocketMQ itself drops the entries of its key index when it opens a dead store.
        dropped = ("key ",) if listing.directory == one.root else ()
        errors = [error for error in listing.errors if not error.startswith(dropped)]
        assert not errors, (one.told, errors[:5])
        shown = {(row["topic"], row["queueId"], row["queueOffset"]) for row in listing.messages}
        told = [Acknowledged.of(line) for line in one.ledger.read_text().splitlines()]
        lost = [it.line() for it in told if (it.topic, it.queue, it.offset) not in shown]
        assert not lost, (one.told, lost[:5])


def test_a_reader_of_a_dead_store_sees_what_its_next_writer_keeps(
    nursery: Nursery, counts: Counts, tmp_path: Path
) -> None:
    series = run_series(nursery, tmp_path, 20_000, counts)
    with forebay.open(series.root, "r") as store:
        read = store.verify().records
    with forebay.open(series.root, **series.options) as store:
        assert store.verify().records == read
