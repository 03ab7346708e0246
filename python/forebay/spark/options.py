"""The options of a read, with the names and rules of Spark's Kafka connector."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

from forebay.errors import InvalidOptionError
from forebay.redact import redacted
from forebay.spark.columns import KAFKA_COLUMNS, parse_columns
from forebay.spark.errors import did_you_mean, invalid, must, unknown

#: Offsets in JSON that mean an end of the queue.
LATEST, EARLIEST = -1, -2

#: A topic and the number of a queue; the connector calls a queue a partition.
TopicQueue = tuple[str, int]

_STRATEGIES = ("subscribe", "subscribePattern", "assign")
_NAMES = (
    "path",
    "paths",
    *_STRATEGIES,
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "columns",
    "pushdown",
    "kafka.isolation.level",
)
#: Options of the connector that configure a broker's client, besides those with `_CLIENT_PREFIX`.
_CLIENT = (
    "groupIdPrefix",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
)
_CLIENT_PREFIX = "kafka."
#: Options that only streams have.
_STREAM_NAMES = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "group",
)
LONG_MAX = 2**63 - 1
_INT_MAX = 2**31 - 1
_T = TypeVar("_T")


@dataclass(frozen=True)
class Limit:
    """The start or end of a read: offsets or times by queue, one time, or an end of all queues."""

    #: Offset of every queue if nothing else is given: `EARLIEST` or `LATEST`.
    everywhere: int = LATEST
    offsets: dict[TopicQueue, int] | None = None
    times: dict[TopicQueue, int] | None = None
    time: int | None = None
    #: Limits by absolute path of the store, if each store has its own.
    by_store: dict[str, Limit] | None = None

    def of(self, store: str) -> Limit | None:
        """Return the limit for a store; `None` if this one names only other stores."""
        return self if self.by_store is None else self.by_store.get(store)


@dataclass(frozen=True)
class ReadOptions:
    """What to read; exactly one of `topics`, `pattern` and `assignment` is given."""

    #: Absolute paths of stores, or glob patterns for them.
    paths: tuple[str, ...]
    topics: tuple[str, ...] | None = None
    pattern: re.Pattern[str] | None = None
    assignment: dict[str, tuple[int, ...]] | None = None
    start: Limit = field(default_factory=lambda: Limit(EARLIEST))
    end: Limit = field(default_factory=Limit)
    #: Whether a starting time after a queue's newest message means its end, or is an error.
    latest_if_no_match: bool = False
    min_partitions: int | None = None
    records_max: int | None = None
    fail_on_data_loss: bool = True
    columns: tuple[str, ...] = KAFKA_COLUMNS
    #: Whether filters are taken over from Spark.
    pushdown: bool = False
    #: Whether messages of transactions that are not committed are left out.
    committed: bool = False


def parse_options(given: Mapping[str, str], *, streaming: bool = False) -> ReadOptions:
    """Return the options of a read; names are not case-sensitive.

    By default a stream starts at the latest offsets; it has no end.

    Raises
    ------
    InvalidOptionError
        If a name is unknown, a value is invalid, or options contradict one another.
    """
    options = by_name(given)
    if not streaming and (wrong := [name for name in _STREAM_NAMES if name in options]):
        raise invalid(wrong[0], options[wrong[0]], "only streams have this option")
    if streaming and (ending := [name for name in options if name.startswith("ending")]):
        raise invalid(ending[0], options[ending[0]], "a stream has no end")
    if streaming and "pushdown" in options:
        raise invalid("pushdown", options["pushdown"], "Spark pushes no filters down to a stream")
    strategies = [name for name in _STRATEGIES if name in options]
    if len(strategies) != 1:
        reason = "exactly one of subscribe, subscribePattern and assign must be specified"
        raise invalid("options", sorted(options), reason)
    first = Limit(LATEST if streaming else EARLIEST)
    start = _limit(options, "starting", first, streaming=streaming)
    end = _limit(options, "ending", Limit(LATEST))
    _check_order(start, end)
    strategy = options.get("startingOffsetsByTimestampStrategy", "error").strip().lower()
    if strategy not in ("error", "latest"):
        name = "startingOffsetsByTimestampStrategy"
        raise invalid(name, options[name], 'must be "error" or "latest"')
    return ReadOptions(
        paths=_paths(options),
        topics=_parsed(options, "subscribe", _topics),
        pattern=_parsed(options, "subscribePattern", _pattern),
        assignment=_parsed(options, "assign", _assignment),
        start=start,
        end=end,
        latest_if_no_match=strategy == "latest",
        min_partitions=positive(options, "minPartitions", _INT_MAX),
        records_max=positive(options, "maxRecordsPerPartition", LONG_MAX),
        fail_on_data_loss=truth(options, "failOnDataLoss", default=True),
        columns=_columns(options),
        pushdown=truth(options, "pushdown", default=False),
        committed=_isolation(options) == "read_committed",
    )


def by_name(given: Mapping[str, str]) -> dict[str, str]:
    """Restore the documented spelling of each option; Spark passes them in lower case."""
    names = {name.lower(): name for name in (*_NAMES, *_STREAM_NAMES)}
    client = [name.lower() for name in _CLIENT]
    options = {}
    for name, value in given.items():
        known = names.get(name.lower())
        if known is None:
            hint = did_you_mean(name, names.values())
            reason = f"no such option{hint}; the options are {', '.join(names.values())}"
            if name.lower().startswith(_CLIENT_PREFIX) or name.lower() in client:
                reason = "it configures a Kafka client, and a store has none"
            raise unknown(name, reason)
        options[known] = value
    return options


def _parsed(options: Mapping[str, str], name: str, parse: Callable[[str, str], _T]) -> _T | None:
    return parse(name, options[name]) if name in options else None


def _paths(options: Mapping[str, str]) -> tuple[str, ...]:
    """Parse the argument of `load`: Spark passes one path as ``path``, a list as ``paths``."""
    if "paths" not in options:
        return (_path("path", options.get("path", "")),)
    if "path" in options:
        reason = f"path is also given: {redacted(options['path'])!r}"
        raise invalid("paths", options["paths"], reason)
    expected = 'expected e.g. ["/data/a/events","/data/b/events"]'
    found = _json(options["paths"])
    if not isinstance(found, list) or not all(isinstance(path, str) for path in found):
        raise invalid("paths", options["paths"], expected)
    if not found:
        raise invalid("paths", options["paths"], "name at least one store")
    return tuple(dict.fromkeys(_path("paths", path) for path in found))


def _path(name: str, text: str) -> str:
    url = _url(name, text)
    if "://" not in text or url.scheme == "file":
        return directory(name, text, ".load(path)")
    # An archive in an object store. Messages and the column `store` show its URI.
    if "@" in url.netloc:
        reason = "set user and password in the environment of the driver and executors"
        raise invalid(name, text, reason)
    return text


def directory(name: str, text: str, how: str) -> str:
    """Return the absolute path of a directory; a relative one is relative to the driver's."""
    if not text:
        raise must(name, text, f"be the directory of the store, as in {how}")
    url = _url(name, text)
    if url.scheme == "file":
        return os.path.abspath(unquote(url.path))
    if url.scheme or text == ":memory:":
        raise must(name, text, "be a directory that every worker reaches as a local path")
    return os.path.abspath(text)


def local(name: str, path: str | os.PathLike[str]) -> str:
    """Return the absolute path of a directory that was passed to a job."""
    return directory(name, os.fspath(path), f'{name}="/data/events"')


def _url(name: str, text: str) -> SplitResult:
    try:
        return urlsplit(text)
    except ValueError:
        error = must(name, text, "be a path or a URI")
    # Raised outside the handler: the error there would be chained and may contain the password.
    raise error


def _topics(name: str, text: str) -> tuple[str, ...]:
    names = [part.strip() for part in text.split(",")]
    topics = tuple(dict.fromkeys(name for name in names if name))
    if not topics:
        raise invalid(name, text, "there are no topics to subscribe to")
    return topics


def _pattern(name: str, text: str) -> re.Pattern[str]:
    if not text.strip():
        raise invalid(name, text, "the pattern to subscribe to is empty")
    try:
        return re.compile(text.strip())
    except re.error as error:
        raise invalid(name, text, f"not a regular expression: {error}") from error


def _assignment(name: str, text: str) -> dict[str, tuple[int, ...]]:
    expected = 'expected e.g. {"topicA":[0,1],"topicB":[0,1]}'
    found = _json_object(name, text, expected)
    assignment = {}
    for topic, queues in found.items():
        if not isinstance(queues, list) or not all(_is_queue(queue) for queue in queues):
            raise invalid(name, text, expected)
        assignment[topic] = tuple(sorted(set(queues)))
    if not any(assignment.values()):
        raise invalid(name, text, "there are no partitions to assign")
    return assignment


def _limit(
    options: Mapping[str, str], side: str, default: Limit, *, streaming: bool = False
) -> Limit:
    """Parse the options of one end; like the connector, prefer a time to times, then offsets."""
    time, times, offsets = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    if time in options:
        text = options[time].strip()
        if not _is_number(text):
            raise invalid(time, text, "expected a single long value: milliseconds since the epoch")
        return Limit(time=int(text))
    if times in options:
        expected = 'expected e.g. {"topicA":{"0":123456789,"1":123456789}}'
        found = _by_queue(times, options[times], expected, least=-LONG_MAX)
        return _of_stores(found, lambda numbers: Limit(times=numbers))
    if offsets not in options:
        return default
    text = options[offsets].strip()
    word = {"earliest": EARLIEST, "latest": LATEST}.get(text.lower())
    expected = 'expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
    wrong, kind = (LATEST, "latest") if side == "starting" else (EARLIEST, "earliest")
    refused = None if streaming else wrong
    if word is not None and word == refused:
        raise invalid(offsets, text, f"{side} offset can't be {kind} for batch queries")
    if word is not None:
        return Limit(everywhere=word)
    found = _by_queue(offsets, text, expected, least=EARLIEST)
    for numbers in found.values():
        for (topic, queue), offset in numbers.items():
            if offset == refused:
                reason = f"{side} offset for {topic}-{queue} can't be {kind} for batch queries"
                raise invalid(offsets, text, reason)
    return _of_stores(found, lambda numbers: Limit(offsets=numbers))


def _of_stores(
    found: dict[str | None, dict[TopicQueue, int]],
    limit: Callable[[dict[TopicQueue, int]], Limit],
) -> Limit:
    if None in found:
        return limit(found[None])
    by_store = {store: limit(numbers) for store, numbers in found.items() if store is not None}
    return Limit(by_store=by_store)


def _by_queue(
    name: str, text: str, expected: str, least: int
) -> dict[str | None, dict[TopicQueue, int]]:
    """Parse numbers by topic and queue, or by store; numbers for all stores have the key `None`."""
    found = _json_object(name, text, expected)
    stores = [topics for topics in found.values() if isinstance(topics, dict)]
    if not any(isinstance(queues, dict) for topics in stores for queues in topics.values()):
        return {None: _numbers(name, text, expected, least, found)}
    return {
        _path(name, store): _numbers(name, text, expected, least, topics)
        for store, topics in found.items()
    }


def _numbers(
    name: str, text: str, expected: str, least: int, found: object
) -> dict[TopicQueue, int]:
    numbers = {}
    if not isinstance(found, dict):
        raise invalid(name, text, expected)
    for topic, queues in found.items():
        if not isinstance(queues, dict):
            raise invalid(name, text, expected)
        for queue, number in queues.items():
            whole = isinstance(number, int) and not isinstance(number, bool)
            known = re.fullmatch("[0-9]{1,10}", queue) is not None and _is_queue(int(queue))
            if not known or not whole or not least <= number <= LONG_MAX:
                raise invalid(name, text, expected)
            numbers[topic, int(queue)] = number
    return numbers


def _json(text: str) -> object:
    """Return the value of a JSON text; None if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        # Not chained to another error: this one contains the whole text, passwords included.
        return None


def _json_object(name: str, text: str, expected: str) -> dict[str, object]:
    found = _json(text)
    if not isinstance(found, dict):
        raise invalid(name, text, expected)
    return found


def _check_order(start: Limit, end: Limit) -> None:
    """Refuse an end before its start, if both are known without opening the store."""
    if start.time is not None and end.time is not None and start.time > end.time:
        rule = f"not be before startingTimestamp ({start.time})"
        raise must("endingTimestamp", end.time, rule)
    if start.by_store is not None and end.by_store is not None:
        for store in start.by_store.keys() & end.by_store.keys():
            _check_order(start.by_store[store], end.by_store[store])
    for kind, starts, ends in (
        ("Offsets", start.offsets, end.offsets),
        ("OffsetsByTimestamp", start.times, end.times),
    ):
        if starts is None or ends is None:
            continue
        if starts.keys() != ends.keys():
            rule = f"name the same partitions as starting{kind} ({names_of(starts)})"
            raise must(f"ending{kind}", names_of(ends), rule)
        for place, first in starts.items():
            if 0 <= ends[place] < first:
                rule = f"not be before the start {first} of {place[0]}-{place[1]}"
                raise must(f"ending{kind}", ends[place], rule)


def names_of(queues: Iterable[TopicQueue]) -> str:
    """Return the sorted names of queues, as they appear in messages."""
    return ", ".join(f"{topic}-{queue}" for topic, queue in sorted(queues))


def _is_queue(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _INT_MAX


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[+-]?[0-9]{1,19}", text) is not None and abs(int(text)) <= LONG_MAX


def positive(options: Mapping[str, str], name: str, most: int = LONG_MAX) -> int | None:
    """Return the value of an option that is a positive integer; `None` if it is not given."""
    if name not in options:
        return None
    text = options[name].strip()
    if not _is_number(text) or not 0 < int(text) <= most:
        raise must(name, text, f"be an integer from 1 to {most}")
    return int(text)


def truth(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Return the value of an option that is ``true`` or ``false``."""
    if name not in options:
        return default
    truth = {"true": True, "false": False}.get(options[name].strip().lower())
    if truth is None:
        raise invalid(name, options[name], 'must be "true" or "false"')
    return truth


def _isolation(options: Mapping[str, str]) -> str:
    name = "kafka.isolation.level"
    level = options.get(name, "read_uncommitted").strip().lower()
    if level not in ("read_committed", "read_uncommitted"):
        raise invalid(name, options[name], 'must be "read_committed" or "read_uncommitted"')
    return level


def columns_of(given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns of a read when it is not yet known whether it is a batch or a stream."""
    try:
        return parse_options(given).columns
    except InvalidOptionError as error:
        try:
            return parse_options(given, streaming=True).columns
        except InvalidOptionError:
            raise error from None


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    with_headers = truth(options, "includeHeaders", default=False)
    if "columns" not in options:
        return (*KAFKA_COLUMNS, "headers") if with_headers else KAFKA_COLUMNS
    columns = parse_columns(options["columns"])
    if with_headers and "headers" not in columns:
        raise invalid("includeHeaders", "true", "the option columns does not name headers")
    return columns
