"""What a notebook shows, with every text escaped."""

from html.parser import HTMLParser

import forebay

HOSTILE = "<script>alert('&\"')</script>"
TAGS = {"table", "caption", "tbody", "thead", "tr", "th", "td", "pre", "p"}


class Page(HTMLParser):
    """Collects the text of a page; knows only the tags and attributes that may be in it."""

    def __init__(self, page):
        super().__init__()
        self.text = ""
        self.open = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert tag in TAGS and attrs == []
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += f"{data}\n"


def shown(value):
    return Page(value._repr_html_()).text


def test_a_store_shows_its_topics(open_store):
    store = open_store(default_queues=2)
    store.producer("orders").send_batch([b"a"] * 1200)
    text = shown(store)
    for part in (store.path, store.engine, "orders", "1,200"):
        assert part in text
    store.close()
    assert "closed" in shown(store)


def test_a_store_of_many_topics_shows_some(store):
    for number in range(60):
        store.create_topic(f"topic-{number:02}", queues=1)
    text = shown(store)
    assert "topic-49" in text and "topic-50" not in text
    assert "and 10 more" in text


def test_a_topic_shows_its_queues(store):
    store.create_topic("orders", queues=2)
    store.send("orders", b"a", queue=1)
    text = shown(store.topics["orders"]).split()
    assert text[-6:] == ["0", "0", "0", "1", "0", "1"]


def test_a_message_is_escaped(store):
    properties = {HOSTILE: HOSTILE, "bell": "\a\x1b[31m"}
    sent = store.send(
        "orders",
        HOSTILE.encode(),
        key=HOSTILE.replace(" ", ""),
        tags=HOSTILE,
        properties=properties,
    )
    message = store.get("orders", sent.queue, sent.offset)
    text = shown(message)
    assert text.count(HOSTILE) == 5
    assert "\a" not in text and "\x1b" not in text


def test_a_body_is_shown_as_text_or_as_bytes(store):
    def body(data):
        sent = store.send("orders", data)
        return Page(store.get("orders", sent.queue, sent.offset)._repr_html_()).text.split(
            " bytes\n"
        )[1]

    assert body(b'{"a": 1}\n\tb') == '{"a": 1}\n\tb\n'
    assert body(b"\xff\x00<") == "ff 00 3c\n"
    assert body(b"\x1b[31m") == "1b 5b 33 31 6d\n"
    assert body(b"") == ""
    assert body(b"x" * 999 + "\N{EURO SIGN}".encode()) == "x" * 999 + "...\n"
    assert body(b"y" * 5000) == "y" * 1000 + "...\n"


def test_stats_are_shown(store):
    store.send("orders", b"a", flush=True)
    text = shown(store.stats())
    assert "1 messages" in text
    assert "put latency" in text


def test_every_value_shown_has_a_plain_form_too(store):
    sent = store.send("orders", b"a")
    values = [store, store.topics["orders"], store.get("orders", sent.queue, sent.offset)]
    assert all("<table" not in repr(value) for value in [*values, store.stats()])
    assert isinstance(store, forebay.Store)
