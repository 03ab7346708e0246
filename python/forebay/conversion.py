"""Conversion of a store to the files of another engine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from types import NoneType
from typing import Unpack

from forebay import _forebay
from forebay._forebay import Conversion
from forebay.errors import InvalidOptionError
from forebay.given import (
    FILE_ENGINES,
    check,
    check_apart,
    check_items,
    check_path,
    check_text,
    check_word,
    listed,
)
from forebay.options import FileEngine, Flush, Options, Progress

__all__ = ["convert"]


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    engine: FileEngine,
    topics: str | Iterable[str] | None = None,
    names: Mapping[str, str] | None = None,
    renumber: bool = False,
    progress: Progress | None = None,
    flush: Flush | None = None,
    **options: Unpack[Options],
) -> Conversion:
    """Copy a store into a new one with the files of another engine.

    Times, keys, tags, properties and queues are kept, and so are offsets where the source has no
    gaps. The source is only read, and what it holds when the call begins is copied.

    A call that was interrupted, even by `kill -9` or a power loss, is continued by the same call.
    Until the target is complete it is in a directory beside its place, with ``.converting`` added
    to its name.

    Parameters
    ----------
    source
        Directory of the store; that of a broker, too.
    target
        Directory of the new store. It must not exist, be within the source, or contain the source.
    engine
        The engine of the target.
    topics
        Topics to convert; by default all but those that the systems keep for themselves.
    names
        Names in the target, by the name in the source. A topic whose name the target does not allow
        and that is not named here gets a similar one: see `Conversion.topics`.
    renumber
        Allow other offsets. Each message then keeps its old one as the property
        ``FOREBAY_OFFSET``. It is needed where offsets of the source do not begin at 0 or have gaps,
        as they do after retention, compaction, transactions and damage.
    progress
        Called with the offsets that are done and their total.
    flush, **options
        Those of `forebay.open`, for the target; but ``isolation`` is for the source: which messages
        of Kafka's transactions are converted, by default ``"read_committed"``.

    Raises
    ------
    StoreExistsError
        If there is anything at `target`.
    InvalidOptionError
        If the source has the files of this engine already, if its offsets cannot be kept and
        `renumber` is false, if one directory is within the other, or if an unfinished conversion
        at this place has other arguments.
    UnknownTopicError
        If `topics` or `names` has a topic that the source does not have.

    Examples
    --------
    >>> forebay.convert("kafka-logs", "events", engine="commitlog").messages
    410
    """
    source, target = check_path("source", source), check_path("target", target)
    check_word("engine", engine, FILE_ENGINES)
    topics = [topics] if isinstance(topics, str) else topics
    if topics is not None:
        topics = listed("topics", topics, str, "a list of topics, or None")
    check("names", names, (Mapping, NoneType), "a mapping of topics to names, or None")
    check_items("names", [*(names or {}), *(names or {}).values()], str, "a mapping of str to str")
    check("renumber", renumber, bool, "True or False")
    if flush is not None:
        check_text("flush", flush, "a str or None")
    isolation = options.pop("isolation", None) or "read_committed"
    check_text("isolation", isolation, "a str or None")
    check_apart(source, "target", target)
    try:
        return _forebay.convert_store(
            source,
            target,
            engine,
            topics,
            dict(names or {}),
            renumber,
            isolation,
            flush,
            dict(options),
            progress,
        )
    except InvalidOptionError as error:
        if error.offset is not None:
            import shutil
            from pathlib import Path

            # The same call would fail at the same gap again, and a call with other arguments would
            # refuse this unfinished target.
            unfinished = Path(target)
            unfinished = unfinished.with_name(f"{unfinished.name}.converting")
            shutil.rmtree(unfinished, ignore_errors=True)
        raise
