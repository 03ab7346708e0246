"""Arguments of a wrong type: the error names the argument, what it takes, and what it got."""

from __future__ import annotations

__all__ = ["check", "check_callable"]


def check(name: str, value: object, kinds: type | tuple[type, ...], takes: str) -> None:
    """Raise `TypeError` unless `value` is of one of these types; `takes` describes them."""
    if not isinstance(value, kinds):
        raise TypeError(f"{name} must be {takes}, got {type(value).__name__}")


def check_callable(name: str, value: object) -> None:
    """Raise `TypeError` unless `value` can be called."""
    if not callable(value):
        raise TypeError(f"{name} must be callable, got {type(value).__name__}")
