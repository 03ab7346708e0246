"""Copying the log files of a store into an archive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forebay import _forebay
from forebay.archive.archived import Archived, Told
from forebay.archive.files import Files, at
from forebay.archive.history import check_log, check_recorded
from forebay.archive.local import LocalFiles
from forebay.archive.marker import COMMIT_LOG, claim
from forebay.archive.names import name_of
from forebay.archive.record import record, withdraw
from forebay.archive.segments import archive_segments
from forebay.errors import CorruptError, StoreExistsError
from forebay.given import check_apart, check_function
from forebay.options import Progress
from forebay.words import Worded

if TYPE_CHECKING:
    from forebay import Store
    from forebay._forebay import SealedFile

__all__ = ["Archived"]


def _archive(store: Store, target: Any, filesystem: Any, progress: Progress | None) -> Archived:
    """Copy the log files that the archive lacks; see `Store.archive`."""
    if progress is not None:
        check_function("progress", progress, "callable, or None")
    files = at(target, filesystem)
    if isinstance(files, LocalFiles):
        check_apart(store.path, "target", files.target)
    try:
        return _copy_to(files, store, progress)
    except StoreExistsError:
        # The record of this archive may belong to another history of the store.
        withdraw(store.path, files.key)
        raise


def _copy_to(files: Files, store: Store, progress: Progress | None) -> Archived:
    segments = _forebay.sealed_segments(store)
    if segments is not None:
        return archive_segments(store, files, segments, progress)
    sealed = _forebay.sealed_files(store)
    claim(files, COMMIT_LOG)
    there, tables = files.sizes("commitlog"), files.sizes("blocks")
    missing = []
    for file in sealed:
        found = there.get(name_of(file.start))
        if name_of(file.start) not in tables:
            missing.append(file)
        elif found != file.length:
            raise _differs(files, file.start, file.length, found)
    known = [file for file in sealed if name_of(file.start) in tables]
    if known:
        check_log(files, known[-1])
    elif whole := {name: size for name, size in there.items() if name in tables}:
        check_recorded(store, files, whole)
    copier = _Copier(store, files, Told(sum(file.length for file in missing), progress))
    gone = {file.start for file in missing if not copier.copy(file)}
    position = store.stats().min_position
    for file in sealed:
        if file.start in gone:
            continue
        if file.start > position:
            break
        position = max(position, file.start + file.length)
    recorded = record(store.path, files.key, position)
    count = len(missing) - len(gone)
    reason = None if count else _why_nothing(sealed, gone, position, store.stats().published)
    return Archived(
        files.describe(),
        count,
        copier.copied,
        len(known),
        position,
        recorded,
        len(gone),
        reason,
    )


def _why_nothing(sealed: list[SealedFile], gone: set[int], position: int, published: int) -> str:
    if gone:
        return "retention deleted the log files before they could be copied"
    if sealed:
        rest = published - (sealed[-1].start + sealed[-1].length)
        text = "all sealed log files are already in the archive"
        return _unsealed(text, rest) if rest > 0 else text
    if published > position:
        return _unsealed("no log file is sealed and durable yet", published - position)
    return "the store is empty"


def _unsealed(text: str, count: int) -> Worded:
    text = f"{text}; the current log file holds {count:,} bytes"
    return Worded(f"{text}; call roll() on the writer to seal it", f"{text}; --roll seals it")


class _Copier:
    """Copies log files, each with its tables; the table of blocks comes last."""

    def __init__(self, store: Store, files: Files, told: Told) -> None:
        self._store = store
        self._files = files
        self._told = told
        self.copied = 0

    def copy(self, file: SealedFile) -> bool:
        """Copy a file; return False if retention deleted it meanwhile."""
        start, length, name = file.start, file.length, name_of(file.start)
        before = self._told.done
        try:
            survey = _forebay.survey(self._store, start)
            with open(file.path, "rb", buffering=0) as source:
                copied = self._files.copy(f"commitlog/{name}", source, length, self._told)
        except OSError as error:
            if self._told.stopped is not None:
                # The progress callback raised this; the error may wrap it as one of a file.
                raise self._told.stopped from None
            if not isinstance(error, FileNotFoundError):
                raise
            if any(start == other.start for other in _forebay.sealed_files(self._store)):
                raise
            return False
        if copied != length or self._files.sizes("commitlog").get(name) != length:
            raise _differs(self._files, start, length, copied)
        self._files.write(f"keys/{name}", survey.keys)
        self._files.write(f"blocks/{name}", survey.blocks)
        self._told.done = before + length
        self.copied += length
        return True


def _differs(files: Files, start: int, length: int, found: int | None) -> CorruptError:
    path = files.describe(f"commitlog/{name_of(start)}")
    state = "is missing" if found is None else f"has {found} bytes"
    reason = f"the archived log file {state}; the store's log file has {length} bytes"
    return CorruptError(
        f"corrupt archive in {path} at {start}: {reason}", path=path, position=start, reason=reason
    )
