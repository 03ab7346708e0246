"""Archives in object stores: all file systems that pyarrow and fsspec support."""

from __future__ import annotations

import contextlib
import errno
import importlib
import threading
import uuid
from collections.abc import Callable
from io import FileIO
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from forebay.archive.writing import PART, OnChunk, named, read_next
from forebay.errors import DiskError

__all__ = ["RemoteFiles", "pyarrow_fs", "without_user"]

#: Bytes to copy between two progress reports; a chunk passes through memory.
_CHUNK = 8 << 20


def pyarrow_fs() -> ModuleType:
    """Return pyarrow's module of file systems, or say how to install it."""
    try:
        module = importlib.import_module("pyarrow.fs")
    except ImportError as error:
        message = "archives in object stores need pyarrow: pip install 'forebay[arrow]'"
        raise ImportError(message) from error
    return module


def without_user(uri: str) -> str:
    """Return a URI without user and password."""
    url = urlsplit(uri)
    return url._replace(netloc=url.netloc.rpartition("@")[2]).geturl()


def _public(uri: str) -> str:
    """Return a URI without the parts that may be secret: user, password and query."""
    return urlsplit(without_user(uri))._replace(query="", fragment="").geturl().rstrip("/")


class RemoteFiles:
    """The files of an archive in a file system of pyarrow."""

    def __init__(self, filesystem: Any, root: str, uri: str) -> None:
        self._filesystem = filesystem
        self._root = root.rstrip("/")
        self.target = uri
        # The query stays: it may name the server, and two servers may have buckets of one name.
        self.key = uri if "://" in uri else f"{_identity(filesystem)}:{self._root}"
        self._public = _public(uri) if "://" in uri else uri.rstrip("/")
        stores = ("s3", "gcs", "gs", "abfs", "az")
        self._objects = any(name in filesystem.type_name for name in stores)
        # Open files for range reads, with their sizes.
        self._open: dict[str, tuple[Any, int]] = {}
        self._lock = threading.Lock()

    def describe(self, name: str = "") -> str:
        """Return the URI of a file."""
        return f"{self._public}/{name}" if name else self._public

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def folders(self) -> list[str]:
        """Return the names of the folders."""
        fs = pyarrow_fs()
        selector = fs.FileSelector(self._path(""), allow_not_found=True)
        found = self._filesystem.get_file_info(selector)
        return sorted(it.base_name for it in found if it.type == fs.FileType.Directory)

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Return file sizes by name in a folder."""
        fs = pyarrow_fs()
        selector = fs.FileSelector(self._path(folder), allow_not_found=True)
        found = self._filesystem.get_file_info(selector)
        return {
            info.base_name: info.size
            for info in found
            if info.type == fs.FileType.File and not info.base_name.endswith(PART)
        }

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Read a range, and keep the file open for the next one."""
        if length is None:
            with self._filesystem.open_input_file(self._path(name)) as file:
                return bytes(file.read())
        with self._lock:
            opened = self._open.get(name)
        if opened is None:
            file = self._filesystem.open_input_file(self._path(name))
            # Get the size before sharing the file: some file systems seek to find it.
            opened = (file, file.size())
            with self._lock:
                while len(self._open) >= 8:
                    # Evict one; a reader that is using it keeps it alive until done.
                    self._open.pop(next(iter(self._open)))
                opened = self._open.setdefault(name, opened)
        file, size = opened
        # Object stores refuse to read beyond the end.
        length = min(length, size - start)
        return bytes(file.read_at(length, start)) if length > 0 else b""

    def write(self, name: str, data: bytes) -> None:
        """Write a file under a temporary name, and rename it."""
        self._put(name, lambda stream: stream.write(data), len(data))

    def copy(self, name: str, source: FileIO, length: int, on_chunk: OnChunk) -> int:
        """Copy bytes in chunks."""
        copied = 0

        def fill(stream: Any) -> None:
            nonlocal copied
            while chunk := read_next(source, min(_CHUNK, length - copied)):
                stream.write(chunk)
                copied += len(chunk)
                on_chunk(len(chunk))

        self._put(name, fill, length)
        return copied

    def _put(self, name: str, fill: Callable[[Any], object], length: int) -> None:
        """Write a file under a unique temporary name, and rename it once it is complete.

        An object must not be written under its final name: a stream that is garbage-collected
        completes its object, however little was written. The temporary name is unique, as another
        archiver may be writing the same file.
        """
        with named(self.describe(name), length, lambda: 0):
            self._make(name, fill, length)

    def _make(self, name: str, fill: Callable[[Any], object], length: int) -> None:
        path = self._path(name)
        part = f"{path}.{uuid.uuid4().hex}{PART}"
        try:
            self._fill(part, fill)
            found = self._filesystem.get_file_info(part).size
            if found != length:
                where = self.describe(name)
                message = f"cannot write {where}: only {found} of {length} bytes were stored"
                raise DiskError(message, path=where, errno=errno.EIO)
            if self._objects:
                # Not every object store can rename an object.
                self._filesystem.copy_file(part, path)
                self._filesystem.delete_file(part)
            else:
                self._filesystem.move(part, path)
        except BaseException:
            with contextlib.suppress(Exception):
                self._filesystem.delete_file(part)
            raise

    def _fill(self, path: str, fill: Callable[[Any], object]) -> None:
        try:
            stream = self._filesystem.open_output_stream(path)
        except FileNotFoundError:
            # Unlike an object store, this file system needs its folders created.
            self._filesystem.create_dir(path.rpartition("/")[0], recursive=True)
            stream = self._filesystem.open_output_stream(path)
        try:
            fill(stream)
        except BaseException:
            # Close now, so that the caller can delete the part; a garbage-collected stream would
            # complete the object later.
            with contextlib.suppress(Exception):
                stream.close()
            raise
        stream.close()


#: Options that distinguish file systems of one type by location; none of them is secret.
_PLACES = (
    "account_name",
    "blob_storage_authority",
    "endpoint_override",
    "endpoint_url",
    "host",
    "port",
)


def _identity(filesystem: Any) -> str:
    """Return the identity of a file system: its type and, if it has one, its endpoint."""
    name: str = filesystem.type_name
    fs = pyarrow_fs()
    if isinstance(filesystem, fs.SubTreeFileSystem):
        return f"{_identity(filesystem.base_fs)}:{filesystem.base_path.rstrip('/')}"
    options: Any = {}
    if isinstance(filesystem, fs.PyFileSystem):
        options = getattr(getattr(filesystem.handler, "fs", None), "storage_options", {})
        options = {**options, **(options.get("client_kwargs") or {})}
    else:
        # Arrow's file systems expose their options only through pickling.
        with contextlib.suppress(TypeError, ValueError):
            (options,) = filesystem.__reduce__()[1]
    if not isinstance(options, dict):
        return name
    places = [f"{one}={_server(options[one])}" for one in _PLACES if options.get(one)]
    return f"{name}({', '.join(places)})" if places else name


def _server(place: Any) -> str:
    return str(place).rpartition("@")[2]
