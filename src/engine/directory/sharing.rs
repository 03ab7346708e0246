//! The part of the state page through which the processes of a shared store cooperate.
//!
//! ```text
//! at    width  field
//! 580   u32    1 if a process of a shared partition log may sleep on the word at 576
//! 704   u64    append lock; see `engine/service/shared_lock.rs`
//! 712   u64    store time in ms of the last published record
//! 768   u32    changes when the process that runs the services has work
//! 772   u32    1 while its thread sleeps on that word
//! 776   u32    changes when its readers on duty have work or news; see `engine/service/duty.rs`
//! 780   u32    number of its readers on duty
//! 832   u32    changes when a process wants a flush
//! 840   u64    the position up to which the log shall be durable
//! 896   u32    changes when the durable mark has moved, or writing has failed
//! 960   u32    1 if writing has failed for all processes
//! 964   u32    bytes of the reason
//! 968   512    the reason, UTF-8
//! 1536  u32    changes when a process has written the table of topics
//! 1540  u32    1 if the epoch is that of a shared store
//! 1600  u32    changes when the service of the consumers has work; see `consumer/service.rs`
//! ```
//!
//! Any process may have stored anything here, and may have died at any moment. A wrong position
//! makes an append fail, because the log is checked up to it; a wrong word costs a time-out.

use super::page::{Mark, StatePage, Word};
use super::page_layout::AT_EPOCHS;
use crate::engine::service::duty::Desk;
use crate::num::{low_u32, short};
use std::time::Duration;

const AT_AWAITED: usize = 580;
const AT_APPEND_LOCK: usize = 704;
const AT_STORED_MS: usize = 712;
const AT_SLEEPS: usize = 772;
const AT_ON_DUTY: usize = 780;
const AT_WANTED_END: usize = 840;
const AT_FAILED: usize = 960;
const AT_REASON_LEN: usize = 964;
const AT_REASON: usize = 968;
const AT_TOPICS: usize = 1536;
const AT_OF_MANY: usize = 1540;
const _: () = assert!(AT_OF_MANY + size_of::<u32>() <= AT_EPOCHS);
const _: () = assert!(AT_REASON + REASON_LEN_MAX <= AT_TOPICS);

/// Maximum length of the reason for a failure.
const REASON_LEN_MAX: usize = 512;
/// Byte of the low half in a word of 8 bytes, on which processes sleep.
const LOW_WORD: usize = if cfg!(target_endian = "big") { 4 } else { 0 };

impl StatePage {
    /// The same page, whose marks other processes move too.
    pub fn shared(mut self) -> StatePage {
        self.shared = true;
        self
    }

    /// Whether the last writer shared the store with others.
    pub fn is_of_many(&self) -> bool {
        self.fields.word(AT_OF_MANY) == 1
    }

    /// Records whether the writer shares the store with others.
    pub fn show_sharing(&self) {
        self.fields.set_word(AT_OF_MANY, u32::from(self.shared));
    }

    /// Whether other processes move the marks too.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// The append lock of a shared store.
    #[inline]
    pub fn append_lock(&self) -> u64 {
        self.fields.load(AT_APPEND_LOCK)
    }

    /// Replaces the append lock if it is `old`. Returns whether it was. A lock that cannot be
    /// accessed counts as replaced.
    #[inline]
    pub fn exchange_append_lock(&self, old: u64, new: u64) -> bool {
        self.fields.exchange(AT_APPEND_LOCK, old, new)
    }

    /// Sleeps until the append lock is woken or has changed, at most for `timeout`.
    pub fn sleep_on_append_lock(&self, seen: u64, timeout: Duration) {
        let at = AT_APPEND_LOCK + LOW_WORD;
        self.fields.sleep_on(at, low_u32(seen), timeout);
    }

    /// Wakes the sleepers on the append lock.
    pub fn wake_append_lock(&self) {
        self.fields.wake(AT_APPEND_LOCK + LOW_WORD);
    }

    /// Whether a process of a shared partition log may sleep on [`Word::News`].
    #[inline]
    pub fn are_news_awaited(&self) -> bool {
        self.fields.word(AT_AWAITED) == 1
    }

    /// Sets whether one may sleep on it.
    pub fn set_news_awaited(&self, awaited: bool) {
        self.fields.set_word(AT_AWAITED, u32::from(awaited));
    }

    /// Shows how many readers of the process that leads are on duty.
    pub fn set_on_duty(&self, readers: u32) {
        self.fields.set_word(AT_ON_DUTY, readers);
    }

    /// Position up to which processes want the log to be durable.
    pub fn wanted(&self) -> u64 {
        self.fields.load(AT_WANTED_END)
    }

    /// Asks for the log to be made durable up to `end`, and wakes the process that flushes.
    pub fn want(&self, end: u64) {
        let raise = |wanted: u64| (wanted < end).then_some(end);
        self.fields.update(AT_WANTED_END, raise);
        self.notify(Word::Wanted);
    }

    /// Why writing has failed for all processes of a shared store; `None` if it has not.
    #[inline]
    pub fn failed(&self) -> Option<String> {
        (self.fields.word(AT_FAILED) == 1).then(|| self.reason())
    }

    #[cold]
    fn reason(&self) -> String {
        let bytes = self.fields.words::<REASON_LEN_MAX>(AT_REASON);
        let len = (self.fields.word(AT_REASON_LEN) as usize).min(REASON_LEN_MAX);
        String::from_utf8_lossy(bytes.get(..len).unwrap_or_default()).into_owned()
    }

    /// Ends writing for all processes of a shared store. The first reason is kept.
    pub fn set_failed(&self, reason: &str) {
        if self.fields.word(AT_FAILED) == 1 {
            return;
        }
        let mut bytes = [0; REASON_LEN_MAX];
        let len = reason.len().min(REASON_LEN_MAX);
        if let (Some(to), Some(from)) = (bytes.get_mut(..len), reason.as_bytes().get(..len)) {
            to.copy_from_slice(from);
        }
        self.fields.set_words(AT_REASON, &bytes);
        self.fields.set_word(AT_REASON_LEN, short(len));
        self.fields.set_word(AT_FAILED, 1);
        self.notify(Word::Flushed);
    }

    /// Clears the failure, the writer, and the requests of processes that are gone. A process that
    /// joins while the first one recovers the store must not follow the marks of a dead writer.
    pub fn begin_sharing(&self) {
        self.end_epoch(self.is_clean());
        self.fields.set_word(AT_FAILED, 0);
        self.fields.store(AT_WANTED_END, 0);
    }

    /// Changes when a process of a shared store has written the table of topics.
    #[inline]
    pub fn topics_version(&self) -> u32 {
        self.fields.word(AT_TOPICS)
    }

    /// Tells the processes of a shared store that the table of topics was written.
    pub fn next_topics_version(&self) {
        let next = self.topics_version().wrapping_add(1);
        self.fields.set_word(AT_TOPICS, next);
    }

    /// Store time in ms of the last record that a process of a shared store has published.
    #[inline]
    pub fn stored_ms(&self) -> i64 {
        self.fields.load(AT_STORED_MS).cast_signed()
    }

    /// Shows the store time of the last record. Stored before the record is published.
    #[inline]
    pub fn set_stored_ms(&self, stored_ms: i64) {
        self.fields.store(AT_STORED_MS, stored_ms.cast_unsigned());
    }
}

impl Desk for StatePage {
    fn is_due(&self) -> bool {
        self.get(Mark::Dispatched) < self.get(Mark::Published)
    }

    fn load_work(&self) -> u32 {
        self.read_word(Word::Work)
    }

    fn notify_work(&self) {
        self.notify(Word::Work);
    }

    fn sleep_on_work(&self, seen: u32, timeout: Duration) {
        self.sleep_on(Word::Work, seen, timeout);
    }

    #[inline]
    fn sleeps(&self) -> bool {
        self.fields.word(AT_SLEEPS) == 1
    }

    fn set_sleeps(&self, sleeps: bool) {
        self.fields.set_word(AT_SLEEPS, u32::from(sleeps));
    }

    fn load_duty(&self) -> u32 {
        self.read_word(Word::Duty)
    }

    fn notify_duty(&self) -> usize {
        self.notify(Word::Duty)
    }

    fn sleep_on_duty(&self, seen: u32, timeout: Duration) {
        self.sleep_on(Word::Duty, seen, timeout);
    }

    #[inline]
    fn on_duty(&self) -> u32 {
        self.fields.word(AT_ON_DUTY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;
    use crate::region::guard;
    use std::fs::File;

    /// A process tries to exchange the lock until it succeeds.
    #[test]
    fn a_lock_that_cannot_be_accessed_counts_as_replaced() {
        guard::install();
        let dir = tempfile::tempdir().unwrap();
        let page = StatePage::create(&RealDisk, dir.path()).unwrap();
        assert!(page.exchange_append_lock(0, 7) && !page.exchange_append_lock(0, 8));
        assert!(page.check().is_ok());
        let file = File::options().write(true).open(page.path()).unwrap();
        file.set_len(0).unwrap();
        assert!(page.exchange_append_lock(7, 8));
        assert!(page.check().unwrap_err().is_fault());
    }
}
