"""The verb convert: copies a store into one with the files of another engine."""

from __future__ import annotations

import argparse
from typing import Any

import forebay
from forebay.cli.arguments import directory, pair
from forebay.given import FILE_ENGINES
from forebay.output import counted, write_json, write_line
from forebay.progress import Bar

__all__ = ["add"]


def add(verbs: Any) -> None:
    """Add the verb to the parser."""
    text = "copy a store into a new one with the files of another engine"
    parser = verbs.add_parser(
        "convert",
        help=text,
        description=text,
        epilog="After an interruption, the same command continues.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "source", metavar="SRC", type=directory, help="directory of the store, or of a broker"
    )
    parser.add_argument("target", metavar="DST", type=directory, help="directory of the new store")
    parser.add_argument(
        "--engine",
        required=True,
        choices=FILE_ENGINES,
        help="engine of the new store",
    )
    parser.add_argument(
        "--topic", metavar="TOPIC", action="append", help="convert only this; may be repeated"
    )
    parser.add_argument(
        "--name",
        metavar="OLD=NEW",
        type=_renamed,
        action="append",
        default=[],
        help="name of a topic in the new store; may be repeated",
    )
    parser.add_argument(
        "--renumber",
        action="store_true",
        help="give messages new offsets, and keep the old as the property FOREBAY_OFFSET",
    )
    parser.add_argument(
        "--isolation",
        choices=("read_committed", "read_uncommitted"),
        default="read_committed",
        help="transactional messages to convert; by default only those of committed transactions",
    )
    parser.add_argument("--json", action="store_true", help="write a JSON document")
    parser.set_defaults(run=_convert)


def _renamed(text: str) -> tuple[str, str]:
    return pair(text, "OLD=NEW")


def _convert(arguments: argparse.Namespace) -> int:
    with Bar("converting", "messages") as progress:
        done = forebay.convert(
            arguments.source,
            arguments.target,
            engine=arguments.engine,
            topics=arguments.topic,
            names=dict(arguments.name),
            renumber=arguments.renumber,
            isolation=arguments.isolation,
            progress=progress,
        )
    if arguments.json:
        write_json(done._asdict())
        return 1 if done.damaged else 0
    for old, new in done.topics.items():
        if old != new:
            write_line(f"topic {old} is now {new}")
    for name, offsets in done.left_out.items():
        write_line(
            f"left out: {name} ({counted(offsets, 'offset')}), a topic of {_keeper(name)} itself"
        )
    if done.resumed:
        write_line("an earlier run had begun; this one copied what was left")
    copied, topics = counted(done.messages, "message"), counted(len(done.topics), "topic")
    write_line(f"{copied} of {topics} copied")
    if done.damaged:
        damaged = counted(done.damaged, "damaged region")
        write_line(f"the source has {damaged}, whose messages are missing")
    return 1 if done.damaged else 0


def _keeper(topic: str) -> str:
    return "Kafka" if topic.startswith("__") else "the system"
