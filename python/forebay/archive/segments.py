"""Copying the segments of a partition log into an archive.

The archive is itself a log directory: Forebay reads it as a store, and Kafka's tools read its
folders. A segment counts as archived once its table of blocks exists, which is written last. No
file of a segment is replaced later, whatever compaction does with the segments of the store.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from forebay import _forebay
from forebay.archive.archived import Archived, Told
from forebay.archive.files import Files
from forebay.archive.history import check_queue
from forebay.archive.marker import PARTITION_LOG, claim
from forebay.archive.names import folder_of, table_of, tables_in
from forebay.archive.record import record
from forebay.archive.writing import read_small
from forebay.errors import CorruptError, StoreExistsError
from forebay.options import Progress
from forebay.words import Worded

if TYPE_CHECKING:
    from io import FileIO

    from forebay import Store
    from forebay._forebay import BlockTable, SealedSegment, SegmentSurvey

__all__ = ["archive_segments"]

#: Topic and queue.
_Place: TypeAlias = tuple[str, int]

#: Folders to look into concurrently.
_FOLDERS = 16
#: File of a partition with the id of its topic.
_METADATA = "partition.metadata"
#: File of a partition with the epochs of its leaders.
_EPOCHS = "leader-epoch-checkpoint"
#: File of a log directory with the first offsets of partitions, where they are within a segment.
_STARTS = "log-start-offset-checkpoint"
#: Bytes of an entry of an index of transactions, and where in it the offset of the marker is.
_ABORTED, _MARKER_AT = 34, 18


def archive_segments(
    store: Store, files: Files, sealed: list[SealedSegment], progress: Progress | None
) -> Archived:
    """Copy the segments that the archive lacks; see `Store.archive`."""
    claim(files, PARTITION_LOG)
    queues: dict[_Place, list[SealedSegment]] = {}
    for segment in sealed:
        queues.setdefault((segment.topic, segment.queue), []).append(segment)
    with ThreadPoolExecutor(_FOLDERS) as readers:
        reached = list(readers.map(lambda it: _end_of(store, files, it), queues.values()))
    ends = dict(zip(queues, reached, strict=True))
    known = {place: end for place, end in ends.items() if end is not None}
    missing = [it for it in sealed if it.end > known.get((it.topic, it.queue), 0)]
    told = Told(sum(it.length for it in missing), progress)
    copier = _Copier(store, files, told, known)
    for place, segments in queues.items():
        copier.bring(place, segments)
    offsets = {folder_of(*place): end for place, end in copier.ends.items()}
    recorded = record(store.path, files.key, offsets)
    reason = None
    if not copier.files:
        reason = "no segment is complete and durable yet"
        if known:
            reason = "all complete segments are already in the archive"
        reason = Worded(
            f"{reason}; roll() on the writer completes those in use",
            f"{reason}; --roll completes those in use",
        )
    return Archived(
        target=files.describe(),
        files=copier.files,
        bytes=copier.copied,
        skipped=len(sealed) - len(missing),
        position=0,
        recorded=recorded,
        retired=copier.retired,
        reason=reason,
        offsets=offsets,
    )


def _end_of(store: Store, files: Files, sealed: list[SealedSegment]) -> int | None:
    """Return the offset up to which the archive has a queue; None if it has none of it.

    Raises
    ------
    CorruptError
        If the archive lacks a part of the last segment.
    StoreExistsError
        If it has another topic of this name, or other messages of the queue.
    """
    folder = folder_of(sealed[0].topic, sealed[0].queue)
    sizes = files.sizes(folder)
    bases = tables_in(sizes)
    if not bases:
        return None

    def tables() -> Iterator[tuple[str, BlockTable]]:
        for base in reversed(bases):
            name, log = f"{folder}/{table_of(base)}", f"{folder}/{base:020}.log"
            data, where = files.read(name), files.describe(folder)
            yield log, _forebay.BlockTable(data, files.describe(name), where)

    newest_first = tables()
    log, table = next(newest_first)
    if not table.queues:
        path = files.describe(f"{folder}/{table_of(bases[-1])}")
        reason = "the table has no queue"
        raise CorruptError(f"corrupt {path}: {reason}", path=path, position=32, reason=reason)
    found = sizes.get(log.removeprefix(f"{folder}/"))
    if found != table.length:
        raise _differs(files, log, table.length, found)
    own = Path(store.path) / folder / _METADATA
    here, there = _read_file(own), _archived(files, f"{folder}/{_METADATA}")
    if None not in (here, there) and here != there:
        where = files.describe(folder)
        message = (
            f"{where} and {own.parent} are of topics with different ids: the archive belongs to "
            "another store, or the topic was created again; archive into another directory"
        )
        raise StoreExistsError(message, path=where)
    check_queue(store, files, sealed, itertools.chain([(log, table)], newest_first))
    return table.queues[0].end


def _archived(files: Files, name: str) -> bytes | None:
    """Return the contents of a file of the archive; None if it does not exist."""
    try:
        return files.read(name)
    except FileNotFoundError:
        return None


class _Copier:
    """Copies segments, each with its indexes; the table of blocks comes last."""

    def __init__(self, store: Store, files: Files, told: Told, known: Mapping[_Place, int]) -> None:
        self._store = store
        self._files = files
        self._told = told
        #: The offset up to which the archive has each queue.
        self.ends = dict(known)
        self.files = self.copied = self.retired = 0

    def bring(self, place: _Place, segments: list[SealedSegment]) -> None:
        """Copy what the archive lacks of a queue."""
        lost: tuple[int, int, int] | None = None
        end = self.ends.get(place)
        # Compaction may leave no messages of a segment.
        passed = end or 0
        if _missing(segments, passed):
            self._bring_tables(place)
        while missing := _missing(segments, passed):
            segment = missing[0]
            # Without a gap, the archive gets the messages after those that it has.
            after = end if end is not None and segments[0].start <= end else None
            try:
                is_copied = self._copy(segment, after)
            except OSError as error:
                if self._told.stopped is not None:
                    # The progress callback raised this; the error may wrap it as one of a file.
                    raise self._told.stopped from None
                facts = (segment.start, segment.end, segment.length)
                if not isinstance(error, FileNotFoundError) or facts == lost:
                    raise
                # Compaction has replaced it, or retention has deleted it.
                lost = facts
                segments = _forebay.sealed_segments(self._store, *place) or []
                first = segments[0].start if segments else 0
                self.retired += sum(it.end <= first for it in missing)
                continue
            passed = segment.end
            if is_copied:
                self.ends[place] = end = passed

    def _bring_tables(self, place: _Place) -> None:
        """Copy the small files of a queue."""
        folder = folder_of(*place)
        own = Path(self._store.path) / folder
        metadata, epochs = _read_file(own / _METADATA), _read_file(own / _EPOCHS)
        if metadata is not None and place not in self.ends:
            self._files.write(f"{folder}/{_METADATA}", metadata)
        if epochs is not None and epochs != _archived(self._files, f"{folder}/{_EPOCHS}"):
            self._files.write(f"{folder}/{_EPOCHS}", epochs)

    def _copy(self, segment: SealedSegment, after: int | None) -> bool:
        """Copy a segment, or its messages from the offset `after` on; False if there are none.

        Raises
        ------
        FileNotFoundError
            If it has been replaced or deleted.
        """
        before = self._told.done
        with open(segment.path, "rb", buffering=0) as source:
            survey = _forebay.survey_segment(self._store, segment, after)
            if survey.length:
                self._copy_surveyed(segment, survey, source)
                self.files += 1
                self.copied += survey.length
        self._told.done = before + segment.length
        return survey.length > 0

    def _copy_surveyed(self, segment: SealedSegment, survey: SegmentSurvey, source: FileIO) -> None:
        folder, base = folder_of(segment.topic, segment.queue), f"{survey.start:020}"
        path = Path(segment.path)
        aborted = _aborted_from(_read_file(path.with_suffix(".txnindex")), survey.start)
        # A producer snapshot describes the first offset of its segment, and no other offset.
        is_whole = survey.start == segment.start
        producers = _read_file(path.with_suffix(".snapshot")) if is_whole else None
        # If the file was replaced after it was opened, its indexes may not match the survey.
        if not os.path.samestat(os.fstat(source.fileno()), os.stat(segment.path)):
            raise FileNotFoundError(f"{segment.path} has been replaced")
        indexes = {
            ".index": survey.offset_index,
            ".timeindex": survey.time_index,
            ".txnindex": aborted,
            ".snapshot": producers,
        }
        for ending, data in indexes.items():
            if data is not None:
                self._files.write(f"{folder}/{base}{ending}", data)
        self._bring_start(segment, survey)
        log = f"{folder}/{base}.log"
        source.seek(survey.skip)
        copied = self._files.copy(log, source, survey.length, self._told)
        if copied != survey.length:
            raise _differs(self._files, log, survey.length, copied)
        self._files.write(f"{folder}/{table_of(survey.start)}", survey.blocks)

    def _bring_start(self, segment: SealedSegment, survey: SegmentSurvey) -> None:
        """Record the first offset of a queue, if the archive begins within a segment."""
        table = _forebay.BlockTable(survey.blocks, "", "")
        first = table.queues[0].start
        place = segment.topic, segment.queue
        if place in self.ends or first <= survey.start:
            return
        # A first offset is believed only as far as the table of epochs confirms it. Both may have
        # moved since that was copied.
        self._bring_tables(place)
        line = f"{segment.topic} {segment.queue} {first}"
        lines = (_archived(self._files, _STARTS) or b"").decode("ascii", "replace").splitlines()[2:]
        kept = [it for it in lines if it.split()[:2] != line.split()[:2]]
        text = "\n".join(["0", str(len(kept) + 1), *kept, line]) + "\n"
        self._files.write(_STARTS, text.encode())


def _missing(segments: list[SealedSegment], end: int) -> list[SealedSegment]:
    return [it for it in segments if it.length and it.end > end]


def _read_file(path: Path) -> bytes | None:
    with contextlib.suppress(FileNotFoundError):
        return read_small(str(path))
    return None


def _aborted_from(index: bytes | None, base: int) -> bytes | None:
    """Return the entries of aborted transactions that end at or after an offset."""
    if index is None:
        return None
    entries = [index[at : at + _ABORTED] for at in range(0, len(index), _ABORTED)]
    marker = slice(_MARKER_AT, _MARKER_AT + 8)
    kept = [it for it in entries if int.from_bytes(it[marker]) >= base and len(it) == _ABORTED]
    return b"".join(kept) or None


def _differs(files: Files, log: str, length: int, found: int | None) -> CorruptError:
    path = files.describe(log)
    state = "is missing" if found is None else f"has {found} bytes"
    reason = f"the archived segment {state}; its table of blocks says {length} bytes"
    return CorruptError(
        f"corrupt archive in {path} at 0: {reason}", path=path, position=0, reason=reason
    )
