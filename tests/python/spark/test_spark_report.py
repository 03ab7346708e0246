"""The job `report`: the figures match what was sent, and the page is self-contained."""

from __future__ import annotations

import html
import json
import re
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, cast

import pytest
from streaming import Stream

import forebay
from forebay.spark import report
from forebay.spark.jobs.figures import BEYOND_END, NO_QUEUE, NO_TOPIC, Report
from forebay.spark.jobs.page import _age, _size, write_page


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a closed store with 300 messages of two topics and two consumer groups."""
    path = tmp_path_factory.mktemp("report") / "store"
    with forebay.open(path, commitlog_file_size=1 << 20, default_queues=2) as opened:
        opened.create_topic("empty", queues=1)
        for number in range(300):
            keys = [f"k{number % 7}", "all"] if number % 3 else None
            opened.send(("one", "two")[number % 2], b"x" * number, keys=keys, queue=number // 2 % 2)
    # As RocketMQ writes it: queue numbers are member names without quotes.
    table = '{"offsetTable":{"one@billing":{0:10,1:75,7:3},"two@audit":{0:-1},'
    table += '"two@other":{1:76},"gone@audit":{0:5},"TBW102@audit":{0:5}}}'
    (path / "config" / "consumerOffset.json").write_text(table)
    return path


def test_the_figures_match_the_sent_messages(spark: Any, store: Path) -> None:
    found = report(spark, store, keys=3)
    with forebay.open(store, mode="r") as opened:
        messages = [m for name in ("one", "two") for m in opened.tail(name, "earliest", False)]
    assert found.messages == len(messages) == 300
    counts, sizes = Counter(m.topic for m in messages), Counter[str]()
    hours: Counter[tuple[str, int]] = Counter()
    for message in messages:
        sizes[message.topic] += message.size
        hours[message.topic, message.store_timestamp // 3_600_000] += 1
    assert [(row.topic, row.messages, row.bytes, row.queues) for row in found.topics] == [
        ("empty", 0, 0, 1),
        ("one", counts["one"], sizes["one"], 2),
        ("two", counts["two"], sizes["two"], 2),
    ]
    assert {
        (row.topic, int(row.hour.timestamp()) // 3600): row.messages for row in found.hours
    } == hours
    assert [(row.topic, row.queue, row.max_offset, row.messages) for row in found.queues] == [
        ("empty", 0, 0, 0),
        *((topic, queue, 75, 75) for topic in ("one", "two") for queue in (0, 1)),
    ]
    for row in found.queues:
        own = [m for m in messages if (m.topic, m.queue) == (row.topic, row.queue)]
        times = [m.store_timestamp for m in own]
        took = (times[-1] - times[0]) / 1000 if times else 0
        # Messages within one millisecond have no rate.
        assert row.rate == pytest.approx(len(own) / took if took else 0)
    keys = Counter((m.topic, key) for m in messages for key in m.keys)
    best = sorted(keys, key=lambda at: (-keys[at], at))[:3]
    assert [(row.topic, row.key, row.messages) for row in found.keys] == [
        (*at, keys[at]) for at in best
    ]


def test_hours_and_rates_follow_from_store_times(
    spark: Any, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shift the store times of queue 1 by three hours, as a test cannot wait for hours."""
    module = sys.modules["forebay.spark.jobs.report"]
    read = module.read_ranges

    def later(*arguments: Any, **options: Any) -> Any:
        frame = read(*arguments, **options)
        if "queue" not in frame.columns:
            return frame
        time = "store_timestamp + queue * interval 3 hours as store_timestamp"
        return frame.selectExpr("topic", "queue", time, "size")

    monkeypatch.setattr(module, "read_ranges", later)
    found = report(spark, store, topics=["one"], keys=2)
    with forebay.open(store, mode="r") as opened:
        messages = list(opened.tail("one", "earliest", False))
    # In seconds, and bytes of records.
    facts = [((m.store_timestamp + m.queue * 10_800_000) / 1000, m.size) for m in messages]
    times = sorted(time for time, _ in facts)
    (topic,) = found.topics
    assert topic.first is not None and topic.last is not None
    assert (topic.first.timestamp(), topic.last.timestamp()) == (times[0], times[-1])
    assert topic.rate == pytest.approx(150 / (times[-1] - times[0]))
    hours: dict[int, list[int]] = {}
    for time, size in facts:
        hours.setdefault(int(time // 3600), []).append(size)
    assert len(hours) >= 2
    assert [(int(row.hour.timestamp()), row.messages, row.bytes) for row in found.hours] == [
        (hour * 3600, len(sizes), sum(sizes)) for hour, sizes in sorted(hours.items())
    ]
    assert [row.rate for row in found.hours] == [row.messages / 3600 for row in found.hours]
    assert topic.peak_rate == max(len(sizes) for sizes in hours.values()) / 3600
    keys: Counter[str] = Counter()
    for message in messages:
        keys.update(dict.fromkeys(message.keys, message.size))
    assert {row.key: row.bytes for row in found.keys}.items() <= keys.items()


def test_the_lag_of_a_stream_is_reported(spark: Any, tmp_path: Path) -> None:
    """Another tool can read what the option `group` of a stream records."""
    path = tmp_path / "store"
    with forebay.open(path, commitlog_file_size=1 << 20, default_queues=1) as store:
        store.producer("orders", queue=0).send_batch([b"x"] * 50)
    stream = Stream(path, startingOffsets="earliest", maxOffsetsPerTrigger="30", group="etl")
    assert len(stream.trigger() or []) == 30
    found = report(spark, path, keys=0)
    assert [tuple(row) for row in found.lag] == [("etl", "orders", 0, 30, 50, 20, None)]


def test_the_lag_is_that_of_the_groups(spark: Any, store: Path) -> None:
    found = report(spark, store, topics=["one", "two"], keys=0)
    assert [tuple(row) for row in found.lag] == [
        ("audit", "two", 0, -1, 75, 75, None),
        ("billing", "one", 0, 10, 75, 65, None),
        ("billing", "one", 1, 75, 75, 0, None),
        ("billing", "one", 7, 3, None, None, NO_QUEUE),
        ("other", "two", 1, 76, 75, 0, BEYOND_END),
    ]
    assert found.keys == ()
    assert [row.topic for row in found.topics] == ["one", "two"]
    table = found.table("lag")
    assert table.column("lag").to_pylist() == [75, 65, 0, None, 0]
    assert table.column("remark").to_pylist() == [None, None, None, NO_QUEUE, BEYOND_END]
    assert str(table.schema.field("max_offset").type) == "int64"
    assert str(found.table("hours").schema.field("hour").type) == "timestamp[us, tz=UTC]"
    with pytest.raises(KeyError):
        found.table("colours")
    json.dumps(found._asdict())
    with pytest.raises(forebay.UnknownTopicError):
        report(spark, store, topics=["nothing"])


class Loads(HTMLParser):
    """Collects the text of a page, and everything that it would load."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.plots = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note tags that load something."""
        self.found += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href", "srcset")]
        self.found += [tag] * (tag in ("link", "iframe", "img", "object", "base"))
        self.plots += ("class", "plotly-graph-div") in attrs


def test_the_page_loads_nothing(spark: Any, store: Path, tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    page = tmp_path / "report.html"
    page.write_text("an old one")
    found = report(spark, store, page)
    assert found.html == str(page)
    text = page.read_text()
    seen = Loads()
    seen.feed(text)
    assert seen.found == []
    assert seen.plots == 5
    # Plotly's script contains addresses for other kinds of plots; nothing else may.
    without_scripts = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"https?:|//|@import|url\(", without_scripts)
    assert "<h2>lag</h2>" in text
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text
    # Numbers have units; problems are marked, listed first, and summarized at the top.
    for words in ("KiB</td>", "messages/s</th>", "last (UTC)</th>", " ago</td>", "KiB,\nin"):
        assert words in text, words
    assert "Size per hour, KiB" in text
    gone = [row for row in found.lag if row.remark == NO_TOPIC]
    assert [tuple(row) for row in gone] == [("audit", "gone", 0, 5, None, None, NO_TOPIC)]
    marked = re.findall(r'<tr class="marked">(.*?)</tr>', text)
    assert [re.findall(r"<td.*?>(.*?)</td>", row)[-1].replace("&#x27;", "'") for row in marked] == [
        NO_TOPIC,
        NO_QUEUE,
        BEYOND_END,
    ]
    for remark in (NO_TOPIC, NO_QUEUE, BEYOND_END):
        assert f"<p>Groups, {html.escape(remark)}: 1 (" in text
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_page_that_another_process_is_writing_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.spark.jobs.page._page", lambda report: "whole")
    path, other = tmp_path / "report.html", tmp_path / "report.html.tmp"
    other.write_text("half of")
    write_page(cast("Report", None), str(path))
    assert (path.read_text(), other.read_text()) == ("whole", "half of")
    assert set(tmp_path.iterdir()) == {path, other}


def test_numbers_have_the_unit_that_fits_them() -> None:
    sizes = [0, 1023, 1024, 1_572_864, (1 << 30) - 1, 5 << 40, 1 << 70]
    shown = ["0 B", "1,023 B", "1.0 KiB", "1.5 MiB", "1,024.0 MiB", "5.0 TiB", "1,048,576.0 PiB"]
    assert [_size(size) for size in sizes] == shown
    ages = [-3, 0.4, 119, 120, 7_199, 7_200, 172_799, 172_800, 1e9]
    shown = ["0 s", "0 s", "119 s", "2 min", "119 min", "2 h", "47 h", "2 d", "11,574 d"]
    assert [_age(age) for age in ages] == shown


def test_an_empty_store_has_a_report(spark: Any, tmp_path: Path) -> None:
    with forebay.open(tmp_path / "store", commitlog_file_size=1 << 20):
        pass
    found = report(spark, tmp_path / "store")
    assert (found.messages, found.topics, found.lag) == (0, (), ())


def test_messages_sent_meanwhile_are_not_counted(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["forebay.spark.jobs.report"]
    count = module._count
    with forebay.open(tmp_path / "store", commitlog_file_size=1 << 20) as writer:
        for _ in range(10):
            writer.send("one", b"x", key="k", queue=0)
        # Readers see the topic, and all messages sent to it.
        writer.flush()
        assert writer.get("one", 0, 9).body == b"x"

        def late(*arguments: Any) -> Any:
            for _ in range(5):
                writer.send("one", b"x", key="k", queue=0)
                writer.send("one", b"x", key="k", queue=1)
            writer.flush()
            assert writer.get("one", 1, 4).body == b"x"
            return count(*arguments)

        monkeypatch.setattr(module, "_count", late)
        found = report(spark, tmp_path / "store")
    (queue,) = [row for row in found.queues if row.messages]
    assert (queue.queue, queue.messages, queue.max_offset) == (0, 10, 10)
    assert [row.messages for row in found.keys] == [10]
