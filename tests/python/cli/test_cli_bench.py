"""The verb bench."""

from xml.etree import ElementTree

import pytest
from cli_support import Run, rows

from forebay.bench import Measured, svg


def test_topics_are_measured_with_a_reader_beside(run: Run, tmp_path):
    words = ("--topics", "1", "--topics", "3", "--messages", "2000")
    chart = tmp_path / "chart.svg"
    status, out, err = run(
        "bench", "topics", *words, "--rounds", "1", "--folder", tmp_path, "--svg", chart, "--json"
    )
    assert (status, err) == (0, "")
    found = rows(out.replace(b"\n", b"")) if out.startswith(b"[") else rows(out)
    found = found[0] if isinstance(found[0], list) else found
    assert sorted((it["topics"], it["engine"]) for it in found) == [
        (topics, engine) for topics in (1, 3) for engine in ("commitlog", "partitionlog")
    ]
    for one in found:
        assert one["rate"] > 0 and one["p99"] > 0
        assert 0 <= one["read"] <= 2000
    assert ElementTree.parse(chart).getroot().tag.endswith("svg")
    # Nothing is left.
    assert [it.name for it in tmp_path.iterdir()] == ["chart.svg"]
    status, out, _ = run(
        "bench",
        "topics",
        "--engine",
        "commitlog",
        "--topics",
        "2",
        "--messages",
        "100",
        "--rounds",
        "2",
        "--folder",
        tmp_path,
    )
    assert status == 0
    title, line = out.decode().splitlines()
    assert title == "100 sends of 100 bytes, a reader beside"
    assert "commitlog" in line and "2 topics" in line
    # The second run reads none of the messages of the first.
    assert int(line.rsplit(maxsplit=1)[1].rstrip("%")) <= 100


@pytest.mark.parametrize("counts", [[1], [1, 10, 100, 1_000, 10_000]])
def test_a_chart_has_a_line_for_each_engine(counts):
    some = [
        Measured(name, count, rate / count, count * 1e-6, 0)
        for name, rate in (("commitlog", 2e6), ("<other>", 1e4))
        for count in counts
    ]
    root = ElementTree.fromstring(svg(some, "a < b"))
    kinds = [it.tag.rpartition("}")[2] for it in root.iter()]
    assert kinds.count("polyline") == 4
    assert kinds.count("circle") == 4 * len(counts)
    texts = [it.text for it in root.iter() if it.tag.endswith("text")]
    assert {"a < b", "commitlog", "<other>"} <= set(texts)
    for dot in root.iter():
        if dot.tag.endswith("circle"):
            assert 40 <= float(dot.get("cy", 0)) <= 280 and 70 <= float(dot.get("cx", 0)) <= 830
