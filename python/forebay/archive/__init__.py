"""Archives: log files that no longer change, in a directory or an object store, read by ranges.

An archive of a commit log contains, for each sealed log file and by its name:

- ``commitlog/000...``: a log file, byte for byte and under its own name
- ``keys/000...``: which of its blocks may hold a key
- ``blocks/000...``: its blocks: queues, offsets, times and checksum of each; written last

``forebay.archive``, written before all of these, is JSON that marks the archive.

A log file counts as archived once its table of blocks exists. So an interrupted copy leaves a valid
archive, and the next one continues where it stopped.

An archive of a partition log has the complete segments in Kafka's own files, each with a table of
blocks, and is itself a log directory.

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

# `files` opens directories (`local`) and object stores (`remote`), `copying` writes archives of
# commit logs and `segments` those of partition logs, and `reading` reads them.

from forebay.archive.copying import Archived, _archive
from forebay.archive.marker import MARKER
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
