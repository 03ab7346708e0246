"""The verb dlq: dead letters, which a group of consumers could not handle."""

from __future__ import annotations

import argparse
from typing import Any

import forebay
from forebay.cli.arguments import add_store, count, open_existing, unknown
from forebay.cli.rows import as_dict
from forebay.dead_letters import (
    LetterQueue,
    Redriver,
    dead_groups,
    dead_topic,
    letter_queues,
    letter_queues_of,
    origin,
)
from forebay.output import ago, counted, write_json, write_line, write_table
from forebay.progress import Bar

__all__ = ["add"]


def add(verbs: Any) -> None:
    """Add the verb to the parser."""
    text = "list, show, redrive and purge the messages that groups could not handle"
    parser = verbs.add_parser("dlq", help=text, description=text, allow_abbrev=False)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, run, what in (
        ("list", _list, "list the groups that have dead letters"),
        ("show", _show, "show dead letters: original topic, attempts, reason"),
        ("redrive", _redrive, "send dead letters again, to their original topics"),
        ("purge", _purge, "count all dead letters of a group as handled"),
    ):
        action = actions.add_parser(name, help=what, description=what, allow_abbrev=False)
        add_store(action)
        if name != "list":
            action.add_argument("group", metavar="GROUP")
        if name in ("show", "redrive"):
            action.add_argument("--limit", metavar="N", type=count, help="at most N dead letters")
        if name == "show":
            action.add_argument(
                "--all", action="store_true", help="also those that were redriven or purged"
            )
        if name == "redrive":
            action.add_argument(
                "--to", metavar="TOPIC", help="send to this topic instead of the original ones"
            )
        if name in ("redrive", "purge"):
            action.add_argument(
                "--adopt",
                action="store_true",
                help="write to a directory that Forebay did not create",
            )
        lines = "write one JSON object per line, with the bodies"
        text = lines if name == "show" else "write a JSON document"
        action.add_argument("--json", action="store_true", help=text)
        action.set_defaults(run=run)


def _queues(store: forebay.Store, group: str) -> list[LetterQueue]:
    """Return the dead letters of a group, by queue."""
    if dead_topic(store, group) not in store.topics:
        raise ValueError(unknown("dead letter of group", group, dead_groups(store)))
    return letter_queues(store, group)


def _list(arguments: argparse.Namespace) -> int:
    with forebay.open(arguments.store, mode="r") as store:
        queues = letter_queues_of(store, dead_groups(store))
    found = [_facts(group, of_group) for group, of_group in queues.items()]
    if arguments.json:
        write_json(found)
    elif found:
        write_table(("group", "waiting", "in the log"), [tuple(one.values()) for one in found])
    else:
        write_line("no group has dead letters")
    return 0


def _facts(group: str, queues: list[LetterQueue]) -> dict[str, Any]:
    return {
        "group": group,
        "waiting": sum(one.waiting for one in queues),
        "messages": sum(one.end - one.first for one in queues),
    }


def _show(arguments: argparse.Namespace) -> int:
    left = arguments.limit
    rows = []
    with forebay.open(arguments.store, mode="r") as store:
        for queue in _queues(store, arguments.group):
            start = queue.first if arguments.all else queue.next
            for letter in queue.read(store, start=start, limit=left):
                left = None if left is None else left - 1
                if arguments.json:
                    write_json(as_dict(letter, full=True) | origin(letter))
                else:
                    rows.append(_row(letter))
    if rows:
        head = ("queue", "offset", "stored", "original topic", "attempts", "key", "reason")
        write_table(head, rows)
    elif not arguments.json:
        write_line("no dead letters" if arguments.all else "no dead letters are waiting")
    return 0


def _row(letter: forebay.Message) -> tuple[object, ...]:
    found = origin(letter)
    return (
        letter.queue,
        letter.offset,
        ago(letter.store_time),
        found["original_topic"] or "unknown",
        found["attempts"],
        letter.key or "",
        found["reason"] or "",
    )


def _redrive(arguments: argparse.Namespace) -> int:
    group = arguments.group
    with open_existing(arguments.store, adopt=arguments.adopt) as store:
        _queues(store, group)
        redriver = Redriver(store, group, arguments.to)
        with Bar("redriving", "messages") as progress:
            redriver.redrive(arguments.limit, progress)
        waiting = sum(one.waiting for one in _queues(store, group))
    if arguments.json:
        write_json({"group": group, "sent": dict(redriver.sent), "waiting": waiting})
        return 0
    for topic, sent in sorted(redriver.sent.items()):
        write_line(f"sent {sent:,} to {topic}")
    write_line(f"waiting: {waiting:,}")
    return 0


def _purge(arguments: argparse.Namespace) -> int:
    group = arguments.group
    with open_existing(arguments.store, adopt=arguments.adopt) as store:
        purged = sum(one.waiting for one in _queues(store, group))
        if purged:
            store.reset_offsets(group, dead_topic(store, group), "latest")
    if arguments.json:
        write_json({"group": group, "purged": purged})
    else:
        write_line(f"purged {counted(purged, 'dead letter')} of {group}")
    return 0
