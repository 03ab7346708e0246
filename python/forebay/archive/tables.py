"""The log files of an archive, each with the table of its blocks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from forebay import _forebay
from forebay.archive.files import Files
from forebay.archive.names import folder_of, name_of, table_of, tables_in
from forebay.errors import CorruptError

__all__ = ["LogFile", "log_files", "segments"]

#: Tables to read concurrently.
_TABLES = 16


@dataclass(frozen=True)
class LogFile:
    """A log file of an archive, or a segment of a queue, with the table of its blocks."""

    table: _forebay.BlockTable
    #: Its name in the archive.
    name: str
    #: The name of its key file, if it has one.
    keys: str | None = None
    #: Topic and queue, if it is a segment.
    queue: tuple[str, int] | None = None

    @property
    def start(self) -> tuple[tuple[str, int], int]:
        """What log it is of, and where in it the file begins: a position, or an offset."""
        if self.queue is None:
            return ("", 0), self.table.start
        return self.queue, self.table.queues[0].start

    @property
    def end(self) -> int:
        """Where the next file of the same log begins."""
        if self.queue is None:
            return self.table.start + self.table.length
        return self.table.queues[0].end


def log_files(files: Files) -> list[LogFile]:
    """Read the tables of the log files of a commit log."""

    def read(name: str) -> LogFile:
        path, log = files.describe(f"blocks/{name}"), f"commitlog/{name}"
        table = _forebay.BlockTable(files.read(f"blocks/{name}"), path, files.describe(log))
        if name_of(table.start) != name:
            reason = f"the table belongs to log file {name_of(table.start)}"
            raise CorruptError(f"corrupt {path}: {reason}", path=path, position=16, reason=reason)
        return LogFile(table, log, keys=f"keys/{name}")

    with ThreadPoolExecutor(_TABLES) as readers:
        return list(readers.map(read, sorted(files.sizes("blocks"))))


def segments(files: Files) -> list[LogFile]:
    """Read the tables of the segments of a partition log."""

    def bases(folder: str) -> list[tuple[str, int]]:
        return [(folder, base) for base in tables_in(files.sizes(folder))]

    def read(segment: tuple[str, int]) -> LogFile:
        folder, base = segment
        name, log = f"{folder}/{table_of(base)}", f"{folder}/{base:020}.log"
        path = files.describe(name)
        table = _forebay.BlockTable(files.read(name), path, files.describe(log))
        queues = [(row.topic, row.queue) for row in table.queues]
        if [folder_of(*queue) for queue in queues] != [folder]:
            reason = "the table belongs to another folder"
            raise CorruptError(f"corrupt {path}: {reason}", path=path, position=16, reason=reason)
        return LogFile(table, log, queue=queues[0])

    with ThreadPoolExecutor(_TABLES) as readers:
        listed = readers.map(bases, files.folders())
        found = list(readers.map(read, [segment for all_of in listed for segment in all_of]))
    return sorted(found, key=lambda it: (it.start, it.name))
