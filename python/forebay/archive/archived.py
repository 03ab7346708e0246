"""What archiving a store has done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from forebay.options import Progress

__all__ = ["Archived", "Told"]


@dataclass(frozen=True)
class Archived:
    """What `Store.archive` did.

    Attributes
    ----------
    target
        Where the archive is.
    files, bytes
        Log files that were copied, and their bytes. Those of a partition log are its segments.
    skipped
        Log files that were already in the archive.
    position
        The archive has the store's log up to here, starting from what the store still keeps. 0 for
        a partition log, whose positions do not last.
    recorded
        Whether the position was recorded in the store's directory, for retention. It is not if
        the directory belongs to another system or is read-only, or if the existing record cannot
        be read.
    retired
        Log files that retention deleted before they were copied. The archive lacks them.
    offsets
        For each queue of a partition log, by a name such as ``"orders-0"``: the archive has its
        messages before this offset. Empty for other stores.
    reason
        Why nothing was copied; None if something was.
    """

    target: str
    files: int
    bytes: int
    skipped: int
    position: int
    recorded: bool
    retired: int = 0
    reason: str | None = None
    offsets: Mapping[str, int] = field(default_factory=dict)


class Told:
    """Tells a callback how many bytes are copied, and remembers an error that it raised."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total = total
        self._progress = progress
        #: Bytes so far.
        self.done = 0
        #: The callback's error, if it is one that could also come from a file.
        self.stopped: OSError | None = None

    def __call__(self, some: int) -> None:
        """Add some bytes."""
        self.done += some
        if self._progress is None:
            return
        try:
            self._progress(self.done, max(self.done, self._total))
        except OSError as error:
            self.stopped = error
            raise
