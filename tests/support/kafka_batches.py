"""Record batches in Kafka's format 2, uncompressed, for logs that Kafka need not have written."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

#: A record: timestamp, key, value, headers.
Record = tuple[int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]


def batch(base: int, records: Sequence[Record]) -> bytes:
    """Return a batch whose first record has the offset `base`."""
    first, last = records[0][0], max(record[0] for record in records)
    encoded = b"".join(
        record(time - first, delta, key, value, headers)
        for delta, (time, key, value, headers) in enumerate(records)
    )
    counts = (0, len(records) - 1, first, last, -1, -1, -1, len(records))
    body = struct.pack(">hiqqqhii", *counts) + encoded
    return struct.pack(">qiiBI", base, len(body) + 9, 0, 2, crc32c(body)) + body


def write(folder: Path, batches: Iterable[Sequence[Record]]) -> None:
    """Write a partition of one segment, without indexes."""
    folder.mkdir(parents=True)
    data, base = b"", 0
    for records in batches:
        data += batch(base, records)
        base += len(records)
    (folder / f"{0:020}.log").write_bytes(data)


def crc32c(data: bytes) -> int:
    """Return the checksum of format 2 (Castagnoli)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CASTAGNOLI[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _varint(number: int) -> bytes:
    number = number << 1 ^ number >> 63
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _bytes(value: bytes | None) -> bytes:
    return _varint(-1) if value is None else _varint(len(value)) + value


def record(
    time: int,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
) -> bytes:
    """Return a record with time and offset from those of its batch."""
    pairs = b"".join(_bytes(name.encode()) + _bytes(header) for name, header in headers)
    parts = (_varint(time), _varint(offset), _bytes(key), _bytes(value), _varint(len(headers)))
    own = b"\0" + b"".join(parts) + pairs
    return _varint(len(own)) + own


def _entry(number: int) -> int:
    for _ in range(8):
        number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
    return number


_CASTAGNOLI = [_entry(number) for number in range(256)]
