"""Archives: sealed log files in a directory or an object store, read by ranges.

>>> archived = store.archive("/mnt/archive/events")  # doctest: +SKIP
>>> with forebay.archive.open("/mnt/archive/events") as archive:  # doctest: +SKIP
...     pyarrow.table(archive.scan("orders"))

====================== ========================================================================
in an archive          what it is
====================== ========================================================================
``forebay.archive``    JSON that says so; written first
``commitlog/000...``   a log file, byte for byte and under its own name
``keys/000...``        which blocks of it may hold a key
``blocks/000...``      its blocks: queues, offsets and times in each, and checksums; written last
====================== ========================================================================

A log file counts as archived once its table of blocks is there, so a copy that was cut short
leaves a valid archive, and the next one goes on where it ended.

Module `files` reaches directories and object stores, `copying` writes archives, `reading` reads
them.
"""

from forebay.archive.copying import MARKER, Archived, _archive
from forebay.archive.reading import (
    Archive,
    ArchiveDamage,
    ArchivedQueue,
    ArchivedTopic,
    ArchiveScan,
    open,
)

__all__ = [
    "MARKER",
    "Archive",
    "ArchiveDamage",
    "ArchiveScan",
    "Archived",
    "ArchivedQueue",
    "ArchivedTopic",
    "_archive",
    "open",
]
