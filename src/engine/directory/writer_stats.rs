//! What a writer shows of itself in the state page: how long its sends and syncs take. A partition
//! log has the page `forebay.meters` for it.
//!
//! Each second, if anything has changed, the writer stores its measurements; in a shared store, the
//! process that leads does. Readers in other processes take them as those of the writer.
//!
//! ```text
//! at    width  field
//! 1792  u32    how often this was stored, times 2; odd while it is being stored
//! 1796  u32    CRC-32 of bytes 1800 to 1999
//! 1800  u64    the epoch of the writer
//! 1808  u64    its process id
//! 1816  u64    when it stored this, in ns since 1970
//! 1824  u64    messages appended
//! 1832  u64    bytes appended
//! 1840  u64    recent messages a second, the bits of an f64
//! 1848  u64    recent bytes a second, the bits of an f64
//! 1856  6 u64  puts: count; sum, p50, p99, p999 and maximum in ns
//! 1904  u64    puts that took longer than 500 ms
//! 1912  6 u64  waits for the disk, as the puts
//! 1960  u64    syncs of the log
//! 1968  u64    their sum in ns
//! 1976  u64    the longest in ns
//! 1984  16     zeros
//! ```
//!
//! The page is untrusted: values that were stored in part, that have another checksum or that make
//! no sense are ignored. So are those of another epoch, or of a writer that has ended.

use super::page::StatePage;
use super::page_layout::AT_EPOCHS;
use crate::meter::{Summary, WriterStats};
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// Where its fields begin.
pub(super) const AT_WRITER_STATS: usize = 1792;
const AT_CRC: usize = AT_WRITER_STATS + size_of::<u32>();
const AT_WORDS: usize = AT_CRC + size_of::<u32>();
const _: () = assert!(AT_WORDS + size_of::<Words>() <= AT_EPOCHS);

/// What the checksum covers: words of 8 bytes.
type Words = [u64; 25];
/// The word that has the time.
const TIME: usize = 2;

/// Maximum attempts to read the measurements while the writer stores them.
const READS: usize = 100;

impl WriterStats {
    /// The words of the page.
    fn words(&self, epoch: u64, now_ns: u64) -> Words {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let of = |it: &Summary| {
            let times = [it.total, it.p50, it.p99, it.p999, it.max].map(ns);
            std::iter::once(it.count).chain(times)
        };
        let rates = [self.recent_messages, self.recent_bytes].map(f64::to_bits);
        let start = [
            epoch,
            u64::from(self.pid),
            now_ns,
            self.messages_sent,
            self.bytes_sent,
        ];
        let flushes = [self.flushes, ns(self.flush_time), ns(self.longest_flush)];
        let all = start.into_iter().chain(rates);
        let all = all.chain(of(&self.puts)).chain([self.slow_puts]);
        let mut all = all.chain(of(&self.waits)).chain(flushes);
        std::array::from_fn(|_| all.next().unwrap_or(0))
    }

    /// What the words of the page say at `now_ns`, of the writer of this epoch with this process
    /// id; `None` if they are another writer's, or make no sense.
    fn of_words(words: &Words, writer: (u64, u32), now_ns: u64) -> Option<WriterStats> {
        let mut words = words.iter().copied();
        let mut next = move || words.next().unwrap_or(0);
        let (epoch, pid) = (next(), u32::try_from(next()).ok()?);
        if (epoch, pid) != writer {
            return None;
        }
        Some(WriterStats {
            pid,
            age: Duration::from_nanos(now_ns.saturating_sub(next())),
            messages_sent: next(),
            bytes_sent: next(),
            recent_messages: rate(next())?,
            recent_bytes: rate(next())?,
            puts: summary(&mut next)?,
            slow_puts: next(),
            waits: summary(&mut next)?,
            flushes: next(),
            flush_time: Duration::from_nanos(next()),
            longest_flush: Duration::from_nanos(next()),
        })
    }
}

/// A rate from its bits.
fn rate(bits: u64) -> Option<f64> {
    Some(f64::from_bits(bits)).filter(|rate| rate.is_finite() && *rate >= 0.0)
}

/// The summary in the next words; `None` if its values are not in order.
fn summary(next: &mut impl FnMut() -> u64) -> Option<Summary> {
    let count = next();
    let mut time = || Duration::from_nanos(next());
    let found = Summary {
        count,
        total: time(),
        p50: time(),
        p99: time(),
        p999: time(),
        max: time(),
    };
    [found.p50, found.p99, found.p999, found.max]
        .is_sorted()
        .then_some(found)
}

impl StatePage {
    /// Shows what this process, which writes the store, has measured up to `now_ns`. Stores nothing
    /// if nothing has changed, so that the page of an idle store stays clean.
    pub fn show_writer(&self, stats: &WriterStats, now_ns: u64) {
        let words = stats.words(self.epoch(), now_ns);
        let (before, mut shown) = (self.fields.word(AT_WRITER_STATS), self.writer_words());
        let whole = before.is_multiple_of(2) && self.fields.word(AT_CRC) == crc_of(&shown);
        shown[TIME] = now_ns;
        if whole && shown == words {
            return;
        }
        // A writer that died while it stored leaves an odd number.
        let storing = before.wrapping_add(1) | 1;
        self.fields.set_word(AT_WRITER_STATS, storing);
        fence(Ordering::Release);
        for (number, word) in words.iter().enumerate() {
            self.fields
                .store(AT_WORDS + number * size_of::<u64>(), *word);
        }
        self.fields.set_word(AT_CRC, crc_of(&words));
        fence(Ordering::Release);
        let stored = storing.wrapping_add(1);
        self.fields.set_word(AT_WRITER_STATS, stored);
    }

    /// What the writer of the current epoch has shown; `None` if there is nothing. The caller knows
    /// that this writer lives.
    pub fn shown_writer(&self, now_ns: u64) -> Option<WriterStats> {
        self.shown_by(self.pid()?, now_ns)
    }

    /// As [`StatePage::shown_writer`], for a writer whose process id `pid` is not in the page.
    pub fn shown_by(&self, pid: u32, now_ns: u64) -> Option<WriterStats> {
        let writer = (self.epoch(), pid);
        for _ in 0..READS {
            let before = self.fields.word(AT_WRITER_STATS);
            fence(Ordering::Acquire);
            let (words, crc) = (self.writer_words(), self.fields.word(AT_CRC));
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.fields.word(AT_WRITER_STATS) == before {
                let whole = crc == crc_of(&words) && self.check().is_ok();
                return whole
                    .then(|| WriterStats::of_words(&words, writer, now_ns))
                    .flatten();
            }
            std::hint::spin_loop();
        }
        None
    }

    fn writer_words(&self) -> Words {
        std::array::from_fn(|number| self.fields.load(AT_WORDS + number * size_of::<u64>()))
    }
}

fn crc_of(words: &Words) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    words
        .iter()
        .for_each(|word| crc.update(&word.to_ne_bytes()));
    crc.finalize()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    const SECOND: u64 = 1_000_000_000;

    fn summary_of(times: [u64; 4]) -> Summary {
        let [p50, p99, p999, max] = times.map(Duration::from_nanos);
        Summary {
            count: 100,
            total: max,
            p50,
            p99,
            p999,
            max,
        }
    }

    fn stats() -> WriterStats {
        WriterStats {
            pid: std::process::id(),
            age: Duration::ZERO,
            messages_sent: 100,
            bytes_sent: 20_000,
            recent_messages: 12.5,
            recent_bytes: 2500.0,
            puts: summary_of([250, 900, 40_000, 7_000_000]),
            slow_puts: 1,
            flushes: 3,
            flush_time: Duration::from_micros(900),
            longest_flush: Duration::from_micros(400),
            waits: summary_of([200, 300, 300, 301]),
        }
    }

    /// A page whose writer is this process, in its first epoch.
    fn page() -> StatePage {
        let page = StatePage::in_memory().unwrap();
        page.begin_epoch(0, true, SECOND);
        page
    }

    #[test]
    fn what_a_writer_shows_is_read_with_its_age() {
        let page = page();
        assert_eq!(page.shown_writer(SECOND), None);
        page.show_writer(&stats(), SECOND);
        assert_eq!(page.shown_writer(SECOND), Some(stats()));
        let age = Duration::from_secs(2);
        assert_eq!(
            page.shown_writer(3 * SECOND),
            Some(WriterStats { age, ..stats() })
        );
        // The clock was set back.
        assert_eq!(page.shown_writer(0), Some(stats()));
    }

    #[test]
    fn the_page_of_an_idle_writer_stays_as_it_is() {
        let page = page();
        page.show_writer(&stats(), SECOND);
        let before = page.fields.word(AT_WRITER_STATS);
        page.show_writer(&stats(), 2 * SECOND);
        assert_eq!(page.fields.word(AT_WRITER_STATS), before);
        let more = WriterStats {
            messages_sent: 101,
            ..stats()
        };
        page.show_writer(&more, 3 * SECOND);
        assert_eq!(page.shown_writer(3 * SECOND), Some(more));
    }

    #[test]
    fn values_of_another_epoch_or_of_a_writer_that_closed_are_not_shown() {
        let page = page();
        page.show_writer(&stats(), SECOND);
        page.end_epoch(true);
        assert_eq!(page.shown_writer(SECOND), None);
        page.begin_epoch(0, true, SECOND);
        assert_eq!(page.shown_writer(SECOND), None);
        page.show_writer(&stats(), SECOND);
        assert_eq!(page.shown_writer(SECOND), Some(stats()));
    }

    /// A writer that was killed while it stored leaves an odd number; the next one goes on from it.
    #[test]
    fn values_that_were_stored_in_part_are_not_shown() {
        let page = page();
        page.show_writer(&stats(), SECOND);
        for odd in [1, u32::MAX] {
            page.fields.set_words(AT_WRITER_STATS, &odd.to_ne_bytes());
            assert_eq!(page.shown_writer(SECOND), None);
            let more = WriterStats {
                messages_sent: u64::from(odd),
                ..stats()
            };
            page.show_writer(&more, SECOND);
            assert_eq!(page.shown_writer(SECOND), Some(more));
        }
    }

    #[test]
    fn a_changed_word_is_not_shown() {
        let page = page();
        for number in 0..size_of::<Words>() / size_of::<u64>() {
            let at = AT_WORDS + number * size_of::<u64>();
            page.show_writer(&stats(), SECOND + number as u64);
            assert!(page.shown_writer(SECOND).is_some());
            page.fields.store(at, page.fields.load(at) ^ 1 << 20);
            assert_eq!(page.shown_writer(SECOND), None, "word {number}");
        }
        page.show_writer(&stats(), SECOND);
        page.fields.set_words(AT_CRC, &[0; 4]);
        assert_eq!(page.shown_writer(SECOND), None);
    }

    /// Whoever can write the page can also compute its checksum.
    #[test]
    fn impossible_values_with_a_right_checksum_are_not_shown() {
        let shown = |change: &dyn Fn(&mut Words)| {
            let page = page();
            let mut words = stats().words(1, SECOND);
            change(&mut words);
            for (number, word) in words.iter().enumerate() {
                page.fields
                    .store(AT_WORDS + number * size_of::<u64>(), *word);
            }
            page.fields.set_words(AT_CRC, &crc_of(&words).to_ne_bytes());
            page.shown_writer(SECOND)
        };
        assert_eq!(shown(&|_| {}), Some(stats()));
        let impossible = [
            (0, 2),
            (1, 0),
            (1, u64::MAX),
            (5, f64::NAN.to_bits()),
            (5, f64::INFINITY.to_bits()),
            (6, (-1.0f64).to_bits()),
            (9, u64::MAX),
            (12, 0),
            (17, u64::MAX),
        ];
        for (word, value) in impossible {
            assert_eq!(shown(&|words| words[word] = value), None, "{word}: {value}");
        }
        // The largest values overflow nothing.
        let largest = shown(&|words| {
            words[2..5].fill(u64::MAX);
            words[7..].fill(u64::MAX);
        });
        assert_eq!(largest.unwrap().slow_puts, u64::MAX);
    }

    #[test]
    fn a_reader_never_sees_parts_of_two_stores() {
        let page = Arc::new(page());
        let done = Arc::new(AtomicBool::new(false));
        let of = |number: u64| WriterStats {
            messages_sent: number,
            bytes_sent: number,
            longest_flush: Duration::from_nanos(number),
            ..stats()
        };
        page.show_writer(&of(0), SECOND);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut seen = 0;
                while !done.load(Ordering::Acquire) {
                    if let Some(found) = page.shown_writer(SECOND) {
                        let number = found.messages_sent;
                        assert_eq!(found, of(number));
                        assert!(number >= seen);
                        seen = number;
                    }
                }
            });
            for number in 1..20_000 {
                page.show_writer(&of(number), SECOND);
            }
            done.store(true, Ordering::Release);
            reader.join().unwrap();
        });
        assert_eq!(page.shown_writer(SECOND), Some(of(19_999)));
    }
}
