"""Errors in the words of the shell: what a user of the command line or the console can do."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from forebay.errors import (
    ForebayError,
    ForeignStoreError,
    InvalidOptionError,
    StoreExistsError,
    StoreLockedError,
    StoreNotFoundError,
    UnsupportedError,
)

__all__ = ["Worded", "in_words_of_the_shell", "named_as_options", "text_of_the_shell"]


class Worded(str):
    """A text about calls and arguments of Python.

    Attributes
    ----------
    in_shell
        What the shell says instead.
    """

    in_shell: str

    def __new__(cls, text: str, in_shell: str) -> Worded:
        """Make a text that has another wording."""
        found = super().__new__(cls, text)
        found.in_shell = in_shell
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return Worded, (str(self), self.in_shell)


def text_of_the_shell(text: str) -> str:
    """Return what the shell says instead of a text."""
    return text.in_shell if isinstance(text, Worded) else text


def in_words_of_the_shell(error: Exception) -> Exception:
    """Return an error whose advice is about the command line, not about arguments of Python."""
    if type(error) is StoreNotFoundError:
        return StoreNotFoundError(f"there is no store at {error.path}", path=error.path)
    if type(error) is StoreExistsError:
        return StoreExistsError(f"there is a store at {error.path} already", path=error.path)
    if isinstance(error, ForeignStoreError):
        text = f"{error.path} was not created by forebay: pass --adopt to write to it"
        return ForeignStoreError(text, path=error.path)
    if isinstance(error, StoreLockedError):
        return _locked(error)
    if isinstance(error, UnsupportedError) and error.path is not None:
        text = (
            f"not supported: writing to {error.path}: {error.reason}; the verbs that only read work"
        )
        return UnsupportedError(text, path=error.path, reason=error.reason)
    return _of_argument(error) if isinstance(error, InvalidOptionError) else error


def named_as_options(error: InvalidOptionError, options: Container[str]) -> InvalidOptionError:
    """Return an error that names the option of the command that has the name of an argument."""
    error = _of_argument(error)
    option = f"--{error.name.replace('_', '-')}"
    text = str(error)
    if option not in options or not text.startswith(f"{error.name} "):
        return error
    text = option + text.removeprefix(error.name)
    return InvalidOptionError(text, name=error.name, value=error.value, reason=error.reason)


def _of_argument(error: InvalidOptionError) -> InvalidOptionError:
    # An error of a row has no fields.
    reason = vars(error).get("reason")
    if isinstance(reason, Worded):
        reason = reason.in_shell
        text = f"{error.name} {reason}, got {error.value}"
        return InvalidOptionError(text, name=error.name, value=error.value, reason=reason)
    return _of_a_gap(error) if error.offset is not None else error


def _of_a_gap(error: InvalidOptionError) -> InvalidOptionError:
    text = (
        f"offsets cannot be kept, because queue {error.queue} of {error.topic} has no message at "
        f"offset {error.offset}; with --renumber messages get new ones and keep the old as the "
        "property FOREBAY_OFFSET"
    )
    return InvalidOptionError(
        text,
        name=error.name,
        value=error.value,
        reason=error.reason,
        topic=error.topic,
        queue=error.queue,
        offset=error.offset,
    )


def _locked(error: StoreLockedError) -> ForebayError:
    who = "another process" if error.pid is None else f"process {error.pid}"
    text = (
        f"{error.path} is being written by {who}: it can be read meanwhile, and written once that "
        "process has closed it"
    )
    return StoreLockedError(text, path=error.path, pid=error.pid)
