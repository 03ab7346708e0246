"""Errors for the options of reads and writes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from forebay.errors import ForebayError, InvalidOptionError
from forebay.redact import redacted


def invalid(name: str, value: object, reason: str) -> InvalidOptionError:
    """Return the error for an invalid value, without anything that may be secret.

    `reason` says what is wrong. Where the allowed values can be told, use `must`.
    """
    shown = _shown(value)
    message = f"invalid {name} {shown}: {reason}"
    return InvalidOptionError(message, name=name, value=shown, reason=reason)


def must(name: str, value: object, rule: str) -> InvalidOptionError:
    """Return the error for a value that breaks a rule, such as ``"be at least 1"``.

    As `invalid`, it shows nothing that may be secret.
    """
    shown, reason = _shown(value), f"must {rule}"
    return InvalidOptionError(
        f"{name} {reason}, got {shown}", name=name, value=shown, reason=reason
    )


def _shown(value: object) -> str:
    return repr(redacted(value) if isinstance(value, str) else value)


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
