"""Helpers for the Spark tests: how to start a session, and messages of every kind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import forebay

#: The beginning of a test program that is a Spark driver. It ends with the process that started it,
#: and ends its JVM: those of a killed test would otherwise run forever.
SESSION = """
import ctypes, json, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]")
# To generate and compile code takes longer than to interpret the plans of a life of few batches.
builder = builder.config("spark.sql.codegen.wholeStage", False)
builder = builder.config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
"""


def run_program(code: str, *arguments: str, python: str = sys.executable, **place: Any) -> str:
    """Run code in a separate process, which must succeed, and return its output."""
    command = [python, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, **place)
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout


class Driver:
    """A driver in its own process group, which runs a program on command.

    The program gets its arguments as JSON, in ``given``. The session is created before the command,
    so that the next driver can start while the current one works.
    """

    def __init__(self, program: str, given: Any) -> None:
        # Without a parent to command it, it ends.
        told = "sys.stdin.readline() or sys.exit()\ngiven = json.loads(sys.argv[1])\n"
        code = SESSION + told + program
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            start_new_session=True,
        )

    def run(self) -> None:
        """Have it run the program."""
        assert self._process.stdin is not None
        self._process.stdin.write("run\n")
        self._process.stdin.flush()

    def wait_for(self, word: str) -> None:
        """Wait until it prints a word, its only output."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == word + "\n"

    def check(self) -> None:
        """Check that it has not ended by itself."""
        status = self._process.poll()
        if status is not None:
            self._said.seek(0)
            said = self._said.read().decode(errors="replace")
            raise AssertionError(f"the driver ended by itself, status {status}: {said[-5000:]}")

    def kill(self) -> None:
        """Kill it and everything that it has started."""
        # Spark's workers are in its process group, unless their daemon created one for them.
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        self._said.close()


@contextmanager
def drivers(program: str, given: Any, count: int) -> Iterator[Callable[[], Driver]]:
    """Yield a function that runs the program in a driver, a new one each time, `count` times."""
    left = count - 1
    waiting: Driver | None = Driver(program, given)

    def run() -> Driver:
        nonlocal left, waiting
        running, waiting = waiting, Driver(program, given) if left > 0 else None
        left -= 1
        assert running is not None, "there are no more drivers"
        running.run()
        return running

    try:
        yield run
    finally:
        if waiting is not None:
            waiting.kill()


@dataclass
class Sent:
    """A message as passed to `send`, and where it was stored."""

    topic: str
    queue: int
    offset: int
    position: int
    message_id: str
    timestamp: int
    body: bytes
    keys: list[str]
    tags: str | None
    properties: dict[str, str]
    born: int

    def kafka(self) -> dict[str, Any]:
        """Return the row of Spark's Kafka connector."""
        headers = [{"key": k, "value": v.encode()} for k, v in self.properties.items()]
        return {
            "key": self.keys[0].encode() if self.keys else None,
            "value": self.body,
            "topic": self.topic,
            "partition": self.queue,
            "offset": self.offset,
            "timestamp": at(self.timestamp),
            "timestampType": 1,
            "headers": headers or None,
        }

    def own(self) -> dict[str, Any]:
        """Return the row under Forebay's own names."""
        return {
            "topic": self.topic,
            "queue": self.queue,
            "offset": self.offset,
            "position": self.position,
            "store_timestamp": at(self.timestamp),
            "born_timestamp": at(self.born),
            "keys": " ".join(self.keys) or None,
            "tags": self.tags,
            "properties": sorted(self.properties.items()),
            "body": self.body,
            "message_id": self.message_id,
            "flag": 0,
            "sys_flag": 0,
            "reconsume_times": 0,
        }


def at(millis: int) -> datetime:
    """Return a time as Arrow converts it to Python."""
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=millis)


@dataclass
class Events:
    """A closed store, and all messages that were sent to it."""

    path: str
    sent: list[Sent]

    def of(self, *topics: str) -> list[Sent]:
        """Return the messages of these topics, in the order of topics, queues and offsets."""
        found = [sent for sent in self.sent if sent.topic in topics]
        return sorted(found, key=lambda sent: (topics.index(sent.topic), sent.queue, sent.offset))


def send_one(store: forebay.Store, topic: str, number: int, queue: int | None) -> Sent:
    """Send a message that is determined by its number."""
    body = b"" if number % 7 == 0 else b"body %d " % number * (number % 11 + 1)
    keys = [[], [f"k{number}"], [f"k{number}", "second"]][number // 3 % 3]
    tags = "paid" if number % 2 else None
    properties = {"n": str(number), "a": "\N{SNOWMAN}"} if number % 5 == 0 else {}
    born = 1_700_000_000_000 + number
    result = store.send(
        topic,
        body,
        keys=keys or None,
        tags=tags,
        properties=properties,
        queue=queue,
        timestamp=at(born),
    )
    place = (result.topic, result.queue, result.offset, result.position, result.message_id)
    return Sent(*place, result.timestamp, body, keys, tags, properties, born)
