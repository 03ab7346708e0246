"""Errors for the options of reads and writes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from forebay.errors import ForebayError, InvalidOptionError
from forebay.redact import redacted


def invalid(name: str, value: object, reason: str) -> InvalidOptionError:
    """Return the error for an option with an invalid value, without anything that may be secret.

    A `reason` that begins with "must" says which values are allowed; others say what is wrong.
    """
    value = repr(redacted(value) if isinstance(value, str) else value)
    message = f"invalid {name} {value}: {reason}"
    if reason.startswith("must "):
        message = f"{name} {reason}, got {value}"
    return InvalidOptionError(message, name=name, value=value, reason=reason)


def unknown(name: str, reason: str) -> InvalidOptionError:
    """Return the error for an unknown option; its value is not shown, as it may be a secret."""
    message = f"option {name} is not supported: {reason}"
    return InvalidOptionError(message, name=name, value="...", reason=reason)


def refused(error: NotImplementedError) -> ForebayError:
    """Return the same error as one that PySpark passes on while it plans a read.

    It takes a `NotImplementedError` for a reader that does not divide its rows, and goes on.
    """
    found = ForebayError(str(error))
    for note in getattr(error, "__notes__", ()):
        found.add_note(note)
    return found


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint with the known name nearest to `name`; empty if none is similar."""
    by_lower = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower(), by_lower, 1)
    return f" (did you mean {by_lower[near[0]]}?)" if near else ""
