"""The verb archive: copies sealed log files into an archive."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

import forebay
from forebay.archive import ArchiveDamage
from forebay.archive import open as open_archive
from forebay.cli.arguments import UsageError, add_store, directory, open_existing
from forebay.cli.inspect import damage_line
from forebay.output import counted, human, write_json, write_line
from forebay.progress import Bar
from forebay.words import text_of_the_shell

__all__ = ["add"]


def add(verbs: Any) -> None:
    """Add the verb to the parser."""
    text = "copy log files that no longer change into an archive"
    parser = verbs.add_parser("archive", help=text, description=text, allow_abbrev=False)
    add_store(parser)
    parser.add_argument(
        "target",
        metavar="TARGET",
        type=directory,
        help="archive directory, or a URI such as s3://...",
    )
    parser.add_argument(
        "--verify", action="store_true", help="read the whole archive back and check it"
    )
    parser.add_argument(
        "--roll",
        action="store_true",
        help="first seal the log file in use, or complete the segments in use, so that everything "
        "is copied; fails while another process has the store to itself",
    )
    parser.add_argument(
        "--adopt",
        action="store_true",
        help="with --roll: write to a directory that Forebay did not create",
    )
    parser.add_argument("--json", action="store_true", help="write a JSON document")
    parser.set_defaults(run=_archive)


def _opened(arguments: argparse.Namespace) -> forebay.Store:
    """Open the store; for writing only if that is needed."""
    if arguments.roll:
        return open_existing(arguments.store, adopt=arguments.adopt)
    return forebay.open(arguments.store, mode="r")


def _archive(arguments: argparse.Namespace) -> int:
    if arguments.adopt and not arguments.roll:
        raise UsageError("--adopt needs --roll: without it the store is only read")
    with _opened(arguments) as store, Bar("copying", "bytes") as progress:
        if arguments.roll:
            store.roll()
        done = store.archive(arguments.target, progress=progress)
        is_partition_log = store._meanings.in_kafka_form
    damage: list[forebay.Damage | ArchiveDamage] = []
    if arguments.verify:
        archive = open_archive(arguments.target)
        with Bar("verifying", "bytes") as progress:
            damage = archive.verify(progress)
    reason = None if done.reason is None else text_of_the_shell(done.reason)
    if arguments.json:
        facts = asdict(done) | {"reason": reason}
        if arguments.verify:
            facts["damage"] = [found._asdict() for found in damage]
        write_json(facts)
        return 1 if damage else 0
    kind = "segment" if is_partition_log else "log file"
    write_line(
        f"{counted(done.files, kind)} copied to {done.target} ({human(done.bytes)}); "
        f"already archived: {done.skipped:,}"
    )
    if done.retired:
        write_line(f"retired before it was copied: {counted(done.retired, kind)}")
    if reason is not None:
        write_line(f"nothing was copied: {reason}")
    if is_partition_log:
        write_line(f"archived of {counted(len(done.offsets), 'queue')}")
    else:
        write_line(f"archived up to position {done.position:,}")
    if not done.recorded:
        write_line(
            "the store could not record this: its directory belongs to another system or "
            "is read-only, or its forebay.archived cannot be read"
        )
    for found in damage:
        write_line(f"damaged: {damage_line(found)}")
    if arguments.verify and not damage:
        write_line("verified: the archive holds exactly the bytes that were archived")
    return 1 if damage else 0
