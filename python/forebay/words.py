"""Errors in the words of the shell: what a user of the command line or the console can do."""

from __future__ import annotations

import re
from collections.abc import Container

from forebay.errors import (
    ForebayError,
    ForeignStoreError,
    InvalidOptionError,
    StoreExistsError,
    StoreLockedError,
    StoreNotFoundError,
    UnsupportedError,
)

__all__ = ["advice_of_the_shell", "in_words_of_the_shell", "named_as_options"]

#: Advice within texts that is about calls and arguments of Python, and what replaces it.
_ADVICE = (
    (re.compile(r"; read it with mode=\"r\""), "; the verbs that only read work"),
    (re.compile(r"must not have surrogates, which UTF-8 cannot encode"), "must be UTF-8"),
    (re.compile(r"; call roll\(\) on the writer to seal it"), "; --roll seals it"),
    (re.compile(r"; roll\(\) on the writer completes"), "; --roll completes"),
    (
        re.compile(r"--renumber is False: (.*), so offsets cannot be kept; with renumber messages"),
        r"offsets cannot be kept, because \1; with --renumber messages",
    ),
)


def in_words_of_the_shell(error: Exception) -> Exception:
    """Return an error whose advice is about the command line, not about arguments of Python."""
    if type(error) is StoreNotFoundError:
        return StoreNotFoundError(f"there is no store at {error.path}", path=error.path)
    if type(error) is StoreExistsError:
        return StoreExistsError(f"there is a store at {error.path} already", path=error.path)
    if isinstance(error, ForeignStoreError):
        text = f"{error.path} was not created by forebay: --adopt allows to write to it"
        return ForeignStoreError(text, path=error.path)
    if isinstance(error, StoreLockedError):
        return _locked(error)
    text = advice_of_the_shell(str(error))
    if isinstance(error, UnsupportedError):
        return UnsupportedError(text)
    if isinstance(error, InvalidOptionError):
        facts = {"value": error.value, "reason": error.reason}
        return InvalidOptionError(text, name=error.name, **facts)
    return error


def advice_of_the_shell(text: str) -> str:
    """Return a text whose advice is about the command line."""
    for pattern, words in _ADVICE:
        text = pattern.sub(words, text)
    return text


def named_as_options(error: InvalidOptionError, options: Container[str]) -> InvalidOptionError:
    """Return an error that names the option of the command that has the name of an argument."""
    option = f"--{error.name.replace('_', '-')}"
    text = str(error)
    if option not in options or not text.startswith(f"{error.name} "):
        return error
    text = option + text.removeprefix(error.name)
    return InvalidOptionError(text, name=error.name, value=error.value, reason=error.reason)


def _locked(error: StoreLockedError) -> ForebayError:
    who = "another process" if error.pid is None else f"process {error.pid}"
    text = (
        f"{error.path} is being written by {who}: reading works beside it, writing once it has "
        "closed the store"
    )
    return StoreLockedError(text, path=error.path, pid=error.pid)
