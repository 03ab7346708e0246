"""The verbs info, topics, verify and repair."""

import json

from cli_support import rows
from golden_stores import unpack


def test_info_says_what_opening_found(run, store):
    status, out, err = run("info", store)
    assert (status, err) == (0, "")
    lines = out.decode().splitlines()
    assert lines[0].split() == ["path:", str(store)]
    assert lines[1].split() == ["engine:", "commitlog"]
    assert "6 in 2 topics" in lines[2]
    assert any(line.startswith("commitlog ") for line in lines)


def test_info_as_json_has_marks_recovery_damage_and_sizes(run, store):
    status, out, _ = run("info", store, "--json")
    (facts,) = rows(out)
    assert status == 0
    assert facts["messages"] == 6
    assert facts["topics"] == 2
    assert facts["engine"] == "commitlog"
    assert facts["damage"] == []
    assert facts["recovery"]["clean"] is True
    marks = facts["marks"]
    assert 0 == marks["min_position"] < marks["durable"] == marks["published"]
    sizes = {row["name"]: row for row in facts["sizes"]}
    assert sizes["commitlog"]["bytes"] == 1 << 20
    assert sizes["commitlog"]["files"] == 1


def test_topics_are_listed_with_their_messages(run, store):
    status, out, _ = run("topics", store)
    table = [line.split() for line in out.decode().splitlines()]
    assert status == 0
    assert table[0] == ["topic", "queues", "messages", "readable", "writable"]
    assert table[1:] == [["bills", "8", "1", "yes", "yes"], ["orders", "8", "5", "yes", "yes"]]


def test_topics_can_be_listed_by_queue(run, store):
    _, out, _ = run("topics", store, "--queues")
    table = [line.split() for line in out.decode().splitlines()]
    assert ["orders", "0", "0", "4"] in table
    assert ["orders", "1", "0", "1"] in table
    assert len(table) == 1 + 8 + 8


def test_topics_as_json_are_one_document(run, store):
    _, out, _ = run("topics", store, "--json")
    bills, orders = json.loads(out)
    assert (bills["name"], bills["messages"]) == ("bills", 1)
    assert (orders["name"], orders["messages"], orders["write_queues"]) == ("orders", 5, 8)
    assert orders["queues"][0] == {"id": 0, "min_offset": 0, "max_offset": 4}


def test_verify_reports_an_intact_store(run, store):
    status, out, err = run("verify", store)
    assert (status, err) == (0, "")
    assert out.decode() == "6 records, 6 queue entries and 6 index entries are intact\n"


def test_verify_prints_damage_with_path_and_position_and_ends_with_1(run, tmp_path):
    path = unpack("torn-hole", tmp_path)
    status, out, err = run("verify", path)
    assert (status, err) == (1, "")
    log = path / "commitlog" / "00000000000001048576"
    assert any(line.startswith(f"{log} at 1867720: ") for line in out.decode().splitlines())
    status, out, _ = run("verify", path, "--json")
    (report,) = rows(out)
    assert (status, report["ok"], report["queue_entries"]) == (1, False, 2156)
    (hole,) = [damage for damage in report["damage"] if damage["path"] == str(log)]
    assert hole["position"] == 1867720


def test_repair_prints_what_it_did_and_leaves_a_store_that_verifies(run, tmp_path):
    path = unpack("torn-hole", tmp_path)
    status, out, err = run("repair", path, "--adopt", "--json")
    assert (status, err) == (0, "")
    (report,) = rows(out)
    (hole,) = [damage for damage in report["found"] if damage["position"] == 1867720]
    (filled,) = [step for step in report["steps"] if step["position"] == 1867720]
    assert (filled["path"], filled["length"]) == (hole["path"], hole["length"])
    assert (path / "damaged" / f"{1867720:020}-{hole['length']}").stat().st_size == hole["length"]
    assert report["left"] == []
    assert run("verify", path)[0] == 0
    status, out, _ = run("repair", path)
    assert (status, out.decode()) == (0, "nothing is damaged\n")


def test_repair_creates_no_store_and_lists_what_it_cannot_repair(run, store, tmp_path):
    status, _, err = run("repair", tmp_path / "absent")
    assert (status, err.count("\n")) == (1, 1)
    assert not (tmp_path / "absent").exists()
    (store / "config" / "consumerOffset.json").write_bytes(b"{torn")
    status, out, _ = run("repair", store)
    lines = out.decode().splitlines()
    assert status == 1
    assert lines[-1] == "could not repair 1 damaged region"
    assert any(line.startswith("left: ") and "consumerOffset" in line for line in lines)
    assert (store / "damaged" / "consumerOffset.json-5").read_bytes() == b"{torn"
