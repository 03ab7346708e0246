"""The verb shell: Python with a store at hand."""

from __future__ import annotations

import argparse
import code
import importlib.util
import sys
from types import CodeType
from typing import Any

import forebay
from forebay.cli.arguments import add_store, open_existing

__all__ = ["add"]


def add(verbs: Any) -> None:
    """Add the verb to the parser."""
    text = "open Python with the store as the variable store"
    parser = verbs.add_parser(
        "shell",
        help=text,
        description=f"{text}, or run a program from standard input",
        allow_abbrev=False,
    )
    add_store(parser)
    parser.add_argument("-c", "--command", metavar="CODE", help="run this code, and exit")
    parser.add_argument(
        "--write",
        action="store_true",
        help="open the store for writing; the default is for reading",
    )
    parser.add_argument(
        "--adopt", action="store_true", help="write to a directory that Forebay did not create"
    )
    parser.set_defaults(run=_shell)


def _shell(arguments: argparse.Namespace) -> int:
    if arguments.write or arguments.adopt:
        store = open_existing(arguments.store, adopt=arguments.adopt)
    else:
        store = forebay.open(arguments.store, mode="r")
    with store:
        names = {"__name__": "__main__", "forebay": forebay, "store": store}
        if arguments.command is not None:
            return _run(arguments.command, "<command>", names)
        if not sys.stdin.isatty():
            return _run(sys.stdin.read(), "<stdin>", names)
        _interact(names)
    return 0


class _Program(code.InteractiveInterpreter):
    """Runs a program, and shows its errors with their tracebacks."""

    failed = False

    def runcode(self, code: CodeType) -> None:
        """Run code; Ctrl-C ends the command, as it does elsewhere."""
        try:
            exec(code, self.locals)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException:
            self.showtraceback()

    def showtraceback(self) -> None:
        self.failed = True
        super().showtraceback()

    def showsyntaxerror(self, *given: Any, **named: Any) -> None:
        self.failed = True
        super().showsyntaxerror(*given, **named)


def _run(source: str, name: str, names: dict[str, Any]) -> int:
    program = _Program(names)
    program.runsource(f"{source}\n", name, "exec")
    return int(program.failed)


def _interact(names: dict[str, Any]) -> None:
    """Read lines from the terminal, by IPython where it is installed."""
    store = names["store"]
    banner = f"store is {store!r}; the names are store and forebay"
    if importlib.util.find_spec("IPython") is None:
        _complete(names)
        # Outside of an exception handler: each error would be shown with the handled one as
        # context.
        code.interact(banner, local=names, exitmsg="")
        return
    from IPython import start_ipython  # type: ignore[import-not-found]
    from traitlets.config import Config  # type: ignore[import-not-found]

    config = Config()
    config.TerminalInteractiveShell.banner1 = f"{banner}\n"
    start_ipython(argv=[], user_ns=names, config=config)


def _complete(names: dict[str, Any]) -> None:
    """Complete names with the tab key, where Python has readline."""
    try:
        import readline
        import rlcompleter
    except ImportError:
        return
    readline.set_completer(rlcompleter.Completer(names).complete)
    readline.parse_and_bind("tab: complete")
