"""Archives: sealed log files in a directory or an object store, read by byte ranges.

An archive contains, for each log file and by its name:

- ``commitlog/000...``: a log file, byte for byte and under its own name
- ``keys/000...``: which of its blocks may hold a key
- ``blocks/000...``: its blocks: queues, offsets, times and checksum of each; written last

``forebay.archive``, written before all of these, is JSON that marks the archive.

A log file counts as archived once its table of blocks exists. So an interrupted copy leaves a valid
archive, and the next one continues where it stopped.

Examples
--------
>>> import forebay.archive
>>> import pyarrow
>>> with forebay.open("events", commitlog_file_size=1 << 20) as store:
...     sent = store.send("orders", b"3 apples")
...     end = store.roll()
...     archived = store.archive("archive")
>>> with forebay.archive.open("archive") as archive:
...     pyarrow.table(archive.scan("orders")).num_rows
1
"""

# `files` opens directories (`local`) and object stores (`remote`), `copying` writes archives, and
# `reading` reads them.

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
