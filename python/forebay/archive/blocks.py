"""Log files of an archive, read as fetches of adjacent blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay.archive.local import LocalFiles
from forebay.archive.tables import LogFile
from forebay.errors import CorruptError

if TYPE_CHECKING:
    from forebay import _forebay
    from forebay._forebay import _OffsetRange
    from forebay.archive.files import Files

__all__ = ["Fetch", "LogFiles", "fetches"]

#: Target size of a fetch, in bytes; blocks are never split.
_FETCH_LEN = 8 << 20
#: Concurrent fetches from an object store.
_FETCHES = 4


@dataclass(frozen=True)
class Fetch:
    """Adjacent blocks of a log file."""

    file: LogFile
    start: int
    end: int
    blocks: list[_forebay.Block]


class LogFiles:
    """The log files of an archive."""

    def __init__(self, files: Files, logs: list[LogFile]) -> None:
        self._files = files
        self._logs = logs

    def path(self, file: LogFile) -> str:
        """Return the location of a log file."""
        return self._files.describe(file.name)

    def read(self, file: LogFile, start: int, end: int) -> bytes:
        """Return the bytes of a log file between two positions, as many as it has."""
        try:
            return self._files.read(file.name, start - file.table.start, end - start)
        except FileNotFoundError:
            # Report a missing file as damage: only its own messages are lost.
            return b""

    def plan(self, ranges: Sequence[_OffsetRange], key: str | bytes | None) -> Iterator[Fetch]:
        """Yield the fetches that cover these ranges; with a key, those that may hold it."""
        for file in self._logs:
            numbers = file.table.select(ranges)
            if isinstance(key, str) and numbers and file.keys is not None:
                found = self._blocks_of(file.table, file.keys, {it.topic for it in ranges}, key)
                numbers = [number for number in numbers if number in found]
            yield from fetches(file, numbers)

    def _blocks_of(
        self, table: _forebay.BlockTable, name: str, topics: set[str], key: str
    ) -> set[int]:
        path = self._files.describe(name)
        found: set[int] = set()
        for topic in topics:
            start, end = table.key_range(topic, key)
            if start == end:
                continue
            try:
                data = self._files.read(name, start, end - start)
                found.update(table.key_blocks(topic, key, data, path))
            except (FileNotFoundError, CorruptError):
                # The key table only narrows the search; without it every block is scanned.
                return set(range(len(table.blocks)))
        return found

    def fetched(self, plan: Iterator[Fetch]) -> Iterator[tuple[Fetch, bytes]]:
        """Yield the data of each fetch; from an object store, fetch ahead."""
        if isinstance(self._files, LocalFiles):
            for fetch in plan:
                yield fetch, self.read(fetch.file, fetch.start, fetch.end)
            return
        under_way: deque[tuple[Fetch, Future[bytes]]] = deque()
        with ThreadPoolExecutor(_FETCHES) as readers:
            try:
                for fetch in plan:
                    future = readers.submit(self.read, fetch.file, fetch.start, fetch.end)
                    under_way.append((fetch, future))
                    if len(under_way) == _FETCHES:
                        first, data = under_way.popleft()
                        yield first, data.result()
                while under_way:
                    first, data = under_way.popleft()
                    yield first, data.result()
            finally:
                for _, data in under_way:
                    data.cancel()


def fetches(file: LogFile, numbers: Iterable[int]) -> Iterator[Fetch]:
    """Join adjacent blocks into fetches."""
    rows = file.table.blocks
    fetch: Fetch | None = None
    for number in numbers:
        block = rows[number]
        end = block.position + block.length
        follows = fetch is not None and fetch.end == block.position
        if fetch is not None and follows and block.position - fetch.start < _FETCH_LEN:
            fetch = Fetch(file, fetch.start, end, [*fetch.blocks, block])
            continue
        if fetch is not None:
            yield fetch
        fetch = Fetch(file, block.position, end, [block])
    if fetch is not None:
        yield fetch
