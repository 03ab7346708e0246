"""The file that marks an archive, and says what kind of store it is of."""

from __future__ import annotations

import json

from forebay.archive.files import Files
from forebay.errors import NotAStoreError, UnsupportedError
from forebay.jsons import json_object

__all__ = ["COMMIT_LOG", "MARKER", "PARTITION_LOG", "claim", "kind_of"]

MARKER = "forebay.archive"
"""The file that marks a directory as an archive."""
#: Kinds of stores.
COMMIT_LOG, PARTITION_LOG = "commitlog", "partitionlog"
#: Longest marker.
_LENGTH = 4096
#: Format versions by kind; the first does not state the kind.
_VERSIONS = {COMMIT_LOG: 1, PARTITION_LOG: 2}


def kind_of(files: Files) -> str | None:
    """Return the kind of store that an archive is of; None if there is no archive.

    Raises
    ------
    NotAStoreError
        If the marker file has other content.
    UnsupportedError
        If the archive has another format version.
    """
    where = files.describe(MARKER)
    try:
        found = json_object(files.read(MARKER, 0, _LENGTH))
        version = found["version"] if found["format"] == MARKER else None
    except FileNotFoundError:
        return None
    except (ValueError, KeyError):
        version = None
    if not isinstance(version, int):
        reason = f"{MARKER} is not the marker of an archive"
        raise NotAStoreError(f"{where}: {reason}", path=where, reason=reason)
    kind = found.get("engine", COMMIT_LOG)
    if version != _VERSIONS.get(kind):
        raise UnsupportedError(
            f"archive {where} has format version {version} for the engine {kind!r}; supported are "
            "version 1, and 2 for partitionlog"
        )
    return str(kind)


def claim(files: Files, kind: str) -> None:
    """Create an archive, unless there is one; refuse one of another kind, and other content."""
    found = kind_of(files)
    where = files.describe()
    if found == kind:
        return
    if found is not None:
        reason = f"it is an archive of a {found} store, not of a {kind} store"
        raise NotAStoreError(f"{where}: {reason}", path=where, reason=reason)
    if files.sizes() or files.sizes("commitlog"):
        reason = "it has other content; archive into an empty directory"
        raise NotAStoreError(f"{where} is not an archive: {reason}", path=where, reason=reason)
    marker: dict[str, object] = {"format": MARKER, "version": _VERSIONS[kind]}
    if kind != COMMIT_LOG:
        marker["engine"] = kind
    files.write(MARKER, json.dumps(marker).encode() + b"\n")
