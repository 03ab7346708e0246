"""The verb send: arguments, files and lines."""

import subprocess
from pathlib import Path

from cli_support import command, rows
from harness import LONG_S

import forebay


def test_send_creates_a_store_and_prints_where_messages_are(run, tmp_path):
    path = tmp_path / "new"
    arguments = ("--key", "k", "--key", "l", "--tags", "t", "--property", "a=b=c", "--queue", "3")
    status, out, err = run("send", path, "orders", "one", "two", *arguments)
    assert (status, err) == (0, "")
    assert out.decode().startswith("orders queue 3 offset 0 position 0 id ")
    with forebay.open(path, mode="r") as store:
        first, second = store.read("orders", 3, 0)
        assert (first.body, second.body) == (b"one", b"two")
        assert (first.keys, first.tags) == (("k", "l"), "t")
        assert first.properties == {"a": "b=c"}


def test_send_sync_reports_durable_messages_as_json(run, tmp_path):
    _, out, _ = run("send", tmp_path / "new", "orders", "x", "--sync", "--json")
    (row,) = rows(out)
    assert row["durable"] is True
    assert (row["topic"], row["offset"], row["position"]) == ("orders", 0, 0)
    assert set(row) == {
        *("topic", "queue", "offset", "position", "message_id", "timestamp", "durable"),
    }


def test_options_may_stand_between_the_arguments(run, tmp_path):
    path = tmp_path / "new"
    for arguments in (
        ("send", path, "t", "--key", "k", "one", "--queue", "0", "two"),
        ("send", "--queue", "0", path, "--sync", "t", "three"),
        ("send", path, "t", "--queue", "0", "--", "-x", "--sync"),
        ("send", path, "t", "--queue", "0", "-5", "-"),
    ):
        assert run(*arguments)[::2] == (0, ""), arguments
    with forebay.open(path, mode="r") as store:
        bodies = [message.body for message in store.read("t", 0, 0)]
        assert bodies == [b"one", b"two", b"three", b"-x", b"--sync", b"-5", b"-"]
    assert run("send", path, "u", "x")[0] == 0
    _, out, err = run("cat", path, "t", "--limit", "9", "u", "--format", "raw")
    assert (out.split()[0], out.split()[-1], err) == (b"one", b"x", "")


def test_send_takes_a_file_as_one_message(run, tmp_path):
    body = bytes(range(256)) * 10
    (tmp_path / "body").write_bytes(body)
    assert run("send", tmp_path / "new", "t", "--file", tmp_path / "body", "--queue", "0")[0] == 0
    with forebay.open(tmp_path / "new", mode="r") as store:
        assert store.get("t", 0, 0).body == body


def test_send_of_a_missing_file_creates_no_store(run, tmp_path):
    status, _, err = run("send", tmp_path / "new", "t", "--file", tmp_path / "nothing")
    assert status == 1
    assert err == f"forebay: {tmp_path / 'nothing'}: No such file or directory\n"
    assert not (tmp_path / "new").exists()


def send_lines(path: Path, text: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command("send", path, "t", *arguments), input=text, capture_output=True)


def test_send_takes_lines_and_the_last_one_needs_no_newline(tmp_path):
    done = send_lines(
        tmp_path / "new", b"a\n\nb \xff\nlast", "--queue", "0", "--key", "k", "--json"
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert rows(done.stdout) == [
        {"topic": "t", "count": 4, "queues": {"0": {"first": 0, "next": 4}}}
    ]
    with forebay.open(tmp_path / "new", mode="r") as store:
        found = store.read("t", 0, 0)
        assert [message.body for message in found] == [b"a", b"", b"b \xff", b"last"]
        assert {message.key for message in found} == {"k"}


def test_send_keeps_lines_whole_and_in_order_across_reads(tmp_path):
    lines = [b"%d " % number + b"x" * (number % 3000) for number in range(3000)]
    done = send_lines(tmp_path / "new", b"\n".join(lines) + b"\n", "--queue", "0")
    assert done.stdout == b"sent 3,000 messages to t in 1 queue\n"
    with forebay.open(tmp_path / "new", mode="r") as store:
        found = [m.body for m in store.tail("t", start="earliest", follow=False)]
    assert found == lines


def test_a_refused_line_is_named_with_the_number_of_sent_messages(tmp_path):
    text = b"x\n" * 1500 + b"y" * (5 << 20) + b"\n"
    done = send_lines(tmp_path / "new", text)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.count(b"\n") == 1
    assert b"line 1501: " in done.stderr
    assert b"1,500 messages were sent before" in done.stderr


def test_lines_of_a_slow_pipe_are_sent_as_they_arrive(tmp_path):
    path = tmp_path / "new"
    with subprocess.Popen(
        command("send", path, "t", "--queue", "0"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as sender:
        assert sender.stdin is not None
        sender.stdin.write(b"early\n")
        sender.stdin.flush()
        while not (path / "consumequeue" / "t").exists():
            assert sender.poll() is None
        with forebay.open(path, mode="r") as reader:
            assert next(reader.tail("t", start="earliest")).body == b"early"
        sender.stdin.close()
        assert sender.wait(LONG_S) == 0


def test_send_and_repair_keep_the_options_of_a_store(run, tmp_path):
    path = tmp_path / "own"
    forebay.open(path, index=False, default_queues=2, flush="sync").close()
    kept = (path / "forebay.options").read_bytes()
    for arguments in ((), ("--sync",)):
        _, out, _ = run("send", path, "orders", "x", "--key", "k", "--json", *arguments)
        assert rows(out)[0]["durable"] is True
    assert run("repair", path)[0] == 0
    assert (path / "forebay.options").read_bytes() == kept
    assert not (path / "index").exists()
    with forebay.open(path, mode="r") as store:
        assert len(store.topics["orders"].queues) == 2


def test_send_sync_does_not_change_what_a_store_keeps(run, tmp_path):
    path = tmp_path / "own"
    assert run("send", path, "orders", "x", "--sync")[0] == 0
    assert not (path / "forebay.options").exists()


def test_headers_and_tombstones_go_to_a_partition_log_and_come_back(run, tmp_path):
    path = tmp_path / "log"
    engine = ("--engine", "partitionlog")
    headers = ("--header", "trace=1", "--header", "trace", "--header", "raw=\udcff")
    sent = run("send", path, "t", "body", *engine, "--key", "k", "--queue", "0", *headers)
    assert sent[0] == 0
    assert run("send", path, "t", "--tombstone", "--key", "\udcfe", "--queue", "0")[0] == 0
    lines = send_lines(path, b"line\n", "--queue", "0", "--header", "a=b")
    assert lines.returncode == 0
    status, out, _ = run("cat", path, "t", "--full")
    first, second, third = rows(out)
    assert status == 0
    assert (first["key"], first["key_encoding"], first["keys"]) == ("k", "utf-8", ["k"])
    assert first["headers"] == [
        {"name": "trace", "value": "1", "encoding": "utf-8"},
        {"name": "trace", "value": None, "encoding": None},
        {"name": "raw", "value": "/w==", "encoding": "base64"},
    ]
    assert (second["body"], second["body_encoding"]) == (None, None)
    assert (second["key"], second["key_encoding"]) == ("/g==", "base64")
    assert third["headers"] == [{"name": "a", "value": "b", "encoding": "utf-8"}]
    _, csv, _ = run("cat", path, "t", "--format", "csv")
    assert csv.splitlines()[2].endswith(b",,")
    assert run("cat", path, "t", "--format", "raw")[1] == b"body\n\nline\n"


def test_what_a_commit_log_has_no_place_for_is_refused_in_one_line(run, tmp_path):
    path = tmp_path / "commits"
    assert run("send", path, "t", "x", "--key", "k")[0] == 0
    for arguments, word in [
        (("x", "--header", "a=b"), "--header"),
        (("--tombstone",), "--tombstone"),
    ]:
        status, out, err = run("send", path, "t", *arguments, "--key", "k")
        assert (status, out, err.count("\n")) == (2, b"", 1)
        assert f"{word} needs a partition log, and {path} is a commit log" in err
    status, _, err = run("send", path, "t", "x", "--engine", "partitionlog")
    assert status == 1
    assert f"the store at {path} is a commit log" in err
    status, _, err = run("send", path, "t", "x", "--tombstone", "--key", "k")
    assert (status, "a tombstone has no body" in err) == (2, True)
    status, _, err = run("send", tmp_path / "log", "t", "--tombstone", "--engine", "partitionlog")
    assert (status, "--tombstone needs --key" in err) == (2, True)
    assert not (tmp_path / "log").exists()
