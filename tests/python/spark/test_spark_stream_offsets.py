"""The arithmetic of stream offsets: encoding, sharing of limits, detection of loss."""

import itertools
import json
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as some

from forebay._forebay import Epochs
from forebay.errors import InvalidOptionError, UnsupportedError
from forebay.spark.offsets import Place, decode, encode, share
from forebay.spark.options import EARLIEST, LATEST, Limit, columns_of, parse_options
from forebay.spark.pace import Pace, parse_stream_options, share_bytes
from forebay.spark.watch import Seen

names = some.text(min_size=1, max_size=5)
queues = some.dictionaries(some.tuples(names, some.integers(0, 20)), some.integers(0, 1 << 62))
numbers = some.integers(0, 1 << 62)
places = some.builds(Place, numbers, numbers, numbers, queues)


def given_options(**options):
    return {"path": "events", "subscribe": "orders", **options}


def parse(**options):
    return parse_stream_options(given_options(**options))


@given(some.dictionaries(names, places))
def test_offsets_round_trip_and_encode_deterministically(found):
    text = json.dumps(encode(found))
    assert decode(json.loads(text)) == found
    assert json.dumps(encode(dict(reversed(found.items())))) == text
    assert json.dumps(json.loads(text)) == text


@pytest.mark.parametrize("offset", [{}, {"version": 2, "stores": {}}, {"orders": {"0": 1}}])
def test_offsets_of_others_are_refused(offset):
    with pytest.raises(UnsupportedError, match="new checkpoint"):
        decode(offset)


@given(
    some.integers(1, 1000),
    some.dictionaries(some.integers(0, 99), some.integers(0, 500), max_size=40),
    some.integers(0, 1 << 40),
)
def test_a_limit_is_used_up_and_no_queue_is_left_out(limit, sizes, turn):
    parts = share(limit, sizes, turn)
    assert parts.keys() == sizes.keys()
    assert sum(parts.values()) == min(limit, sum(sizes.values()))
    assert all(0 <= parts[at] <= size for at, size in sizes.items())
    full = [at for at, size in sizes.items() if size]
    if limit >= len(full):
        assert all(parts[at] for at in full)
    # In proportion: a larger queue gets no less.
    if limit > len(full):
        ordered = sorted(full, key=lambda at: sizes[at])
        for small, large in itertools.pairwise(ordered):
            assert parts[small] <= parts[large] + 1


def test_shares_are_in_proportion():
    assert share(100, {"a": 1000, "b": 3000, "c": 0}, 0) == {"a": 25, "b": 75, "c": 0}
    assert share(10, {"a": 10**12, "b": 1}, 5) == {"a": 9, "b": 1}


@given(some.integers(2, 12), some.integers(1, 12), some.integers(0, 1000))
def test_queues_take_turns_if_the_limit_is_smaller_than_their_number(count, limit, turn):
    sizes = dict.fromkeys(range(count), 10**6)
    taken = dict.fromkeys(range(count), 0)
    for _ in range(count * 3):
        parts = share(min(limit, count), sizes, turn + sum(taken.values()))
        for at, part in parts.items():
            taken[at] += part
    assert max(taken.values()) - min(taken.values()) <= 1


class Fitted(NamedTuple):
    """Messages that fit, as the core tells."""

    end: int
    bytes: int


class Epoch(NamedTuple):
    """An epoch: its number, when it began, and the end of the log at that time."""

    number: int
    began: int
    start: int


def fit_of(sizes):
    """Imitate the core on lists of sizes."""

    def fit(parts):
        found = {}
        for at, (start, end, limit) in parts.items():
            taken = 0
            offset = start
            while offset < min(end, len(sizes[at])) and taken + sizes[at][offset] <= limit:
                taken += sizes[at][offset]
                offset += 1
            found[at] = Fitted(offset, taken)
        return found

    return fit


@given(
    some.integers(1, 3000),
    some.dictionaries(some.integers(0, 9), some.lists(some.integers(90, 2000), max_size=60)),
)
def test_byte_limits_hold_and_everything_is_read_in_the_end(limit, sizes):
    fit = fit_of(sizes)
    at = dict.fromkeys(sizes, 0)
    while any(at[queue] < len(sizes[queue]) for queue in sizes):
        ranges = {queue: (at[queue], len(sizes[queue])) for queue in sizes}
        ends = share_bytes(limit, ranges, fit)
        assert ends.keys() == sizes.keys()
        taken = [size for queue in sizes for size in sizes[queue][at[queue] : ends[queue]]]
        # At least one message, even if it exceeds the limit; otherwise no more than the limit.
        assert len(taken) == 1 or 0 < sum(taken) <= limit
        assert all(at[queue] <= ends[queue] <= len(sizes[queue]) for queue in sizes)
        at = ends


def test_bytes_are_shared_in_proportion_and_a_limit_is_nearly_used_up():
    sizes = {"a": [100] * 1000, "b": [300] * 1000, "c": [100] * 10}
    ranges = {queue: (0, len(own)) for queue, own in sizes.items()}
    ends = share_bytes(40_000, ranges, fit_of(sizes))
    assert sum(sum(own[: ends[queue]]) for queue, own in sizes.items()) >= 39_000
    assert 90 <= ends["a"] <= 105
    assert 90 <= ends["b"] <= 105
    assert 1 <= ends["c"] <= 3


def test_a_message_larger_than_the_limit_comes_alone_when_its_queue_is_first():
    fit = fit_of({"a": [900, 10], "b": [10] * 9})
    assert share_bytes(100, {"a": (0, 2), "b": (0, 9)}, fit) == {"a": 1, "b": 0}
    assert share_bytes(100, {"b": (0, 9), "a": (0, 2)}, fit) == {"a": 0, "b": 9}


EPOCHS = Epochs(4, [Epoch(1, 11, 0), Epoch(2, 12, 500), Epoch(3, 13, 300), Epoch(4, 14, 900)])


@pytest.mark.parametrize(
    ("place", "epochs", "durable", "left"),
    [
        # The same epoch: the log is longer, as long, or shorter.
        (Place(4, 14, 1000), EPOCHS, 1200, None),
        (Place(4, 14, 1000), EPOCHS, 1000, None),
        (Place(4, 14, 1000), EPOCHS, 999, 999),
        # Later epochs: the lowest of their beginnings counts, however long the log is now.
        (Place(3, 13, 900), EPOCHS, 1200, None),
        (Place(3, 13, 901), EPOCHS, 1200, 900),
        (Place(2, 12, 600), EPOCHS, 1200, 300),
        (Place(2, 12, 200), EPOCHS, 1200, None),
        (Place(1, 11, 400), EPOCHS, 1200, 300),
        # Another store under the same name, or an older state of this one.
        (Place(4, 15, 100), EPOCHS, 1200, 0),
        (Place(5, 15, 100), EPOCHS, 1200, 0),
        (Place(4, 14, 100), None, 1200, 0),
        # Epochs that were not kept cannot be compared; positions can.
        (Place(4, 0, 1000), EPOCHS, 1200, None),
        (Place(3, 9, 1000), Epochs(4, [Epoch(4, 14, 900)]), 1200, 900),
        (Place(3, 9, 900), Epochs(4, [Epoch(4, 14, 900)]), 1200, None),
        # A broker's directory, and one that Forebay took over since.
        (Place(0, 0, 700), None, 700, None),
        (Place(0, 0, 700), None, 600, 600),
        (Place(0, 0, 700), Epochs(1, [Epoch(1, 11, 700)]), 800, None),
        (Place(0, 0, 700), Epochs(1, [Epoch(1, 11, 650)]), 800, 650),
    ],
)
def test_a_log_that_came_back_shorter_is_noticed(place, epochs, durable, left):
    assert Seen(None, epochs, durable, {}).intact_until(place) == left


def test_options_of_a_stream():
    options = parse()
    assert options.read.start == Limit(LATEST)
    assert options.pace == Pace(None, None, 900.0, None)
    assert options.group is None
    assert parse(startingOffsets="latest").read.start == Limit(LATEST)
    assert parse(startingOffsets="earliest").read.start == Limit(EARLIEST)
    queues = parse(startingOffsets='{"orders":{"0":-1,"1":-2,"2":7}}').read.start.offsets
    assert queues == {("orders", 0): LATEST, ("orders", 1): EARLIEST, ("orders", 2): 7}
    pace = {"maxOffsetsPerTrigger": "9", "minOffsetsPerTrigger": "9", "maxBytesPerTrigger": "1"}
    assert parse(**pace).pace == Pace(9, 9, 900.0, 1)
    assert parse(group="etl-1").group == "etl-1"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("2 min", 120), ("250", 0.25), ("1D", 86_400), ("3ms", 0.003)],
)
def test_delays_have_units(text, seconds):
    assert parse(maxTriggerDelay=text).pace.delay_max == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets"),
        ({"endingTimestamp": "5"}, "endingTimestamp"),
        ({"endingOffsetsByTimestamp": '{"orders":{"0":1}}'}, "endingOffsetsByTimestamp"),
        ({"pushdown": "true"}, "pushdown"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "-1"}, "minOffsetsPerTrigger"),
        ({"maxBytesPerTrigger": "1k"}, "maxBytesPerTrigger"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay"),
        ({"maxTriggerDelay": "5 y"}, "maxTriggerDelay"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "minOffsetsPerTrigger"),
        ({"group": "a@b"}, "group"),
        ({"group": ""}, "group"),
        ({"maxRowsPerTrigger": "5"}, "maxRowsPerTrigger"),
    ],
)
def test_what_a_stream_refuses(options, name):
    with pytest.raises(InvalidOptionError) as caught:
        parse(**options)
    assert caught.value.name == name


def test_columns_are_known_before_the_kind_of_read_is():
    assert columns_of(given_options(startingOffsets="latest", columns="value")) == ("value",)
    assert columns_of(given_options(endingOffsets="latest", columns="value")) == ("value",)
    with pytest.raises(InvalidOptionError):
        columns_of(given_options(startingOffsets="latest", endingOffsets="latest"))


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "maxTriggerDelay", "group"])
def test_a_batch_read_refuses_stream_options(name):
    with pytest.raises(InvalidOptionError, match="only streams have this option"):
        parse_options(given_options(**{name: "5"}))
