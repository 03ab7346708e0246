"""The law of consumers in several processes, judged by what they have written down.

Each consumer writes a line for each event, with times of the machine's monotonic clock:

    D time stored place offset body a message was delivered (after the call that returned it)
    B time place offset body        the consumer is about to acknowledge it
    S begin end place offset body   it was acknowledged; the call took from begin to end
    R time place offset body        the consumer is about to refuse it
    N begin end place offset body   it was refused, so that it comes again through the retry topic
    P begin end place offset body   it was refused in place, so that nothing after it comes before
    L time                          the consumer was told that its queues have other owners

`stored` is when the message was appended to its queue, in ms of the wall clock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

#: A queue of a group: the kind of topic, and its number.
Place = tuple[str, int]


@dataclass(frozen=True)
class Delivered:
    time: int
    place: Place
    offset: int
    body: str
    #: By the wall clock, in ms.
    stored: int = 0


@dataclass(frozen=True)
class Begun:
    time: int
    place: Place
    offset: int
    body: str


@dataclass(frozen=True)
class Refusing:
    time: int
    place: Place
    offset: int
    body: str


@dataclass(frozen=True)
class Settled:
    begin: int
    end: int
    place: Place
    offset: int
    body: str
    #: Whether the message was handled; else it comes again as another one.
    final: bool = True


@dataclass(frozen=True)
class Postponed:
    """A message was refused, and stays in its queue."""

    begin: int
    end: int
    place: Place
    offset: int
    body: str


@dataclass(frozen=True)
class Lost:
    time: int


Event = Delivered | Begun | Settled | Refusing | Postponed | Lost


@dataclass(frozen=True)
class Death:
    """A process that may have delivered what waits for a retry; times are in ms, as `stored`."""

    #: It was alive at the first time, and dead at the second.
    before: int
    after: int
    #: When the progress of delivery had been saved last. What was delivered later may come again.
    saved: int


def read(journal: Path) -> list[Event]:
    """Return the events of a journal, whose last line may be cut."""
    events: list[Event] = []
    for line in journal.read_text().splitlines(keepends=True):
        if not line.endswith("\n"):
            continue
        match line.split():
            case ["D", time, stored, kind, queue, offset, body]:
                place = (kind, int(queue))
                events.append(Delivered(int(time), place, int(offset), body, int(stored)))
            case ["B" | "R" as what, time, kind, queue, offset, body]:
                kind_of: type[Begun] | type[Refusing] = Begun if what == "B" else Refusing
                events.append(kind_of(int(time), (kind, int(queue)), int(offset), body))
            case ["P", begin, end, kind, queue, offset, body]:
                place = (kind, int(queue))
                events.append(Postponed(int(begin), int(end), place, int(offset), body))
            case ["S" | "N" as what, begin, end, kind, queue, offset, body]:
                place, final = (kind, int(queue)), what == "S"
                events.append(Settled(int(begin), int(end), place, int(offset), body, final))
            case ["L", time]:
                events.append(Lost(int(time)))
            case other:
                raise AssertionError(f"{journal}: {other}")
    return events


def violations(
    journals: dict[str, list[Event]],
    sent: set[str],
    deserted: Sequence[int] = (),
    deaths: Sequence[Death] = (),
) -> list[str]:
    """Return what contradicts the law; `sent` are bodies that must be handled.

    `deserted` are the times, in order, at which no process was left: what was settled before may
    come again. `deaths` are those after which a retry may come again.
    """
    found = []
    missing = sent - handled(journals) - perhaps_handled(journals)
    if missing:
        found.append(f"{len(missing)} messages were settled by nobody: {sorted(missing)[:5]}")
    found += _two_owners(journals)
    found += _out_of_order(journals)
    found += _passed_over(journals)
    found += _duplicates(journals, deserted)
    found += _retried_again(journals, deaths)
    return found


def handled(journals: dict[str, list[Event]]) -> set[str]:
    """Return the bodies of the messages that were acknowledged."""
    events = [event for events in journals.values() for event in events]
    return {event.body for event in events if isinstance(event, Settled) and event.final}


def perhaps_handled(journals: dict[str, list[Event]]) -> set[str]:
    """Return the bodies whose consumers died before they wrote down that the call returned."""
    ends = [events[-1] for events in journals.values() if events]
    return {event.body for event in ends if isinstance(event, Begun)}


def _two_owners(journals: dict[str, list[Event]]) -> list[str]:
    """Return settlements that began after another consumer got messages of the queue.

    They must be refused, unless the queue came back and the message was delivered again.
    """
    deliveries: dict[Place, list[tuple[int, str]]] = defaultdict(list)
    for name, events in journals.items():
        for event in events:
            if isinstance(event, Delivered):
                deliveries[event.place].append((event.time, name))
    for times in deliveries.values():
        times.sort()
    found = []
    for name, events in journals.items():
        last: dict[tuple[Place, int], int] = {}
        for event in events:
            if isinstance(event, Delivered):
                last[event.place, event.offset] = event.time
            elif isinstance(event, Settled):
                since = last.get((event.place, event.offset))
                if since is None:
                    found.append(f"{name} settled what it was not given: {event}")
                    continue
                times = deliveries[event.place]
                between = slice(
                    bisect_right(times, since, key=itemgetter(0)),
                    bisect_left(times, event.begin, key=itemgetter(0)),
                )
                others = [(time, other) for time, other in times[between] if other != name]
                if others:
                    found.append(f"two owners: {name} {event}, delivered {since}, {others[:3]}")
    return found


def _out_of_order(journals: dict[str, list[Event]]) -> list[str]:
    """Return deliveries that are not after those before them in their queue.

    A consumer gets each message once, unless it lost its queues. What it refuses in place comes
    again, with those after it.
    """
    found = []
    for name, events in journals.items():
        last: dict[Place, int] = {}
        for event in events:
            if isinstance(event, Lost):
                last.clear()
            elif isinstance(event, Postponed):
                last[event.place] = event.offset - 1
            elif isinstance(event, Delivered):
                if event.offset <= last.get(event.place, -1):
                    found.append(f"out of order: {name} {event} after {last[event.place]}")
                last[event.place] = event.offset
    return found


def _passed_over(journals: dict[str, list[Event]]) -> list[str]:
    """Return deliveries after a message that was refused in place and is not settled.

    It may have been settled by another consumer, to which the queue went in between.
    """
    begun: dict[tuple[Place, int], int] = {}
    for events in journals.values():
        for event in events:
            if isinstance(event, Begun) or (isinstance(event, Settled) and event.final):
                time = event.time if isinstance(event, Begun) else event.begin
                key = (event.place, event.offset)
                begun[key] = min(time, begun.get(key, time))
    found = []
    for name, events in journals.items():
        waiting: dict[Place, int] = {}
        for event in events:
            if isinstance(event, Postponed):
                waiting[event.place] = event.offset
            elif isinstance(event, Delivered) and event.place in waiting:
                offset = waiting.pop(event.place)
                settled = begun.get((event.place, offset))
                if event.offset > offset and (settled is None or settled > event.time):
                    found.append(f"passed over: {name} {event} before {offset}")
    return found


def _retried_again(journals: dict[str, list[Event]], deaths: Sequence[Death]) -> list[str]:
    """Return messages that came through the retry topic more often than they were refused.

    Each delivery to that topic has an offset of its own. The process that makes them may die before
    it has saved how far it was: the next one makes again those that came after the last save.
    """
    refused = Counter(
        event.body
        for events in journals.values()
        for event in events
        if isinstance(event, Refusing)
    )
    copies: dict[str, dict[tuple[Place, int], int]] = defaultdict(dict)
    for events in journals.values():
        for event in events:
            if isinstance(event, Delivered) and event.place[0] == "retry":
                copies[event.body][event.place, event.offset] = event.stored

    def is_repeated(stored: int, earlier: list[int]) -> bool:
        return any(
            death.saved - SLACK_MS <= first <= death.after + SLACK_MS
            and stored >= death.before - SLACK_MS
            for death in deaths
            for first in earlier
        )

    found = []
    for body, places in copies.items():
        times = sorted(places.values())
        excess = len(times) - refused[body]
        if excess > 0:
            repeated = sum(is_repeated(at, times[:number]) for number, at in enumerate(times))
            if repeated < excess:
                what = f"{body} was refused {refused[body]} times, and stored at {times}"
                found.append(f"again through the retry topic: {what}")
    return found


def _duplicates(journals: dict[str, list[Event]], deserted: Sequence[int]) -> list[str]:
    """Return deliveries of what was settled, with all messages before it in its queue."""
    by_place: dict[Place, dict[int, int]] = defaultdict(dict)
    for events in journals.values():
        for event in events:
            if isinstance(event, Settled):
                ends = by_place[event.place]
                ends[event.offset] = min(event.end, ends.get(event.offset, event.end))
    # When everything up to an offset was settled: the latest of the ends up to it.
    whole: dict[Place, list[int]] = {}
    for place, ends in by_place.items():
        times: list[int] = []
        while len(times) in ends:
            times.append(max(ends[len(times)], times[-1] if times else 0))
        whole[place] = times
    found = []
    for name, events in journals.items():
        for event in events:
            if isinstance(event, Delivered):
                times = whole.get(event.place, [])
                last = bisect_right(deserted, event.time) - 1
                since = deserted[last] if last >= 0 else 0
                # The call that returned it may have begun a while before.
                if (
                    event.offset < len(times)
                    and since < times[event.offset] < event.time - SLACK_NS
                ):
                    found.append(f"delivered again: {name} {event}")
    return found


#: A message was taken at most so long before its consumer wrote down that it was delivered.
SLACK_NS = 2_000_000_000
#: The wall clock and the time of a file may differ by so much.
SLACK_MS = 500
