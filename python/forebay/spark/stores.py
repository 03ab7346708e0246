"""The stores of a read: finding them, and keeping them open in a worker."""

from __future__ import annotations

import glob
import os
from collections.abc import Hashable, Iterable
from typing import TypeAlias

import forebay
from forebay import Damage, Store, archive
from forebay.archive import Archive, ArchiveDamage
from forebay.errors import StoreNotFoundError, UnsupportedError
from forebay.spark.errors import must

#: A store or an archive, to read messages from.
Source: TypeAlias = Store | Archive

#: A damaged region of a source.
Damaged: TypeAlias = Damage | ArchiveDamage

#: Errors of opening or reading a store that are due to its files, not to the arguments.
UNREADABLE = (OSError, UnsupportedError)


def is_archive(path: str) -> bool:
    """Return whether a path or URI refers to an archive and not to a store."""
    return "://" in path or os.path.isfile(os.path.join(path, archive.MARKER))


def open_source(path: str, *, committed: bool = False) -> Source:
    """Open the store or archive at a path or URI.

    `committed` leaves out messages of transactions that are not committed; only a partition log has
    such messages.
    """
    if not is_archive(path):
        return open_store(path, committed=committed)
    found = archive.open(path)
    if is_partition_log(found) and "://" not in path:
        # It is a log directory itself, in which transactions can be followed.
        return open_store(path, committed=committed)
    if is_partition_log(found) and committed:
        rule = "not be read_committed for an archive in an object store"
        raise must("kafka.isolation.level", "read_committed", rule)
    return found


def open_store(path: str, *, committed: bool = False) -> Store:
    """Open the store at a path."""
    store = forebay.open(path, mode="r")
    if committed and is_partition_log(store):
        store.close()
        store = forebay.open(path, mode="r", isolation="read_committed")
    return store


def is_partition_log(source: Source) -> bool:
    """Return whether offsets of a source may have gaps, and its timestamps may fall."""
    if isinstance(source, Archive):
        return source._is_partition_log
    return source._meanings.in_kafka_form


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

#: How many stores a worker keeps open for each purpose. Streams come back to theirs with every
#: batch; a read or a job goes from one store to the next.
_OPEN_MAX = {"read": 1, "stream": 16, "job": 1}


class OpenStores:
    """The stores that this worker keeps open between tasks. It runs one task at a time.

    Each is kept under a token, which tells when it must be opened again:

    read
        Plan and stage. Between two actions another directory may have replaced this one, and open
        files would still show the old one.
    stream
        Life of the store, and whether only committed messages are read. A reader follows the writer
        that was running when the reader was opened, so it stays valid while the store has the same
        life.
    job
        A random token of the job.
    """

    def __init__(self) -> None:
        #: For each purpose the stores by path, least recently used first.
        self._stores: dict[str, dict[str, tuple[Hashable, Source]]] = {it: {} for it in _OPEN_MAX}

    def store(
        self, purpose: str, path: str, token: Hashable | None, *, committed: bool = False
    ) -> Source:
        """Return the store at a path, opened for this token; without a token always opened."""
        stores = self._stores[purpose]
        found = stores.pop(path, None)
        if found is not None and (token is None or found[0] != token):
            found[1].close()
            found = None
        while len(stores) >= _OPEN_MAX[purpose]:
            _, oldest = stores.pop(next(iter(stores)))
            oldest.close()
        store = found[1] if found is not None else open_source(path, committed=committed)
        stores[path] = (token, store)
        return store


#: The open stores of this worker.
OPENED = OpenStores()
