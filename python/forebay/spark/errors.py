"""What the options of a read raise."""

from __future__ import annotations

from forebay.errors import InvalidOptionError
from forebay.redact import redacted


def invalid(name: str, value: object, reason: str) -> InvalidOptionError:
    """Return the error for an option whose value is not allowed, without what may be secret."""
    value = repr(redacted(value) if isinstance(value, str) else value)
    return InvalidOptionError(f"{name} is {value}: {reason}", name=name, value=value, reason=reason)


def unknown(name: str, reason: str) -> InvalidOptionError:
    """Return the error for an option that there is not; its value may be a secret."""
    message = f"option {name} is not allowed: {reason}"
    return InvalidOptionError(message, name=name, value="...", reason=reason)
