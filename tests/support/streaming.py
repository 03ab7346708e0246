"""A stand-in for Spark that runs a stream's batches, and a writer in a separate process."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from typing import Any

import pyarrow
from pyspark.sql.streaming.datasource import ReadAllAvailable

from forebay.spark.pace import parse_stream_options
from forebay.spark.stream import ForebayStreamReader

#: A row in the form that the tests compare.
Row = tuple[str, int, int, bytes]


class Stream:
    """Acts as Spark does with a stream, and keeps a checkpoint as Spark does, as text."""

    def __init__(self, path: object, parallelism: int = 2, **options: str) -> None:
        paths = {"path": str(path)} if not isinstance(path, list) else {"paths": json.dumps(path)}
        self._given = {"subscribe": "orders", "columns": "topic,partition,offset,value,store"}
        self._given |= paths | options
        if "assign" in options or "subscribePattern" in options:
            del self._given["subscribe"]
        self._parallelism = parallelism
        self._available_now = False
        #: The committed offset.
        self.offset: str | None = None
        self.open()

    def open(self) -> None:
        """Create the reader, as at the start of a query."""
        options = parse_stream_options(self._given)
        self.reader = ForebayStreamReader(options, self._parallelism)

    def restart(self, **options: str) -> None:
        """End the query and start it again from its checkpoint."""
        self.reader.stop()
        self._given |= options
        self.open()

    def available_now(self) -> list[list[Row]]:
        """Run an available-now query; return the rows of its batches."""
        self.restart()
        self.start()
        self.reader.prepareForTriggerAvailableNow()
        batches = []
        while (batch := self.trigger()) is not None:
            batches.append(batch)
        self.restart()
        return batches

    def start(self) -> None:
        """Take the initial offset, if there is none yet."""
        if self.offset is None:
            self.offset = json.dumps(self.reader.initialOffset())

    def plan(self, *, all_available: bool = False) -> str | None:
        """Return the end of the next batch; `None` if there is none."""
        self.start()
        assert self.offset is not None
        limit = ReadAllAvailable() if all_available else self.reader.getDefaultReadLimit()
        end = json.dumps(self.reader.latestOffset(json.loads(self.offset), limit))
        return None if end == self.offset else end

    def run(self, end: str) -> list[list[Row]]:
        """Run a planned batch; return the rows of its tasks."""
        assert self.offset is not None
        found = self.reader.partitions(json.loads(self.offset), json.loads(end))
        # Pickled as for another process, and read by a reader that does not know the plan.
        other = ForebayStreamReader(parse_stream_options(self._given), self._parallelism)
        return [rows_of(other, pickle.loads(pickle.dumps(part))) for part in found]

    def commit(self, end: str) -> None:
        """Commit a batch, as when its rows are in the sink."""
        self.reader.commit(json.loads(end))
        self.offset = end

    def trigger(self) -> list[Row] | None:
        """Run the next batch; `None` if there is none."""
        end = self.plan()
        if end is None:
            return None
        rows = [row for part in self.run(end) for row in part]
        self.commit(end)
        return sorted(rows)

    def drain(self) -> list[Row]:
        """Run batches while there are any; return all their rows."""
        rows: list[Row] = []
        while (batch := self.trigger()) is not None:
            rows += batch
        return rows


def rows_of(reader: ForebayStreamReader, partition: Any) -> list[Row]:
    """Read a partition."""
    rows: list[Row] = []
    for batch in reader.read(partition):
        assert isinstance(batch, pyarrow.RecordBatch)
        columns = ("topic", "partition", "offset", "value")
        rows += zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
    return rows


WRITER = """
import json
import sys

import forebay

path, options = sys.argv[1], json.loads(sys.argv[2])
store = forebay.open(path, **options)
print("ready", flush=True)
for line in sys.stdin:
    verb, *words = line.split()
    if verb == "send":
        topic, queue, first, count = words[0], *map(int, words[1:])
        bodies = [b"%d" % number for number in range(first, first + count)]
        store.producer(topic, queue=queue).send_batch(bodies)
    elif verb == "flush":
        store.flush()
    elif verb == "close":
        store.close()
    print("done", flush=True)
"""

#: Options of a store that flushes nothing by itself.
LAZY = {"flush_interval": 3600, "flush_thorough_interval": 3600, "queue_flush_interval": 3600}


class Writer:
    """A process that writes a store on command."""

    def __init__(self, path: object, **options: object) -> None:
        command = [sys.executable, "-c", WRITER, str(path), json.dumps(options)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer("ready")

    def _answer(self, expected: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == expected

    def ask(self, line: str) -> None:
        """Have it do something, and wait until it is done."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        self._answer("done")

    def kill(self) -> None:
        """End it as a crash would."""
        os.kill(self._process.pid, signal.SIGKILL)
        self._end()

    def close(self) -> None:
        """Have it close the store and exit."""
        self.ask("close")
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._end()

    def _end(self) -> None:
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
