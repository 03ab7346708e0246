"""Copying and comparing stores, without reading the holes of sparse files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

_CHUNK = 1 << 18


def files(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the regular files below a directory, with their names relative to it."""
    for file in sorted(root.rglob("*")):
        if file.is_file() and not file.is_symlink():
            yield str(file.relative_to(root)), file


def chunks(file: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the parts of a file that are not all zeros, without reading large holes.

    Parts are on a fixed grid, so equal contents give equal parts wherever the holes are.
    """
    with open(file, "rb", buffering=0) as source:
        at = 0
        while True:
            try:
                at = os.lseek(source.fileno(), at, os.SEEK_DATA)
            except OSError:  # ENXIO: no data from here to the end.
                return
            at -= at % _CHUNK
            chunk = os.pread(source.fileno(), _CHUNK, at)
            if chunk.count(0) != len(chunk):
                yield at, chunk
            at += _CHUNK


def copy(source: Path, target: Path) -> Path:
    """Copy a store to a new directory: only regular files; holes stay holes."""
    target.mkdir(parents=True)
    for folder in source.rglob("*"):
        if folder.is_dir():
            (target / folder.relative_to(source)).mkdir(parents=True, exist_ok=True)
    for name, file in files(source):
        with open(target / name, "wb") as out:
            for at, chunk in chunks(file):
                os.pwrite(out.fileno(), chunk, at)
            out.truncate(file.stat().st_size)
    return target


def fingerprints(root: Path) -> dict[str, tuple[int, str]]:
    """Return length and content hash of each file; stored zeros and holes hash the same."""
    found = {}
    for name, file in files(root):
        digest = hashlib.blake2b(digest_size=16)
        for at, chunk in chunks(file):
            digest.update(b"%d:" % at + chunk)
        found[name] = (file.stat().st_size, digest.hexdigest())
    return found


def difference(
    before: dict[str, tuple[int, str]], after: dict[str, tuple[int, str]]
) -> tuple[str, ...]:
    """Return the names of files that were removed, added or changed."""
    names = sorted(before.keys() | after.keys())
    return tuple(name for name in names if before.get(name) != after.get(name))
