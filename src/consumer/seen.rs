//! When this process first saw the messages of a queue, by the steady clock.
//!
//! Messages that arrive within a fraction of their delay form one span, so a queue has few spans,
//! whatever its number of messages:
//!
//! ```text
//!   seen at    10 .. 11        12 .. 13      14      (delay: 16)
//!   offsets  0 .......... 99 | 100 ... 160 | 161
//! ```

use std::collections::VecDeque;

/// The longest span is this part of the delay; the messages of a span are due together.
const PART: i64 = 16;

/// When the messages of a queue were first seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    spans: VecDeque<Span>,
}

/// Messages that were first seen from `first` to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    /// The offset after the last one.
    end: u64,
    first: i64,
    last: i64,
}

impl Seen {
    /// Notes that the queue ends at `end`, at `now`; times are in ms. `delay` is that of its
    /// messages.
    pub(super) fn note(&mut self, end: u64, now: i64, delay: i64) {
        // If the log came back shorter, other messages will get the offsets after its end.
        self.spans.retain(|span| span.end <= end);
        if self.spans.back().is_none_or(|span| span.end < end) {
            let span = self.spans.back_mut();
            match span.filter(|it| now.saturating_sub(it.first) <= delay / PART) {
                Some(span) => (span.end, span.last) = (end, now),
                None => self.spans.push_back(Span {
                    end,
                    first: now,
                    last: now,
                }),
            }
        }
        // If several spans are due, the last of them covers all messages of the others.
        let is_due = |span: &Span| span.last.saturating_add(delay) <= now;
        while self.spans.get(1).is_some_and(is_due) {
            self.spans.pop_front();
        }
    }

    /// When the delay of a message has passed since it was seen; `None` if it was not seen.
    pub(super) fn due(&self, offset: u64, delay: i64) -> Option<i64> {
        let span = self.spans.iter().find(|span| offset < span.end);
        span.map(|span| span.last.saturating_add(delay))
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_message_is_due_its_delay_after_it_was_seen_and_at_most_a_part_later() {
        let mut seen = Seen::default();
        let delay = 160;
        for now in 0..1_000_i64 {
            let end = now.cast_unsigned() + 1;
            seen.note(end, now, delay);
            assert!(seen.spans.len() <= 18, "{:?}", seen.spans);
            let late = seen.due(end - 1, delay).map(|due| due - now - delay);
            assert_eq!(late, Some(0));
            // A message that was seen earlier.
            let before = now - 50;
            if let Ok(offset) = u64::try_from(before) {
                let late = seen.due(offset, delay).map(|due| due - before - delay);
                assert!(
                    late.is_some_and(|late| (0..=10).contains(&late)),
                    "{late:?}"
                );
            }
        }
        assert_eq!(seen.due(1_000, delay), None);
    }

    #[test]
    fn messages_that_come_in_the_place_of_lost_ones_are_seen_anew() {
        let mut seen = Seen::default();
        seen.note(10, 0, 100);
        seen.note(20, 50, 100);
        seen.note(12, 60, 100);
        seen.note(30, 70, 100);
        assert_eq!(seen.due(9, 100), Some(100));
        assert_eq!(seen.due(10, 100), Some(160));
        assert_eq!(seen.due(15, 100), Some(170));
    }
}
