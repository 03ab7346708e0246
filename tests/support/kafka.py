"""Check and change log directories with the real Kafka.

A small Java program (``tests/compat/kafka``) drives Kafka's own tools, log classes, cleaner and
broker; this module builds it once with Maven and talks to it through its standard input and output.
Starting the JVM costs a second and the classes of Kafka some more, so one :class:`Kafka` answers
many requests.

Kafka changes a directory merely by loading it, so :meth:`Kafka.open`, :meth:`Kafka.compact` and
:meth:`Kafka.broker` are given copies.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import maven

PROJECT = Path(__file__).resolve().parents[1] / "compat" / "kafka"
TARGET = PROJECT.parent / "target" / "kafka"

#: The process ends before an optimising compiler pays off.
JVM_FLAGS = ("-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
#: What DumpLogSegments can read.
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
#: A record as the program takes and gives it: bytes are hexadecimal digits.
Row = dict[str, Any]


class KafkaError(RuntimeError):
    """Kafka, or the program that drives it, failed or refused the request."""


@dataclass(frozen=True)
class Dumped:
    """What DumpLogSegments printed about the files of a partition.

    ``counts`` has the numbers of batches, records, and entries of each kind of index. ``problems``
    has every line that does not state that something is well.
    """

    counts: dict[str, int]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Listed:
    """The records that Kafka read, control records excluded."""

    records: int
    control_records: int
    batches: int
    empty_batches: int
    sha256: str
    rows: list[Row]
    problems: tuple[str, ...] = ()

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Self:
        """Return what an answer of the program states."""
        return cls(
            answer["records"],
            answer["controlRecords"],
            answer["batches"],
            answer["emptyBatches"],
            answer["sha256"],
            answer["rows"],
            tuple(answer.get("problems", ())),
        )


@dataclass(frozen=True)
class Produced:
    """A batch of a producer, whose epoch is 0. The first row has the sequence."""

    producer: int
    sequence: int
    records: list[Row]
    transactional: bool = False


@dataclass(frozen=True)
class Ended:
    """The marker that ends a transaction."""

    producer: int
    how: Literal["ABORT", "COMMIT"]


@dataclass(frozen=True)
class State:
    """The offsets of an open log, and base offset and bytes of each of its segments.

    ``stable`` is the last stable offset, ``producers`` has the last sequence of each, ``aborted``
    producer, first and last offset of each aborted transaction.
    """

    start: int
    end: int
    stable: int
    recovery_point: int
    segments: list[tuple[int, int]]
    producers: dict[int, int]
    aborted: list[tuple[int, int, int]]

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Self:
        """Return what an answer of the program states."""
        segments = [(it["base"], it["size"]) for it in answer["segments"]]
        return cls(
            answer["start"],
            answer["end"],
            answer["stable"],
            answer["recoveryPoint"],
            segments,
            dict(answer["producers"]),
            [(producer, first, last) for producer, first, last in answer["aborted"]],
        )


@dataclass(frozen=True)
class Opened:
    """What Kafka's log did: its state once opened and when closed, and what it read.

    ``appended`` has the first and last offset of each appended batch, ``offsets`` the offset of the
    first record at or after each time that was asked for, -1 if there is none.
    """

    opened: State
    closed: State
    appended: list[tuple[int, int]]
    offsets: list[int]
    read: Listed


@dataclass(frozen=True)
class Served:
    """What a broker served and stored.

    ``consumed`` has, by partition (``orders-0``), the records that a consumer received,
    ``bounds`` the first and the next offset of each partition. ``produced`` has partition and
    offset of each record that a producer sent.
    """

    consumed: dict[str, Listed]
    bounds: dict[str, tuple[int, int]]
    produced: list[tuple[int, int]]


class Kafka:
    """The running program. Use it in one thread, and close it."""

    def __init__(self, *, optimised: bool = False) -> None:
        path = maven.classpath(PROJECT, TARGET)
        flags = JVM_FLAGS if not optimised else ("-Xms512m", "-Xmx4g")
        # Its standard error is kept for the errors of this module.
        self._log = open(TARGET / "stderr.txt", "w+", encoding="utf-8")  # noqa: SIM115
        self._process = subprocess.Popen(
            ["java", *flags, "-cp", path, "forebay.kafka.Main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self) -> Self:
        """Return the program."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the program."""
        self.close()

    def close(self) -> None:
        """End the program."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        with suppress(BrokenPipeError):
            stdin.close()
        self._process.wait()
        stdout.close()
        self._log.close()

    def dump(self, folder: Path, *, gaps: bool = False) -> Dumped:
        """Run DumpLogSegments over the files of a partition.

        It reports gaps in the offsets, which are normal after compaction; with `gaps` they are no
        problem. Its false alarm about the first record of a later segment is left out.
        """
        files = sorted(it for it in folder.iterdir() if it.suffix in SUFFIXES)
        answer = self.ask("dump", files=[str(file) for file in files])
        problems = [line for line in answer["problems"] if not _is_harmless(line, gaps=gaps)]
        return Dumped(answer["counts"], tuple(problems))

    def files(self, folder: Path, *, rows: bool = False) -> Listed:
        """Read the segments of a partition with FileRecords, checking each batch and record."""
        return Listed.of(self.ask("list", files=_logs(folder), rows=rows))

    def open(
        self,
        folder: Path,
        *,
        clean: bool = False,
        start: int = 0,
        recovery_point: int = 0,
        config: Mapping[str, object] | None = None,
        append: Sequence[tuple[str, Sequence[Row]] | Produced | Ended] = (),
        times: Iterable[int] = (),
        rows: bool = False,
        halt: bool = False,
    ) -> Opened:
        """Open a partition with UnifiedLog in place, and read all of it.

        Unless `clean`, it recovers the segments from `recovery_point` on. `append` has batches,
        each a codec and rows, or what a producer sent, or the end of its transaction. With `halt`,
        the log is not closed: its files are as a crash of the process would leave them.
        """
        answer = self.ask(
            "log",
            folder=str(folder),
            clean=clean,
            start=start,
            recoveryPoint=recovery_point,
            config={name: str(value) for name, value in (config or {}).items()},
            append=[_batch(given) for given in append],
            times=list(times),
            rows=rows,
            halt=halt,
        )
        return Opened(
            State.of(answer["opened"]),
            State.of(answer["closed"]),
            [(first, last) for first, last in answer["appended"]],
            answer["offsets"],
            Listed.of(answer["read"]),
        )

    def compact(
        self,
        folder: Path,
        *,
        now: int,
        dirty: int = 0,
        uncleanable: int | None = None,
        map_bytes: int = 1 << 20,
        config: Mapping[str, object] | None = None,
    ) -> int:
        """Compact a partition in place with Kafka's cleaner, once; return its next dirty offset.

        `now` is the time in ms that decides about tombstones. The active segment, or what lies from
        `uncleanable` on, is left alone. `map_bytes` bounds the map of keys, at 24 bytes a key.
        """
        answer = self.ask(
            "compact",
            folder=str(folder),
            now=now,
            dirty=dirty,
            map=map_bytes,
            config={name: str(value) for name, value in (config or {}).items()},
            **({} if uncleanable is None else {"uncleanable": uncleanable}),
        )
        found: int = answer["dirty"]
        return found

    def broker(
        self,
        folder: Path,
        scratch: Path,
        *,
        produce: Sequence[Row] = (),
        codec: str = "none",
        committed: bool = False,
        rows: bool = False,
    ) -> Served:
        """Run a broker on a log directory, in place, with a consumer and a producer.

        `scratch` is an absent folder for the metadata of the broker's cluster. Each row of
        `produce` also has a topic.
        """
        answer = self.ask(
            "broker",
            folder=str(folder),
            metadata=str(scratch),
            produce=list(produce),
            codec=codec,
            isolation="read_committed" if committed else "read_uncommitted",
            rows=rows,
        )
        consumed = answer["consumed"]
        return Served(
            {name: Listed.of(found) for name, found in consumed.items()},
            {name: (found["start"], found["end"]) for name, found in consumed.items()},
            [(partition, offset) for partition, offset in answer["produced"]],
        )

    def partitions(self, keys: Iterable[bytes], count: int) -> list[int]:
        """Return the partition, of `count`, in which a producer puts a record with each key."""
        answer = self.ask("partitions", keys=[key.hex() for key in keys], count=count)
        found: list[int] = answer["partitions"]
        return found

    def speed(self, folder: Path, *, topics: int, messages: int, body: int) -> dict[str, float]:
        """Append single messages to this many logs in turn, while a thread reads all of them.

        Returns ``rate`` (messages a second), ``p99`` (seconds of an append) and ``read``.
        """
        return self.ask("speed", folder=str(folder), topics=topics, messages=messages, body=body)

    def rates(self, folder: Path, *, messages: int, batch: int, body: int) -> dict[str, float]:
        """Append messages to one log, `batch` at a time, then read all, in one thread.

        Returns messages a second: ``append`` and ``read``.
        """
        return self.ask("rates", folder=str(folder), messages=messages, batch=batch, body=body)

    def ask(self, request: str, **arguments: object) -> dict[str, Any]:
        """Return the answer of the program to a request."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        print(json.dumps({"do": request, **arguments}), file=stdin, flush=True)
        line = stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the program has ended"}
        if "error" in answer:
            self._log.seek(0)
            raise KafkaError(f"{request}: {answer['error']}\n{self._log.read()[-4000:]}")
        return answer


def row(
    value: bytes | None,
    *,
    key: bytes | None = None,
    timestamp: int = 0,
    headers: Iterable[tuple[str, bytes | None]] = (),
) -> Row:
    """Return the row of a record."""

    def digits(part: bytes | None) -> str | None:
        return None if part is None else part.hex()

    return {
        "timestamp": timestamp,
        "key": digits(key),
        "value": digits(value),
        "headers": [[name.encode().hex(), digits(header)] for name, header in headers],
    }


def _batch(given: tuple[str, Sequence[Row]] | Produced | Ended) -> dict[str, Any]:
    if isinstance(given, Produced):
        return {"codec": "none", **asdict(given)}
    if isinstance(given, Ended):
        return {"producer": given.producer, "ends": given.how, "records": []}
    codec, rows = given
    return {"codec": codec, "records": list(rows)}


def _is_harmless(line: str, *, gaps: bool) -> bool:
    """Return whether a line is a heading, or states a gap that is none or is normal."""
    if line.startswith("Non-consecutive offsets in "):
        return True
    before, between, _ = line.partition(" is followed by ")
    return between != "" and (gaps or before.strip() == "-1")


def _logs(folder: Path) -> list[str]:
    return [str(file) for file in sorted(folder.glob("*.log"))]
