"""System calls fail, once or from then on, wherever a store makes them, or a reader of it.

Every outcome is success or an error of Forebay, and acknowledged messages survive. After one
transient error (no descriptors, no memory) the store sends and reads again.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from child import CALLS
from harness import PROOF, in_part, lacks, part, seed
from nursery import Nursery, Outcome, shim
from small import SMALL, SMALL_LOG

SEED = seed(1)
#: How many of all faults the short form draws, a quarter of them of readers.
FAULTS = 30
AT_ONCE = 3
#: The errno values with which a kind of call fails.
NUMBERS = {
    "open": (errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC),
    "fsync": (errno.EIO, errno.ENOSPC),
    "msync": (errno.EIO,),
    # The second is for a process that locks all its memory, and may lock no more.
    "mmap": (errno.ENOMEM, errno.EAGAIN),
    "fallocate": (errno.ENOSPC, errno.EIO, errno.EOPNOTSUPP),
    "ftruncate": (errno.ENOSPC, errno.EIO),
    "pwrite": (errno.ENOSPC, errno.EIO),
    "pread": (errno.EIO,),
    "rename": (errno.EIO, errno.ENOSPC),
    "unlink": (errno.EIO,),
    "mkdir": (errno.ENOSPC,),
    "syncfs": (errno.EIO,),
    "opendir": (errno.EIO, errno.EMFILE),
    "fchmod": (errno.EIO,),
    "linkat": (errno.ENOSPC, errno.EPERM),
    "stat": (errno.ENOMEM,),
    "thread": (errno.EAGAIN,),
    "readdir": (errno.EIO,),
    "lseek": (errno.EIO,),
    "lock": (errno.ENOLCK,),
}
#: Kinds of calls that these stores do not need: they have few files, which are synced one by one,
#: and some file systems have no files without names.
UNUSED = {"syncfs", "linkat"}
#: The errno values of transient errors.
PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
#: Errors that a store may raise when a system call fails.
ERRORS = {
    *("DiskError", "DiskFullError", "StoreFailedError", "FlushTimeoutError", "StoreClosedError"),
}
FLUSHES = {"flush_interval": 0.01, "queue_flush_interval": 0.02}
OPTIONS: dict[str, Any] = {**SMALL, "index_entries": 128, **FLUSHES}
#: Only a close makes the queues durable. After a kill no table lists what follows their durable
#: end, so nothing corrects an opening that takes it for absent.
UNSETTLED: dict[str, Any] = {**OPTIONS, "queue_flush_interval": 3600.0}
LOG_OPTIONS: dict[str, Any] = {**SMALL_LOG, **FLUSHES}
#: How many faults of a partition log the short form draws.
LOG_FAULTS = 12
BEGINNINGS = ("fresh", "closed", "dead", "behind")
FLUSH = ("async", "sync")
#: Upper bounds: files opened by an opening for writing; maps made by it and a few sends.
OPENS, MAPS = 36, 30
#: Stores, lives of each in which calls fail at random, and failures per million calls.
HAZY_STORES = 100 if PROOF else 4
HAZY_LIVES = 4
PER_MILLION = (300, 1_000, 5_000)
#: The damage of a store that opens although the disk has no room for its options.
UNKEPT = "cannot save the options in "


@dataclass(frozen=True)
class Fault:
    """A call that fails, in a store that began as ``begin`` says.

    ``reads``: a reader meets it, not a writer. ``named``: the opening says which engine the store
    has, instead of finding that out.
    """

    begin: str
    flush: str
    call: str
    number: int
    at: int
    forever: bool
    reads: bool = False
    named: bool = True

    def __str__(self) -> str:
        often = "from then on" if self.forever else "once"
        name = errno.errorcode[self.number]
        opened = (" to read" if self.reads else "") + ("" if self.named else " without its engine")
        begin = f"{self.begin} {self.flush} store{opened}"
        return f"{begin}: {self.call} {self.at} gives {name} {often}"

    @property
    def passes(self) -> bool:
        """Whether the store must work again."""
        return not self.forever and (self.number in PASSING or self.call == "mmap")


class Sweep:
    """A folder with stores to begin from, and a way to try a fault on a copy of one."""

    def __init__(
        self,
        folder: Path,
        nurseries: list[Nursery],
        fast: Path,
        options: dict[str, Any] = OPTIONS,
    ) -> None:
        self.folder = folder
        self.options = options
        # Most cases run in memory, where a sync costs nothing; the others on disk.
        self.places = {one: fast / str(number) for number, one in enumerate(nurseries)}
        self.places[nurseries[-1]] = folder / "case"
        self.said: Counter[str] = Counter()

    def prepare(self, nursery: Nursery) -> None:
        """Create a store that was closed, and two whose writers were killed."""
        for name in BEGINNINGS:
            root = self.folder / name / "store"
            root.parent.mkdir()
            ledger = root.with_name("ledger")
            ledger.touch()
            if name == "fresh":
                continue
            heard = 0

            def die(_line: str, child: int, name: str = name) -> None:
                nonlocal heard
                heard += 1
                if name == "dead" and heard == 120:
                    os.kill(child, signal.SIGKILL)

            outcome = nursery.run(task("write", root, self.options, life=0), heard=die)
            assert outcome.status == (-signal.SIGKILL if name == "dead" else 0)
            said = outcome.of("ack")
            if name == "behind":
                options = self.options | {"queue_flush_interval": 3600.0}
                outcome = nursery.run(task("write", root, options, life=2, dies=True))
                assert outcome.status == -signal.SIGKILL
                said += outcome.of("ack")
            ledger.write_text("".join(line + "\n" for line in said))

    def attempt(self, nursery: Nursery, fault: Fault) -> tuple[dict[str, int], list[str]]:
        """Let a process meet the fault; return the calls it made, and what is wrong."""
        place = self.places[nursery]
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.folder / fault.begin, place)
        root, ledger = place / "store", place / "ledger"
        options = {**self.options, "flush": fault.flush}
        if not fault.named:
            options.pop("engine", None)
        plan = {
            "call": fault.call,
            "action": "fail",
            "at": fault.at,
            "forever": fault.forever,
            "errno": fault.number,
            "below": str(root.parent),
        }
        about = {"plan": plan, "patient": True, "passes": fault.passes}
        if fault.reads:
            about |= {"ledger": str(ledger), "modes": ["r"], "gapless": False}
            met = nursery.run(task("check", root, options, **about))
        else:
            met = nursery.run(task("write", root, options, life=1, **about))
        wrong = [line for line in met.complaints if not line.startswith(UNKEPT)]
        wrong += self.odd(met)
        if met.status != 0:
            wrong.append(f"the process ends with status {met.status}")
        with open(ledger, "a") as file:
            file.writelines(line + "\n" for line in met.of("ack"))
        if begun(root) or ledger.stat().st_size:
            about = {"ledger": str(ledger), "modes": ["r", "a", "r"], "gapless": False}
            if not any((root / "commitlog").glob("*")) and not ledger.stat().st_size:
                about["modes"] = ["a", "r"]
            checked = nursery.run(task("check", root, options, **about))
            wrong += checked.complaints
            if checked.status != 0:
                wrong.append(f"the checker ends with status {checked.status}")
        return calls(met), wrong

    def odd(self, outcome: Outcome) -> list[str]:
        """Return errors that do not describe what happened."""
        said = [line.split(" ")[1] for line in outcome.of("error")]
        self.said.update(said)
        return [line for line in outcome.of("error") if line.split(" ")[1] not in ERRORS]


def begun(root: Path) -> bool:
    """Whether a store has been created there."""
    return any((root / mark).exists() for mark in ("commitlog", "forebay.partitionlog"))


def task(role: str, root: Path, options: dict[str, Any], **rest: Any) -> dict[str, Any]:
    about = {"way": "mixed", "count": 24, "seed": SEED, "role": role}
    return {**about, "root": str(root), "options": options, **rest}


def calls(outcome: Outcome) -> dict[str, int]:
    lines = outcome.of("calls")
    return json.loads(lines[0].removeprefix("calls ")) if lines else {}


@pytest.fixture(scope="module")
def nurseries() -> Iterator[list[Nursery]]:
    if shim() is None:
        lacks("cc", "there is no C compiler")
    made = [Nursery(failing_calls=True) for _ in range(AT_ONCE)]
    yield made
    for one in made:
        one.close()


def faults_of(sweep: Sweep, nursery: Nursery) -> list[Fault]:
    """Every fault that fault-free runs show to be possible, and a few beyond their ends."""
    found = []
    met: Counter[str] = Counter()
    untouched = Fault("fresh", "async", "open", errno.EIO, 0, forever=False)
    begins = [replace(untouched, begin=it, flush=flush) for it in BEGINNINGS for flush in FLUSH]
    # What a reader does depends only on the store.
    begins += [replace(untouched, begin=it, reads=True) for it in BEGINNINGS if it != "fresh"]
    for begin in begins:
        counts, wrong = sweep.attempt(nursery, begin)
        assert not wrong, (str(begin), wrong)
        met.update(counts)
        # A timer of a writer may make a call that this run did not.
        for call in [call for call in CALLS if counts[call] or not begin.reads]:
            for number in NUMBERS[call]:
                for at in range(1, counts[call] + 3):
                    for forever in (False, True):
                        fault = replace(begin, call=call, number=number, at=at, forever=forever)
                        found.append(replace(fault, named=is_named(sweep, fault)))
    unmet = {call for call in CALLS if not met[call]}
    assert unmet <= UNUSED, unmet
    return found


def is_named(sweep: Sweep, fault: Fault) -> bool:
    """Whether an opening names the engine: half of those that need not."""
    if fault.begin == "fresh" or "engine" not in sweep.options:
        return True
    return (fault.at + NUMBERS[fault.call].index(fault.number) + fault.forever) % 2 == 0


@pytest.mark.parametrize(
    ("options", "drawn"), [(OPTIONS, FAULTS), (LOG_OPTIONS, LOG_FAULTS)], ids=["commits", "log"]
)
def test_a_failing_call_is_an_error_of_forebay_and_costs_nothing_acknowledged(
    nurseries: list[Nursery],
    tmp_path: Path,
    fast_path: Path,
    options: dict[str, Any],
    drawn: int,
) -> None:
    sweep = Sweep(tmp_path, nurseries, fast_path, options)
    sweep.prepare(nurseries[0])
    faults = faults_of(sweep, nurseries[0])
    if PROOF:
        chosen = [fault for fault in faults if in_part(str(fault))]
    else:
        readers = [fault for fault in faults if fault.reads]
        writers = [fault for fault in faults if not fault.reads]
        draw = random.Random(SEED)
        chosen = draw.sample(writers, drawn - drawn // 4) + draw.sample(readers, drawn // 4)
    complaints: list[str] = []

    left = iter(chosen)

    def work(nursery: Nursery) -> None:
        for fault in left:
            _, wrong = sweep.attempt(nursery, fault)
            if wrong:
                complaints.append("\n  ".join([str(fault), *wrong[:12]]))

    with ThreadPoolExecutor(len(nurseries)) as pool:
        list(pool.map(work, nurseries))
    print(f"{len(chosen)} of {len(faults)} faults, seed {SEED}: {dict(sweep.said)}")
    assert not complaints, "\n".join([f"FOREBAY_SEED={SEED}", *complaints])


#: The options of each engine, and the step between the calls that fail. A partition log can do with
#: fewer, because in `src/sim/openings.rs` each call of its opening fails.
SWEPT = pytest.mark.parametrize(
    ("options", "step"), [(OPTIONS, 1), (LOG_OPTIONS, 1 if PROOF else 5)], ids=["commits", "log"]
)


def sweep_once(
    nurseries: list[Nursery], sweep: Sweep, begin: str, call: str, number: int, numbers: range
) -> list[str]:
    """Let each call of a kind fail once, in a store of its own; return what is wrong."""
    sweep.prepare(nurseries[0])
    complaints: list[str] = []
    left = iter(numbers)

    def work(nursery: Nursery) -> None:
        for at in left:
            fault = Fault(begin, "sync", call, number, at, forever=False)
            fault = replace(fault, named=is_named(sweep, fault))
            _, wrong = sweep.attempt(nursery, fault)
            if wrong:
                complaints.append("\n  ".join([str(fault), *wrong[:12]]))

    with ThreadPoolExecutor(len(nurseries)) as pool:
        list(pool.map(work, nurseries))
    return complaints and [f"FOREBAY_SEED={SEED}", *complaints]


@SWEPT
def test_an_opening_that_briefly_lacks_descriptors_costs_nothing(
    nurseries: list[Nursery],
    tmp_path: Path,
    fast_path: Path,
    options: dict[str, Any],
    step: int,
) -> None:
    """The n-th open fails with EMFILE, once, in a store whose writer was killed.

    If the error were taken for a missing record, a queue would be cut: messages would be lost, and
    their offsets assigned again.
    """
    sweep = Sweep(tmp_path, nurseries, fast_path, options)
    at = range(1, OPENS + 1, step)
    complaints = sweep_once(nurseries, sweep, "behind", "open", errno.EMFILE, at)
    assert not complaints, "\n".join(complaints)


@SWEPT
def test_a_file_that_briefly_cannot_be_mapped_is_created_again(
    nurseries: list[Nursery],
    tmp_path: Path,
    fast_path: Path,
    options: dict[str, Any],
    step: int,
) -> None:
    """The n-th map fails with ENOMEM, once: a half-made file must not block a roll."""
    sweep = Sweep(tmp_path, nurseries, fast_path, options)
    at = range(1, MAPS + 1, step)
    complaints = sweep_once(nurseries, sweep, "closed", "mmap", errno.ENOMEM, at)
    assert not complaints, "\n".join(complaints)


LINGERING: dict[str, Any] = {"engine": "partitionlog", "linger": 0.01, "retention": 3600.0}
#: Options with which a store of each engine starts all the threads that it can.
THREADS: list[dict[str, Any]] = [
    {"retention": 3600.0, "transient_pool": 1},
    {"mode": "share", "retention": 3600.0},
    {**LINGERING, "cleanup_policy": "compact,delete"},
    {**LINGERING, "mode": "share"},
]


@pytest.mark.parametrize("options", THREADS, ids=["commits", "shared", "log", "shared-log"])
def test_an_opening_that_cannot_start_a_thread_leaves_none_behind(
    nurseries: list[Nursery], fast_path: Path, options: dict[str, Any]
) -> None:
    """A thread would go on without the lock of the store, beside its next writer."""
    for at in itertools.count(1):
        place = fast_path / str(at)
        place.mkdir()
        plan = {"call": "thread", "action": "fail", "at": at, "errno": errno.EAGAIN}
        about = {"options": options, "plan": {**plan, "below": str(place)}}
        task = {"role": "begin", "root": str(place / "store"), **about}
        met = nurseries[0].run(task)
        assert met.status == 0 and not met.complaints, (at, met)
        if calls(met)["thread"] < at:
            break
    assert at > 2


def hazy(nursery: Nursery, root: Path, number: int, kinds: tuple[dict[str, Any], ...]) -> list[str]:
    """Run a store several times while calls fail at random, and check it against the law."""
    draw = random.Random(f"{SEED}.{number}")
    said: list[str] = []
    wrong: list[str] = []
    for life in range(HAZY_LIVES):
        plan = {
            "per_million": draw.choice(PER_MILLION),
            "seed": draw.getrandbits(63),
            "below": str(root.parent),
        }
        flush = draw.choice(FLUSH)
        options = draw.choice(kinds) | {"flush": flush}
        if begun(root) and draw.random() < 0.5:
            options.pop("engine", None)
        about = {"plan": plan, "patient": True, "dies": draw.random() < 0.6}
        met = nursery.run(task("write", root, options, life=life, **about))
        said += met.of("ack")
        wrong += met.complaints
        if met.status not in (0, -signal.SIGKILL):
            wrong.append(f"the writer of life {life} ends with status {met.status}")
    ledger = root.with_name("ledger")
    ledger.write_text("".join(line + "\n" for line in said))
    has_files = any((root / "commitlog").glob("*")) or (root / "forebay.partitionlog").exists()
    modes = ["r", "a", "r"] if has_files else ["a", "r"]
    about = {"ledger": str(ledger), "modes": modes, "gapless": False}
    checked = nursery.run(task("check", root, kinds[0], **about))
    wrong += checked.complaints
    if checked.status != 0:
        wrong.append(f"the checker ends with status {checked.status}")
    return wrong


@pytest.mark.parametrize(
    ("kinds", "stores"),
    [((OPTIONS, UNSETTLED), HAZY_STORES), ((LOG_OPTIONS,), HAZY_STORES // 3)],
    ids=["commits", "log"],
)
def test_randomly_failing_calls_cost_nothing_acknowledged_and_no_offset_is_assigned_twice(
    nurseries: list[Nursery], fast_path: Path, kinds: tuple[dict[str, Any], ...], stores: int
) -> None:
    complaints: list[str] = []
    left = iter(part(stores))

    def work(nursery: Nursery) -> None:
        for number in left:
            root = fast_path / f"hazy-{number}" / "store"
            root.parent.mkdir()
            if wrong := hazy(nursery, root, number, kinds):
                complaints.append("\n  ".join([f"store {number}", *wrong[:12]]))
            shutil.rmtree(root.parent)

    with ThreadPoolExecutor(len(nurseries)) as pool:
        list(pool.map(work, nurseries))
    assert not complaints, "\n".join([f"FOREBAY_SEED={SEED}", *complaints])
