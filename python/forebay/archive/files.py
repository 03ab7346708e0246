"""Storage of archives: directories, and all file systems that pyarrow and fsspec support.

Names are relative to the archive and contain at most one ``/``. Writes are atomic: a file gets its
name once all of it is written.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from io import FileIO
from typing import Any, Protocol
from urllib.parse import SplitResult, unquote, urlsplit

from forebay.archive.local import LocalFiles
from forebay.archive.remote import RemoteFiles, pyarrow_fs, without_user
from forebay.archive.writing import OnChunk
from forebay.errors import InvalidOptionError
from forebay.given import check_characters
from forebay.redact import redacted

__all__ = ["Files", "at", "normal"]


#: What the first part of a URI names in object stores, by scheme.
_PLACES = dict.fromkeys(("s3", "s3a", "gs", "gcs"), "bucket")
_PLACES |= dict.fromkeys(("abfs", "abfss", "az"), "container")


class Files(Protocol):
    """The files of an archive."""

    #: Path or URI that opens the archive again; a URI has no user and password.
    target: str
    #: Identity of the archive in the record of a store; unique to this location.
    key: str

    def describe(self, name: str = "") -> str:
        """Return the location of a file for output and error messages, without secrets."""

    def folders(self) -> list[str]:
        """Return the names of the folders."""

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Return file sizes by name in a folder; empty if the folder does not exist."""

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Read a range, up to the end of the file; without a length, read all of it."""

    def write(self, name: str, data: bytes) -> None:
        """Write a small file, atomically and durably."""

    def copy(self, name: str, source: FileIO, length: int, on_chunk: OnChunk) -> int:
        """Copy the next bytes of a local file, durably, and return their number.

        `on_chunk` is called with the number of bytes of each chunk.

        Raises `DiskError` or `DiskFullError` if the operating system refuses a write.
        """


def normal(target: str | os.PathLike[str]) -> str:
    """Return the URI of an archive, or the absolute path of its directory."""
    text = os.fspath(target) if isinstance(target, os.PathLike) else target
    if not isinstance(text, str):
        raise TypeError(f"target must be a path or a URI, got {type(text).__name__}")
    check_characters("target", text)
    if not text:
        reason = "must name a directory, or be a URI"
        raise InvalidOptionError(f'target {reason}, got ""', name="target", value="", reason=reason)
    if text.lower().startswith("file:"):
        return os.path.abspath(unquote(_split(text).path))
    if re.match("[A-Za-z][A-Za-z0-9+.-]+:/(?!/)", text):
        # A path type, such as pathlib's, has turned "//" into "/".
        raise _unknown(text)
    return text if "://" in text else os.path.abspath(text)


def at(target: str | os.PathLike[str], filesystem: Any = None) -> Files:
    """Return the files at a path, at a URI, or at a path in `filesystem`.

    Raises
    ------
    InvalidOptionError
        If the URI is unknown, or `filesystem` is not a file system.
    ImportError
        If pyarrow is not installed; only local directories work without it.
    """
    if filesystem is None:
        text = normal(target)
        return _of_uri(text) if "://" in text else LocalFiles(text)
    fs = pyarrow_fs()
    text = os.fspath(target)
    if not isinstance(filesystem, fs.FileSystem):
        if not hasattr(filesystem, "protocol"):
            raise InvalidOptionError(
                "filesystem must be a file system of pyarrow or fsspec, "
                f"got {type(filesystem).__name__}",
                name="filesystem",
                value=type(filesystem).__name__,
                reason="must be a file system of pyarrow or fsspec",
            )
        filesystem = fs.PyFileSystem(fs.FSSpecHandler(filesystem))
    if isinstance(filesystem, fs.LocalFileSystem):
        return LocalFiles(os.path.abspath(text))
    return RemoteFiles(filesystem, text, text)


def _of_uri(uri: str) -> Files:
    parts = _split(uri)
    place = _PLACES.get(parts.scheme)
    if place and not (parts.netloc.rpartition("@")[2] or parts.path.strip("/")):
        raise _refused(f"must name a {place}", uri)
    found = _known(uri)
    if found is None:
        raise _unknown(uri)
    return RemoteFiles(*found, without_user(uri))


def _known(uri: str) -> tuple[Any, str] | None:
    """Return the file system of a URI and the path in it; None if the URI is unknown."""
    fs = pyarrow_fs()
    import pyarrow  # type: ignore[import-untyped]

    with contextlib.suppress(pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError):
        filesystem, path = fs.FileSystem.from_uri(uri)
        return filesystem, path
    with contextlib.suppress(ImportError, ValueError, TypeError):
        found, path = importlib.import_module("fsspec.core").url_to_fs(uri)
        return fs.PyFileSystem(fs.FSSpecHandler(found)), path
    return None


def _unknown(uri: str) -> InvalidOptionError:
    """Return the error for an unknown URI; a library's own error may contain the password."""
    return _refused("must be a directory or a URI that pyarrow or fsspec supports", uri)


def _refused(reason: str, uri: str) -> InvalidOptionError:
    shown = redacted(uri)
    message = f"target {reason}, got {shown}"
    return InvalidOptionError(message, name="target", value=shown, reason=reason)


def _split(uri: str) -> SplitResult:
    try:
        return urlsplit(uri)
    except ValueError:
        error = _unknown(uri)
    # Raised outside the handler: the error there would be chained and may contain the password.
    raise error
