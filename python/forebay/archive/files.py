"""Storage of archives: directories, and all file systems that pyarrow and fsspec support.

Names are relative to the archive and contain at most one ``/``. Writes are atomic: a file gets its
name once all of it is written.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import SplitResult, unquote, urlsplit

from forebay.durable import sync_directory
from forebay.errors import DiskError, DiskFullError, DiskPermissionError, InvalidOptionError
from forebay.redact import redacted

if TYPE_CHECKING:
    from io import FileIO
    from types import ModuleType

__all__ = ["Files", "LocalFiles", "RemoteFiles", "at", "normal", "write_all"]

#: Bytes to copy between two progress reports.
_CHUNK = 64 << 20
#: The same for object stores, where a chunk passes through memory.
_CHUNK_REMOTE = 8 << 20
#: Suffix of a file that is still being written.
_PART = ".part"

#: Errors by which the kernel refuses to copy between two files itself. With EIO, a copy by read and
#: write shows which of the two files failed.
_NOT_THIS_WAY = {
    errno.EXDEV,
    errno.EINVAL,
    errno.ENOSYS,
    errno.EOPNOTSUPP,
    errno.EBADF,
    errno.EPERM,
    errno.ETXTBSY,
    errno.EIO,
}

Told = Callable[[int], object]


class Files(Protocol):
    """The files of an archive."""

    #: Path or URI that opens the archive again; a URI has no user and password.
    target: str
    #: Identity of the archive in the record of a store; unique to this location.
    key: str

    def describe(self, name: str = "") -> str:
        """Return the location of a file for output and error messages, without secrets."""

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Return file sizes by name in a folder; empty if the folder does not exist."""

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Read a range, up to the end of the file; without a length, read all of it."""

    def write(self, name: str, data: bytes) -> None:
        """Write a small file, atomically and durably."""

    def copy(self, name: str, source: Path, told: Told) -> int:
        """Copy a local file, durably; call `told` with the number of bytes of each chunk.

        Raises `DiskError` or `DiskFullError` if the operating system refuses a write.
        """


def normal(target: str | os.PathLike[str]) -> str:
    """Return the URI of an archive, or the absolute path of its directory."""
    text = os.fspath(target)
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
    fs = _pyarrow_fs()
    text = os.fspath(target)
    if not isinstance(filesystem, fs.FileSystem):
        if not hasattr(filesystem, "protocol"):
            raise InvalidOptionError(
                "filesystem must be a file system of pyarrow or fsspec, "
                f"got {type(filesystem).__name__}",
                name="filesystem",
                value=type(filesystem).__name__,
                reason="it must be a file system of pyarrow or fsspec",
            )
        filesystem = fs.PyFileSystem(fs.FSSpecHandler(filesystem))
    if isinstance(filesystem, fs.LocalFileSystem):
        return LocalFiles(os.path.abspath(text))
    return RemoteFiles(filesystem, text, text)


def _of_uri(uri: str) -> Files:
    _split(uri)
    found = _known(uri)
    if found is None:
        raise _unknown(uri)
    return RemoteFiles(*found, _without_user(uri))


def _known(uri: str) -> tuple[Any, str] | None:
    """Return the file system of a URI and the path in it; None if the URI is unknown."""
    fs = _pyarrow_fs()
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
    shown, reason = redacted(uri), "it must be a directory or a URI that pyarrow or fsspec supports"
    message = f"target must be a directory or a URI that pyarrow or fsspec supports, got {shown}"
    return InvalidOptionError(message, name="target", value=shown, reason=reason)


def _split(uri: str) -> SplitResult:
    try:
        return urlsplit(uri)
    except ValueError:
        error = _unknown(uri)
    # Raised outside the handler: the error there would be chained and may contain the password.
    raise error


def _without_user(uri: str) -> str:
    url = urlsplit(uri)
    return url._replace(netloc=url.netloc.rpartition("@")[2]).geturl()


def _public(uri: str) -> str:
    """Return a URI without the parts that may be secret: user, password and query."""
    return urlsplit(_without_user(uri))._replace(query="", fragment="").geturl().rstrip("/")


def _pyarrow_fs() -> ModuleType:
    try:
        module = importlib.import_module("pyarrow.fs")
    except ImportError as error:
        message = "archives in object stores need pyarrow: pip install 'forebay[arrow]'"
        raise ImportError(message) from error
    return module


class LocalFiles:
    """The files of an archive in a directory."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)
        self.target = self.key = root

    def describe(self, name: str = "") -> str:
        """Return the path of a file."""
        return str(self._root / name)

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Return file sizes by name in a folder."""
        try:
            with os.scandir(self._root / folder) as entries:
                return {
                    entry.name: entry.stat().st_size
                    for entry in entries
                    if entry.is_file() and not entry.name.endswith(_PART)
                }
        except FileNotFoundError:
            return {}

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Read a range."""
        with open(self._root / name, "rb", buffering=0) as file:
            file.seek(start)
            parts = []
            while length is None or length > 0:
                # One call returns at most 2 GiB.
                part = file.read(-1 if length is None else length)
                if not part:
                    break
                parts.append(part)
                length = None if length is None else length - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write(self, name: str, data: bytes) -> None:
        """Write a file under a temporary name, make it durable, and rename it."""
        self._put(name, lambda part: write_all(part, data), len(data))

    def copy(self, name: str, source: Path, told: Told) -> int:
        """Copy a file, in the kernel where possible, so that the bytes stay out of this process."""
        copied = 0
        with open(source, "rb", buffering=0) as file:

            def fill(part: int) -> None:
                nonlocal copied
                copied = _copy_all(file, part, told)

            self._put(name, fill, os.fstat(file.fileno()).st_size)
        return copied

    def _put(self, name: str, fill: Callable[[int], None], length: int) -> None:
        path = self._root / name
        with _named(str(path), length, lambda: _free(path)):
            self._make(path, fill)

    def _make(self, path: Path, fill: Callable[[int], None]) -> None:
        folder = path.parent
        # A new folder is durable once its name in the parent folder is.
        above = {over.parent for over in (folder, *folder.parents) if not over.exists()}
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._sweep(path)
        part, file = _begin(path)
        try:
            fill(file)
            os.fsync(file)
            os.rename(part, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part)
            raise
        finally:
            os.close(file)
        for directory in {folder, self._root, self._root.parent} | above:
            sync_directory(directory)

    def _sweep(self, path: Path) -> None:
        """Remove parts of this file that dead processes left; a live process holds a lock."""
        import fcntl

        for part in path.parent.glob(f"{path.name}.*{_PART}"):
            with contextlib.suppress(OSError):
                file = os.open(part, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(part)
                finally:
                    os.close(file)


def _begin(path: Path) -> tuple[Path, int]:
    """Create the part of a file, and lock it against `_sweep`."""
    import fcntl

    while True:
        part = path.with_name(f"{path.name}.{uuid.uuid4().hex}{_PART}")
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file).st_nlink:
            return part, file
        # Another process swept it between the two calls.
        os.close(file)


def _by_copy_file_range(source: FileIO, target: int, length: int) -> int:
    return os.copy_file_range(source.fileno(), target, length)


def _by_sendfile(source: FileIO, target: int, length: int) -> int:
    return os.sendfile(target, source.fileno(), None, length)


def _by_hand(source: FileIO, target: int, length: int) -> int:
    data = _read(source, min(length, 1 << 20))
    write_all(target, data)
    return len(data)


def _read(source: FileIO, length: int) -> bytes:
    """Read the next bytes of the source; its errors must not be reported as the target's."""
    try:
        return os.read(source.fileno(), length)
    except OSError as error:
        path, reason = str(source.name), os.strerror(error.errno or 0)
        message = f"cannot read {path}: {reason}"
        raise DiskError(message, path=path, errno=error.errno) from error


#: Ways to copy, cheapest first. The kernel refuses the first two before it has copied anything, so
#: the next one continues at the same position.
_WAYS = [
    way
    for way, call in (
        (_by_copy_file_range, "copy_file_range"),
        (_by_sendfile, "sendfile"),
        (_by_hand, "read"),
    )
    if hasattr(os, call)
]


def write_all(file: int, data: bytes) -> None:
    """Write all bytes to a descriptor; one call may write only some when space is short."""
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def _copy_all(source: FileIO, target: int, told: Told) -> int:
    length = os.fstat(source.fileno()).st_size
    copied = 0
    ways = list(_WAYS)
    while copied < length:
        try:
            some = ways[0](source, target, min(length - copied, _CHUNK))
        except OSError as error:
            if error.errno not in _NOT_THIS_WAY or len(ways) == 1:
                raise
            del ways[0]
            continue
        if some == 0:
            break
        copied += some
        told(some)
    return copied


@contextlib.contextmanager
def _named(path: str, length: int, free: Callable[[], int]) -> Iterator[None]:
    """Turn the operating system's write errors into Forebay's, with the path."""
    try:
        yield
    except DiskError:
        raise
    except OSError as error:
        number = error.errno
        if number is None:
            # A library's own error, which describes what the server refused.
            raise
        message = f"cannot write {path}: {os.strerror(number)}"
        if number in (errno.ENOSPC, errno.EDQUOT):
            message = f"{message}; the file needs {length} bytes"
            raise DiskFullError(
                message, path=path, needed=length, free=free(), errno=number
            ) from error
        permission = number in (errno.EACCES, errno.EPERM)
        kind = DiskPermissionError if permission else DiskError
        raise kind(message, path=path, errno=number) from error


def _free(path: Path) -> int:
    """Return the free space, in bytes, where a file was to be written; 0 if unknown."""
    for folder in path.parents:
        with contextlib.suppress(OSError):
            found = os.statvfs(folder)
            return found.f_bavail * found.f_frsize
    return 0


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
    fs = _pyarrow_fs()
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

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Return file sizes by name in a folder."""
        fs = _pyarrow_fs()
        selector = fs.FileSelector(self._path(folder), allow_not_found=True)
        found = self._filesystem.get_file_info(selector)
        return {
            info.base_name: info.size
            for info in found
            if info.type == fs.FileType.File and not info.base_name.endswith(_PART)
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

    def copy(self, name: str, source: Path, told: Told) -> int:
        """Copy a file in chunks."""
        with open(source, "rb", buffering=0) as file:
            length = os.fstat(file.fileno()).st_size

            def fill(stream: Any) -> None:
                while chunk := _read(file, _CHUNK_REMOTE):
                    stream.write(chunk)
                    told(len(chunk))

            self._put(name, fill, length)
        return length

    def _put(self, name: str, fill: Callable[[Any], object], length: int) -> None:
        """Write a file under a unique temporary name, and rename it once it is complete.

        An object must not be written under its final name: a stream that is garbage-collected
        completes its object, however little was written. The temporary name is unique, as another
        archiver may be writing the same file.
        """
        with _named(self.describe(name), length, lambda: 0):
            self._make(name, fill, length)

    def _make(self, name: str, fill: Callable[[Any], object], length: int) -> None:
        path = self._path(name)
        part = f"{path}.{uuid.uuid4().hex}{_PART}"
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
