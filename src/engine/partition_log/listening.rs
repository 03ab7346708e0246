//! How a reader learns that another process may have written.
//!
//! Processes of Forebay that write have mapped `forebay.meters`, a page that stays in the
//! directory, and change a word of it after they have published messages ([`readers`]). A reader
//! maps the page too, but only loads the word: it may have no right to write, and changes nothing
//! in the directory. It checks the files when the word has changed, and else sleeps on it.
//!
//! ```text
//!   load the word --> check the files --> sleep, unless the word has changed
//! ```
//!
//! Not every message changes the word: while many are sent, one per tick of the clock does. So a
//! reader checks the files once more when the word has been the same for longer than a tick
//! ([`Pauses::quiet`]). Then it has seen everything, and sleeps until the next change. It still
//! checks every second ([`Pauses::rest`]), because a writer can die after it published messages and
//! before it changed the word.
//!
//! Where nobody changes the word, the files are checked every 50 ms: beside a broker, and in a
//! directory to which no process of Forebay has written yet.
//!
//! The page is a hint and untrusted: a wrong word costs a check or a delay.
//!
//! [`readers`]: super::write::readers

use super::segments::names::LOCK;
use super::write::readers::TICK;
use crate::disk::{Disk, Holder, Identity, thread_time};
use crate::engine::directory::names::METERS;
use crate::engine::directory::page::{StatePage, Word};
use crate::engine::service::condition::Condition;
use crate::engine::service::sleepers::Sleepers;
use crate::region::Access;
use crate::sync::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Checks take at most one part in this many of a processor. Exceptions: a check shorter than
/// [`CHECK_SHORT`], and the check after a change of the word, which is due within [`Pauses::poll`].
/// The time in which other threads had the processor does not count: on a busy machine each check
/// would delay the next one.
const CHECK_SHARE: u32 = 20;
const CHECK_SHORT: Duration = Duration::from_micros(100);
/// Between two wakes of threads that are about to sleep on the word of another process.
const WAKE_AGAIN: Duration = Duration::from_micros(50);

/// How long a reader sleeps if it is not notified.
#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    /// Where nobody notifies readers.
    pub poll: Duration,
    /// After the word has changed, once.
    pub quiet: Duration,
    /// Otherwise.
    pub rest: Duration,
}

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses {
            poll: Duration::from_millis(50),
            quiet: TICK * 2,
            rest: Duration::from_secs(1),
        }
    }
}

/// What the threads of a reader know of the writers.
#[derive(Debug, Default)]
pub struct Listening {
    pub(super) pauses: Pauses,
    known: Mutex<Known>,
    sleepers: Sleepers,
}

#[derive(Debug, Default)]
struct Known {
    /// The page, and the identity of its file.
    page: Option<(Arc<StatePage>, Option<Identity>)>,
    /// Whether a broker writes, which notifies nobody.
    is_foreign: bool,
    /// When both were last found out.
    refreshed: Option<Instant>,
    /// The last check of the files.
    checked: Option<Checked>,
    #[cfg(test)]
    checks: u32,
}

#[derive(Clone, Copy, Debug)]
struct Checked {
    began: Instant,
    /// The word before it.
    word: u32,
    /// When the word was first seen with this value.
    since: Instant,
    /// How long after `began` the next check is due.
    pause: Duration,
    /// How long after `began` a check is not due even if the word changes.
    least: Duration,
}

/// What a thread does next.
#[derive(Clone, Debug)]
pub struct Turn {
    /// The page on whose word it sleeps, and the word; `None` if nobody changes it.
    word: Option<(Arc<StatePage>, u32)>,
    /// How long until the files are to be checked. Zero: before the thread sleeps.
    pub pause: Duration,
}

#[cfg(test)]
impl Turn {
    /// Whether writers notify this reader.
    pub fn is_told(&self) -> bool {
        self.word.is_some()
    }
}

impl Listening {
    /// What to do next. No check is due while the word is the same and the last check is recent.
    pub fn turn(&self) -> Turn {
        let known = self.known.lock();
        let word = known.word();
        let (Some((_, value)), Some(checked)) = (&word, known.checked) else {
            return Turn {
                word,
                pause: Duration::ZERO,
            };
        };
        let passed = checked.began.elapsed();
        if checked.word == *value {
            let pause = checked.pause.saturating_sub(passed);
            return Turn { word, pause };
        }
        // Until that check, further changes of the word say nothing new.
        let pause = checked.least.saturating_sub(passed);
        let word = word.filter(|_| pause.is_zero());
        Turn { word, pause }
    }

    /// Runs a check of the files at `root`. Returns its result and what to do after it.
    pub fn check<T>(&self, disk: &dyn Disk, root: &Path, check: impl FnOnce() -> T) -> (T, Turn) {
        let (began, worked) = (Instant::now(), thread_time());
        // Loaded before the files are read, so that anything published later changes the word.
        let word = {
            let mut known = self.known.lock();
            known.refresh(disk, root, began, &self.pauses);
            known.word()
        };
        let loaded = Instant::now();
        let result = check();
        let took = match (worked, thread_time()) {
            (Some(before), Some(after)) => after.saturating_sub(before),
            _ => began.elapsed(),
        };
        let busy = took.saturating_mul(CHECK_SHARE);
        let mut known = self.known.lock();
        #[cfg(test)]
        {
            known.checks += 1;
        }
        let Some((_, value)) = &word else {
            let pause = self.pauses.poll.max(busy);
            known.checked = None;
            return (result, Turn { word, pause });
        };
        let same = known.checked.filter(|before| before.word == *value);
        let since = same.map_or(loaded, |before| before.since);
        // The check may have come before the last message of the tick.
        let quiet = (since + self.pauses.quiet).saturating_duration_since(began);
        let pause = match quiet.is_zero() {
            true => self.pauses.rest.max(busy),
            false => quiet,
        };
        known.checked = Some(Checked {
            began,
            word: *value,
            since,
            pause,
            least: match took < CHECK_SHORT {
                true => Duration::ZERO,
                false => busy.min(self.pauses.poll),
            },
        });
        let pause = pause.saturating_sub(began.elapsed());
        (result, Turn { word, pause })
    }

    /// Sleeps until there may be something to check or `is_over` holds, at most for `timeout`; may
    /// return early. `own`: the condition that notifies threads of this process.
    pub fn sleep(
        &self,
        turn: &Turn,
        timeout: Duration,
        own: &Condition,
        is_over: impl Fn() -> bool,
    ) {
        let timeout = timeout.min(turn.pause);
        let Some((page, word)) = &turn.word else {
            return own.sleep(timeout, is_over);
        };
        self.sleepers.sleep(|| {
            if !is_over() {
                page.sleep_on(Word::News, *word, timeout);
            }
        });
    }

    /// Wakes all threads of this process that sleep. The caller has stored what they check.
    pub fn wake(&self, own: &Condition) {
        own.notify();
        self.sleepers.wake(|| {
            if let Some((page, _)) = &self.known.lock().page {
                page.wake(Word::News);
            }
            std::thread::sleep(WAKE_AGAIN);
        });
    }

    /// Number of checks so far.
    #[cfg(test)]
    pub fn checks(&self) -> u32 {
        self.known.lock().checks
    }

    /// Whether a thread sleeps on the word, or is about to.
    #[cfg(test)]
    pub fn is_slept_on(&self) -> bool {
        self.sleepers.any()
    }

    /// For each thread that sleeps on the word, or is about to, whether it has woken since.
    #[cfg(test)]
    pub fn asleep(&self) -> Vec<Arc<crate::sync::AtomicBool>> {
        self.sleepers.inside()
    }
}

impl Known {
    /// The page and its word, if writers change it.
    fn word(&self) -> Option<(Arc<StatePage>, u32)> {
        let (page, _) = self.page.as_ref().filter(|_| !self.is_foreign)?;
        let word = page.read_word(Word::News);
        // The file may have been truncated.
        page.check().ok()?;
        Some((Arc::clone(page), word))
    }

    /// Finds the page if it exists, and whether a broker writes, unless that was done recently.
    fn refresh(&mut self, disk: &dyn Disk, root: &Path, now: Instant, pauses: &Pauses) {
        let is_missing = self.page.is_none();
        let again = if is_missing { pauses.poll } else { pauses.rest };
        let is_recent = |at: Instant| now.saturating_duration_since(at) < again;
        if self.refreshed.is_some_and(is_recent) {
            return;
        }
        self.refreshed = Some(now);
        let path = root.join(METERS);
        let identity = disk.identity(&path);
        let is_same =
            |(page, known): &(Arc<StatePage>, _)| *known == identity && page.check().is_ok();
        if !self.page.as_ref().is_some_and(is_same) {
            let page = StatePage::open_words(disk, &path, Access::Read);
            let page = page.ok().flatten();
            self.page = page.map(|page| (Arc::new(page), identity));
        }
        // If the lock cannot be probed, its holder may be a broker.
        let holder = self.page.as_ref().map(|_| disk.probe(&root.join(LOCK)));
        let is_ours = |holder| matches!(holder, Ok(Holder::Nobody | Holder::Forebay));
        self.is_foreign = !holder.is_some_and(is_ours);
    }
}
