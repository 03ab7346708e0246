"""What the options of a read raise."""

from __future__ import annotations

from forebay.errors import InvalidOptionError


def invalid(name: str, value: object, reason: str) -> InvalidOptionError:
    """Return the error for an option whose value is not allowed."""
    value = repr(value)
    return InvalidOptionError(f"{name} is {value}: {reason}", name=name, value=value, reason=reason)
