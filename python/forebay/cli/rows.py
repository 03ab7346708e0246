"""Messages as JSON lines, CSV or raw bodies."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Callable
from typing import Any, BinaryIO

from forebay import Message

__all__ = ["FORMATS", "Writer", "as_dict"]

FORMATS = ("jsonl", "csv", "raw")
_COLUMNS = (
    "topic",
    "queue",
    "offset",
    "position",
    "message_id",
    "store_timestamp",
    "born_timestamp",
    "keys",
    "tags",
    "properties",
    "body",
    "body_encoding",
)
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\0": "\0"}


def as_dict(message: Message, *, full: bool = False) -> dict[str, Any]:
    """Return a message as a JSON object; `full` adds the fields that `--full` prints."""
    text, encoding = _text(None if message.is_null else message.body)
    row: dict[str, Any] = {
        "topic": message.topic,
        "queue": message.queue,
        "offset": message.offset,
        "position": message.position,
        "message_id": message.message_id,
        "store_timestamp": message.store_timestamp,
        "born_timestamp": message.born_timestamp,
        "keys": list(message.keys),
        "tags": message.tags,
        "properties": message.properties,
        "body": text,
        "body_encoding": encoding,
    }
    if full:
        key, key_encoding = _text(message.key_bytes)
        row |= {
            "key": key,
            "key_encoding": key_encoding,
            "headers": [
                {"name": name, **dict(zip(("value", "encoding"), _text(value), strict=True))}
                for name, value in message.headers
            ],
            "system_properties": message.system_properties,
            "flag": message.flag,
            "sys_flag": message.sys_flag,
            "born_host": message.born_host,
            "store_host": message.store_host,
            "reconsume_times": message.reconsume_times,
        }
    return row


def _text(body: bytes | None) -> tuple[str | None, str | None]:
    """Return bytes as text, and its encoding: UTF-8, or base64 if it is not valid UTF-8."""
    if body is None:
        return None, None
    try:
        return body.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(body).decode("ascii"), "base64"


class Writer:
    """Writes messages to a binary file in one of `FORMATS`.

    Parameters
    ----------
    handle
        File to write to.
    form
        ``"jsonl"``, ``"csv"`` or ``"raw"``.
    full
        Whether JSON has all that `as_dict` can add. The columns of CSV are fixed.
    delimiter
        Text written after each raw body.
    """

    def __init__(
        self, handle: BinaryIO, form: str, *, full: bool = False, delimiter: str = "\\n"
    ) -> None:
        self._handle = handle
        self._full = full
        for escape, meant in _ESCAPES.items():
            delimiter = delimiter.replace(escape, meant)
        self._delimiter = delimiter.encode("utf-8", "surrogateescape")
        encoders: dict[str, Callable[[Message], bytes]] = {
            "jsonl": self._json,
            "csv": self._csv,
            "raw": self._raw,
        }
        self._encode = encoders[form]
        if form == "csv":
            handle.write(_csv_line(_COLUMNS))

    def write(self, message: Message) -> None:
        """Write a message."""
        self._handle.write(self._encode(message))

    def _json(self, message: Message) -> bytes:
        row = as_dict(message, full=self._full)
        return json.dumps(row, ensure_ascii=False).encode() + b"\n"

    def _csv(self, message: Message) -> bytes:
        row = as_dict(message)
        row["keys"] = " ".join(message.keys)
        row["properties"] = json.dumps(message.properties, ensure_ascii=False)
        return _csv_line([row[name] for name in _COLUMNS])

    def _raw(self, message: Message) -> bytes:
        return message.body + self._delimiter


def _csv_line(values: Any) -> bytes:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(values)
    return line.getvalue().encode()
