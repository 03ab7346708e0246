"""Conversions are killed at any call, and continued: the result is that of an undisturbed one."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import PROOF, lacks, part, seed
from kafka_batches import Record, write
from nursery import shim
from small import FILES

import forebay

SEED = seed()
KILLS = part(2_000 if PROOF else 40)
#: Numbers of the calls in the fault library, and of what it does to them.
CALLS = {"open": 0, "pwrite": 6, "rename": 8, "unlink": 9, "mkdir": 10}
BEFORE, AFTER = 2, 3

#: Forks a child for each line; the child converts, and is killed at a call.
PROGRAM = """
import ctypes, json, os, signal, sys
import forebay
faults = ctypes.CDLL(None)
for line in sys.stdin:
    task = json.loads(line)
    if not os.fork():
        plan = [ctypes.c_int(it) for it in (task["call"], task["action"])]
        at = ctypes.c_long(task["at"])
        faults.shim_arm(task["below"].encode(), *plan, at, ctypes.c_int(0), ctypes.c_int(5))
        try:
            forebay.convert(task["source"], task["target"], **task["options"])
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        print(json.dumps([faults.shim_count(call) for call in task["calls"]]), flush=True)
        os._exit(0)
    print(os.wait()[1], flush=True)
"""


@pytest.fixture(scope="module")
def child() -> Iterator[subprocess.Popen[str]]:
    """Return a process that converts in children."""
    made = shim()
    if made is None:
        lacks("cc", "there is no C compiler")
    environment = dict(os.environ, LD_PRELOAD=str(made))
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env=environment, text=True, **pipes
    ) as process:
        yield process


def contents(path: Path) -> dict[str, list[Any]]:
    """Return all that a target holds."""
    with forebay.open(path, mode="r") as store:
        return {
            topic: sorted(
                (it.queue, it.offset, it.store_timestamp, it.body, it.properties)
                for it in store.tail(topic, start="earliest", follow=False)
            )
            for topic in store.topics
        }


def ask(child: subprocess.Popen[str], task: dict[str, Any]) -> tuple[int, list[int]]:
    """Run a conversion; return the status of the child, and its calls if it ended."""
    assert child.stdin is not None and child.stdout is not None
    print(json.dumps(task | {"calls": list(CALLS.values())}), file=child.stdin, flush=True)
    first = child.stdout.readline()
    if first.startswith("["):
        return int(child.stdout.readline()), json.loads(first)
    return int(first), []


def fill(source: Path, draw: random.Random) -> None:
    time = 1_700_000_000_000
    for topic, queues in (("a.b", 2), ("orders", 1)):
        for queue in range(queues):
            batches: list[list[Record]] = []
            for number in range(40):
                time += draw.randrange(-2, 9)
                rows = draw.randrange(1, 12)
                body = f"{topic} {queue} {number} ".encode() * draw.randrange(20)
                batches.append([(time + row, b"k%d" % row, body, []) for row in range(rows)])
            write(source / f"{topic}-{queue}", batches)


@pytest.mark.parametrize(
    ("engine", "renumber"), [("commitlog", False), ("commitlog", True), ("partitionlog", True)]
)
def test_a_killed_conversion_is_continued(
    child: subprocess.Popen[str], tmp_path: Path, engine: str, renumber: bool
) -> None:
    draw = random.Random(f"{SEED}.{renumber}.{KILLS.start}")
    source = tmp_path / "logs"
    fill(source, draw)
    options: dict[str, Any] = {"engine": "commitlog", "renumber": False, **FILES}
    if engine == "partitionlog":
        forebay.convert(source, tmp_path / "commits", **options)
        source, options = tmp_path / "commits", {"segment_bytes": 8 << 10}
    options |= {"engine": engine, "renumber": renumber}
    whole = tmp_path / "whole" / "events"
    whole.parent.mkdir()
    task = {"source": str(source), "options": options, "below": str(tmp_path), "call": -1}
    status, counts = ask(child, task | {"target": str(whole), "action": 0, "at": 0})
    assert status == 0
    expected = contents(whole)
    left, number, met = len(KILLS) // 3, 0, 0
    while left > 0:
        folder = tmp_path / str(number)
        folder.mkdir()
        task["target"] = str(folder / "events")
        number += 1
        for _ in range(draw.randrange(1, 8)):
            call = draw.choice([it for it, count in zip(CALLS, counts, strict=True) if count])
            most = counts[list(CALLS).index(call)]
            plan = {
                "call": CALLS[call],
                "action": draw.choice((BEFORE, AFTER)),
                "at": draw.randrange(most) + 1,
            }
            status, _ = ask(child, task | plan)
            left -= 1
            assert status in (0, signal.SIGKILL), (SEED, plan)
            met += status != 0
            # It may be killed after everything is done.
            if status == 0 or [it.name for it in folder.iterdir()] == ["events"]:
                status = 0
                break
        if status != 0:
            status, _ = ask(child, task | {"call": -1, "action": 0, "at": 0})
        assert status == 0
        assert contents(folder / "events") == expected, (SEED, number)
        assert [it.name for it in folder.iterdir()] == ["events"]
        shutil.rmtree(folder)
    assert met >= len(KILLS) // 9
