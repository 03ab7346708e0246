"""Sending to one topic and to many.

A store is created with the topics, unless an earlier run has left it, and each gets a message. Then
a sender sends to them in turn, one message a call, while a reader in another process reads all of
them.
"""

from __future__ import annotations

import subprocess
import sys
import time
from array import array
from dataclasses import dataclass
from pathlib import Path

import forebay
from forebay.given import FILE_ENGINES
from forebay.options import FileEngine

__all__ = ["ENGINES", "TOPICS", "Measured", "measure"]

#: Engines with files.
ENGINES = FILE_ENGINES
#: Numbers of topics.
TOPICS = (1, 10, 100, 1_000, 10_000)


@dataclass(frozen=True)
class Measured:
    """One run."""

    engine: str
    """What was measured."""
    topics: int
    """Number of topics."""
    rate: float
    """Messages sent per second."""
    p99: float
    """The time in seconds that 99 of 100 sends did not exceed."""
    read: int
    """Messages that the reader has read until the last send."""


def measure(
    engine: FileEngine,
    topics: int,
    folder: Path,
    *,
    messages: int = 500_000,
    body: int = 100,
) -> Measured:
    """Send messages to a number of topics in turn, in a store below a folder.

    The store stays there for later runs: to create the files of 10,000 partitions takes many times
    as long as to send the messages.

    Parameters
    ----------
    engine
        Engine of the store.
    topics
        Number of topics, of one queue each.
    folder
        An existing folder.
    messages, body
        Number of messages, and bytes of each body.
    """
    path = folder / f"{engine}-{topics}"
    with forebay.open(path, engine=engine, default_queues=1) as store:
        producers = [store.producer(f"topic{number}", queue=0) for number in range(topics)]
        for producer in producers:
            producer.send(bytes(body))
        reader = subprocess.Popen(
            [sys.executable, "-m", "forebay.bench.reading", str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert reader.stdout is not None
        try:
            ready = reader.stdout.readline()
            if ready != "ready\n":
                raise RuntimeError(f"the reader of {path} has ended")
            took = _send(producers, bytes(body), messages)
            read, _ = reader.communicate()
        finally:
            reader.kill()
            reader.wait()
    seconds = sum(took) / 1e9
    p99 = sorted(took)[len(took) * 99 // 100] / 1e9
    return Measured(engine, topics, messages / seconds, p99, int(read))


def _send(producers: list[forebay.Producer], body: bytes, messages: int) -> array[int]:
    """Send messages in turn; return how long each took, in ns."""
    sends = [producer.send for producer in producers]
    count = len(sends)
    clock = time.perf_counter_ns
    took = array("q", bytes(8 * messages))
    before = clock()
    for number in range(messages):
        sends[number % count](body)
        after = clock()
        took[number] = after - before
        before = after
    return took
