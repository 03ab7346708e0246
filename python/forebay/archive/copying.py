"""Copying the log files of a store into an archive."""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay import _forebay
from forebay.archive.files import Files, at
from forebay.archive.local import LocalFiles
from forebay.durable import replace_file
from forebay.errors import CorruptError, NotAStoreError, StoreExistsError, UnsupportedError
from forebay.given import check_apart, check_function
from forebay.jsons import json_object

if TYPE_CHECKING:
    from forebay import Store
    from forebay._forebay import SealedFile

__all__ = ["MARKER", "NOTE", "Archived", "check_marker"]

MARKER = "forebay.archive"
"""The file that marks a directory as an archive."""
#: The file of a store that records its archives and how far each has the log.
NOTE = "forebay.archived"
VERSION = 1

Progress = Callable[[int, int], object]


@dataclass(frozen=True)
class Archived:
    """What `Store.archive` did.

    Attributes
    ----------
    target
        Where the archive is.
    files, bytes
        Log files that were copied, and their bytes.
    skipped
        Log files that were already in the archive.
    position
        The archive has the store's log up to here, starting from what the store still keeps.
    recorded
        Whether the position was recorded in the store's directory, for retention. It is not if
        the directory belongs to another system or is read-only, or if the existing record cannot
        be read.
    retired
        Log files that retention deleted before they were copied. The archive lacks them.
    reason
        Why nothing was copied; None if something was.
    """

    target: str
    files: int
    bytes: int
    skipped: int
    position: int
    recorded: bool
    retired: int = 0
    reason: str | None = None


def name_of(start: int) -> str:
    """Return the name of the log file that starts at a position."""
    return f"{start:020}"


def check_marker(files: Files) -> bool:
    """Return whether the marker of an archive exists.

    Raises
    ------
    NotAStoreError
        If the marker file has other content.
    UnsupportedError
        If the archive has another format version.
    """
    where = files.describe(MARKER)
    try:
        found = json_object(files.read(MARKER))
        version = found["version"] if found["format"] == MARKER else None
    except FileNotFoundError:
        return False
    except (ValueError, KeyError):
        version = None
    if not isinstance(version, int):
        reason = f"{MARKER} is not the marker of an archive"
        raise NotAStoreError(f"{where}: {reason}", path=where, reason=reason)
    if version != VERSION:
        raise UnsupportedError(
            f"archive {where} has format version {version}; supported is version {VERSION}"
        )
    return True


def _claim(files: Files) -> None:
    """Create an archive, unless there is one; refuse a directory with other content."""
    if check_marker(files):
        return
    if files.sizes() or files.sizes("commitlog"):
        where = files.describe()
        reason = "it has other content; archive into an empty directory"
        raise NotAStoreError(f"{where} is not an archive: {reason}", path=where, reason=reason)
    text = json.dumps({"format": MARKER, "version": VERSION})
    files.write(MARKER, text.encode() + b"\n")


def _archive(store: Store, target: Any, filesystem: Any, progress: Progress | None) -> Archived:
    """Copy the log files that the archive lacks; see `Store.archive`."""
    if progress is not None:
        check_function("progress", progress, "callable, or None")
    files = at(target, filesystem)
    if isinstance(files, LocalFiles):
        check_apart(store.path, "target", files.target)
    sealed = _forebay.sealed_files(store)
    _claim(files)
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
        _check_same(files, known[-1])
    copier = _Copier(store, files, sum(file.length for file in missing), progress)
    gone = {file.start for file in missing if not copier.copy(file)}
    position = store.stats().min_position
    for file in sealed:
        if file.start in gone:
            continue
        if file.start > position:
            break
        position = max(position, file.start + file.length)
    recorded = _record(store.path, files.key, position)
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
        return f"{text}; {_written(rest)}" if rest > 0 else text
    if published > position:
        return f"no log file is sealed and durable yet; {_written(published - position)}"
    return "the store is empty"


def _written(count: int) -> str:
    return f"the current log file holds {count:,} bytes; call roll() on the writer to seal it"


class _Copier:
    """Copies log files, each with its tables; the table of blocks comes last."""

    def __init__(self, store: Store, files: Files, total: int, progress: Progress | None) -> None:
        self._store = store
        self._files = files
        self._total = total
        self._progress = progress
        self._done = 0
        self._stop: OSError | None = None
        self.copied = 0

    def copy(self, file: SealedFile) -> bool:
        """Copy a file; return False if retention deleted it meanwhile."""
        start, length, name = file.start, file.length, name_of(file.start)
        before = self._done
        try:
            survey = _forebay.survey(self._store, start)
            copied = self._files.copy(f"commitlog/{name}", Path(file.path), self._report)
        except OSError as error:
            if self._stop is not None:
                # The progress callback raised this; the error may wrap it as one of a file.
                raise self._stop from None
            if not isinstance(error, FileNotFoundError):
                raise
            if any(start == other.start for other in _forebay.sealed_files(self._store)):
                raise
            return False
        if copied != length or self._files.sizes("commitlog").get(name) != length:
            raise _differs(self._files, start, length, copied)
        self._files.write(f"keys/{name}", survey.keys)
        self._files.write(f"blocks/{name}", survey.blocks)
        self._done = before + length
        self.copied += length
        return True

    def _report(self, some: int) -> None:
        self._done += some
        if self._progress is None:
            return
        try:
            self._progress(self._done, self._total)
        except OSError as error:
            self._stop = error
            raise


def _differs(files: Files, start: int, length: int, found: int | None) -> CorruptError:
    path = files.describe(f"commitlog/{name_of(start)}")
    state = "is missing" if found is None else f"has {found} bytes"
    reason = f"the archived log file {state}; the store's log file has {length} bytes"
    return CorruptError(
        f"corrupt archive in {path} at {start}: {reason}", path=path, position=start, reason=reason
    )


def _check_same(files: Files, file: SealedFile) -> None:
    """Refuse an archive of another log, by comparing the first block of a file that both have."""
    path, start, length = file.path, file.start, file.length
    name = f"blocks/{name_of(start)}"
    where = files.describe(f"commitlog/{name_of(start)}")
    table = _forebay.BlockTable(files.read(name), files.describe(name), where)
    first = table.blocks[0]
    with contextlib.suppress(FileNotFoundError), open(path, "rb", buffering=0) as source:
        if table.length != length or zlib.crc32(source.read(first.length)) != first.checksum:
            message = (
                f"{where} differs from log file {path}: the archive belongs to another store, or "
                "the log was repaired since; archive into another directory"
            )
            raise StoreExistsError(message, path=where)


def _record(store: str, target: str, position: int) -> bool:
    """Record how far a store is archived, for its retention; safe while a writer is running."""
    import fcntl

    if not os.path.exists(os.path.join(store, "forebay.state")):
        return False
    note = Path(store) / NOTE
    try:
        directory = os.open(store, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # Archivers take turns to change the table.
            fcntl.flock(directory, fcntl.LOCK_EX)
            targets = _noted(note)
            targets[target] = position
            replace_file(note, json.dumps({"targets": targets}).encode() + b"\n", mode=0o600)
        finally:
            os.close(directory)
    except (OSError, ValueError):
        # Retention keeps what is not recorded, and keeps everything if the record is unreadable.
        # Writing a fresh record would drop the other archives from it, and retention could then
        # delete files that they still lack.
        return False
    return True


def _noted(note: Path) -> dict[str, Any]:
    """Return the recorded positions by target; raise `ValueError` if the record is malformed."""
    try:
        targets = json_object(note.read_bytes()).get("targets")
    except FileNotFoundError:
        return {}
    if not isinstance(targets, dict):
        raise ValueError("it has no targets")
    return targets
