"""The verb compact: keeps the latest message of each key in topics of a partition log."""

from __future__ import annotations

import argparse
from typing import Any

import forebay
from forebay.cli.arguments import UsageError, add_store, number, unknown
from forebay.options import Progress
from forebay.output import counted, human, write_json, write_line
from forebay.progress import Bar

__all__ = ["add"]


def add(verbs: Any) -> None:
    """Add the verb to the parser."""
    text = "keep the latest message of each key in topics of a partition log"
    parser = verbs.add_parser("compact", help=text, description=text, allow_abbrev=False)
    add_store(parser)
    parser.add_argument("topics", metavar="TOPIC", nargs="+", help="a topic to compact")
    parser.add_argument("--json", action="store_true", help="write a JSON document")
    parser.add_argument(
        "--segment-bytes",
        metavar="BYTES",
        type=number,
        help="segments are merged up to this length (the store's segment_bytes, which this sets "
        "for later writers too)",
    )
    parser.add_argument(
        "--delete-retention-ms",
        metavar="MS",
        type=number,
        help="how long tombstones stay after the first compaction that kept them (a day)",
    )
    parser.add_argument(
        "--drop-keyless",
        action="store_true",
        help="drop messages without a key; otherwise a topic that has any is refused",
    )
    parser.add_argument(
        "--adopt", action="store_true", help="compact a directory that Forebay did not create"
    )
    parser.set_defaults(run=_compact)


def _compact(arguments: argparse.Namespace) -> int:
    with forebay.open(arguments.store, mode="r") as store:
        if not store._meanings.in_kafka_form:
            raise UsageError(f"{arguments.store} is not a partition log, and cannot be compacted")
        for topic in arguments.topics:
            if topic not in store.topics:
                text = unknown("topic", topic, store.topics)
                raise forebay.UnknownTopicError(text, topic=topic)
    # The thread of this writer, which would drop messages without a key, does not run before then.
    month_ms = 30 * 24 * 3600 * 1000
    done: dict[str, dict[str, Any]] = {}
    with forebay.open(
        arguments.store,
        adopt=arguments.adopt,
        cleanup_policy=dict.fromkeys(arguments.topics, "compact"),
        segment_bytes=arguments.segment_bytes,
        delete_retention_ms=arguments.delete_retention_ms,
        log_cleaner_backoff_ms=month_ms,
    ) as store:
        for topic in dict.fromkeys(arguments.topics):
            with Bar(f"compacting {topic}", "bytes") as progress:
                compacted = _compact_one(store, topic, progress, arguments.drop_keyless)
                done[topic] = compacted._asdict()
    if arguments.json:
        write_json(done)
        return 0
    for topic, counts in done.items():
        write_line(
            f"{topic}: {counted(counts['partitions'], 'queue')}, "
            f"{counted(counts['messages_read'], 'message')} in {human(counts['bytes_read'])} "
            f"became {counts['messages_written']:,} in {human(counts['bytes_written'])}"
        )
    return 0


def _compact_one(
    store: forebay.Store, topic: str, progress: Progress, drops: bool
) -> forebay.Compaction:
    try:
        return store.compact(topic, progress, drop_keyless=drops)
    except forebay.InvalidOptionError as error:
        if error.name != "drop_keyless":
            raise
        raise UsageError(
            f"{error.reason}; --drop-keyless drops all messages of the topic without a key"
        ) from error
