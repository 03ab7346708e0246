"""Helpers for the tests of the command line."""

import base64
import gzip
import json
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from golden_stores import ROCKETMQ

BROKER_MESSAGES = 223

Run = Callable[..., tuple[int, bytes, str]]


def rows(out: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def listing(name: str) -> list[dict[str, Any]]:
    """Return the listing of the real store, with bodies as its consumers receive them."""
    with gzip.open(ROCKETMQ / f"{name}.jsonl.gz", "rt") as lines:
        found = [json.loads(line) for line in lines]
    for row in found:
        body = base64.b64decode(row["body"])
        compressed_by_zlib = row["sysFlag"] & 1
        row["body"] = zlib.decompress(body) if compressed_by_zlib else body
    return found


def state_of(path: Path) -> dict[Path, tuple[int, ...]]:
    """Return everything about a store that a reader could change."""
    found = {}
    for file in [path, *path.rglob("*")]:
        look = file.stat()
        found[file] = (look.st_ino, look.st_mode, look.st_size, look.st_mtime_ns, look.st_ctime_ns)
    return found


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "forebay", *map(str, arguments)]
