"""The device of a file system loses power: only what had reached it survives.

A store is on a file system in an image over a loop device. Its writer is stopped at some moment,
and the image is copied: data in the kernel's cache is not in the copy. The copy is mounted, which
replays the journal of the file system, and opened: unchanged, like a device that went away and came
back, or as after a reboot. Messages acknowledged as durable before the copy must be in it.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import loopdisk
import pytest
import store_files
from harness import PROOF, lacks, part, seed, state_of
from nursery import Nursery, shim
from small import SMALL, SMALL_LOG

SEED = seed(1)
IMAGES = 1_000 if PROOF else 20
#: In which boot a copy is opened: the one of its writer, another one, or by turns.
BOOTS = ("same", "another") if PROOF else ("mixed",)
#: Copies taken during the life of one writer.
COPIES = 5
SIZE = {"ext4": 24 << 20, "xfs": 320 << 20}
FLUSHES: dict[str, Any] = {"flush_interval": 0.02, "queue_flush_interval": 0.05}
OPTIONS: dict[str, Any] = {**SMALL, **FLUSHES}
LOG_OPTIONS: dict[str, Any] = {**SMALL_LOG, **FLUSHES}
#: Topics of a life with many. A partition log has more files for each of them.
SPARSE, LOG_SPARSE = 1_500, 100
#: Ways that have messages of several queues on their way at once.
SEVERAL = ("unwaited", "mixed")
#: Ways to send messages that are durable when they are acknowledged.
DURABLE = (
    *(("sync", "one"), ("sync", "unwaited"), ("sync", "batch"), ("sync", "atomic")),
    *(("sync", "mixed"), ("async", "flushed")),
)


@dataclass
class Copies:
    """Stops a writer at lines that it prints, and copies the device in that state."""

    image: Path
    at_lines: list[int]
    lines: list[str] = field(default_factory=list)
    heard: int = 0
    taken: list[tuple[Path, str]] = field(default_factory=list)

    def hear(self, line: str, child: int) -> None:
        self.heard += 1
        if line.startswith("ack "):
            self.lines.append(line)
        if self.at_lines and self.heard >= self.at_lines[0]:
            self.at_lines.pop(0)
            os.kill(child, signal.SIGSTOP)
            while state_of(child) != "T":
                pass
            self.taken.append((self.copy(len(self.taken)), "\n".join(self.lines)))
            os.kill(child, signal.SIGCONT if self.at_lines else signal.SIGKILL)

    def copy(self, number: int) -> Path:
        """Copy until nothing has changed meanwhile, as the kernel may write by itself."""
        target = self.image.with_name(f"copy-{number}")
        # Most of the image is a hole, which is neither read nor written.
        parts = list(store_files.chunks(self.image))
        while (again := list(store_files.chunks(self.image))) != parts:
            parts = again
        with open(target, "wb") as out:
            for at, part in parts:
                os.pwrite(out.fileno(), part, at)
            out.truncate(self.image.stat().st_size)
        return target


def forget_the_boot(root: Path) -> None:
    """Make the state page name another boot of the machine, as after a power loss."""
    with open(root / "forebay.state", "r+b") as file:
        file.seek(16)
        file.write(bytes(range(16)))


def lives(
    nursery: Nursery,
    folder: Path,
    kind: str,
    number: int,
    boot: str,
    plan: dict[str, Any] | None = None,
) -> list[str]:
    """Run a writer, and check every copy of its device against the law; return what is wrong."""
    draw = random.Random(f"{SEED}.{kind}.{number}")
    flush, way = ("sync", "one") if plan else draw.choice(DURABLE)
    # Of four lives two have many topics, and two are partition logs, one with them and one without.
    logs = not plan and (number + number // 2) % 2 == 1
    # With many topics most queues are new, and cannot show that anything is missing.
    sparse = boot == "same" or (not plan and number % 2 == 1)
    topics = (LOG_SPARSE if logs else SPARSE) if sparse else 0
    image, disk = folder / "image", folder / "disk"
    loopdisk.make(image, SIZE[kind], kind)
    copies = Copies(image, sorted(draw.randrange(1, 600) for _ in range(COPIES)))
    options = {**(LOG_OPTIONS if logs else OPTIONS), "flush": flush}
    about = {"seed": number, "options": options, "sparse": topics}
    # Each partition is a log of its own, and may be ahead of the others.
    gapless = not (logs and way in SEVERAL)
    with loopdisk.mounted(image, disk):
        root = str(disk / "store")
        plan = {**plan, "below": str(disk)} if plan else None
        task = {"role": "write", "root": root, "life": 0, "way": way, "count": 100_000, **about}
        outcome = nursery.run({**task, "plan": plan}, heard=copies.hear)
    wrong = list(outcome.complaints)
    if outcome.status != -signal.SIGKILL:
        wrong.append(f"the writer ended with {outcome.status} before its last copy")
    for place, (copy, told) in enumerate(copies.taken):
        ledger = folder / "ledger"
        ledger.write_text(told + "\n" if told else "")
        flags = ("nouuid",) if kind == "xfs" else ()
        with loopdisk.mounted(copy, folder / "copied", *flags) as disk:
            root = str(disk / "store")
            # The copies that a mixed life forgets are others in the next lives.
            forgets = boot == "another" or (boot == "mixed" and (number // 2 + place) % 2 == 0)
            mark = "forebay.partitionlog" if logs else "forebay.state"
            if not told and not (disk / "store" / mark).exists():
                continue
            # A partition log does not tell the boot from another.
            if forgets and (disk / "store" / "forebay.state").exists():
                forget_the_boot(disk / "store")
            task = {"role": "check", "root": root, "ledger": str(ledger), **about}
            checked = nursery.run({**task, "modes": ["r", "a", "a"], "gapless": gapless})
        if checked.status != 0 or checked.complaints:
            said = checked.complaints[:8] or [f"status {checked.status}"]
            story = f"FOREBAY_SEED={SEED}, {kind}, life {number}, copy {place}, {flush} {way}"
            story += f", {topics} topics{', partition log' * logs}"
            story += f", boot {'forgotten' if forgets else 'the same'}"
            wrong += [story, *said]
        copy.unlink()
    return wrong


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    loopdisk.need()
    with Nursery(failing_calls=shim() is not None) as one:
        yield one


@pytest.mark.parametrize("boot", BOOTS)
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_durable_messages_survive_a_power_loss(
    nursery: Nursery, fast_path: Path, kind: str, boot: str
) -> None:
    loopdisk.need(kind)
    numbers = part(IMAGES // COPIES)
    for number in numbers:
        wrong = lives(nursery, fast_path, kind, number, boot)
        assert not wrong, "\n".join(wrong)
    print(f"{len(numbers) * COPIES} images of {kind}, {numbers}, boot {boot}, seed {SEED}")


def test_a_missing_sync_is_noticed(nursery: Nursery, fast_path: Path) -> None:
    if not nursery.failing_calls:
        lacks("cc", "there is no C compiler")
    plan = {"call": "msync", "action": "lie", "at": 1, "forever": True}
    wrong = lives(nursery, fast_path, "ext4", 0, "another", plan)
    assert any("lost: " in line for line in wrong)
