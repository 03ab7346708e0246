"""The stores of a read: finding them, and keeping them open in a worker."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from typing import TypeAlias

import forebay
from forebay import Damage, Store, archive
from forebay.archive import Archive, ArchiveDamage
from forebay.errors import StoreNotFoundError, UnsupportedError

#: A store or an archive, to read messages from.
Source: TypeAlias = Store | Archive

#: A damaged region of a source.
Damaged: TypeAlias = Damage | ArchiveDamage

#: Errors of opening or reading a store that are due to its files, not to the arguments.
UNREADABLE = (OSError, UnsupportedError)


def is_archive(path: str) -> bool:
    """Return whether a path or URI refers to an archive and not to a store."""
    return "://" in path or os.path.isfile(os.path.join(path, archive.MARKER))


def open_source(path: str) -> Source:
    """Open the store or archive at a path or URI."""
    if is_archive(path):
        return archive.open(path)
    return forebay.open(path, mode="r")


def expand(paths: Iterable[str], *, must_match: bool = True) -> list[str]:
    """Expand patterns, and return each directory once.

    The matches of a pattern are sorted. An existing path, or a URI, is never taken for a pattern,
    whatever characters it contains.

    Raises
    ------
    StoreNotFoundError
        If a pattern matches no directory, and `must_match` is true.
    """
    # By real path, so that a directory with two names is not read twice.
    found: dict[str, str] = {}
    for path in paths:
        matches = [path]
        is_uri = "://" in path
        if not is_uri and glob.has_magic(path) and not os.path.exists(path):
            matches = sorted(match for match in glob.glob(path) if os.path.isdir(match))
            if must_match and not matches:
                raise StoreNotFoundError(f"no directory matches the pattern {path}", path=path)
        for match in matches:
            found.setdefault(match if is_uri else os.path.realpath(match), match)
    return list(found.values())


#: Identifies one opening of a store for writing: device and inode of the file with its marks,
#: number of the epoch, time when it began, and time when a broker last started on the store.
Life = tuple[int, int, int, int, int]

#: Stores that a worker keeps open for the batches of streams.
_KEPT_MAX = 16


class Kept:
    """The stores that this worker keeps open for the batches of streams.

    A reader follows the writer that was running when the reader was opened, so it stays valid while
    the store has the same life.
    """

    def __init__(self) -> None:
        #: By path, least recently used first.
        self._stores: dict[str, tuple[Life, Store]] = {}

    def store(self, path: str, life: Life) -> Store:
        """Return the store at a path, opened again if its life has changed."""
        found = self._stores.pop(path, None)
        if found is not None and found[0] != life:
            found[1].close()
            found = None
        store = found[1] if found is not None else forebay.open(path, mode="r")
        self._stores[path] = (life, store)
        while len(self._stores) > _KEPT_MAX:
            _, oldest = self._stores.pop(next(iter(self._stores)))
            oldest.close()
        return store


class Opened:
    """The one store that this worker has open; a worker runs many tasks of a job, one at a time.

    It is kept open only for the tasks of one stage: between two actions another directory may have
    replaced this one, and open files would still show the old one.
    """

    def __init__(self) -> None:
        self._key: tuple[str, str, int | None] | None = None
        self._store: Source | None = None

    def store(self, plan: str, path: str, stage: int | None) -> Source:
        """Return the store at this path, opened for this stage of this plan."""
        key = (plan, path, stage)
        if self._store is None or self._key != key or stage is None:
            self.close()
            self._store = open_source(path)
            self._key = key
        return self._store

    def close(self) -> None:
        """Close the store, if one is open."""
        if self._store is not None:
            self._store.close()
        self._store = self._key = None
