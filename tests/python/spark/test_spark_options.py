"""Options of a read: every rule of the connector, tested without a session."""

import subprocess
import sys

import pytest

from forebay.errors import InvalidOptionError
from forebay.spark.columns import KAFKA_COLUMNS
from forebay.spark.options import EARLIEST, LATEST, Limit, parse_options


def parse(**options):
    return parse_options({"path": "events", "subscribe": "orders", **options})


def test_defaults_are_those_of_the_connector_for_a_batch():
    options = parse()
    assert options.topics == ("orders",)
    assert (options.start, options.end) == (Limit(EARLIEST), Limit(LATEST))
    assert (options.fail_on_data_loss, options.latest_if_no_match) == (True, False)
    assert (options.min_partitions, options.records_max) == (None, None)
    assert options.columns == KAFKA_COLUMNS
    assert parse(includeHeaders="TRUE").columns == (*KAFKA_COLUMNS, "headers")


def test_names_are_not_case_sensitive():
    options = {"PATH": "events", "SubscribePattern": " a.* ", "startingtimestamp": " 17 "}
    options |= {"FAILONDATALOSS": "False", "minpartitions": "3", "maxRecordsPerPartition": "5"}
    found = parse_options(options)
    assert found.pattern is not None
    assert found.pattern.pattern == "a.*"
    assert found.start == Limit(time=17)
    assert (found.fail_on_data_loss, found.min_partitions, found.records_max) == (False, 3, 5)


def test_lists_and_json_are_parsed():
    assert parse(subscribe=" a, b ,,a").topics == ("a", "b")
    assign = {"path": "p", "assign": '{"a":[1,0,1],"b":[2]}'}
    assert parse_options(assign).assignment == {"a": (0, 1), "b": (2,)}
    found = parse(startingOffsets='{"orders":{"0":23,"1":-2}}', endingOffsets="Latest")
    assert found.start == Limit(offsets={("orders", 0): 23, ("orders", 1): EARLIEST})
    assert found.end == Limit(LATEST)
    found = parse(endingOffsetsByTimestamp='{"orders":{"0":1700000000000}}')
    assert found.end == Limit(times={("orders", 0): 1_700_000_000_000})
    assert parse(columns=" value, offset,body").columns == ("value", "offset", "body")
    assert parse(startingOffsetsByTimestampStrategy="LATEST").latest_if_no_match


def test_one_time_takes_precedence_over_times_and_these_over_offsets():
    offsets = {"startingOffsets": '{"orders":{"0":1}}'}
    times = {"startingOffsetsByTimestamp": '{"orders":{"0":2}}'}
    assert parse(**offsets).start == Limit(offsets={("orders", 0): 1})
    assert parse(**offsets, **times).start == Limit(times={("orders", 0): 2})
    assert parse(**offsets, **times, startingTimestamp="3").start == Limit(time=3)


def test_a_path_may_be_a_file_url_or_an_archives_address():
    assert parse(path="file:///data/my%20events").paths == ("/data/my events",)
    assert parse(path="s3://bucket/events").paths == ("s3://bucket/events",)
    for path in ("", ":memory:", "hdfs:events", "s3://user:password@bucket/events", "s3://[1"):
        with pytest.raises(InvalidOptionError, match=r"path must|invalid path"):
            parse(path=path)
    with pytest.raises(InvalidOptionError, match="path must be a path or a URI") as caught:
        parse(path="s3://user:secret@[1/events")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("given", [{}, {"subscribe": "a", "assign": '{"a":[0]}'}])
def test_exactly_one_of_the_three_ways_to_name_topics_is_required(given):
    with pytest.raises(InvalidOptionError, match="one of subscribe, subscribePattern and assign"):
        parse_options({"path": "events", **given})


WRONG = [
    ("topic", "orders", "no such option; the options are path, paths, subscribe"),
    ("subscribePatern", "o.*", "did you mean subscribePattern?"),
    ("maxOffsetsPerTrigger", "5", "only streams have this option"),
    ("paths", '["a","b"]', "path is also given: 'events'"),
    ("kafka.bootstrap.servers", "host:9092", "it configures a Kafka client"),
    ("groupIdPrefix", "mine", "it configures a Kafka client"),
    ("pushdown", "maybe", 'must be "true" or "false"'),
    ("subscribe", " , ", "no topics to subscribe to"),
    ("startingOffsets", "latest", "can't be latest for batch"),
    ("startingOffsets", '{"orders":{"0":-1}}', "orders-0 can't be latest for batch"),
    ("startingOffsets", '{"orders":{"0":-3}}', "expected e.g."),
    ("startingOffsets", '{"orders":{"zero":3}}', "expected e.g."),
    ("startingOffsets", '{"orders":{"0":true}}', "expected e.g."),
    ("startingOffsets", '{"orders":{"0":1.5}}', "expected e.g."),
    ("startingOffsets", '{"orders":[0]}', "expected e.g."),
    ("startingOffsets", "[]", "expected e.g."),
    ("startingOffsets", "first", "expected e.g."),
    ("endingOffsets", "earliest", "can't be earliest for batch"),
    ("endingOffsets", '{"orders":{"0":-2}}', "orders-0 can't be earliest for batch"),
    ("endingOffsets", '{"orders":{"0":-3}}', "expected e.g."),
    ("endingOffsets", '{"orders":{"0":"9"}}', "expected e.g."),
    ("endingOffsets", '{"orders":9}', "expected e.g."),
    ("endingOffsets", '{"orders":{"0":9}', "expected e.g."),
    ("endingOffsets", "last", "expected e.g."),
    ("endingOffsets", '{"orders":{"%s":9}}' % ("1" * 5000), "expected e.g."),
    ("endingOffsets", '{"orders":{"+1":9}}', "expected e.g."),
    ("startingOffsets", '{"orders":{"0":%s}}' % ("1" * 5000), "expected e.g."),
    ("startingOffsets", '{"orders":' * 100_000, "expected e.g."),
    ("startingTimestamp", "yesterday", "expected a single long value"),
    ("startingTimestamp", "9" * 30, "expected a single long value"),
    ("endingTimestamp", "", "expected a single long value"),
    ("startingTimestamp", "1.5", "expected a single long value"),
    ("startingOffsetsByTimestamp", "17", "expected e.g."),
    ("startingOffsetsByTimestamp", "earliest", "expected e.g."),
    ("startingOffsetsByTimestamp", '{"orders":{"0":null}}', "expected e.g."),
    ("endingOffsetsByTimestamp", "latest", "expected e.g."),
    ("endingOffsetsByTimestamp", '{"orders":{"-1":17}}', "expected e.g."),
    ("endingOffsetsByTimestamp", '{"orders":{"0":"17"}}', "expected e.g."),
    ("startingOffsetsByTimestampStrategy", "first", '"error" or "latest"'),
    ("minPartitions", "0", "must be an integer from 1 to"),
    ("minPartitions", "two", "must be an integer from 1 to"),
    ("minPartitions", str(2**31), "must be an integer from 1 to"),
    ("maxRecordsPerPartition", "-1", "must be an integer from 1 to"),
    ("maxRecordsPerPartition", "1e3", "must be an integer from 1 to"),
    ("failOnDataLoss", "yes", '"true" or "false"'),
    ("includeHeaders", "1", '"true" or "false"'),
    ("columns", "", "at least one column"),
    ("columns", "value,values", "the columns are key, value"),
    ("columns", "value,ofset", "did you mean offset?"),
    ("columns", "value,value", "named twice"),
]


@pytest.mark.parametrize(("name", "value", "reason"), WRONG)
def test_invalid_values_are_refused_by_name_and_value(name, value, reason):
    with pytest.raises(InvalidOptionError) as caught:
        parse(**{name: value})
    assert caught.value.name == name
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ('{"a":["0"]}', "expected e.g."),
        ('{"a":[-1]}', "expected e.g."),
        ('{"a":0}', "expected e.g."),
        ("a", "expected e.g."),
        ("{}", "no partitions to assign"),
        ('{"a":[]}', "no partitions to assign"),
    ],
)
def test_an_invalid_assignment_is_refused(value, reason):
    with pytest.raises(InvalidOptionError, match=reason):
        parse_options({"path": "events", "assign": value})


@pytest.mark.parametrize("pattern", ["", " ", "(", "*"])
def test_a_wrong_pattern_is_refused(pattern):
    with pytest.raises(InvalidOptionError, match="invalid subscribePattern"):
        parse_options({"path": "events", "subscribePattern": pattern})


@pytest.mark.parametrize(
    "options",
    [
        {"startingTimestamp": "18", "endingTimestamp": "17"},
        {"startingOffsets": '{"a":{"0":3}}', "endingOffsets": '{"a":{"0":2}}'},
        {"startingOffsets": '{"a":{"0":3}}', "endingOffsets": '{"a":{"1":4}}'},
        {
            "startingOffsetsByTimestamp": '{"a":{"0":3}}',
            "endingOffsetsByTimestamp": '{"a":{"0":2}}',
        },
        {"includeHeaders": "true", "columns": "value"},
    ],
)
def test_options_that_contradict_one_another_are_refused(options):
    with pytest.raises(InvalidOptionError):
        parse(**options)


def test_an_end_of_latest_is_never_before_a_start():
    ends = {"startingOffsets": '{"a":{"0":3}}', "endingOffsets": '{"a":{"0":-1}}'}
    assert parse(**ends).end == Limit(offsets={("a", 0): LATEST})


def test_without_pyspark_the_import_names_what_to_install():
    code = "import sys; sys.modules['pyspark'] = None; import forebay.spark"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ImportError: forebay.spark needs PySpark" in done.stderr
    assert "forebay[spark]" in done.stderr
