//! A shared condition wakes readers in other processes, which sleep on a word that they can only
//! load.
//!
//! ```text
//!   writer:  move the mark --> change the word --> wake the sleepers on it
//!   reader:  load the word --> check the mark --> sleep, unless the word has changed
//! ```
//!
//! A reader stores nothing, so a reader that is killed leaves nothing behind, and the directory may
//! be read-only. The kernel compares the word and puts the reader to sleep in one step, and tells
//! the writer how many readers it woke.
//!
//! The thread that dispatches notifies after each step. It checks for work only now and then, so a
//! sender dispatches and notifies itself while readers wait. A sender knows of them because the
//! last notifications woke somebody, and stops when several in a row have woken nobody. That is a
//! hint: a reader that no sender knows of is woken by the thread.
//!
//! Readers that may store mark the word before they sleep ([`MarkedWord`]). A sender that finds no
//! mark makes no system call, and needs no thread that wakes after it.
//!
//! ```text
//!   sender:  move the mark of messages --> word marked? clear that --> change and wake the word
//!   reader:  load the word --> mark it --> check the mark of messages --> sleep, unless the word
//!            has changed
//! ```
//!
//! A sender that dies after it has cleared the mark wakes nobody, so readers limit the time that
//! they sleep.

use crate::plant::{Bug, planted};
use crate::sync::{AtomicU32, Ordering, fence};
use std::time::Duration;

/// After this many notifications in a row that wake nobody, senders leave them to the thread.
const IDLE_NOTIFICATIONS: u32 = 4;

/// A word that may be shared with other processes.
pub trait SharedWord {
    /// Its value, acquiring.
    fn load(&self) -> u32;

    /// Sleeps until the word is notified, at most for `timeout`. Returns at once if the word is not
    /// `seen`, and may return early.
    fn sleep_on(&self, seen: u32, timeout: Duration);

    /// Changes the word, releasing, and wakes the sleepers on it. Returns how many there were.
    fn notify(&self) -> usize;
}

/// A word that its sleepers mark.
pub trait MarkedWord: SharedWord {
    /// Whether somebody may sleep on it.
    fn is_marked(&self) -> bool;

    /// Sets whether somebody may sleep on it.
    fn set_marked(&self, marked: bool);
}

/// What a writer knows of the readers in other processes.
#[derive(Debug, Default)]
pub struct SharedCondition {
    /// Notifications that may still wake nobody before the readers count as gone.
    followed: AtomicU32,
}

impl SharedCondition {
    /// Whether one of the last notifications woke a reader. A hint.
    #[inline]
    pub fn is_followed(&self) -> bool {
        self.followed.load(Ordering::Relaxed) > 0
    }

    /// Counts the caller, a reader that will wait again, as one that a notification woke.
    pub fn note_reader(&self) {
        self.followed.store(IDLE_NOTIFICATIONS, Ordering::Relaxed);
    }

    /// Notifies the readers. The caller must first move the mark that the readers check.
    pub fn notify(&self, word: &impl SharedWord) {
        // Two threads that notify at the same time may count one notification.
        let before = self.followed.load(Ordering::Relaxed);
        let left = match word.notify() {
            0 => before.saturating_sub(1),
            _ => IDLE_NOTIFICATIONS,
        };
        // Each sender loads it, so it is stored only if it changes.
        if left != before {
            self.followed.store(left, Ordering::Relaxed);
        }
    }
}

/// Sleeps until the word is notified, at most for `timeout`. Returns at once if `ready` holds, and
/// may return early.
pub fn sleep(word: &impl SharedWord, timeout: Duration, ready: impl Fn() -> bool) {
    let late = planted(Bug::LookLate) && ready();
    // The word is loaded first: a mark that moves after `ready` has checked it is followed by a
    // change of the word.
    let seen = word.load();
    let is_ready = match planted(Bug::LookLate) {
        true => late,
        false => ready(),
    };
    if !is_ready {
        word.sleep_on(seen, timeout);
    }
}

/// Notifies the readers, if some may sleep. The caller must first move the mark that they check.
#[inline]
pub fn notify_marked(word: &impl MarkedWord) {
    // A reader marks the word before it checks.
    fence(Ordering::SeqCst);
    if !word.is_marked() {
        return;
    }
    // Cleared first: a reader that has loaded the changed word marks it again.
    if !planted(Bug::ClearLate) {
        word.set_marked(false);
    }
    word.notify();
    if planted(Bug::ClearLate) {
        word.set_marked(false);
    }
}

/// As [`sleep`], and marks the word for [`notify_marked`].
pub fn sleep_marked(word: &impl MarkedWord, timeout: Duration, ready: impl Fn() -> bool) {
    let seen = word.load();
    word.set_marked(true);
    // A sender moves its mark before it checks whether somebody sleeps.
    fence(Ordering::SeqCst);
    if !ready() {
        word.sleep_on(seen, timeout);
    }
}
