"""Arrow export and import: pyarrow validates the data; Polars and DuckDB read the same rows."""

import pickle
from datetime import UTC, datetime, timedelta

import duckdb
import polars
import pyarrow
import pyarrow.compute
import pytest

import forebay

BODIES = [b"", b"short", b"longer than a view keeps inline", bytes(1000)]


@pytest.fixture
def filled(store):
    store.create_topic("orders", queues=2)
    store.producer("orders", queue=0).send_batch(
        BODIES,
        keys=["a", ["b", "c"], None, "d"],
        tags=["t", None, "u", "t"],
        properties=[{}, {"n": "1", "m": "2"}, {}, {"n": "3"}],
    )
    store.producer("orders", queue=1).send_batch([b"one", b"two"])
    store.send("bills", b"bill", queue=5)
    return store


def table(scan):
    found = pyarrow.table(scan)
    found.validate(full=True)
    return found


def test_a_scan_has_the_rows_and_types_of_the_contract(filled):
    found = table(filled.scan("orders"))
    milliseconds = pyarrow.timestamp("ms", "UTC")
    assert {field.name: field.type for field in found.schema} == {
        "topic": pyarrow.dictionary(pyarrow.int32(), pyarrow.utf8()),
        "queue": pyarrow.int32(),
        "offset": pyarrow.int64(),
        "position": pyarrow.int64(),
        "store_timestamp": milliseconds,
        "born_timestamp": milliseconds,
        "keys": pyarrow.utf8(),
        "tags": pyarrow.utf8(),
        "properties": pyarrow.map_(pyarrow.utf8(), pyarrow.utf8()),
        "body": pyarrow.binary(),
    }
    rows = found.to_pylist()
    messages = [*filled.read("orders", 0, 0), *filled.read("orders", 1, 0)]
    assert [row["body"] for row in rows] == [message.body for message in messages]
    for row, message in zip(rows, messages, strict=True):
        assert (row["topic"], row["queue"], row["offset"], row["position"]) == (
            message.topic,
            message.queue,
            message.offset,
            message.position,
        )
        assert row["store_timestamp"] == message.store_time
        assert row["born_timestamp"] == message.born_time
        assert row["keys"] == (" ".join(message.keys) or None)
        assert row["tags"] == message.tags
        assert dict(row["properties"]) == message.properties


@pytest.mark.parametrize("body_type", ["binary", "binary_view"])
def test_bodies_come_gathered_or_as_views(filled, body_type):
    scan = filled.scan("orders", columns=["body"], body_type=body_type)
    assert scan.columns == ["body"]
    found = table(scan)
    filled.close()
    expected = pyarrow.binary() if body_type == "binary" else pyarrow.binary_view()
    assert found.schema.field("body").type == expected
    assert found["body"].to_pylist() == [*BODIES, b"one", b"two"]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_many_bodies_of_a_partition_log_stay_as_they_were_read(tmp_path, codec):
    """Views of this many rows point into the buffers that a scan read, or copied the records to.

    Later scans and the end of the store must leave those buffers alone.
    """
    bodies = [b"%d " % number * (number % 150) for number in range(1000)]
    path = tmp_path / "log"
    options = {"engine": "partitionlog", "default_queues": 1, "compression": codec}
    scans, found = [{}, {"batch_rows": 100}, {"start": {0: 10}}, {"end": {0: 200}}], []
    with forebay.open(path, **options) as store:
        producer = store.producer("t")
        for at in range(0, 1000, 125):
            producer.send_batch(bodies[at : at + 125], keys=["k"] * 125)
        for body_type in ("binary", "binary_view", "binary_view", "binary"):
            for scan in (*scans, {"key": "k"}):
                rows = store.scan("t", columns=["offset", "body"], body_type=body_type, **scan)
                found.append((scan, body_type, table(rows)))
        producer.send_batch([b"another"] * 1000)
        assert table(store.scan("t", columns=["body"], body_type="binary_view")).num_rows == 2000
    for scan, body_type, rows in found:
        kind = pyarrow.binary() if body_type == "binary" else pyarrow.binary_view()
        assert rows.schema.field("body").type == kind
        rows.validate(full=True)
        first, last = (scan.get(bound, {0: at})[0] for bound, at in (("start", 0), ("end", 1000)))
        assert rows["offset"].to_pylist() == [*range(first, last)]
        assert rows["body"].to_pylist() == bodies[first:last]


def test_headers_are_returned_if_requested(filled):
    found = table(filled.scan("orders", columns=["headers"]))["headers"].to_pylist()
    assert found[1] == [{"key": "n", "value": b"1"}, {"key": "m", "value": b"2"}]


def test_a_scan_keeps_its_bounds_and_filters(filled):
    def bodies(*topic, **arguments):
        return table(filled.scan(*topic, **arguments))["body"].to_pylist()

    assert bodies("orders", queues=[1]) == [b"one", b"two"]
    assert bodies(["bills", "orders"], queues=[1]) == [b"one", b"two"]
    assert bodies("orders", start={0: 3}, end={1: 1}) == [BODIES[3], b"one"]
    assert bodies("orders", tags=["t"]) == [BODIES[0], BODIES[3]]
    assert bodies("orders", tags="t || u", queues=[0]) == [BODIES[0], BODIES[2], BODIES[3]]
    assert bodies("orders", key="c") == [BODIES[1]]
    assert bodies("orders", start="latest") == []
    assert bodies() == [*BODIES, b"one", b"two", b"bill"]
    stored = filled.get("orders", 0, 0).store_time
    assert len(bodies("orders", start=stored)) == 6
    assert bodies("orders", end=stored) == []
    assert bodies("orders", start=stored + timedelta(days=1)) == []


def test_batches_are_bounded_in_rows(filled):
    reader = pyarrow.RecordBatchReader.from_stream(filled.scan("orders", batch_rows=4))
    assert [batch.num_rows for batch in reader] == [4, 2]


def test_each_stream_begins_anew(filled):
    scan = filled.scan("orders", columns=["offset"], verify=False)
    assert table(scan).num_rows == 6
    filled.send("orders", b"x")
    assert table(scan).num_rows == 7
    assert pyarrow.schema(scan) == table(scan).schema


def test_polars_reads_a_scan(filled):
    frame = polars.DataFrame(filled.scan("orders"))
    assert frame.height == 6
    assert frame["body"].to_list() == [*BODIES, b"one", b"two"]
    assert frame["topic"].cast(polars.String).unique().to_list() == ["orders"]
    series = polars.from_arrow(filled.scan("orders"))
    # Polars 1 returns a frame at once.
    found = series if isinstance(series, polars.DataFrame) else series.struct.unnest()
    assert found.equals(frame)
    views = polars.DataFrame(filled.scan("orders", columns=["body"], body_type="binary_view"))
    assert views["body"].to_list() == frame["body"].to_list()


@pytest.mark.parametrize("body_type", ["binary", "binary_view"])
def test_duckdb_reads_a_scan(filled, body_type):
    scan = filled.scan("orders", body_type=body_type)
    assert scan.columns
    query = "select queue, count(*), sum(octet_length(body)) from scan group by all order by 1"
    found = duckdb.sql(query).fetchall()
    assert found == [(0, 4, sum(map(len, BODIES))), (1, 2, 6)]


def test_a_scan_of_a_reader_pickles(directory):
    with forebay.open(directory, mode="r") as store:
        scan = pickle.loads(pickle.dumps(store.scan("orders", columns=["body"], start={0: 1})))
        assert scan.store is not store
        assert table(scan)["body"].to_pylist() == [b"b", b"c"]
        scan.store.close()


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"columns": ["nonsense"]}, forebay.InvalidOptionError),
        ({"columns": ["body", "body"]}, forebay.InvalidOptionError),
        ({"batch_rows": 0}, forebay.InvalidOptionError),
        ({"batch_rows": 1 << 40}, forebay.InvalidOptionError),
        ({"batch_bytes": -1}, forebay.InvalidOptionError),
        ({"body_type": "utf8"}, forebay.InvalidOptionError),
        ({"queues": [-1]}, forebay.InvalidOptionError),
        ({"start": {0: -1}}, forebay.InvalidOptionError),
        ({"columns": 5}, TypeError),
        ({"queues": 0}, TypeError),
        ({"tags": 5}, TypeError),
        ({"key": 5}, TypeError),
        ({"verify": "yes"}, TypeError),
        ({"topic": 5}, TypeError),
        ({"nonsense": 5}, TypeError),
    ],
    ids=str,
)
def test_a_scan_with_invalid_arguments_is_refused(filled, arguments, kind):
    with pytest.raises(kind):
        filled.scan(**{"topic": "orders", **arguments})


def test_a_scan_of_an_unknown_topic_queue_or_offset_is_refused(filled):
    with pytest.raises(forebay.UnknownTopicError):
        filled.scan("absent").__arrow_c_stream__()
    with pytest.raises(forebay.UnknownTopicError):
        filled.scan("orders", queues=[7]).__arrow_c_stream__()
    with pytest.raises(forebay.OffsetOutOfRangeError):
        filled.scan("orders", start={0: 5}).__arrow_c_stream__()


BORN = datetime(2024, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
ROWS = {
    "body": [b"a", b"b", b"c"],
    "key": ["1", None, "3"],
    "tags": ["t", None, "u"],
    "properties": pyarrow.array(
        [[("n", "1")], None, []], type=pyarrow.map_(pyarrow.utf8(), pyarrow.utf8())
    ),
    "queue": [0, 0, 1],
    "timestamp": pyarrow.array([BORN, BORN, BORN], type=pyarrow.timestamp("ms", "UTC")),
}


@pytest.mark.parametrize(
    "make",
    [
        lambda: pyarrow.table(ROWS),
        lambda: pyarrow.table(ROWS).to_batches()[0],
        lambda: pyarrow.table(ROWS).to_reader(max_chunksize=2),
        lambda: polars.DataFrame(pyarrow.table(ROWS).drop_columns("properties")),
    ],
    ids=["table", "batch", "reader", "polars"],
)
def test_arrow_rows_become_messages(store, meanings, make):
    data = make()
    with_properties = not isinstance(data, polars.DataFrame)
    result = store.producer("orders").send_arrow(data, atomic=True)
    assert (result.count, result.ranges) == (3, {0: range(2), 1: range(1)})
    first, second = store.read("orders", 0, 0).messages
    assert (first.body, first.keys, first.tags) == (b"a", ("1",), "t")
    assert first.properties == ({"n": "1"} if with_properties else {})
    assert first.born_time == BORN
    assert (second.body, second.keys, second.tags, second.properties) == (b"b", (), None, {})
    assert store.get("orders", 1, 0).body == b"c"


def test_the_rows_of_a_scan_can_be_sent(filled):
    columns = ["body", "keys", "tags", "properties", "queue"]
    rows = filled.scan("orders", columns=columns, body_type="binary_view")
    filled.create_topic("copy", queues=2)
    assert filled.producer("copy").send_arrow(rows).count == 6
    for queue in (0, 1):
        copies = filled.read("copy", queue, 0)
        for copy, message in zip(copies, filled.read("orders", queue, 0), strict=True):
            assert (copy.body, copy.keys, copy.tags, copy.properties) == (
                message.body,
                message.keys,
                message.tags,
                message.properties,
            )


def test_invalid_arrow_data_is_refused(store):
    orders = store.producer("orders", queue=0)
    for columns in ({"key": ["1"]}, {"body": [1]}, {"body": [b"a"], "nonsense": [1]}):
        with pytest.raises(forebay.InvalidOptionError):
            orders.send_arrow(pyarrow.table(columns))
    rows = pyarrow.table({"body": [b"a", b"b"], "keys": [["ok"], ["ok", "not ok"]]})
    with pytest.raises(forebay.InvalidOptionError, match="row 1") as error:
        orders.send_arrow(rows)
    assert error.value.row == 1
    for data in (None, [b"a"], b"a"):
        with pytest.raises(TypeError, match="__arrow_c_stream__"):
            orders.send_arrow(data)
    assert store.topics["orders"].queues[0].max_offset == 0


def test_an_error_in_the_producer_of_a_stream_is_reported(store):
    schema = pyarrow.schema({"body": pyarrow.binary()})

    def batches():
        yield pyarrow.record_batch({"body": [b"a"]}, schema=schema)
        raise RuntimeError("the source ran dry")

    reader = pyarrow.RecordBatchReader.from_batches(schema, batches())
    with pytest.raises(forebay.InvalidOptionError, match="the source ran dry"):
        store.producer("orders").send_arrow(reader)


def test_times_without_a_zone_are_refused_as_send_refuses_them(store):
    orders = store.producer("orders", queue=0)
    naive = pyarrow.array([BORN.replace(tzinfo=None)], type=pyarrow.timestamp("us"))
    with pytest.raises(forebay.InvalidOptionError, match="zone"):
        orders.send_arrow(pyarrow.table({"body": [b"x"], "timestamp": naive}))
    aware = pyarrow.compute.assume_timezone(naive, "UTC")
    orders.send_arrow(pyarrow.table({"body": [b"x"], "timestamp": aware}))
    millis = pyarrow.array([1_700_000_000_000], type=pyarrow.int64())
    orders.send_arrow(pyarrow.table({"body": [b"y"], "timestamp": millis}))
    assert [m.born_timestamp for m in store.read("orders", 0, 0)] == [
        int(BORN.timestamp() * 1000),
        1_700_000_000_000,
    ]
