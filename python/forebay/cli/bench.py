"""The verb bench: measurements on this machine."""

from __future__ import annotations

import argparse
import statistics
import tempfile
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from forebay.bench import ENGINES, TOPICS, Measured, measure, svg
from forebay.cli.arguments import count
from forebay.output import write_json, write_line

__all__ = ["add"]


def add(verbs: Any) -> None:
    """Add the verb to the parser."""
    text = "measure on this machine"
    parser = verbs.add_parser("bench", help=text, description=text, allow_abbrev=False)
    kinds = parser.add_subparsers(dest="kind", metavar="WHAT", required=True)
    text = "send to 1 up to 10,000 topics with each engine, while a reader reads them"
    topics = kinds.add_parser("topics", help=text, description=text, allow_abbrev=False)
    topics.add_argument(
        "--engine", choices=ENGINES, action="append", help="only this engine; may be repeated"
    )
    topics.add_argument(
        "--topics",
        metavar="N",
        type=partial(count, most=100_000),
        action="append",
        help=f"number of topics; may be repeated; by default {', '.join(map(str, TOPICS))}",
    )
    topics.add_argument(
        "--messages",
        metavar="N",
        type=partial(count, most=100_000_000),
        default=500_000,
        help="messages sent in each run; the default is 500000",
    )
    topics.add_argument(
        "--body",
        metavar="BYTES",
        type=partial(count, most=4 << 20),
        default=100,
        help="length of each body; the default is 100",
    )
    topics.add_argument(
        "--rounds",
        metavar="N",
        type=count,
        default=3,
        help="runs with each number of topics, for the medians; the default is 3",
    )
    topics.add_argument(
        "--folder",
        metavar="PATH",
        help="directory in which to make the stores; by default that of temporary files",
    )
    topics.add_argument("--svg", metavar="FILE", help="write a chart")
    topics.add_argument("--json", action="store_true", help="write a JSON document")
    topics.set_defaults(run=_topics)


def _topics(arguments: argparse.Namespace) -> int:
    runs: dict[tuple[str, int], list[Measured]] = {}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for _ in range(arguments.rounds):
            # Engines take turns, so that other load on the machine affects both.
            for topics in arguments.topics or TOPICS:
                for engine in arguments.engine or ENGINES:
                    found = measure(
                        engine,
                        topics,
                        Path(folder),
                        messages=arguments.messages,
                        body=arguments.body,
                    )
                    runs.setdefault((engine, topics), []).append(found)
    medians = [_median(found) for found in runs.values()]
    title = f"{arguments.messages:,} sends of {arguments.body} bytes, a reader beside"
    if arguments.svg is not None:
        Path(arguments.svg).write_text(svg(medians, title), encoding="utf-8")
    if arguments.json:
        write_json([asdict(one) for one in medians])
        return 0
    write_line(title)
    for one in medians:
        write_line(
            f"{one.engine:>12} {one.topics:>7,} topics {one.rate:>12,.0f} messages/s "
            f"p99 {one.p99 * 1e6:>8.1f} us  read {one.read / arguments.messages:>5.0%}"
        )
    return 0


def _median(runs: list[Measured]) -> Measured:
    return replace(
        runs[0],
        rate=statistics.median(one.rate for one in runs),
        p99=statistics.median(one.p99 for one in runs),
        read=int(statistics.median(one.read for one in runs)),
    )
