"""File systems of every size are filled: a clean error, and writes resume once there is room."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import loopdisk
import pytest
from harness import PROOF, part, seed
from nursery import Nursery
from small import SMALL_LOG

SEED = seed(1)
MIB = 1 << 20
#: Bytes of a block.
BLOCKS = (4096, 1024)
#: Space freed once the disk is full; a log file and its companions fit in.
BALLAST = 256 << 10
OPTIONS: dict[str, Any] = {
    "commitlog_file_size": 128 << 10,
    "queue_file_entries": 512,
    "index_slots": 256,
    "index_entries": 1_024,
    "default_queues": 2,
    "max_message_size": 16 << 10,
}
#: Sizes of file systems that the short form fills with a partition log.
LOG_SIZES = 1
#: The part of a file system that is left for the indexes of all segments, which recovery rebuilds:
#: 20 bytes for each 512, and two blocks of 4 KiB for each segment.
SPARE_PART = 1 / 8


def sizes() -> list[int]:
    """Return file system sizes in bytes: many steps from 1 to 16 MiB, or a sample of them."""
    steps = list(range(MIB, 16 * MIB + 1, 64 << 10))
    return steps if PROOF else [MIB, 16 * MIB, random.Random(SEED).choice(steps[1:-1])]


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    loopdisk.need()
    with Nursery() as one:
        yield one


def fill(
    nursery: Nursery,
    folder: Path,
    disk: Path,
    draw: random.Random,
    *,
    settled: bool,
    options: dict[str, Any] = OPTIONS,
) -> dict[str, Any]:
    """Fill a disk until sends are refused, then free some room and send on; return what to check.

    If it ends `settled`, every message has its entries; else some may have had no room for them.
    """
    ledger = folder / "ledger"
    (disk / "ballast").write_bytes(bytes(BALLAST))
    end, flush = draw.choice(("close", "die")), draw.choice(("async", "async", "sync"))
    about = {"root": str(disk / "store"), "seed": SEED, "options": {**options, "flush": flush}}
    way = draw.choice(("batch", "mixed"))
    task = {"role": "fill", "ballast": str(disk / "ballast"), "way": way, "end": end, **about}
    task["settled"] = settled
    told = f"FOREBAY_SEED={SEED}, {flush}, {way}, {end}"
    filled = nursery.run(task)
    assert not filled.complaints, (told, filled.complaints)
    assert filled.status == (0 if end == "close" else -9), (told, filled.lines[-5:])
    assert "room again" in filled.lines
    ledger.write_text("".join(line + "\n" for line in filled.of("ack")))
    return {"role": "check", "ledger": str(ledger), "gapless": False, **about}


def holds(nursery: Nursery, check: dict[str, Any], *modes: str, filler: Path | None = None) -> None:
    """Open in each mode, with no room if there is a filler, and check against the law."""
    outcome = nursery.run({**check, "modes": modes, "fill": [str(filler)] if filler else []})
    story = "\n".join([f"FOREBAY_SEED={SEED} {check}", *outcome.complaints])
    assert (outcome.status, outcome.complaints) == (0, []), story


def cases() -> list[Any]:
    """Return sizes of file systems, and what is written to each."""
    some = sizes() if PROOF else random.Random(SEED).sample(sizes(), LOG_SIZES)
    commits = [pytest.param(size, OPTIONS, id=f"commits-{size}") for size in sizes()]
    found = commits + [pytest.param(size, SMALL_LOG, id=f"log-{size}") for size in some]
    return [found[number] for number in part(len(found))]


@pytest.mark.parametrize(("size", "options"), cases())
def test_a_full_disk_refuses_a_send_and_costs_nothing(
    nursery: Nursery, tmp_path: Path, size: int, options: dict[str, Any]
) -> None:
    draw = random.Random(f"{SEED}.{size}")
    # Blocks may be smaller than the pages of a map. Half of the file systems have such.
    block = BLOCKS[size // (64 << 10) % len(BLOCKS)]
    loopdisk.make(tmp_path / "image", size, block=block)
    with loopdisk.mounted(tmp_path / "image", tmp_path / "disk") as disk:
        spare = disk / "spare"
        spare.write_bytes(bytes(int(size * SPARE_PART) if options is SMALL_LOG else 0))
        check = fill(nursery, tmp_path, disk, draw, settled=False, options=options)
        filler = disk / "filler"
        holds(nursery, check, "r", filler=filler)
        # Queue entries may still have no room: then the opening is refused, and nothing is lost.
        opened = nursery.run({**check, "modes": ["a"]})
        error = "wrong forebay.errors.DiskFullError: "
        refused = any(line.startswith(error) for line in opened.complaints)
        assert refused or (opened.status, opened.complaints) == (0, []), opened.complaints
        holds(nursery, check, "r", filler=filler)
        filler.unlink()
        spare.unlink()
        holds(nursery, check, "r", "a", "a")


def test_recovery_of_what_has_its_entries_needs_no_free_space(
    nursery: Nursery, tmp_path: Path
) -> None:
    loopdisk.make(tmp_path / "image", 4 * MIB)
    with loopdisk.mounted(tmp_path / "image", tmp_path / "disk") as disk:
        check = fill(nursery, tmp_path, disk, random.Random(SEED), settled=True)
        holds(nursery, check, "a", filler=disk / "filler")
