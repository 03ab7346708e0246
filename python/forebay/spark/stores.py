"""The stores of a read: which there are, and which of them a worker has open."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from typing import TypeAlias

import forebay
from forebay import Damage, Store, archive
from forebay.archive import Archive, ArchiveDamage
from forebay.errors import StoreNotFoundError, UnsupportedError

#: What messages are read from.
Source: TypeAlias = Store | Archive

#: A place of one that is damaged.
Damaged: TypeAlias = Damage | ArchiveDamage

#: What opening and reading a store raises because of its files, and not of what was asked for.
UNREADABLE = (OSError, UnsupportedError)


def is_archive(path: str) -> bool:
    """Whether an archive is at a path or a URI, and no store."""
    return "://" in path or os.path.isfile(os.path.join(path, archive.MARKER))


def open_source(path: str) -> Source:
    """Open the store or the archive that is at a path or a URI."""
    if is_archive(path):
        return archive.open(path)
    return forebay.open(path, mode="r")


def expand(paths: Iterable[str], *, must_match: bool = True) -> list[str]:
    """Return the directories that are meant, each of them once.

    Those of a pattern come sorted. A path that is there, or a URI, is meant as it is, whatever
    characters are in it.

    Raises
    ------
    StoreNotFoundError
        If a pattern matches no directory, and has to.
    """
    # By the one name that each has: by two it would be read twice.
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


#: What tells an opening of a store for writing from all others: device and number of the file that
#: has its marks, number of the epoch, when it began, and when a broker was last started on it.
Life = tuple[int, int, int, int, int]

#: Stores that a worker keeps open for the batches of streams.
_KEPT_MAX = 16


class Kept:
    """The stores that this worker has open for the batches of streams.

    A reader follows the writer that was at work when it was opened, so it is good as long as the
    store has the same life.
    """

    def __init__(self) -> None:
        #: In the order of use.
        self._stores: dict[str, tuple[Life, Store]] = {}

    def store(self, path: str, life: Life) -> Store:
        """Return the store at this path in this life."""
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
    """The store that this worker has open; workers run many tasks of a job, one at a time.

    It is kept for the tasks of one stage, no longer: between two actions the directory may have
    been replaced by another, and open files would still show the old one.
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
        """Close what is open."""
        if self._store is not None:
            self._store.close()
        self._store = self._key = None
