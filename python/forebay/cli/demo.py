"""The verb demo."""

from __future__ import annotations

import argparse
from typing import Any

__all__ = ["add"]


def add(verbs: Any) -> None:
    """Add the verb to the parser."""
    text = "show Forebay at work on real data, in about a minute"
    parser = verbs.add_parser("demo", help=text, description=text, allow_abbrev=False)
    parser.add_argument("--without-spark", action="store_true", help="leave out the Spark part")
    parser.set_defaults(run=_demo)


def _demo(arguments: argparse.Namespace) -> int:
    from forebay.demo import run

    return run(with_spark=not arguments.without_spark)
