"""A store that a stream reads: kept open between triggers, and reopened when necessary.

A reader follows the writer that was running when the reader was opened. It is reopened when another
writer has opened the store, which begins an epoch, or when another directory has replaced the
store. The directory of a RocketMQ broker has no epochs, so each check opens it again. That of a
Kafka broker has none either, but the engine for it follows the broker.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from forebay import _forebay
from forebay.spark.errors import invalid
from forebay.spark.offsets import Place
from forebay.spark.options import ReadOptions, TopicQueue
from forebay.spark.plan import Bounds, Planner
from forebay.spark.stores import Life, is_archive, is_partition_log, open_store

if TYPE_CHECKING:
    from forebay import Store


@dataclass(frozen=True)
class Seen:
    """The state of a store at one moment."""

    #: `None` if a broker writes to the store: then a change of writers cannot be detected.
    life: Life | None
    #: `None` if Forebay has not written to the store.
    epochs: _forebay.Epochs | None
    #: Durable end of the log.
    durable: int
    #: First offset, and the offset after the last durable message, of each requested queue.
    bounds: dict[TopicQueue, Bounds]

    def place(self, queues: dict[TopicQueue, int]) -> Place:
        """Return the place of a stream that has reached these offsets."""
        epochs = self.epochs or _forebay.Epochs()
        return Place(epochs.number, epochs.began, self.durable, queues)

    def intact_until(self, place: Place) -> int | None:
        """Return the position up to which the log is still the one that a place refers to.

        `None` means that nothing was lost: all that was durable when the place was taken still
        exists. 0 means that another log has replaced it.
        """
        epochs = self.epochs or _forebay.Epochs()
        return epochs.intact_until(place.epoch, place.began, place.position, self.durable)


class Watch:
    """One store, identified by its absolute path."""

    def __init__(self, path: str, options: ReadOptions) -> None:
        self.path = path
        self._options = options
        self._store: Store | None = None
        self._life: Life | None = None
        #: Durable end of the log at the last check.
        self._durable = 0

    def check(self) -> Seen:
        """Return the current state of the store.

        Raises
        ------
        InvalidOptionError
            If it is an archive: only batch reads support archives.
        """
        if is_archive(self.path):
            reason = "a stream cannot follow an archive; spark.read reads archives"
            raise invalid("path", self.path, reason)
        while True:
            life, epochs = _life_of(self.path)
            if self._is_to_reopen(life):
                self.close()
                self._store = open_store(self.path, committed=self._options.committed)
                self._life = life
            durable, bounds = self._bounds(None)
            self._durable = durable
            if is_partition_log(self.store):
                # Each partition has positions of its own, so none tells how long the log was. A
                # partition that became shorter shows by its offsets.
                epochs, durable = None, 0
            # If a new epoch has begun meanwhile, the bounds may belong to it: check again.
            if life is None or _life_of(self.path)[0] == life:
                return Seen(life, epochs, durable, bounds)

    @property
    def store(self) -> Store:
        """The store that the last check opened."""
        assert self._store is not None, "check comes first"
        return self._store

    def wait(self, timeout: timedelta) -> bool:
        """Wait until there is a message that was not durable at the last check.

        Returns whether there is one, which may not be durable yet.
        """
        return _forebay.wait_beyond(self.store, self._durable, timeout)

    def offsets_from(self, position: int) -> dict[TopicQueue, int]:
        """Return, by queue, the offset of the first message that ends after a position."""
        return {at: end for at, (_, end) in self._bounds(position)[1].items()}

    def fit(
        self, parts: Mapping[TopicQueue, tuple[int, int, int]]
    ) -> dict[TopicQueue, _forebay.Fitted]:
        """Return how many messages fit into a number of bytes; see `_forebay.fit`."""
        return {at: _forebay.fit(self.store, *at, *part) for at, part in parts.items()}

    def close(self) -> None:
        """Close the store, if it is open."""
        if self._store is not None:
            self._store.close()
        self._store = self._life = None

    def _is_to_reopen(self, life: Life | None) -> bool:
        if self._store is None or life != self._life:
            return True
        # An open partition log finds by itself what a broker does to the directory.
        return life is None and not is_partition_log(self._store)

    def _bounds(self, position: int | None) -> tuple[int, dict[TopicQueue, Bounds]]:
        names = Planner(self._options).named(self.store)
        found = _forebay.bounds_below(self.store, names, position)
        assigned = self._options.assignment
        return found.position, {
            (it.topic, it.queue): (it.start, it.end)
            for it in found.queues
            if assigned is None or it.queue in assigned[it.topic]
        }


def _life_of(path: str) -> tuple[Life | None, _forebay.Epochs | None]:
    epochs = _forebay.epochs(path)
    if epochs is None or epochs.number == 0:
        return None, None
    try:
        page = os.stat(os.path.join(path, "forebay.state"))
        # A broker that takes the store back begins no epoch, but writes to this file at its start.
        lock = os.stat(os.path.join(path, "lock")).st_mtime_ns
    except FileNotFoundError:
        return None, epochs
    if _is_at_broker(path):
        return None, epochs
    return (page.st_dev, page.st_ino, epochs.number, epochs.began, lock), epochs


def _is_at_broker(path: str) -> bool:
    """Return whether a broker writes the store, or crashed: its abort file lacks Forebay's name."""
    try:
        with open(os.path.join(path, "abort"), "rb") as file:
            return not file.read(64).endswith(b" forebay")
    except FileNotFoundError:
        return False
