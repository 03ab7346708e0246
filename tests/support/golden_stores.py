"""The golden stores: what RocketMQ, Kafka and releases of Forebay wrote, in archives."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import forebay

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
ROCKETMQ, KAFKA = GOLDEN / "rocketmq", GOLDEN / "kafka"
#: What Kafka's own tools list of each of its partitions: number of messages, and their digests.
DIGESTS: dict[str, Any] = json.loads((KAFKA / "digests.json").read_text())


def unpack(name: str, folder: Path, source: Path = ROCKETMQ) -> Path:
    """Unpack a store below a folder; return its directory."""
    with tarfile.open(source / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / name


def whole_set() -> Path | None:
    """Return the folder of Kafka's partitions as they were before some were cut, if it exists."""
    beside = GOLDEN.parents[1] / ".." / "shared" / "fixtures"
    folder = Path(os.environ.get("FOREBAY_FIXTURES", beside)) / "kafka"
    return folder if folder.is_dir() else None


def unpack_partitions(folder: Path, names: Iterable[str] = DIGESTS) -> Path:
    """Unpack partitions of Kafka, all unless named; return the log directory, which is `folder`."""
    for name in names:
        unpack(name, folder, KAFKA)
    return folder


def damage_second_batch(log: Path) -> tuple[int, range]:
    """Change a byte of a log file's second batch; return its position and its offsets."""
    data = bytearray(log.read_bytes())
    at = 12 + struct.unpack_from(">i", data, 8)[0]
    (first,), (last,) = struct.unpack_from(">q", data, at), struct.unpack_from(">i", data, at + 23)
    data[at + 100] ^= 0xFF
    log.write_bytes(data)
    return at, range(first, first + last + 1)


def digest(messages: Iterable[forebay.Message]) -> str:
    """Return the digest that `DIGESTS` has, and the Java program makes, of the same messages."""

    def part(value: bytes | None) -> bytes:
        return struct.pack(">i", -1 if value is None else len(value)) + (value or b"")

    found = hashlib.sha256()
    for it in messages:
        found.update(struct.pack(">qq", it.offset, it.store_timestamp) + part(it.key_bytes))
        found.update(part(None if it.is_null else it.body) + struct.pack(">i", len(it.headers)))
        for name, value in it.headers:
            found.update(part(name.encode()) + part(value))
    return found.hexdigest()
