"""Forebay in an event loop: the names of `forebay`, awaited.

A send that need not wait is done in the loop. A send that waits for the disk, a tail and a consumer
wait for one descriptor, which the loop watches, without a thread each. Calls that may block run in
the loop's default executor. Cancelling such a call waits until it has ended, so no thread keeps
running unnoticed and no message is lost.

Examples
--------
>>> import asyncio
>>> import forebay.aio
>>> async def main():
...     async with forebay.aio.open(":memory:") as store:
...         await store.send("orders", b"body", key="42")
...         found, = await store.query("orders", key="42")
...         return found.body
>>> asyncio.run(main())
b'body'
"""

from __future__ import annotations

import functools
import os
from typing import Unpack

from forebay.aio.consumer import Consumer
from forebay.aio.producer import Producer
from forebay.aio.store import Opening, Store
from forebay.aio.tail import Tail
from forebay.options import Mode, OpenOptions
from forebay.store import open as open_plain

__all__ = ["Consumer", "Opening", "Producer", "Store", "Tail", "open"]


def open(path: str | os.PathLike[str], mode: Mode = "a", **options: Unpack[OpenOptions]) -> Opening:
    """Open a store for the running event loop.

    Parameters
    ----------
    path, mode, **options
        As for `forebay.open`.

    Returns
    -------
    Opening
        Use it in ``async with``, which closes the store at the end, or await it. Nothing is opened
        before.

    Examples
    --------
    >>> import asyncio
    >>> async def main():
    ...     async with forebay.aio.open(":memory:") as store:
    ...         return (await store.send("orders", b"body")).offset
    >>> asyncio.run(main())
    0
    """
    return Opening(functools.partial(open_plain, path, mode, **options))
