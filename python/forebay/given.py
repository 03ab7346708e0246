"""Arguments of a wrong type: the error names the argument, what it takes, and what it got."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any, get_args

from forebay.errors import InvalidOptionError
from forebay.options import FileEngine
from forebay.words import Worded

__all__ = [
    "FILE_ENGINES",
    "ITEMS_MAX",
    "check",
    "check_apart",
    "check_callable",
    "check_characters",
    "check_function",
    "check_has_run",
    "check_items",
    "check_path",
    "check_seconds",
    "check_text",
    "check_word",
    "listed",
    "with_surrogates",
]

#: The names of the engines that keep a store in files.
FILE_ENGINES: tuple[FileEngine, ...] = get_args(FileEngine)
#: More than any argument can use; an iterable may have no end.
ITEMS_MAX = 1 << 20
#: Arguments of the shell that are not UTF-8 have surrogates.
_NO_SURROGATES = Worded("must not have surrogates, which UTF-8 cannot encode", "must be UTF-8")


def check(name: str, value: object, kinds: type | tuple[type, ...], takes: str) -> None:
    """Raise `TypeError` unless `value` is of one of these types; `takes` describes them."""
    if not isinstance(value, kinds):
        raise TypeError(f"{name} must be {takes}, got {type(value).__name__}")


def check_callable(name: str, value: object, takes: str = "callable") -> None:
    """Raise `TypeError` unless `value` can be called; `takes` describes what is taken."""
    if not callable(value):
        raise TypeError(f"{name} must be {takes}, got {type(value).__name__}")


def check_items(name: str, value: object, kind: Any, takes: str) -> None:
    """Raise `TypeError` unless `value` is iterable; the items of a list are checked as well."""
    _iterator(name, value, takes)
    for item in value if isinstance(value, (list, tuple, set, frozenset, dict)) else ():
        _check_item(name, item, kind, takes)


def listed(name: str, value: object, kind: Any, takes: str) -> list[Any]:
    """Return the items of any iterable but text and bytes, all of which are checked."""
    if isinstance(value, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"{name} must be {takes}, got {type(value).__name__}")
    items = []
    for item in _iterator(name, value, takes):
        _check_item(name, item, kind, takes)
        items.append(item)
        if len(items) > ITEMS_MAX:
            raise _refused(name, f"must have at most {ITEMS_MAX} items", "more")
    return items


def _iterator(name: str, value: object, takes: str) -> Iterator[Any]:
    check(name, value, Iterable, takes)
    try:
        return iter(value)  # type: ignore[call-overload, no-any-return]
    except TypeError:
        # An array of numpy's without dimensions has the method, and cannot be iterated.
        raise TypeError(f"{name} must be {takes}, got {type(value).__name__}") from None


def _check_item(name: str, item: object, kind: Any, takes: str) -> None:
    if not isinstance(item, kind):
        raise TypeError(f"{name} must be {takes}, got an item that is {type(item).__name__}")
    if isinstance(item, str):
        _check_utf_8(name, item)


def check_text(name: str, value: object, takes: str) -> None:
    """Raise unless `value` is text that can be encoded."""
    check(name, value, str, takes)
    _check_utf_8(name, str(value))


def check_word(name: str, value: object, words: tuple[str, ...]) -> None:
    """Raise unless `value` is one of two words."""
    check_text(name, value, "a str")
    if value not in words:
        raise _refused(name, "must be " + " or ".join(f'"{word}"' for word in words), f'"{value}"')


def _check_utf_8(name: str, text: str) -> None:
    if any("\ud800" <= one <= "\udfff" for one in text):
        raise with_surrogates(name, repr(text))


def with_surrogates(name: str, value: str) -> InvalidOptionError:
    """Return the error for text that UTF-8 cannot encode."""
    return _refused(name, _NO_SURROGATES, value)


def check_path(name: str, value: object) -> str:
    """Return a path as text; raise `TypeError` unless it is one."""
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(path, str):
        raise TypeError(f"{name} must be a str or a path of str, got {type(path).__name__}")
    if not path:
        raise _refused(name, "must name a directory", '""')
    check_characters(name, path)
    return path


def check_characters(name: str, path: str) -> None:
    """Raise unless a path consists of characters that the name of a file can have."""
    if "\0" in path:
        raise _refused(name, "must not have zeros", repr(path))
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        rule = "must not have surrogates that stand for no byte"
        raise _refused(name, rule, repr(path)) from None


def check_seconds(name: str, value: object) -> float:
    """Return a duration in seconds; raise unless it is a number of seconds or a timedelta."""
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        # No process runs longer, and an integer may be too long for a float.
        seconds = float(min(value, 100 * 366 * 86_400))
    else:
        raise TypeError(f"{name} must be seconds or a timedelta, got {type(value).__name__}")
    if not seconds >= 0:
        raise _refused(name, "must be a number of seconds, 0 or more", str(value))
    return seconds


def check_apart(store: str, name: str, target: str) -> None:
    """Raise if one of the store's directory and another directory is within the other."""
    outer, inner = os.path.realpath(store), os.path.realpath(target)
    if outer == inner:
        return
    for rule, parts in (
        ("must not be within the store", (outer, inner)),
        ("must not be a directory that contains the store", (inner, outer)),
    ):
        if os.path.commonpath(parts) == parts[0]:
            raise _refused(name, f"{rule} {store}", target)


def _refused(name: str, rule: str, value: str) -> InvalidOptionError:
    text = f"{name} {rule}, got {value}"
    return InvalidOptionError(text, name=name, value=value, reason=rule)


def check_function(name: str, value: object, takes: str = "callable") -> None:
    """Raise `TypeError` unless `value` can be called, and a call runs it to its end.

    The call of a coroutine function or a generator function returns before any of it has run.
    """
    check_callable(name, value, takes)
    # This import takes a fifth of the time of `import forebay`, and few programs need it.
    import inspect

    while isinstance(value, functools.partial):
        value = value.func
    kinds: list[tuple[Callable[[Any], bool], str]] = [
        (inspect.iscoroutinefunction, "a coroutine function"),
        (inspect.isasyncgenfunction, "an asynchronous generator function"),
        (inspect.isgeneratorfunction, "a generator function"),
    ]
    for called in (value, type(value).__call__):
        for is_deferred, kind in kinds:
            if is_deferred(called):
                reason = "must be a function that runs to its end when called"
                raise TypeError(f"{name} {reason}, got {kind}")


def check_has_run(name: str, returned: object) -> None:
    """Raise `TypeError` if what the function `name` returned is still to be awaited or iterated."""
    if returned is None:
        return
    import inspect

    if inspect.iscoroutine(returned) or inspect.isgenerator(returned):
        # Otherwise dropping the coroutine would cause a second warning.
        returned.close()
    elif not (inspect.isawaitable(returned) or inspect.isasyncgen(returned)):
        return
    kind = type(returned).__name__
    raise TypeError(f"{name} must run to its end when called, but it returned a {kind}")
