"""Open and append to stores with the real RocketMQ.

A small Java program (``tests/compat/src/main/java``) drives ``DefaultMessageStore`` of RocketMQ
5.5.0 or 4.9.7; this module builds it once with Maven and runs it. Starting a JVM costs a second,
so one serves all commands of a process; shutting a store down takes three, so :func:`list_stores`
takes many stores at once.

RocketMQ changes a directory merely by loading it: it cuts the log at the first record that it does
not accept, and deletes everything after it. Listings therefore work on a copy by default, and
report what loading removed (:attr:`Listing.cut`, :attr:`Listing.deleted_files`,
:attr:`Listing.changed_files`).
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import maven
import store_files

Version = Literal["5.5.0", "4.9.7"]
Row = dict[str, Any]

PROJECT = Path(__file__).resolve().parents[1] / "compat"
PROFILES: dict[Version, str] = {"5.5.0": "v5", "4.9.7": "v4"}

# RocketMQ unmaps files and locks memory through these internals of the JDK.
JDK_FLAGS = (
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
)
# Without TLS the broker need not spend seconds on generating a key.
JVM_FLAGS = ("-Xms32m", "-Xmx192m", "-XX:+UseSerialGC", "-Dtls.server.mode=disabled")
# Seconds that a command may take, and that each store which it lists adds: on a busy machine one
# takes more than a second.
COMMAND_S = 300
STORE_S = 10
# Except for a measurement, the process ends before an optimising compiler pays off.
QUICK_FLAGS = ("-XX:TieredStopAtLevel=1",)


class RocketMQError(RuntimeError):
    """RocketMQ, or the program that drives it, failed or refused the request."""


@dataclass(frozen=True)
class Sizes:
    """File sizes of a store, which its format does not record.

    ``log`` and ``queue`` are bytes of a file, ``slots`` and ``entries`` those of an index file. The
    defaults are RocketMQ's own.
    """

    log: int = 1 << 30
    queue: int = 6_000_000
    slots: int = 5_000_000
    entries: int = 20_000_000

    @classmethod
    def of(cls, directory: str | os.PathLike[str]) -> Sizes:
        """Read the sizes off the files, with four index entries a slot, else the defaults."""
        root = Path(directory)
        log = _first_size(root, "commitlog/*")
        queue = _first_size(root, "consumequeue/*/*/*")
        index = _first_size(root, "index/*")
        slots = (index - 40) // 84 if index else cls.slots
        return cls(log or cls.log, queue or cls.queue, slots, 4 * slots)

    def arguments(self) -> list[str]:
        return [
            *("--log-size", str(self.log)),
            *("--queue-size", str(self.queue)),
            *("--slots", str(self.slots)),
            *("--entries", str(self.entries)),
        ]


@dataclass(frozen=True)
class Listing:
    """What the real store shows of one directory.

    ``messages`` holds the rows of all queues, topics by UTF-8 bytes, then queue, then offset;
    ``hidden`` the prepared and rolled back messages, which no queue shows, in log order.
    ``errors`` lists inconsistencies: an offset that shows no message or another one, a record that
    fails RocketMQ's own check, a key that does not find its message.
    """

    directory: Path
    messages: list[Row]
    hidden: list[Row]
    topics: dict[str, dict[int, tuple[int, int]]]
    min_position: int
    max_position: int
    data_end_before: int
    deleted_files: tuple[str, ...]
    changed_files: tuple[str, ...]
    keys_checked: int
    keys_missed: int
    digest: str
    error_count: int
    errors: tuple[str, ...]
    clean: bool

    @property
    def cut(self) -> int:
        """Bytes from the end that RocketMQ decided on to the last one that was not zero.

        Stale bytes that an earlier recovery left count too: RocketMQ does not erase them.
        """
        return max(0, self.data_end_before - self.max_position)


@dataclass(frozen=True)
class Appended:
    """Rows that RocketMQ appended, in order; ``clean`` is False after a halt."""

    messages: list[Row]
    max_position: int
    clean: bool


@dataclass(frozen=True)
class BrokerRun:
    """What a broker did, by kind: ``"scheduled"``, ``"delayed"``, ``"retried"``, ``"consumed"``.

    ``stored`` has the messages it began with, ``delivered`` those that a consumer then received:
    for ``scheduled``, delayed messages that were already in the store, by destination queue; for
    ``delayed``, one sent with the shortest delay; for ``retried``, one that a consumer sent back.
    ``consumed`` has what a group had not consumed. ``later`` has delayed messages that were not due
    soon. ``tables`` is what its classes read: ``offsets`` of consumers, ``levels`` of delays, and
    ``retries`` of groups.
    """

    stored: dict[str, list[Row]]
    delivered: dict[str, list[Row]]
    later: list[Row]
    tables: dict[str, Any]
    clean: bool


@dataclass(frozen=True)
class Job:
    """One store of a batch. Sizes that are not given are read from its files."""

    directory: str | os.PathLike[str]
    sizes: Sizes | None = None
    record_checksum: bool = False


def list_store(
    directory: str | os.PathLike[str],
    *,
    version: Version = "5.5.0",
    sizes: Sizes | None = None,
    record_checksum: bool = False,
    in_place: bool = False,
) -> Listing:
    """Open a store with RocketMQ and list everything it shows.

    ``record_checksum`` makes RocketMQ (5.5.0) require a correct ``__CRC32#`` in every record.

    Raises
    ------
    RocketMQError
        If RocketMQ refuses to load the store.
    """
    job = Job(directory, sizes, record_checksum)
    (listing,) = list_stores([job], version=version, in_place=in_place)
    if isinstance(listing, RocketMQError):
        raise listing
    return listing


def list_stores(
    jobs: Sequence[Job | str | os.PathLike[str]],
    *,
    version: Version = "5.5.0",
    in_place: bool = False,
) -> list[Listing | RocketMQError]:
    """List many stores at once; a refused store gives its error."""
    with tempfile.TemporaryDirectory(prefix="forebay-compat-") as temporary:
        words: list[str] = []
        roots: list[Path] = []
        for number, job in enumerate(jobs):
            job = job if isinstance(job, Job) else Job(job)
            root = Path(job.directory).resolve()
            sizes = job.sizes or Sizes.of(root)
            if not in_place:
                root = store_files.copy(root, Path(temporary) / str(number))
            roots.append(root)
            words += _target(root, sizes, record_checksum=job.record_checksum)
        before = [store_files.fingerprints(root) for root in roots]
        limit_s = COMMAND_S + STORE_S * len(roots)
        lines = _java(version, "list", words, limit_s) if roots else []
        after = [store_files.fingerprints(root) for root in roots]
    changed = [store_files.difference(old, new) for old, new in zip(before, after, strict=True)]
    return _listings(lines, [Path(_directory_of(job)) for job in jobs], roots, changed)


def append(
    directory: str | os.PathLike[str],
    *,
    count: int,
    seed: int,
    sizes: Sizes | None = None,
    version: Version = "5.5.0",
    record_checksum: bool = False,
    halt: bool = False,
) -> Appended:
    """Open a store, in place, and append messages of many kinds, the same for the same seed.

    ``halt`` ends the process after the last one without closing the store.
    """
    root = Path(directory).resolve()
    words = _target(root, sizes or Sizes.of(root), record_checksum=record_checksum)
    return _append("append", words, version, count=count, seed=seed, halt=halt)


def write(
    directory: str | os.PathLike[str],
    *,
    count: int,
    seed: int,
    sizes: Sizes,
    version: Version = "5.5.0",
    record_checksum: bool = False,
    halt: bool = False,
) -> Appended:
    """Let RocketMQ create a store in an empty or absent directory, as :func:`append` does."""
    words = _target(Path(directory).resolve(), sizes, record_checksum=record_checksum)
    return _append("write", words, version, count=count, seed=seed, halt=halt)


def broker(
    directory: str | os.PathLike[str],
    *,
    sizes: Sizes | None = None,
    send_back: tuple[str, int, int] | None = None,
    consume: tuple[str, str] | None = None,
    record_checksum: bool = False,
) -> BrokerRun:
    """Run a broker of RocketMQ 5.5.0 on a store, in place, and let it deliver messages again.

    It delivers the stored delayed messages that are due within ten seconds, a delayed message sent
    to it, and a message that a consumer sends back: the one that ``send_back`` names by topic,
    queue and offset, otherwise the delayed one. The copies have all properties of the message, even
    a stale ``__CRC32#``, unless ``record_checksum`` makes the broker write its own. It consumes the
    rest of a topic for a group: ``consume`` names both.
    """
    root = Path(directory).resolve()
    words = _target(root, sizes or Sizes.of(root), record_checksum=record_checksum)
    if send_back is not None:
        topic, queue, offset = send_back
        words += ["--send-back", f"{topic}:{queue}:{offset}"]
    if consume is not None:
        words += ["--consume", ":".join(consume)]
    lines = _java("5.5.0", "broker", words)
    found: dict[str, dict[str, list[Row]]] = {}
    for line in lines:
        if "event" in line:
            kinds = found.setdefault(line["event"], {})
            kinds.setdefault(line["kind"], []).append(line["row"])
    return BrokerRun(
        stored=found.get("stored", {}),
        delivered=found.get("delivered", {}),
        later=found.get("later", {}).get("scheduled", []),
        tables=next(line["tables"] for line in lines if "tables" in line),
        clean=any(line["clean"] for line in lines if "closed" in line),
    )


def speed(directory: str | os.PathLike[str], *, count: int, body: int) -> float:
    """Let RocketMQ 5.5.0 put messages into an absent directory; return messages per second."""
    return _speed(directory, count=count, body=body)["messagesPerSecond"]


def speed_of_topics(
    directory: str | os.PathLike[str], *, topics: int, count: int, body: int
) -> dict[str, float]:
    """Put messages to this many topics in turn, while a thread reads all of them.

    Returns ``rate`` (messages a second), ``p99`` (seconds of a put) and ``read``.
    """
    found = _speed(directory, "--read", "--topics", str(topics), count=count, body=body)
    return {"rate": found.pop("messagesPerSecond"), **found}


def _speed(
    directory: str | os.PathLike[str], *options: str, count: int, body: int
) -> dict[str, float]:
    words = _target(Path(directory).resolve(), Sizes(), record_checksum=False)
    words += ["--count", str(count), "--body", str(body), *options]
    (line,) = _java("5.5.0", "speed", words)
    return {name: float(value) for name, value in line.items()}


def classpath(version: Version = "5.5.0") -> str:
    """Build the Java program if necessary, and return its class path."""
    profile = PROFILES[version]
    return maven.classpath(PROJECT, PROJECT / "target" / profile, "-P", profile)


def _target(root: Path, sizes: Sizes, *, record_checksum: bool) -> list[str]:
    return [str(root), *sizes.arguments(), *(["--record-checksum"] if record_checksum else [])]


def _java(
    version: Version, command: str, words: Sequence[str], limit_s: float = COMMAND_S
) -> list[Row]:
    """Run one command; return its lines, or raise an error with the end of its stderr."""
    if command in ("broker", "speed") or "--halt" in words:
        status, lines, told = _run_alone(version, [command, *words], limit_s)
    else:
        status, lines, told = _server(version).run([command, *words], limit_s)
    if status != 0:
        what = lines[-1].get("error") if lines else None
        raise RocketMQError(f"{command} fails: {what or status}\n{told[-4000:]}")
    return lines


def _run_alone(version: Version, words: list[str], limit_s: float) -> tuple[int, list[Row], str]:
    with tempfile.TemporaryDirectory(prefix="forebay-java-") as home:
        flags = QUICK_FLAGS if words[0] != "speed" else ()
        run = subprocess.run(
            _command(version, home, flags, words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=limit_s,
        )
    return run.returncode, [json.loads(line) for line in run.stdout.splitlines()], run.stderr


def _command(version: Version, home: str, flags: Sequence[str], words: list[str]) -> list[str]:
    main = f"forebay.compat.{PROFILES[version]}.Main"
    java = ["java", *JDK_FLAGS, *JVM_FLAGS, *flags, f"-Duser.home={home}"]
    return [*java, "-cp", classpath(version), main, *words]


class _Server:
    """A JVM that runs one command after another: only the first one waits for it to start."""

    def __init__(self, version: Version) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="forebay-java-")
        self._told = open(Path(self._home.name) / "stderr", "a+b")  # noqa: SIM115
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            _command(version, self._home.name, QUICK_FLAGS, ["serve"]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._told,
            encoding="utf-8",
        )
        atexit.register(self.end)

    def run(self, words: list[str], limit_s: float) -> tuple[int, list[Row], str]:
        """Return the status, the lines, and what RocketMQ said beside; -1 if the JVM has ended."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        with self._lock:
            begin = self._told.seek(0, os.SEEK_END)
            limit = threading.Timer(limit_s, self._process.kill)
            limit.start()
            lines: list[Row] = []
            try:
                stdin.write("\t".join(words) + "\n")
                stdin.flush()
                for line in stdout:
                    lines.append(json.loads(line))
                    if "status" in lines[-1]:
                        break
            except BrokenPipeError:
                pass
            finally:
                limit.cancel()
            self._told.seek(begin)
            told = self._told.read().decode(errors="replace")
        status = lines.pop()["status"] if lines and "status" in lines[-1] else -1
        return status, lines, told

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._told.close()
        self._home.cleanup()


_servers: dict[Version, _Server] = {}
_starting = threading.Lock()


def _server(version: Version) -> _Server:
    with _starting:
        known = _servers.get(version)
        if known is None or not known.is_alive():
            known = _servers[version] = _Server(version)
        return known


def _append(
    command: str, words: list[str], version: Version, *, count: int, seed: int, halt: bool
) -> Appended:
    words = [*words, "--count", str(count), "--seed", str(seed), *(["--halt"] if halt else [])]
    lines = _java(version, command, words)
    rows = [line for line in lines if "topic" in line]
    (summary,) = (line["summary"] for line in lines if "summary" in line)
    clean = any(line.get("clean", False) for line in lines if "closed" in line)
    return Appended(rows, summary["maxPhyOffset"], clean)


def _listings(
    lines: list[Row], directories: list[Path], roots: list[Path], changed: list[tuple[str, ...]]
) -> list[Listing | RocketMQError]:
    closed = {line["closed"]: line for line in lines if "closed" in line}
    starts = [at for at, line in enumerate(lines) if "store" in line]
    found: list[Listing | RocketMQError] = []
    for number, (start, stop) in enumerate(zip(starts, [*starts[1:], len(lines)], strict=True)):
        part = lines[start:stop]
        refused = [line["refused"] for line in part if "refused" in line]
        if refused:
            found.append(RocketMQError(refused[0]))
            continue
        end = closed[str(roots[number])]
        found.append(_listing(part, directories[number], changed[number], end))
    return found


def _listing(lines: list[Row], directory: Path, changed: tuple[str, ...], closed: Row) -> Listing:
    rows = [line for line in lines if "topic" in line]
    (summary,) = (line["summary"] for line in lines if "summary" in line)
    topics = {
        topic: {int(queue): (low, high) for queue, (low, high) in queues.items()}
        for topic, queues in summary["topics"].items()
    }
    return Listing(
        directory=directory,
        messages=[row for row in rows if row["inQueue"]],
        hidden=[row for row in rows if not row["inQueue"]],
        topics=topics,
        min_position=summary["minPhyOffset"],
        max_position=summary["maxPhyOffset"],
        data_end_before=summary["dataEndBefore"],
        deleted_files=tuple(summary["deletedFiles"]),
        changed_files=changed,
        keys_checked=summary["keysChecked"],
        keys_missed=summary["keysMissed"],
        digest=summary["digest"],
        error_count=summary["errorCount"],
        errors=(*summary["errors"], *([] if closed["clean"] else [f"unclean: {closed['why']}"])),
        clean=closed["clean"],
    )


def _directory_of(job: Job | str | os.PathLike[str]) -> str | os.PathLike[str]:
    return job.directory if isinstance(job, Job) else job


def _first_size(root: Path, pattern: str) -> int:
    return next((file.stat().st_size for file in root.glob(pattern) if file.is_file()), 0)
