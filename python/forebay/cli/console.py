"""The verb console: a web page over a store."""

from __future__ import annotations

import argparse
from typing import Any

import forebay
from forebay.cli.arguments import add_store, number
from forebay.selection import require

__all__ = ["add"]

_PORT = 8780


def add(verbs: Any) -> None:
    """Add the verb to the parser."""
    text = "serve a web page over the store: topics, messages, groups, dead letters, damage"
    parser = verbs.add_parser("console", help=text, description=text, allow_abbrev=False)
    add_store(parser)
    parser.add_argument(
        "--host",
        metavar="ADDRESS",
        default="127.0.0.1",
        help="address to listen on; by default only this machine can connect",
    )
    parser.add_argument(
        "--port",
        metavar="N",
        type=_port,
        default=_PORT,
        help=f"port to listen on; the default is {_PORT}, 0 is any free one",
    )
    parser.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="a name by which browsers reach the page; may be repeated",
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="allow redriving dead letters; by default the console only reads",
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.set_defaults(run=_console)


def _port(text: str) -> int:
    return number(text, 65_535)


def _console(arguments: argparse.Namespace) -> int:
    try:
        require("uvicorn", "console")
        from forebay.console.serve import serve
    except ImportError as error:
        raise forebay.UnsupportedError(str(error)) from error

    with forebay.open(arguments.store, mode="r") as store:
        serve(
            store,
            arguments.host,
            arguments.port,
            names=arguments.allow_host,
            write=arguments.write,
            browse=arguments.open,
        )
    return 0
