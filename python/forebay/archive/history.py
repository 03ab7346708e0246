"""Whether an archive and a store have the same messages.

A store that was restored from a backup and then written gives other messages positions and offsets
that its archive already has. From there on, the log differs in every record. So it is enough to
compare the newest part that both have. If the store has nothing left of the newest part of the
archive, its own record of the archive decides: the record in a backup from before that part says
that the archive has less.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import forebay
from forebay import _forebay
from forebay.archive.files import Files
from forebay.archive.names import folder_of, name_of
from forebay.archive.record import is_recorded
from forebay.errors import StoreExistsError

if TYPE_CHECKING:
    from forebay import Store
    from forebay._forebay import Block, BlockTable, Message, SealedFile, SealedSegment

__all__ = ["check_log", "check_queue", "check_recorded"]

#: Bytes to read at once.
_CHUNK = 1 << 20
#: Messages to read at once.
_MESSAGES = 1024
#: An offset that no queue reaches.
_BEYOND = (1 << 63) - 1
_WHY = (
    "the archive belongs to another store, or the store was restored from a backup, repaired or "
    "damaged since; archive into another directory"
)
_NOTHING = "and the store has neither the newest messages nor a record that they are archived"


def check_recorded(store: Store, files: Files, there: dict[str, int]) -> None:
    """Compare a commit log's record with its archive, which has no log file that the store has.

    `there` are the sizes of the archive's log files that are complete, by name.

    Raises
    ------
    StoreExistsError
        If it was not recorded that the archive has so much of this log.
    """
    newest = max(there)
    end = int(newest) + there[newest]
    if not is_recorded(store.path, files.key, end):
        where = files.describe("commitlog")
        raise StoreExistsError(f"{where} ends at {end}, {_NOTHING}: {_WHY}", path=where)


def check_log(files: Files, file: SealedFile) -> None:
    """Compare the newest log file that a commit log and its archive have: three of its blocks.

    Raises
    ------
    StoreExistsError
        If the archive is of another log.
    """
    name = f"blocks/{name_of(file.start)}"
    where = files.describe(f"commitlog/{name_of(file.start)}")
    table = _forebay.BlockTable(files.read(name), files.describe(name), where)
    blocks = table.blocks
    # The first one, the last one with messages, and the one that ends the file.
    compared = [blocks[0], *[it for it in blocks if it.records][-1:], blocks[-1]]
    with contextlib.suppress(FileNotFoundError):
        is_same = all(_is_in(file.path, it, table.start) for it in compared)
        if table.length != file.length or not is_same:
            raise StoreExistsError(f"{where} differs from log file {file.path}: {_WHY}", path=where)


def check_queue(
    store: Store,
    files: Files,
    sealed: list[SealedSegment],
    tables: Iterable[tuple[str, BlockTable]],
) -> None:
    """Compare the newest messages that a queue of a partition log and its archive have.

    `sealed` are the sealed segments of the queue. `tables` are those of its archive, each with the
    name of its segment, the newest first.

    Raises
    ------
    StoreExistsError
        If the archive is of another queue.
    """
    topic, queue = sealed[0].topic, sealed[0].queue
    folder = folder_of(topic, queue)
    # A read at this offset returns only the bounds of the queue.
    here = store.read(topic, queue, _BEYOND, max_messages=1)
    newest: int | None = None
    for log, table in tables:
        if newest is None:
            newest = table.queues[0].end
            # Sealed messages may not be visible yet, because a transaction is open.
            behind = max(here.max_offset, sealed[-1].end)
            if behind < newest:
                where = files.describe(folder)
                reason = f"has offsets up to {newest - 1}, and the queue ends before {behind}"
                raise StoreExistsError(f"{where} {reason}: {_WHY}", path=where)
            if _is_whole(sealed, table):
                return
        # Compaction has changed the bytes, but not the messages that it left.
        for number in reversed(range(len(table.blocks))):
            end = _end_before(table, number + 1)
            start = max(_end_before(table, number), here.min_offset)
            message = _last(store, topic, queue, start, end)
            if message is not None:
                data = files.read(log, table.blocks[number].position, table.blocks[number].length)
                if not _has(data, message):
                    where = files.describe(log)
                    at = f"differs from {topic} queue {queue} at offset {message.offset}"
                    raise StoreExistsError(f"{where} {at}: {_WHY}", path=where)
                return
            if end == newest and not is_recorded(store.path, files.key, newest, folder):
                where = files.describe(folder)
                reason = f"has offsets up to {newest - 1}, {_NOTHING}"
                raise StoreExistsError(f"{where} {reason}: {_WHY}", path=where)
        if table.queues[0].start <= here.min_offset:
            return


def _is_whole(sealed: list[SealedSegment], table: BlockTable) -> bool:
    """Return whether one of these segments has the length and the last block of a table."""
    end = table.queues[0].end
    for segment in sealed:
        if segment.end == end and segment.length == table.length:
            with contextlib.suppress(FileNotFoundError):
                return _is_in(segment.path, table.blocks[-1], 0)
    return False


def _end_before(table: BlockTable, number: int) -> int:
    """Return the offset up to which a segment of an archive has a queue before a block."""
    ends = table.ends_before(number)
    return ends[0].end if ends else table.queues[0].start


def _last(store: Store, topic: str, queue: int, start: int, end: int) -> Message | None:
    """Return the last message of a queue with an offset from `start` to `end` (exclusive)."""
    found = None
    while start < end:
        batch = store.read(topic, queue, start, max_messages=_MESSAGES)
        for message in batch:
            found = message if message.offset < end else found
        if batch.next_offset <= start:
            break
        start = batch.next_offset
    return found


def _has(data: bytes, message: Message) -> bool:
    """Return whether these batches of a queue have a message."""
    with tempfile.TemporaryDirectory(prefix="forebay-") as path:
        folder = Path(path) / folder_of(message.topic, message.queue)
        folder.mkdir()
        (folder / f"{0:020}.log").write_bytes(data)
        with forebay.open(path, mode="r") as store:
            found = store.read(message.topic, message.queue, message.offset, max_messages=1)
            return [_content(it) for it in found] == [_content(message)]


def _content(message: Message) -> tuple[Any, ...]:
    """Return the parts of a message that compaction does not change."""
    key, body = message.key_bytes, None if message.is_null else message.stored_body
    return message.offset, message.store_timestamp, key, body, message.headers


def _is_in(path: str, block: Block, start: int) -> bool:
    """Return whether a file, whose first byte is at the position `start`, has a block."""
    with open(path, "rb", buffering=0) as file:
        checksum, rest = 0, block.length
        file.seek(block.position - start)
        while rest and (data := os.read(file.fileno(), min(rest, _CHUNK))):
            checksum = zlib.crc32(data, checksum)
            rest -= len(data)
    return rest == 0 and checksum == block.checksum
