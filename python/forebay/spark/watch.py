"""A store that a stream reads: kept open from trigger to trigger, and opened anew when need be.

A reader follows the writer that was at work when it was opened. When the store is closed and opened
again underneath, which begins an epoch, or another directory is put in its place, it is opened
anew. Where there are no epochs, in the directory of a RocketMQ broker, each look opens it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import forebay
from forebay import _forebay
from forebay.spark.errors import invalid
from forebay.spark.offsets import Epochs, Place
from forebay.spark.options import ReadOptions, TopicQueue
from forebay.spark.plan import Bounds, Planner
from forebay.spark.stores import Life, is_archive

if TYPE_CHECKING:
    from forebay import Store


@dataclass(frozen=True)
class Seen:
    """A store as it was at a look."""

    #: `None` where a broker writes to the store, and so nothing tells whether it has.
    life: Life | None
    #: `None` where Forebay has not written to the store.
    epochs: Epochs | None
    #: End of what is durable.
    durable: int
    #: First offset, and the one behind the last durable message, of each queue that is asked for.
    bounds: dict[TopicQueue, Bounds]

    def place(self, queues: dict[TopicQueue, int]) -> Place:
        """Return the place in which a stream is that has come to these offsets."""
        number, began = (0, 0) if self.epochs is None else (self.epochs[0], _began(self.epochs))
        return Place(number, began, self.durable, queues)


class Watch:
    """One store, by its absolute path."""

    def __init__(self, path: str, options: ReadOptions) -> None:
        self.path = path
        self._options = options
        self._store: Store | None = None
        self._life: Life | None = None

    def look(self) -> Seen:
        """Return what the store holds at this moment.

        Raises
        ------
        InvalidOptionError
            If it is an archive: that grows by what is archived, and is read as a whole.
        """
        if is_archive(self.path):
            reason = "it is an archive; a stream follows stores, spark.read reads archives"
            raise invalid("path", self.path, reason)
        while True:
            life, epochs = _life_of(self.path)
            if life is None or life != self._life or self._store is None:
                self.close()
                self._store = forebay.open(self.path, mode="r")
                self._life = life
            durable, bounds = self._bounds(None)
            # Of the epoch that was looked at, or of one that has begun meanwhile?
            if life is None or _life_of(self.path)[0] == life:
                return Seen(life, epochs, durable, bounds)

    @property
    def store(self) -> Store:
        """The store as the last look has opened it."""
        assert self._store is not None, "look comes first"
        return self._store

    def offsets_from(self, position: int) -> dict[TopicQueue, int]:
        """Return, by queue, the first offset that does not lie wholly below a position."""
        return {at: end for at, (_, end) in self._bounds(position)[1].items()}

    def fit(
        self, parts: Mapping[TopicQueue, tuple[int, int, int]]
    ) -> dict[TopicQueue, tuple[int, int]]:
        """Return how far messages fit into bytes; see `_forebay.fit`."""
        arguments = [(*at, *part) for at, part in parts.items()]
        return dict(zip(parts, _forebay.fit(self.store, arguments), strict=True))

    def close(self) -> None:
        """Close what is open."""
        if self._store is not None:
            self._store.close()
        self._store = self._life = None

    def _bounds(self, position: int | None) -> tuple[int, dict[TopicQueue, Bounds]]:
        names = Planner(self._options).named(self.store)
        end, found = _forebay.bounds_below(self.store, names, position)
        assigned = self._options.assignment
        return end, {
            (topic, queue): (first, last)
            for topic, queue, first, last in found
            if assigned is None or queue in assigned[topic]
        }


def _life_of(path: str) -> tuple[Life | None, Epochs | None]:
    epochs = _forebay.epochs(path)
    if epochs is None or epochs[0] == 0:
        return None, None
    try:
        page = os.stat(os.path.join(path, "forebay.state"))
        # A broker that was given the store back begins no epoch, but writes into this at its start.
        lock = os.stat(os.path.join(path, "lock")).st_mtime_ns
    except FileNotFoundError:
        return None, epochs
    if _is_at_broker(path):
        return None, epochs
    return (page.st_dev, page.st_ino, epochs[0], _began(epochs), lock), epochs


def _began(epochs: Epochs) -> int:
    """Return when the newest epoch began; 0 where that is unknown."""
    number, known = epochs
    return next((time for epoch, time, _ in known if epoch == number), 0)


def _is_at_broker(path: str) -> bool:
    """Whether a broker writes the store, or died at it: it leaves a file without our name in it."""
    try:
        with open(os.path.join(path, "abort"), "rb") as file:
            return not file.read(64).endswith(b" forebay")
    except FileNotFoundError:
        return False
