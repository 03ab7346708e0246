"""Metrics: the values of Prometheus and OpenTelemetry, and what scrapes see of a closed store."""

import os
import re
import sys
from pathlib import Path

import prometheus_client
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families

import forebay
import forebay.metrics

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def busy(open_store):
    """Return a store with messages, a retry, a dead letter and a group that is behind."""
    store = open_store(default_queues=2)
    store.producer("orders").send_batch([b"x" * 100] * 10)
    with store.consumer("orders", group="billing") as consumer:
        first, second, third, *_others = consumer.poll(max_messages=10, timeout=0)
        consumer.ack(first)
        consumer.reject(second)
        consumer.nack(third)
        consumer.commit()
    return store


def place(name, labels):
    """Return the name of a metric with its labels, in the order of the page."""
    return (name, *(labels[label] for label in ("broker", "topic", "group") if label in labels))


def scrape(collector):
    """Return the samples of a scrape, as Prometheus parses them."""
    registry = prometheus_client.CollectorRegistry()
    registry.register(collector)
    text = prometheus_client.generate_latest(registry).decode()
    families = list(text_string_to_metric_families(text))
    samples = [sample for family in families for sample in family.samples]
    plain = [sample for sample in samples if "le" not in sample.labels]
    assert all(sample.labels["cluster"] for sample in samples)
    assert len({place(sample.name, sample.labels) for sample in plain}) == len(plain)
    found = {place(sample.name, sample.labels): sample.value for sample in plain}
    for sample in samples:
        if "le" in sample.labels:
            found.setdefault(place(sample.name, sample.labels), []).append(sample.value)
    return found


def test_a_scrape_has_the_values_of_the_store(busy, meanings):
    found = scrape(forebay.metrics.Collector({"events": busy}))
    stats = busy.stats()
    (group,) = [queue for queue in busy.groups["billing"] if queue.lag and queue.topic == "orders"]
    assert found["forebay_up", "events"] == 1
    assert found["rocketmq_producer_offset", "events", "orders"] == 10
    assert found["forebay_topic_messages", "events", "orders"] == 10
    assert found["rocketmq_topic_dlq_offset", "events", "billing"] == 1
    assert found["rocketmq_brokeruntime_putmessage_times_total", "events"] == stats.messages_sent
    assert found["rocketmq_brokeruntime_commitlog_maxoffset", "events"] == stats.published
    assert found["rocketmq_group_diff", "events", "orders", "billing"] == group.lag
    assert found["rocketmq_consumer_offset", "events", "orders", "billing"] == group.committed
    assert found["rocketmq_group_get_latency_by_storetime", "events", "orders", "billing"] >= 0
    assert found["forebay_sends_failed_total", "events"] == 0
    on_disk = meanings.files
    assert (("rocketmq_brokeruntime_commitlog_disk_ratio", "events") in found) == on_disk


def test_a_partition_log_has_a_length_and_free_space_in_writer_and_reader(tmp_path):
    path = tmp_path / "store"
    with forebay.open(path, engine="partitionlog", default_queues=2) as writer:
        writer.producer("orders").send_batch([b"x" * 100] * 10)
        with forebay.open(path, mode="r") as reader:
            found = scrape(forebay.metrics.Collector({"writer": writer, "reader": reader}))
            for name in ("writer", "reader"):
                length = found["forebay_log_bytes", name]
                assert length == writer.stats().bytes_sent > 1000
                assert found["rocketmq_brokeruntime_commitlog_maxoffset", name] == length
                assert found["rocketmq_brokeruntime_commitlogdir_capacity_free", name] > 0


def test_histograms_count_each_put_once(store):
    for _ in range(100):
        store.send("orders", b"a", flush=True)
    found = scrape(forebay.metrics.Collector({"events": store}))
    latency = store.stats().put_latency
    assert found["forebay_put_seconds_count", "events"] == latency.count
    assert found["forebay_put_seconds_sum", "events"] == pytest.approx(latency.mean * latency.count)
    buckets = found["forebay_put_seconds_bucket", "events"]
    assert buckets == sorted(buckets)
    assert buckets[-1] == latency.count
    # The ends are those of the store's own buckets, so nothing lies across one.
    exact = [2**power / 1e9 for power in range(10, 36, 2)]
    assert buckets[:-1] == [
        sum(count for end, count in latency.buckets if end <= limit * 1.000001) for limit in exact
    ]


def test_several_stores_share_a_scrape_and_a_closed_one_does_not_break_it(open_store):
    one, other = open_store(), open_store()
    one.send("orders", b"a")
    collector = forebay.metrics.Collector({"one": one, "other": other}, cluster="test")
    other.close()
    found = scrape(collector)
    assert (found["forebay_up", "one"], found["forebay_up", "other"]) == (1, 0)
    assert found["rocketmq_producer_offset", "one", "orders"] == 1
    assert ("rocketmq_broker_tps", "other") not in found


def test_a_store_is_named_by_its_directory(directory):
    with forebay.open(directory, mode="r") as store:
        assert scrape(forebay.metrics.Collector(store))["forebay_up", directory.name] == 1


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no such names")
def test_names_that_are_not_utf_8_break_no_scrape(tmp_path):
    with forebay.open(os.fsdecode(os.fsencode(tmp_path) + b"/x\xff")) as store:
        registry = prometheus_client.CollectorRegistry()
        registry.register(forebay.metrics.Collector(store))
        text = prometheus_client.generate_latest(registry).decode()
        assert 'broker="x\N{REPLACEMENT CHARACTER}"' in text
        for given in ({"stores": {"x\udcff": store}}, {"stores": store, "cluster": "x\udcff"}):
            with pytest.raises(ValueError, match="surrogate"):
                forebay.metrics.Collector(**given)


def observed(reader):
    found = {}
    for resource in reader.get_metrics_data().resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    found[place(metric.name, point.attributes)] = point.value
    return found


def test_opentelemetry_observes_the_same_values(busy):
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    forebay.metrics.instrument(provider.get_meter("test"), {"events": busy})
    found = observed(reader)
    scraped = scrape(forebay.metrics.Collector({"events": busy}))
    plain = {
        (name.removesuffix("_total") if name.startswith("forebay_") else name, *labels)
        for name, *labels in scraped
        if not re.search("_(bucket|sum|count)$", name)
    }
    assert set(found) == plain
    assert found["rocketmq_producer_offset", "events", "orders"] == 10
    provider.shutdown()


def test_the_page_lists_every_metric(busy):
    page = (DOCS / "metrics.md").read_text()
    names = {family.name for family in forebay.metrics.Collector(busy).collect()}
    assert names == set(re.findall(r"^\| `((?:forebay|rocketmq)_\w+)`", page, re.MULTILINE))


def test_stores_that_are_none_are_refused_at_once():
    """They failed at the first scrape, with an AttributeError."""
    with pytest.raises(TypeError, match=r'^stores\["a"\] must be a store, got int'):
        forebay.metrics.Collector({"a": 5})
    with (
        forebay.open(":memory:") as store,
        pytest.raises(TypeError, match=r"^a name in stores must be a str, got int"),
    ):
        forebay.metrics.Collector({1: store})


def test_what_is_no_meter_and_no_name_is_refused_at_once(store):
    with pytest.raises(TypeError, match=r"^meter must be a Meter of OpenTelemetry, got NoneType"):
        forebay.metrics.instrument(None, store)
    with pytest.raises(TypeError, match=r"^cluster must be a str, got int"):
        forebay.metrics.Collector(store, cluster=5)
