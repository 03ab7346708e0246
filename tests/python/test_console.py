"""The console: who is answered, what the pages get, how it stays live, and how it ends."""

import asyncio
import contextlib
import gc
import json
import os
import re
import signal
import socket
import subprocess
import sys
from importlib import resources
from pathlib import Path
from urllib.parse import quote

import harness
import httpx
import pytest
import store_files
from console_support import LIMIT_MS, browsing, serving
from golden_stores import unpack
from starlette.applications import Starlette
from starlette.routing import Mount

import forebay
from forebay.cli import main
from forebay.console import Console
from forebay.console.guard import host_name
from forebay.console.live import Live, take
from forebay.console.serve import Server, listen

TOKEN = "the-token-of-these-tests"
BEARER = {"authorization": f"Bearer {TOKEN}"}
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\u202e\"'&"
APIS = [
    *("overview", "topics", "topic?topic=orders", "messages?topic=orders", "groups", "letters"),
    *("message?topic=orders&queue=0&offset=0", "body?topic=orders&queue=0&offset=0", "damage"),
    "letters?group=billing",
]
PAGES = ["/", "/console.css", "/console.js", "/elements.js", "/pages.js", "/requests.js"]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Return the directory of a closed store: 40 orders in two queues, 2 bodies that are odd."""
    path = tmp_path_factory.mktemp("console") / "store"
    small = {"commitlog_file_size": 1 << 20, "queue_file_entries": 100, "index_slots": 100}
    with forebay.open(path, default_queues=2, index_entries=200, **small) as store:
        for number in range(40):
            store.send("orders", b'{"order": %d}' % number, key=f"k{number}", queue=number % 2)
        store.send("odd", HOSTILE.encode(), key="<b>", tags="<i>", properties={"<p>": HOSTILE})
        store.send("odd", bytes(range(256)) * 1024, queue=1)
        with store.consumer("orders", group="billing") as consumer:
            for message in consumer.poll(3, timeout=10):
                consumer.reject(message, reason=HOSTILE)
    return path


@pytest.fixture(scope="module")
def reader(path):
    with forebay.open(path, mode="r") as store:
        yield store


@pytest.fixture(scope="module")
def console(reader):
    console = Console(reader, token=TOKEN)
    yield console
    console.close()


def ask(console, path, method="GET", headers=BEARER, host="127.0.0.1:8780", **given):
    """Send a request to the application."""

    async def send():
        transport = httpx.ASGITransport(console, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
            return await client.request(method, path, headers=headers, **given)

    return asyncio.run(send())


def get(console, path):
    answer = ask(console, f"/api/{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


# --- who is answered ----------------------------------------------------------------------------


@pytest.mark.parametrize("api", [*APIS, "events", "redrive", "unknown"])
def test_nothing_of_the_store_is_answered_without_the_token(console, api):
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": TOKEN}):
        answer = ask(console, f"/api/{api}", headers={**headers, "cookie": f"token={TOKEN}"})
        assert answer.status_code == 401
    mark = "&" if "?" in api else "?"
    assert ask(console, f"/api/{api}{mark}token={TOKEN}", headers={}).status_code == 401


@pytest.mark.parametrize("page", PAGES)
def test_the_page_needs_no_token_and_names_none(console, page):
    answer = ask(console, page, headers={})
    assert answer.status_code == 200
    assert TOKEN not in answer.text


@pytest.mark.parametrize(
    ("where", "headers", "host"),
    [
        ("/", {}, "localhost"),
        ("/api/overview", BEARER, "localhost"),
        ("/api/overview", {}, "localhost"),
        ("/api/unknown", BEARER, "localhost"),
        ("/../../etc/passwd", BEARER, "localhost"),
        ("/api/message?topic=orders&queue=0&offset=99", BEARER, "localhost"),
        ("/api/body?topic=odd&queue=1&offset=0", BEARER, "localhost"),
        ("/", {}, "evil.example"),
    ],
)
def test_every_answer_has_the_headers_that_protect_it(console, where, headers, host):
    found = ask(console, where, headers=headers, host=host).headers
    policy = found["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy
    assert "unsafe" not in policy and "http" not in policy
    assert "frame-ancestors 'none'" in policy and "require-trusted-types-for" in policy
    assert found["x-content-type-options"] == "nosniff"
    assert found["referrer-policy"] == "no-referrer"
    assert found["cross-origin-opener-policy"] == "same-origin"
    assert found["cache-control"] == (
        "no-cache" if (where, host) == ("/", "localhost") else "no-store"
    )
    assert "access-control-allow-origin" not in found


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:8780", "LOCALHOST:80"])
def test_the_names_of_this_machine_are_answered(console, host):
    headers = {**BEARER, "host": host}
    assert ask(console, "/api/overview", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8780", "10.0.0.1"),
        *("localhost:80@evil.example", "[::1", "[::1]x", "localhost:x", "", "localhost."),
    ],
)
def test_a_name_that_was_made_to_resolve_here_is_refused(console, host):
    for page in ("/", "/api/overview"):
        answer = ask(console, page, headers={**BEARER, "host": host})
        assert answer.status_code == 421
    assert "orders" not in answer.text


def test_further_names_are_accepted_if_given_and_numbers_if_all_are(reader):
    named = Console(reader, token=TOKEN, hosts=["Log.example"])
    assert ask(named, "/", host="log.example").status_code == 200
    assert ask(named, "/", host="10.0.0.1").status_code == 421
    numbers = Console(reader, token=TOKEN, hosts=["*"])
    assert ask(numbers, "/", host="10.0.0.1").status_code == 200
    assert ask(numbers, "/", host="log.example").status_code == 421
    assert host_name("[fe80::1]:80") == "fe80::1" and host_name("a:1:2") is None


def test_an_application_mounts_the_console_under_a_path(console):
    mounted = Starlette(routes=[Mount("/console", console)])
    assert "<!doctype html>" in ask(mounted, "/console/", headers={}).text
    assert ask(mounted, "/console/console.js", headers={}).status_code == 200
    assert ask(mounted, "/console/api/overview", headers={}).status_code == 401
    assert ask(mounted, "/console/api/overview").json()["messages"] == 45


def test_requests_of_other_sites_are_refused(console):
    for origin in ("http://evil.example", "null", "http://127.0.0.1:9999"):
        answer = ask(console, "/api/overview", headers={**BEARER, "origin": origin})
        assert answer.status_code == 403
    own = {**BEARER, "origin": "http://127.0.0.1:8780", "sec-fetch-site": "same-origin"}
    assert ask(console, "/api/overview", headers=own).status_code == 200


def test_a_token_that_can_be_guessed_is_refused(reader):
    for token in ("", "short", "spaces in the middle of it"):
        with pytest.raises(ValueError, match="at least 16"):
            Console(reader, token=token)
    assert Console(reader).token != Console(reader).token


# --- what the pages get -------------------------------------------------------------------------


def test_the_overview_counts_topics_messages_and_lag(console, path):
    found = get(console, "overview")
    assert (found["path"], found["mode"], found["write"]) == (str(path), "r", False)
    assert (found["topics"], found["messages"]) == (3, 45)
    assert found["lag"] == 37
    assert found["stats"]["put_latency"]["count"] == 0
    assert found["disk_total"] > found["stats"]["disk_free"] > 0


def test_topics_are_filtered_and_have_queues_with_bytes_and_times(console, reader):
    found = get(console, "topics?part=OR")
    assert [(one["name"], one["messages"]) for one in found["topics"]] == [("orders", 40)]
    assert (found["matching"], found["all"]) == (1, 3)
    found = get(console, "topic?topic=orders")
    rows = [(one["id"], one["min"], one["max"]) for one in found["rows"]]
    assert rows == [(0, 0, 20), (1, 0, 20)] and found["bytes_exact"]
    messages = reader.read("orders", 0, 0).messages
    assert found["rows"][0]["bytes"] == sum(one.size for one in messages)
    assert found["rows"][0]["last"] == messages[-1].store_timestamp


def pages(console, query, topic="orders"):
    """Return the offsets of all pages, and the number of pages."""
    found, count, places = [], 0, ""
    while places is not None:
        page = get(console, f"messages?topic={quote(topic)}&{query}&places={places}")
        assert not page["cut"]
        found += [(one["queue"], one["offset"]) for one in page["messages"]]
        count, places = count + 1, page["next"]
    return found, count


def test_pages_of_messages_have_each_message_once_in_both_orders(console):
    all_of_them = [(number % 2, number // 2) for number in range(40)]
    assert pages(console, "order=oldest&limit=7") == (all_of_them, 6)
    assert pages(console, "order=newest&limit=40")[0] == all_of_them[::-1]
    assert pages(console, "limit=9")[0] == all_of_them[::-1]
    assert pages(console, "queue=1&limit=9")[0] == all_of_them[::-1][::2]
    assert pages(console, "queue=1&offset=4&limit=9")[0] == [(1, at) for at in (4, 3, 2, 1, 0)]
    assert pages(console, "queue=0&offset=17&order=oldest")[0] == [(0, at) for at in (17, 18, 19)]


def test_messages_are_found_by_time_and_by_key(console, reader):
    message = reader.get("orders", 0, 9)
    at = message.store_timestamp
    stored = {
        (number % 2, number // 2): reader.get("orders", number % 2, number // 2).store_timestamp
        for number in range(40)
    }
    later = {place for place, time in stored.items() if time >= at}
    earlier = {place for place, time in stored.items() if time <= at}
    assert set(pages(console, f"order=oldest&time={at}")[0]) == later
    assert set(pages(console, f"order=newest&time={at}")[0]) == earlier
    assert pages(console, "order=oldest&time=2999-01-01T00:00Z") == ([], 1)
    assert pages(console, "order=newest&time=1970-01-02T00:00%2B01:00") == ([], 1)
    found = get(console, "messages?topic=orders&key=k18")["messages"]
    assert [(one["queue"], one["offset"], one["key"]) for one in found] == [(0, 9, "k18")]
    assert get(console, f"messages?topic=orders&key=k18&time={at + 1}")["messages"] == []


def test_hostile_text_reaches_the_page_as_json_alone(console):
    (row,) = get(console, "messages?topic=odd&queue=0")["messages"]
    assert (row["key"], row["tags"], row["body"]["text"]) == ("<b>", "<i>", HOSTILE)
    found = get(console, "message?topic=odd&queue=0&offset=0")
    assert found["properties"] == {"<p>": HOSTILE} and found["body"]["json"] is None
    letter = get(console, "letters?group=billing")["letters"][0]
    assert (letter["reason"], letter["original_topic"]) == (HOSTILE, "orders")
    for api in [*APIS, f"topic?topic={HOSTILE.replace('&', '')}", f"letters?group={HOSTILE[:9]}"]:
        if api.startswith("body"):
            continue
        answer = ask(console, f"/api/{api}")
        assert answer.headers["content-type"] == "application/json"
        assert answer.content.isascii()


def test_the_scripts_make_no_markup_of_strings():
    scripts = list(resources.files("forebay.console").joinpath("static").iterdir())
    assert {one.name for one in scripts} >= {"index.html", "console.css", "console.js"}
    for one in scripts:
        text = one.read_text(encoding="ascii")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text)
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|\son\w+=|style=", text)


def test_bodies_are_shown_in_each_form_and_cut(console):
    found = get(console, "message?topic=orders&queue=0&offset=1")["body"]
    assert (found["text"], found["json"]) == ('{"order": 2}', '{\n  "order": 2\n}')
    assert (
        found["hex"] == "00000000  7b 22 6f 72 64 65 72 22 3a 20 32 7d" + " " * 14 + '{"order": 2}'
    )
    found = get(console, "message?topic=odd&queue=1&offset=0")["body"]
    assert (found["size"], found["text"], found["json"]) == (256 << 10, None, None)
    assert found["hex_truncated"] and len(found["hex"].splitlines()) == 256
    (row,) = get(console, "messages?topic=odd&queue=1")["messages"]
    assert row["body"]["form"] == "hex" and row["body"]["truncated"]
    assert row["body"]["text"].startswith("00 01 02")


@pytest.mark.parametrize(
    ("body", "text", "pretty"),
    [
        (b"", "", None),
        (b"plain", "plain", None),
        (b"\xff", None, None),
        (b"a\x1b[2Jb", None, None),
        (b"{oh", "{oh", None),
        (
            b'[1.50,{},[],{"a":"x, \\"}"}]',
            "same",
            '[\n  1.50,\n  {},\n  [],\n  {\n    "a": "x, \\"}"\n  }\n]',
        ),
        (b"[" * 2000 + b"]" * 2000, "same", None),
        (b"[" * 60 + b"]" * 60, "same", None),
    ],
)
def test_a_body_is_text_and_json_if_it_is(body, text, pretty):
    from forebay.console.bodies import shown

    found = shown(memoryview(body))
    assert found["text"] == (body.decode() if text == "same" else text)
    assert found["json"] == pretty


def test_a_long_text_is_cut_between_characters():
    from forebay.console.bodies import preview, shown

    body = memoryview(b"a" + "\u20ac".encode() * 40_000)
    assert preview(body)["text"] == "a" + "\u20ac" * 85
    found = shown(body)
    assert found["text_truncated"] and set(found["text"][1:]) == {"\u20ac"}
    assert len(found["text"]) == 1 + ((64 << 10) - 1) // 3


def test_a_body_is_downloaded_byte_for_byte(console):
    answer = ask(console, "/api/body?topic=odd&queue=1&offset=0")
    assert answer.content == bytes(range(256)) * 1024
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == 'attachment; filename="odd-1-0.bin"'
    answer = ask(console, "/api/body?topic=%25DLQ%25billing&queue=0&offset=0")
    assert answer.headers["content-disposition"] == 'attachment; filename="_DLQ_billing-0-0.bin"'


def test_a_message_is_found_by_its_id(console, reader):
    message = reader.get("orders", 1, 2)
    found = get(console, f"message?id={message.message_id}")
    assert (found["topic"], found["queue"], found["offset"]) == ("orders", 1, 2)


def test_groups_dead_letters_and_folders_are_listed(console):
    (group,) = get(console, "groups")["groups"]
    assert group["group"] == "billing" and group["lag"] == 37
    assert sum(one["lag"] for one in group["queues"]) == 37
    assert get(console, "letters")["groups"] == [{"group": "billing", "waiting": 3, "messages": 3}]
    found = get(console, "damage")
    assert found["damage"] == [] and "commitlog" in {one["name"] for one in found["folders"]}


def test_damage_that_a_page_met_is_listed(tmp_path):
    path = unpack("torn-hole", tmp_path)
    with forebay.open(path, mode="r") as store:
        console = Console(store, token=TOKEN)
        count = 0
        for topic in store.topics:
            found, _ = pages(console, "order=oldest&limit=200", topic)
            newest, _ = pages(console, "order=newest&limit=200", topic)
            assert sorted(found) == sorted(newest) == sorted(set(found))
            count += len(found)
        assert count == 2156
        found = get(console, "damage")
        assert found["all"] == len(found["damage"]) == len(store.damage) > 0
        assert found["damage"][0]["reason"] and found["damage"][0]["position"]
        console.close()


@pytest.mark.parametrize(
    ("where", "status"),
    [
        ("overview?x=1", 400),
        ("topic", 400),
        ("topic?topic=none", 404),
        ("topic?topic=orders&topic=odd", 400),
        ("messages?topic=none", 404),
        ("messages?topic=orders&queue=7", 404),
        ("messages?topic=orders&queue=-1", 400),
        ("messages?topic=orders&queue=%C2%B2", 400),
        ("messages?topic=orders&offset=3", 400),
        ("messages?topic=orders&queue=0&offset=99999999999999999999", 400),
        ("messages?topic=orders&limit=0", 400),
        ("messages?topic=orders&limit=1000000", 400),
        ("messages?topic=orders&order=up", 400),
        ("messages?topic=orders&time=yesterday", 400),
        ("messages?topic=orders&time=2026-03-01", 400),
        ("messages?topic=orders&places=0", 400),
        ("messages?topic=orders&places=0-1.0-2", 400),
        ("messages?topic=orders&end=1", 400),
        ("messages?topic=orders&key=k1&queue=0", 400),
        ("messages?topic=orders&key=k1&order=oldest", 400),
        ("messages?topic=orders&key=k1&offset=1", 400),
        ("messages?topic=orders&key=k1&places=0-1", 400),
        ("messages?topic=none&key=1", 404),
        ("message?topic=orders&queue=0", 400),
        ("message?topic=orders&queue=0&offset=20", 404),
        ("message?id=zz", 400),
        ("body?topic=orders&queue=0&offset=20", 404),
        ("letters?group=nobody", 404),
        ("letters?limit=201", 400),
        ("events?x=1", 400),
        ("unknown", 404),
    ],
)
def test_wrong_arguments_are_answered_with_the_reason(console, where, status):
    answer = ask(console, f"/api/{where}")
    assert (answer.status_code, list(answer.json())) == (status, ["error"])
    assert answer.json()["error"]


def test_places_outside_the_queues_are_moved_into_them(console):
    page = get(console, "messages?topic=orders&places=0-9999.7-1&order=oldest&limit=1")
    assert [(one["queue"], one["offset"]) for one in page["messages"]] == [(1, 0)]


# --- dead letters -------------------------------------------------------------------------------


@pytest.fixture
def own(path, tmp_path):
    """Return a copy of the store that a test may change."""
    return store_files.copy(path, tmp_path / "own")


def redrive(console, given=None, **more):
    return ask(console, "/api/redrive", "POST", json=given or {"group": "billing"}, **more)


def test_dead_letters_are_not_redriven_by_a_console_that_only_reads(console, reader):
    answer = redrive(console)
    assert answer.status_code == 403 and "--write" in answer.json()["error"]
    assert ask(console, "/api/redrive").status_code == 405
    assert reader.topics["orders"].queues[0].max_offset == 20


def test_dead_letters_are_redriven_once_and_not_beside_a_writer(own):
    with forebay.open(own, mode="r") as store:
        console = Console(store, token=TOKEN, write=True)
        assert get(console, "overview")["write"]
        with forebay.open(own):
            answer = redrive(console)
            assert answer.status_code == 409
            error = answer.json()["error"]
            assert error.startswith(f"{own} is being written by process {os.getpid()}: ")
            assert "once that process has closed" in error and "mode" not in error
        found = redrive(console, {"group": "billing", "limit": 1}).json()
        assert found == {"group": "billing", "sent": {"orders": 1}, "waiting": 2}
        found = redrive(console, {"group": "billing", "to": "again"}).json()
        assert found == {"group": "billing", "sent": {"again": 2}, "waiting": 0}
        assert redrive(console).json()["sent"] == {}
        assert get(console, "letters?group=billing")["letters"] == []
        assert get(console, "topic?topic=again")["messages"] == 2
        console.close()


def test_dead_letters_are_redriven_beside_processes_that_share_the_store(own):
    with forebay.open(own, mode="r") as store:
        console = Console(store, token=TOKEN, write=True)
        with forebay.open(own, mode="share") as writer:
            before = writer.topics["orders"].queues[0].max_offset
            assert redrive(console).json() == {
                "group": "billing", "sent": {"orders": 3}, "waiting": 0
            }  # fmt: skip
            after = [queue.max_offset for queue in writer.topics["orders"].queues]
            assert sum(after) == 2 * before + 3
        console.close()


def test_a_store_of_another_system_is_redriven_by_the_command_alone(own):
    for file in own.glob("forebay.*"):
        file.unlink()
    with forebay.open(own, mode="r") as store:
        console = Console(store, token=TOKEN, write=True)
        answer = redrive(console)
        assert answer.status_code == 403, answer.text
        assert "forebay dlq redrive --adopt" in answer.json()["error"]
        console.close()


def test_a_console_in_the_process_that_writes_redrives_there_and_shows_latency(own):
    with forebay.open(own) as store:
        console = Console(store, token=TOKEN, write=True)
        assert redrive(console).json()["waiting"] == 0
        latency = get(console, "overview")["stats"]["put_latency"]
        assert latency["count"] >= 3 and latency["p99"] > 0
        console.close()


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"group": 1}, 400),
        ({"limit": 1}, 400),
        ({"group": "billing", "limit": True}, 400),
        ({"group": "billing", "limit": 10**9}, 400),
        ({"group": "billing", "to": 5}, 400),
        ({"group": "billing", "more": 1}, 400),
        ({"group": "billing", "to": "<b>"}, 400),
        ({"group": "nobody"}, 404),
        ([1], 400),
    ],
)
def test_wrong_requests_to_redrive_are_refused(reader, given, status):
    console = Console(reader, token=TOKEN, write=True)
    answer = redrive(console, given)
    assert answer.status_code == status and answer.json()["error"]
    console.close()


def test_requests_to_redrive_must_be_json_of_the_page_itself(own):
    with forebay.open(own, mode="r") as store:
        console = Console(store, token=TOKEN, write=True)
        for headers, content in [
            ({**BEARER, "content-type": "application/x-www-form-urlencoded"}, b"group=billing"),
            ({**BEARER, "content-type": "application/json"}, b"{" * 20_000),
            ({**BEARER, "content-type": "application/json"}, b"[" * 16_000),
        ]:
            answer = ask(console, "/api/redrive", "POST", headers=headers, content=content)
            assert answer.status_code == 400
        for site in ({"origin": "http://evil.example"}, {"sec-fetch-site": "same-site"}):
            assert redrive(console, headers={**BEARER, **site}).status_code == 403
        assert get(console, "letters")["groups"][0]["waiting"] == 3
        console.close()


# --- live ---------------------------------------------------------------------------------------


def samples(answer):
    """Yield the samples of a stream."""
    for line in answer.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def test_samples_count_what_a_writer_sends_beside_the_console(tmp_path):
    path = tmp_path / "live"
    with forebay.open(path, commitlog_file_size=1 << 20) as writer:
        writer.send("orders", b"1")
        with forebay.open(path, mode="r") as store:
            console = Console(store, token=TOKEN, interval=0.02)
            with (
                serving(console) as url,
                httpx.stream("GET", f"{url}/api/events", headers=BEARER) as answer,
            ):
                assert answer.headers["content-type"].startswith("text/event-stream")
                found = samples(answer)
                assert next(found)["messages"] == 1
                assert console.listeners == 1
                writer.send("orders", b"2")
                assert next(one for one in found if one["messages"] == 2)["changed"]
                writer.producer("orders").send_batch([b"3"] * 8)
                one = next(one for one in found if one["messages"] == 10)
                assert one["messages_per_second"] > 0 and one["bytes_per_second"] > 0
                rates = httpx.get(f"{url}/api/topics", headers=BEARER).json()["topics"]
                assert rates[0]["per_second"] > 0
            assert console.listeners == 0


@pytest.mark.parametrize("engine", ["commitlog", "partitionlog", "memory"])
def test_positions_and_byte_rates_are_those_of_one_log(tmp_path, engine):
    is_memory = engine == "memory"
    place, given = (":memory:", {}) if is_memory else (tmp_path / "log", {"engine": engine})
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(forebay.open(place, **given))
        stores = [writer]
        if not is_memory:
            stores.append(stack.enter_context(forebay.open(place, mode="r")))
        for store in stores:
            writer.send("orders", b"1", flush=True)
            console = Console(store, token=TOKEN, interval=0.02)
            stack.callback(console.close)
            sample = take(store).figures
            found = get(console, "overview")
            is_one = engine == "commitlog"
            is_known = is_one or (engine == "partitionlog" and store is writer)
            for one in (sample, found):
                assert one["position"] == (store.stats().published if is_one else None)
                assert one["behind"] == (0 if is_known else None)
            rates = asyncio.run(rates_of(store))
            assert rates["messages_per_second"] == 0
            assert rates["bytes_per_second"] == (0 if is_one else None)
            assert (sample["log_bytes"] == 0) == is_memory
            assert (found["stats"]["disk_free"] is None) == is_memory


async def rates_of(store):
    """Return the second event of the samples of a store, the first that has rates."""

    async def sample():
        return take(store)

    live = Live(sample, 0.001)
    events = live.events()
    found = []
    async for one in events:
        if b"data: " in one:
            found.append(json.loads(one.partition(b"data: ")[2]))
        if len(found) == 2:
            await events.aclose()
            return found[-1]


def test_samples_end_with_the_last_page_that_listens(reader):
    console = Console(reader, token=TOKEN, interval=0.01)
    with serving(console) as url:
        for _ in range(2):
            with httpx.stream("GET", f"{url}/api/events", headers=BEARER) as answer:
                assert next(samples(answer))["messages"] == 45
            with httpx.Client(base_url=url, headers=BEARER) as client:
                while console.listeners:
                    client.get("/api/overview").raise_for_status()


# --- the command --------------------------------------------------------------------------------


def test_the_command_serves_until_ctrl_c_also_with_an_open_page(path):
    words = [sys.executable, "-m", "forebay", "console", str(path), "--port", "0"]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        url = re.search(r"(http://127\.0\.0\.1:\d+)/#token=(\S{43})$", child.stdout.readline())
        headers = {"authorization": f"Bearer {url[2]}"}
        with httpx.stream("GET", f"{url[1]}/api/events", headers=headers) as answer:
            found = samples(answer)
            assert next(found)["messages"] == 45
            child.send_signal(signal.SIGINT)
            list(found)
        out, err = child.communicate(timeout=harness.LONG_S)
    finally:
        child.kill()
        child.communicate()
    assert (child.returncode, out, err) == (130, "", "")


def test_ctrl_c_before_the_server_has_begun_ends_it_in_order(path, monkeypatch, recwarn):
    begin = Server.serve

    def pressed(server, sockets=None):
        serving = begin(server, sockets)
        signal.raise_signal(signal.SIGINT)
        return serving

    monkeypatch.setattr(Server, "serve", pressed)
    assert main(["console", str(path), "--port", "0"]) == 130
    gc.collect()
    assert [str(warning.message) for warning in recwarn] == []


def test_the_command_reports_what_it_cannot_do(path, capsys, tmp_path, monkeypatch):
    assert main(["console", str(tmp_path / "none")]) == 1
    assert "none" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["console", str(path), "--port", port]) == 1
    err = capsys.readouterr().err
    assert f"cannot listen on port {port}" in err and len(err.splitlines()) == 1
    assert main(["console", str(path), "--host", "no.such.host.invalid"]) == 1
    assert "cannot listen on no.such.host.invalid: " in capsys.readouterr().err
    # An address for documentation, which no machine has, and a text that is not a name.
    for host in ("192.0.2.1", "a..b", "x" * 64, "x\udcff"):
        assert main(["console", str(path), "--host", host, "--port", "0"]) == 1
        err = capsys.readouterr().err
        shown = host.replace("\udcff", "?")
        assert err.startswith(f"forebay: cannot listen on {shown}: ") and err.count("\n") == 1, err
        assert "codec" not in err and "port" not in err
    assert main(["console", str(path), "--port", "65536"]) == 2
    capsys.readouterr()
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["console", str(path)]) == 1
    need = "this needs uvicorn: pip install 'forebay[console]'"
    assert capsys.readouterr().err == f"forebay: {need}\n"


def test_who_opens_the_address_before_the_server_runs_is_not_refused():
    with listen("127.0.0.1", 0) as bound, socket.create_connection(bound.getsockname()) as early:
        assert early.getpeername() == bound.getsockname()


# --- in a browser -------------------------------------------------------------------------------


@pytest.fixture
def browser():
    with browsing() as browser:
        yield browser


def test_the_pages_show_hostile_text_as_text_and_redrive(own, browser):
    complaints = []
    with forebay.open(own, mode="r") as store:
        console = Console(store, token=TOKEN, write=True, interval=0.05)
        with serving(console) as url:
            page = browser.new_page(viewport={"width": 390, "height": 800})
            page.set_default_timeout(LIMIT_MS)
            page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.accept()))
            page.on("console", lambda line: complaints.append(line.text))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.goto(f"{url}/#token={TOKEN}")
            page.get_by_text("live", exact=True).wait_for()
            assert "token" not in page.url
            for name in ("Topics", "Groups", "Health", "Overview"):
                page.get_by_role("link", name=name, exact=True).click()
                page.get_by_role("heading", name=name, exact=True).wait_for()
            page.goto(f"{url}/#/topic?topic=odd")
            page.get_by_text(HOSTILE).wait_for()
            page.get_by_role("cell").get_by_text("<b>", exact=True).wait_for()
            page.goto(f"{url}/#/message?topic=odd&queue=0&offset=0")
            page.get_by_label("Body", exact=True).get_by_text(HOSTILE).wait_for()
            wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
            assert not wide and page.locator("main img, main script").count() == 0
            with page.expect_download() as download:
                page.get_by_role("button", name="Download").click()
            assert Path(download.value.path()).read_bytes() == HOSTILE.encode()
            page.goto(f"{url}/#/letters?group=billing")
            page.get_by_role("button", name="Redrive").click()
            page.get_by_text("Sent 3 to orders; 0 wait.").wait_for()
            page.goto(f"{url}/#/nowhere")
            page.get_by_role("heading", name="There is no such page").wait_for()
            assert page.title() == "No such page - Forebay"
            page.close()
    assert complaints == []


@pytest.mark.parametrize("engine", ["partitionlog", "memory"])
def test_the_pages_show_what_is_known_of_the_log(tmp_path, browser, engine):
    is_memory = engine == "memory"
    place, given = (":memory:", {}) if is_memory else (tmp_path / "log", {"engine": engine})
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(forebay.open(place, **given))
        writer.send("orders", b"1")
        store = writer if is_memory else stack.enter_context(forebay.open(place, mode="r"))
        console = Console(store, token=TOKEN, interval=0.05)
        url = stack.enter_context(serving(console))
        page = browser.new_page()
        stack.callback(page.close)
        page.goto(f"{url}/#token={TOKEN}")
        page.get_by_text("live", exact=True).wait_for()
        page.get_by_text("Bytes per second").wait_for(state="hidden")
        page.get_by_text("Not on disk yet").wait_for(state="hidden")
        log = page.locator(".cards > div").filter(has=page.get_by_text("Log", exact=True))
        length = "0 bytes" if is_memory else f"{writer.stats().bytes_sent} bytes"
        log.get_by_text(length, exact=True).wait_for()
        assert "to position" not in page.locator("main").inner_text()
        page.get_by_role("link", name="Health", exact=True).click()
        page.get_by_text("The store is in memory." if is_memory else "are free").wait_for()


WRITER = """
import forebay, sys
path, mode, engine = sys.argv[1:]
with forebay.open(path, mode, engine=engine) as store:
    for number in range(100):
        store.send("orders", b"%d" % number)
    print("sent", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize(("mode", "engine"), [("a", "commitlog"), ("share", "partitionlog")])
def test_the_overview_shows_the_latency_of_a_writer_in_another_process(
    tmp_path, browser, mode, engine
):
    command = [sys.executable, "-c", WRITER, str(tmp_path / "events"), mode, engine]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdout.readline() == "sent\n"
        with forebay.open(tmp_path / "events", mode="r") as store:
            console = Console(store, token=TOKEN, interval=0.05)
            with serving(console) as url:
                page = browser.new_page()
                page.goto(f"{url}/#token={TOKEN}")
                page.get_by_text(f"Of process {child.pid}, which writes the store.").wait_for()
                sends = page.get_by_role("row").filter(has_text="Sends")
                sends.get_by_role("cell", name="100", exact=True).wait_for()
                child.communicate("")
                # What a writer has shown ends with it.
                page.reload()
                page.get_by_text("No process that writes the store has shown").wait_for()
                page.close()
