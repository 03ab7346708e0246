"""What ``python -m forebay`` does first: Ctrl-C ends it quietly while the package is imported.

The package is imported before its ``__main__``, and this module before all others of the package.
"""

import sys

__all__ = ["waits"]

# While Python looks for the program's module, the name of the program is "-m".
_is_program = getattr(sys, "argv", [])[:1] == ["-m"] and (
    sys.orig_argv[-len(sys.argv)] in ("forebay", "-mforebay")
)

#: Whether this process is the program, and does not ignore Ctrl-C.
waits = False

if _is_program:
    # The module `signal` imports others, which takes longer than everything here.
    import _signal as signal  # type: ignore[import-not-found]
    import os

    waits = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if waits:
        signal.signal(signal.SIGINT, lambda _signal, _frame: os._exit(130))
