"""Archives: sealed log files in a directory or an object store, read by byte ranges.

>>> archived = store.archive("/mnt/archive/events")  # doctest: +SKIP
>>> with forebay.archive.open("/mnt/archive/events") as archive:  # doctest: +SKIP
...     pyarrow.table(archive.scan("orders"))

====================== ========================================================================
file in an archive     content
====================== ========================================================================
``forebay.archive``    JSON that marks the archive; written first
``commitlog/000...``   a log file, byte for byte and under its own name
``keys/000...``        which of its blocks may hold a key
``blocks/000...``      its blocks: queues, offsets, times and checksum of each; written last
====================== ========================================================================

A log file counts as archived once its table of blocks exists. So an interrupted copy leaves a valid
archive, and the next one continues where it stopped.

Module `files` opens directories (`local`) and object stores (`remote`), `copying` writes archives,
`reading` reads them.
"""

from forebay.archive.copying import MARKER, Archived, _archive
from forebay.archive.parts import ArchiveDamage, ArchivedQueue, ArchivedTopic
from forebay.archive.reading import Archive, open
from forebay.archive.scan import ArchiveScan

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
