"""Query engines: Polars and DuckDB read what a query needs, and get what a full scan gives."""

import contextlib
import itertools
import random
from datetime import UTC, datetime, timedelta

import duckdb
import harness
import polars
import pyarrow
import pytest
from polars import col

import forebay
import forebay.duckdb
import forebay.polars
import forebay.testing
from forebay.selection import QueueRange, open_reader, scan_ranges

QUEUES = 3
#: Messages of each queue; a queue stores one each second.
ROWS = 400
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class Read:
    """What the scans of a test have read."""

    def __init__(self):
        self.rows = 0
        self.columns = set()

    def reset(self):
        self.__init__()

    def count(self, reader):
        def batches():
            for batch in reader:
                self.rows += batch.num_rows
                yield batch

        self.columns.update(reader.schema.names)
        return pyarrow.RecordBatchReader.from_batches(reader.schema, batches())


@pytest.fixture
def read(monkeypatch):
    found = Read()
    for module in (forebay.polars, forebay.duckdb):
        opens = module.open_reader
        monkeypatch.setattr(module, "open_reader", lambda plan, it=opens: found.count(it(plan)))
    return found


@pytest.fixture(scope="module")
def filled():
    clock = forebay.testing.Clock(at=BEGIN)
    with forebay.testing.open(clock=clock, default_queues=QUEUES) as store:
        producers = [store.producer("orders", queue=queue) for queue in range(QUEUES)]
        for row in range(ROWS):
            for producer in producers:
                body = b"x" * (row % 50)
                producer.send(body, key=f"k{row % 7}", tags="even" if row % 2 == 0 else "odd")
            clock.advance(1)
        store.send("bills", b"bill", queue=1)
        store.send("%RETRY%billing", b"again")
        yield store


@pytest.fixture
def con(filled):
    with duckdb.connect() as con:
        forebay.duckdb.attach(con, filled)
        yield con


def at(seconds):
    return BEGIN + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        (col("offset") < 10, 10 * QUEUES),
        ((col("offset") >= 5) & (col("offset") <= 9) & (col("queue") == 1), 5),
        (col("offset").is_between(5, 9, closed="none"), 3 * QUEUES),
        (col("offset").is_in([3, 8]), 6 * QUEUES),
        (polars.lit(7) > col("offset"), 7 * QUEUES),
        (col("queue").is_in([0, 2, 9]), 2 * ROWS),
        (col("queue") % 2 == 1, ROWS),
        (col("topic") == "bills", 0),
        (col("topic").cast(polars.String).str.starts_with("ord"), QUEUES * ROWS),
        (col("store_timestamp") >= at(ROWS - 20), 20 * QUEUES),
        # Polars compares in milliseconds.
        (col("store_timestamp") >= at(9) + timedelta(microseconds=1), (ROWS - 9) * QUEUES),
        (
            col("store_timestamp") < polars.datetime(2026, 1, 1, 0, 0, 8, time_zone="UTC"),
            8 * QUEUES,
        ),
        (col("keys") == "k3", QUEUES * len(range(3, ROWS, 7))),
        (col("tags") == "odd", QUEUES * ROWS // 2),
        (col("offset").is_in(polars.Series([], dtype=polars.Int64)), 0),
        (col("body") == b"xx", QUEUES * ROWS),
        ((col("offset") < 5) | (col("queue") == 1), QUEUES * ROWS),
        (~(col("offset") < 5), QUEUES * (ROWS - 5)),
    ],
)
def test_polars_reads_the_rows_that_can_pass(filled, read, condition, rows):
    whole = polars.DataFrame(filled.scan("orders")).filter(condition)
    found = forebay.polars.scan(filled, "orders").filter(condition).collect()
    assert read.rows == rows
    assert found.equals(whole)


KEYS = [
    "a",
    "a b",
    "b a",
    " a",
    "a ",
    " ",
    "||",
    "*",
    "a||b",
    "\N{LATIN SMALL LETTER A WITH DIAERESIS}",
    "q\0",
]


@pytest.mark.parametrize("engine", ["commitlog", "partitionlog"])
def test_polars_finds_each_text_that_a_store_can_hold(tmp_path, engine):
    with forebay.open(tmp_path / "log", engine=engine, default_queues=1) as store:
        for text in KEYS:
            for column in ("key", "tags"):
                # What one engine takes, the other refuses.
                with contextlib.suppress(ValueError):
                    store.send("orders", b"x", **{column: text})
        if engine == "commitlog":
            store.send("orders", b"x", keys=["a", "b"])
        else:
            store.send("orders", b"x", key=b"\xff")
        whole, lazy = polars.DataFrame(store.scan("orders")), forebay.polars.scan(store, "orders")
        for column, text in itertools.product(
            ("keys", "tags"), [*KEYS, "", "b", "\N{REPLACEMENT CHARACTER}"]
        ):
            wanted = whole.filter(col(column) == text)
            assert lazy.filter(col(column) == text).collect().equals(wanted), (column, text)


def test_polars_reads_the_columns_that_a_query_uses(filled, read):
    frame = forebay.polars.scan(filled, "orders")
    assert frame.filter(col("queue") == 1).select("offset").collect().height == ROWS
    assert read.columns == {"queue", "offset"}
    read.reset()
    assert frame.select(polars.len()).collect().item() == QUEUES * ROWS
    assert "body" not in read.columns


def test_polars_stops_at_a_limit(filled, read):
    frame = forebay.polars.scan(filled, "orders")
    assert frame.head(3).collect().height == 3
    assert read.rows == 3
    assert frame.filter(col("tags") == "odd").head(3).collect()["offset"].to_list() == [1, 3, 5]


@pytest.mark.parametrize(
    "condition", [col("offset") > 5, col("queue") == 1, col("tags") == "odd", col("keys") == "k2"]
)
def test_polars_cuts_and_filters_in_the_order_of_the_query(filled, condition):
    whole = polars.DataFrame(filled.scan("orders"))
    lazy = forebay.polars.scan(filled, "orders")
    for rows in (0, 1, 50, ROWS + 3):
        found = lazy.head(rows).filter(condition).collect()
        assert found.equals(whole.head(rows).filter(condition))
        found = lazy.filter(condition).head(rows).collect()
        assert found.equals(whole.filter(condition).head(rows))
        found = lazy.filter(condition).head(rows).filter(col("offset") % 2 == 0).collect()
        assert found.equals(whole.filter(condition).head(rows).filter(col("offset") % 2 == 0))


def test_a_lazy_frame_has_the_arguments_of_a_scan(filled):
    arguments = {"queues": [1], "start": {1: 5}, "end": at(20), "tags": "odd", "key": "k3"}
    frame = forebay.polars.scan(filled, "orders", columns=["offset", "headers"], **arguments)
    plain = polars.DataFrame(filled.scan("orders", columns=["offset", "headers"], **arguments))
    assert frame.collect().equals(plain)
    assert frame.filter(col("offset") > 11).collect()["offset"].to_list() == [17]
    views = forebay.polars.scan(filled, "orders", body_type="binary_view")
    assert views.filter(col("offset") == 49).collect()["body"].to_list() == [b"x" * 49] * QUEUES


def test_a_lazy_frame_reads_many_topics(filled, read):
    both = forebay.polars.scan(filled, ["orders", "bills"])
    assert both.filter(col("topic") == "bills").collect()["body"].to_list() == [b"bill"]
    assert read.rows == 1
    everything = forebay.polars.scan(filled)
    assert everything.select(polars.len()).collect().item() == QUEUES * ROWS + 2
    assert everything.filter(col("topic") != "orders").collect().height == 2


def test_each_collection_reads_the_store_as_it_is(store):
    store.send("orders", b"a")
    frame = forebay.polars.scan(store, "orders").select(polars.len())
    assert frame.collect().item() == 1
    store.send("orders", b"b")
    assert frame.collect(engine="streaming").item() == 2


def test_a_read_is_planned_again_if_retention_was_faster(store):
    store.send("orders", b"a", queue=0)
    starts = [5, 7, 0]

    def plan():
        return scan_ranges(store, "orders", [QueueRange(0, starts.pop(0), 9)])

    assert open_reader(plan).read_all().num_rows == 1
    starts = [5] * 9
    with pytest.raises(forebay.OffsetOutOfRangeError):
        open_reader(plan)
    assert len(starts) == 4


def test_an_unknown_topic_is_reported_as_by_a_scan(store):
    frame = forebay.polars.scan(store, "orders")
    for condition in (True, col("offset") > 1):
        with pytest.raises(Exception, match="orders"):
            frame.filter(condition).collect()
    with duckdb.connect() as con, pytest.raises(forebay.UnknownTopicError):
        forebay.duckdb.attach(con, store, "orders")
    store.send("orders", b"a", queue=0)
    frame = forebay.polars.scan(store, "orders", queues=[99])
    with pytest.raises(Exception, match="99"):
        frame.filter(col("offset") > 1).collect()


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ('"offset" < 10', 10 * QUEUES),
        ('"offset" between 5 and 9 and queue = 1', 5),
        ('"offset" in (3, 8)', 6 * QUEUES),
        ("queue in (0, 2, 9)", 2 * ROWS),
        ("queue <> 1", 2 * ROWS),
        ('queue = 1 or "offset" < 5', ROWS + 2 * 5),
        ("topic = 'bills'", 0),
        ("topic = 'orders' and queue = 0", ROWS),
        ("store_timestamp >= timestamptz '2026-01-01 00:06:20+00'", 20 * QUEUES),
        ("store_timestamp >= timestamptz '2026-01-01 00:00:09.0005+00'", (ROWS - 10) * QUEUES),
        ("store_timestamp < timestamptz '2026-01-01 00:00:08+00' and queue = 2", 8),
        ('store_timestamp < now() and "offset" = 7', QUEUES),
        ("keys = 'k3'", QUEUES * ROWS),
        ("tags is null", QUEUES * ROWS),
        ("body = 'xx'::blob", QUEUES * ROWS),
        ('"offset" % 7 = 5', QUEUES * ROWS),
    ],
)
def test_duckdb_reads_the_ranges_that_can_pass(filled, con, read, condition, rows):
    whole = pyarrow.table(filled.scan("orders"))
    con.register("whole", whole)
    query = 'select queue, "offset", body from {} where {} order by all'
    expected = con.sql(query.format("whole", condition)).fetchall()
    read.reset()
    assert con.sql(query.format("orders", condition)).fetchall() == expected
    if condition == "topic = 'bills'" and int(pyarrow.__version__.partition(".")[0]) < 26:
        # Older ones see no contradiction between the text and a dictionary of texts.
        rows = QUEUES * ROWS
    assert read.rows == rows


def test_duckdb_reads_the_columns_that_a_query_uses(con, read):
    assert con.sql('select max("offset") from orders').fetchall() == [(ROWS - 1,)]
    assert read.columns == {"offset"}
    read.reset()
    assert con.sql("select sum(queue) from orders where tags = 'odd'").fetchall() != []
    assert read.columns == {"queue", "tags"}
    read.reset()
    assert con.sql("select count(*) from orders").fetchall() == [(QUEUES * ROWS,)]
    assert "body" not in read.columns


def test_duckdb_stops_at_a_limit(store, read):
    size = 200_000
    orders = store.producer("orders", queue=0)
    for _ in range(4):
        orders.send_batch([b""] * (size // 4))
    with duckdb.connect() as con:
        forebay.duckdb.attach(con, store)
        assert len(con.sql("select body from orders limit 3").fetchall()) == 3
        assert len(con.sql("select body from orders where tags is null limit 3").fetchall()) == 3
    assert read.rows < 2 * size


def test_duckdb_returns_every_column(con):
    rows = con.sql('from orders where queue = 0 and "offset" = 1').fetchall()
    ((topic, queue, offset, _position, stored, _born, keys, tags, properties, body),) = rows
    assert (topic, queue, offset, keys, tags, properties, body) == (
        "orders", 0, 1, "k1", "odd", {}, b"x",
    )  # fmt: skip
    assert stored == at(1)


def test_duckdb_sees_new_messages_and_attaches_new_topics(store, meanings):
    dead = meanings.dead_letters("billing")
    store.send("orders", b"a")
    store.send(dead, b"dead")
    with duckdb.connect() as con:
        assert forebay.duckdb.attach(con, store) == ("orders",)
        store.send("orders", b"b")
        store.send("bills", b"c")
        assert con.sql("select count(*) from orders").fetchall() == [(2,)]
        assert forebay.duckdb.attach(con, store) == ("bills", "orders")
        names = {"dead": dead}
        assert forebay.duckdb.attach(con, store, names) == ("dead",)
        assert forebay.duckdb.attach(con, store, dead) == (dead,)
        assert con.sql("select body from dead").fetchall() == [(b"dead",)]
        assert con.sql(f'select body from "{dead}"').fetchall() == [(b"dead",)]
        joined = "select count(*) from orders join bills using (topic)"
        assert con.sql(joined).fetchall() == [(0,)]


def test_names_that_duckdb_takes_for_one_are_refused(store):
    store.send("orders", b"a")
    store.send("Orders", b"b")
    with duckdb.connect() as con, pytest.raises(ValueError, match="'Orders' and 'orders' differ"):
        forebay.duckdb.attach(con, store)


def test_a_query_of_a_closed_store_says_so(open_store):
    store = open_store()
    store.send("orders", b"a")
    with duckdb.connect() as con:
        forebay.duckdb.attach(con, store)
        store.close()
        with pytest.raises(Exception, match="closed"):
            con.sql("select count(*) from orders").fetchall()


def draw(random):
    """Return a random condition, as Polars and as SQL."""
    number = random.randint(-3, ROWS + 3)
    time = at(random.randint(-5, ROWS + 5)) + timedelta(milliseconds=random.choice([0, 1, -1]))
    text = time.strftime("%Y-%m-%d %H:%M:%S.%f")
    some = [random.randint(-1, ROWS) for _ in range(random.randint(1, 3))]
    column, sql = random.choice([("offset", '"offset"'), ("queue", "queue")])
    few = [random.randint(-1, QUEUES) for _ in range(random.randint(1, 3))]
    listed = (
        (some, col("offset"), '"offset"') if random.random() < 0.5 else (few, col("queue"), "queue")
    )
    written = ", ".join(str(value) for value in listed[0])
    leaf = random.choice(
        [
            (col(column) < number % 9, f"{sql} < {number % 9}"),
            (col(column) >= number, f"{sql} >= {number}"),
            (col(column) != number, f"{sql} <> {number}"),
            (listed[1].is_in(listed[0]), f"{listed[2]} in ({written})"),
            (col("store_timestamp") <= time, f"store_timestamp <= timestamptz '{text}+00'"),
            (col("store_timestamp") > time, f"store_timestamp > timestamptz '{text}+00'"),
            (col("tags") == "odd", "tags = 'odd'"),
            (col("keys") == "k2", "keys = 'k2'"),
            (col("topic") == "orders", "topic = 'orders'"),
        ]
    )
    if random.random() < 0.5:
        return leaf
    other = draw(random)
    return random.choice(
        [
            (leaf[0] & other[0], f"({leaf[1]} and {other[1]})"),
            (leaf[0] & other[0], f"({other[1]} and {leaf[1]})"),
            (leaf[0] | other[0], f"({leaf[1]} or {other[1]})"),
            (~leaf[0] & other[0], f"(not {leaf[1]} and {other[1]})"),
        ]
    )


def test_any_condition_gives_the_rows_of_a_full_scan(filled, con):
    seed = harness.seed()
    chosen = random.Random(seed)
    columns = ["queue", "offset"]
    whole = polars.DataFrame(filled.scan("orders"))
    lazy = forebay.polars.scan(filled, "orders")
    for _ in range(2_000 if harness.PROOF else 60):
        condition, sql = draw(chosen)
        expected = whole.filter(condition).select(columns).rows()
        assert lazy.filter(condition).select(columns).collect().rows() == expected, (seed, sql)
        query = f'select queue, "offset" from orders where {sql} order by all'
        assert con.sql(query).fetchall() == expected, (seed, sql)
