"""The verb send: messages from arguments, from a file, or from lines."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

import forebay
from forebay import _forebay
from forebay.cli.arguments import UsageError, add_store, number, pair
from forebay.given import FILE_ENGINES
from forebay.output import counted, write_json, write_line
from forebay.store import open_writer

__all__ = ["add"]

#: The longest line or file that is read into memory; a store's own limit is usually far lower.
_BODY_MAX = 64 << 20
#: Messages per batch: enough to spread the fixed cost of a batch.
_BATCH_MESSAGES = 1000
_READ_BYTES = 64 << 10


def add(verbs: Any) -> None:
    """Add the verb to the parser."""
    text = "send messages to a topic; the store is created if there is none"
    parser = verbs.add_parser(
        "send",
        help=text,
        description=text,
        epilog="Without BODY and --file, each line of standard input is one message.",
        allow_abbrev=False,
    )
    add_store(parser)
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("body", metavar="BODY", nargs="*", help="each BODY is one message")
    parser.add_argument("--file", metavar="PATH", help="send the content of a file as one message")
    parser.add_argument(
        "--key",
        metavar="KEY",
        # Bytes that are not text reach the store as they are.
        type=os.fsencode,
        action="append",
        help="key of each message; may be repeated",
    )
    parser.add_argument("--tags", metavar="TAG", help="tag of each message")
    parser.add_argument(
        "--property",
        metavar="NAME=VALUE",
        type=pair,
        action="append",
        default=[],
        help="property of each message; may be repeated",
    )
    parser.add_argument(
        "--header",
        metavar="NAME[=VALUE]",
        type=_header,
        action="append",
        help="header of each message, null without a value; may be repeated, also with the same "
        "name; only in a partition log",
    )
    parser.add_argument(
        "--tombstone",
        action="store_true",
        help="send a message without a body, which deletes the key in a compacted topic; only in a "
        "partition log",
    )
    parser.add_argument(
        "--queue",
        metavar="N",
        type=number,
        help="queue to send to; by default the first key selects it, and messages without a key "
        "take turns",
    )
    parser.add_argument("--sync", action="store_true", help="wait until each message is on disk")
    parser.add_argument(
        "--adopt", action="store_true", help="write to a directory that Forebay did not create"
    )
    parser.add_argument(
        "--engine",
        choices=FILE_ENGINES,
        help="the engine of a store that is created; by default commitlog",
    )
    parser.add_argument("--json", action="store_true", help="write results as JSON lines")
    parser.set_defaults(run=_send)


def _header(text: str) -> tuple[str, bytes | None]:
    """Parse a header."""
    name, equals, value = text.partition("=")
    return name, os.fsencode(value) if equals else None


def _send(arguments: argparse.Namespace) -> int:
    if arguments.body and arguments.file is not None:
        raise UsageError("pass BODY or --file, not both")
    if arguments.tombstone and (arguments.body or arguments.file is not None):
        raise UsageError("a tombstone has no body; pass neither BODY nor --file")
    if arguments.tombstone and not arguments.key:
        raise UsageError("--tombstone needs --key: the key whose messages it deletes")
    bodies: list[bytes | None] = [os.fsencode(body) for body in arguments.body]
    if arguments.tombstone:
        bodies = [None]
    if arguments.file is not None:
        # Read before opening, so that a mistyped name does not create a store.
        bodies = [_read_file(arguments.file)]
    if not bodies and sys.stdin is None:
        raise UsageError("standard input is closed; pass BODY or --file")
    _check_engine(arguments)
    with open_writer(arguments.store, engine=arguments.engine, adopt=arguments.adopt) as store:
        if bodies:
            for body in bodies:
                _show(_send_one(store, arguments, body), arguments)
        else:
            _send_lines(store, arguments, sys.stdin.buffer)
    return 0


def _check_engine(arguments: argparse.Namespace) -> None:
    """Refuse what only a partition log can keep, before a store is created without it."""
    needs = [name for name in ("header", "tombstone") if getattr(arguments, name)]
    if not needs:
        return
    try:
        with forebay.open(arguments.store, mode="r") as store:
            fits, found = store._meanings.in_kafka_form, f"{arguments.store} is a commit log"
    except forebay.StoreNotFoundError:
        engine = arguments.engine
        fits = engine is not None and _forebay.EngineKind(engine).in_kafka_form
        found = "a new store is one with --engine partitionlog"
    if not fits:
        raise UsageError(f"--{needs[0]} needs a partition log, and {found}")


def _send_one(
    store: forebay.Store, arguments: argparse.Namespace, body: bytes | None
) -> forebay.SendResult:
    return store.send(
        arguments.topic,
        body,
        keys=arguments.key,
        tags=arguments.tags,
        properties=dict(arguments.property),
        headers=arguments.header,
        queue=arguments.queue,
        flush=arguments.sync or None,
    )


def _show(result: forebay.SendResult, arguments: argparse.Namespace) -> None:
    if arguments.json:
        names = ("topic", "queue", "offset", "position", "message_id", "timestamp", "durable")
        write_json({name: getattr(result, name) for name in names})
    else:
        place = f"queue {result.queue} offset {result.offset} position {result.position}"
        write_line(f"{result.topic} {place} id {result.message_id}")


def _send_lines(store: forebay.Store, arguments: argparse.Namespace, source: BinaryIO) -> None:
    producer = store.producer(arguments.topic, queue=arguments.queue)
    queues: dict[int, dict[str, int]] = {}
    count = 0
    for lines in _batches(source):
        keys = None if arguments.key is None else [arguments.key] * len(lines)
        headers = None if arguments.header is None else [arguments.header] * len(lines)
        try:
            result = producer.send_batch(
                lines,
                keys=keys,
                tags=arguments.tags,
                properties=dict(arguments.property),
                headers=headers,
                flush=arguments.sync or None,
            )
        except forebay.ForebayError as error:
            sent = store.stats().messages_sent
            line = "" if error.row is None else f"line {count + error.row + 1}: "
            raise ValueError(f"{line}{error}; {sent:,} messages were sent before it") from error
        count += result.count
        for queue, offsets in result.ranges.items():
            place = queues.setdefault(queue, {"first": offsets.start, "next": offsets.stop})
            place["next"] = offsets.stop
    store.flush()
    if arguments.json:
        by_queue = {str(queue): queues[queue] for queue in sorted(queues)}
        write_json({"topic": arguments.topic, "count": count, "queues": by_queue})
    else:
        total = counted(count, "message")
        write_line(f"sent {total} to {arguments.topic} in {counted(len(queues), 'queue')}")


def _batches(source: BinaryIO) -> Iterator[list[bytes]]:
    """Yield the lines of the input as they arrive, without waiting to fill a batch."""
    pending: list[bytes] = []
    pending_bytes = 0
    # read1 returns whatever is available, so lines from a slow pipe are sent as they come.
    while chunk := source.read1(_READ_BYTES):  # type: ignore[attr-defined]
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join([*pending, lines[0]])
            pending, pending_bytes = [], 0
        if rest:
            pending.append(rest)
            pending_bytes += len(rest)
        if pending_bytes > _BODY_MAX:
            raise ValueError(f"a line is longer than {_BODY_MAX:,} bytes")
        for first in range(0, len(lines), _BATCH_MESSAGES):
            yield lines[first : first + _BATCH_MESSAGES]
    if pending:
        yield [b"".join(pending)]


def _read_file(path: str) -> bytes:
    with open(path, "rb") as handle:
        body = handle.read(_BODY_MAX + 1)
    if len(body) > _BODY_MAX:
        raise ValueError(f"{path} is longer than {_BODY_MAX:,} bytes")
    return body
