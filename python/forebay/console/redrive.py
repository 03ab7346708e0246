"""Redriving dead letters, the only change that the console makes to a store."""

from __future__ import annotations

from typing import Any

from forebay._forebay import Store
from forebay.console.bodies import cut
from forebay.dead_letters import Redriver, letter_queues
from forebay.errors import ForeignStoreError, StoreLockedError
from forebay.store import open_writer
from forebay.words import in_words_of_the_shell

__all__ = ["redrive"]

#: Dead letters of one request.
_MOST = 10_000


def redrive(store: Store, asked: dict[str, Any]) -> dict[str, Any]:
    """Redrive dead letters as a request asks: ``group``, and perhaps ``limit`` and ``to``.

    This blocks: call it in a thread.

    Raises
    ------
    StoreLockedError
        If another process has the store open for writing, and does not share it.
    ForeignStoreError
        If another system created the store.
    """
    given = dict(asked)
    group, limit, to = given.pop("group", None), given.pop("limit", 100), given.pop("to", None)
    if given:
        raise ValueError(f"there is no argument {cut(next(iter(given)))!r}")
    if not isinstance(group, str):
        raise ValueError("group must be the name of a group")
    if type(limit) is not int or not 1 <= limit <= _MOST:
        raise ValueError(f"limit must be an integer from 1 to {_MOST}")
    if not (to is None or isinstance(to, str)):
        raise ValueError("to must be the name of a topic")
    if not letter_queues(store, group):
        raise LookupError(f'there is no dead letter of group "{cut(group)}"')
    if store.mode != "r":
        return _redrive(store, group, limit, to)
    with _writer(store.path) as writer:
        return _redrive(writer, group, limit, to)


def _writer(path: str) -> Store:
    """Open the store for writing, alone, or beside processes that share it."""
    try:
        return open_writer(path)
    except ForeignStoreError as error:
        text = f"{path} was not created by forebay: forebay dlq redrive --adopt writes to it"
        raise ForeignStoreError(text, path=path) from error
    except StoreLockedError as error:
        raise in_words_of_the_shell(error) from error


def _redrive(store: Store, group: str, limit: int, to: str | None) -> dict[str, Any]:
    redriver = Redriver(store, group, to or None)
    redriver.redrive(limit, lambda _done, _total: None)
    waiting = sum(one.waiting for one in letter_queues(store, group))
    return {"group": group, "sent": dict(redriver.sent), "waiting": waiting}
