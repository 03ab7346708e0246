//! Waits of a process of a shared store until another one has opened the store, or has flushed. If
//! there is no such process, the one that waits becomes the leader and does the work.

use super::Member;
use crate::engine::directory::page::{Mark, Word};
use crate::engine::service::health::Health;
use crate::error::{Error, Result};
use crate::interrupt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often a thread that waits for the leader checks whether there is one. A process that dies
/// notifies nobody.
const CHECK: Duration = Duration::from_millis(20);
/// How long a process waits for another one to recover the store.
const OPENING_TIMEOUT: Duration = Duration::from_secs(30);
/// A process that closes the store waits this long for a leader that hangs.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// A process that waits for a flush.
pub trait Follower {
    /// Whether it closes the store.
    fn is_closing(&self) -> bool;

    /// Whether its close has waited long enough: none of its threads waits any more.
    fn is_ending(&self) -> bool;

    /// # Errors
    ///
    /// [`Error::Failed`] if writing has failed, in this process or another; [`Error::Io`].
    fn check(&self) -> Result<()>;

    /// Becomes the leader if there is none. Returns whether it leads.
    ///
    /// # Errors
    ///
    /// Those of taking over. The next call tries again.
    fn try_lead(&self) -> Result<bool>;

    /// Flushes up to `position` if that is the caller's task. `None` if it is that of another
    /// process, or of a service of this one.
    fn try_flush(&self, position: u64) -> Option<Result<()>>;
}

impl Member {
    /// Returns an error if writing has failed, in this process or another.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`]; [`Error::Io`] if an access to the page has faulted.
    #[inline]
    pub fn check(&self, health: &Health) -> Result<()> {
        health.check()?;
        match self.page.failed() {
            None => self.page.check(),
            Some(reason) => {
                health.fail(&reason, || {});
                health.check()
            }
        }
    }

    /// Becomes the leader and calls `lead`, which opens the store for all processes, or waits until
    /// another process has opened it and returns `None`. `may_lead`: whether this process may still
    /// become the leader.
    ///
    /// # Errors
    ///
    /// Those of `lead`; [`Error::Locked`] if another process does not finish; [`Error::Io`].
    pub fn lead_or_wait<T>(
        &self,
        root: &Path,
        may_lead: impl Fn() -> bool,
        lead: impl FnOnce() -> Result<T>,
    ) -> Result<Option<T>> {
        let began = Instant::now();
        loop {
            // An epoch that begins changes the word, and so does a leader that has failed.
            let seen = self.page.read_word(Word::News);
            if may_lead() && self.try_lead()? {
                // Another process may have led, and left, before this one got the lock.
                if may_lead() {
                    return lead().map(Some).inspect_err(|_| self.stop_leading());
                }
                self.stop_leading();
            }
            if self.page.is_written_to() {
                return Ok(None);
            }
            self.page.check()?;
            if began.elapsed() > OPENING_TIMEOUT || interrupt::is_raised() {
                return Err(Error::Locked {
                    path: root.to_owned(),
                    pid: self.page.pid(),
                    shareable: true,
                });
            }
            self.page.sleep_on(Word::News, seen, CHECK);
        }
    }

    /// Waits until the leader has flushed up to `position`, and becomes the leader if there is
    /// none. Ends early only if writing has failed, or if the store is being closed and has waited
    /// long enough.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`]; those of a flush; [`Error::FlushTimeout`] if the store is being closed
    /// and the leader hangs.
    pub fn await_flush(&self, position: u64, own: &impl Follower) -> Result<()> {
        let is_flushed = || self.page.get(Mark::Durable) >= position;
        let began = Instant::now();
        loop {
            let seen = self.page.read_word(Word::Flushed);
            if is_flushed() {
                return Ok(());
            }
            own.check().map_err(appended)?;
            if let Some(flushed) = own.try_flush(position) {
                return flushed;
            }
            self.page.want(position);
            self.page.sleep_on(Word::Flushed, seen, CHECK);
            if is_flushed() {
                continue;
            }
            match own.try_lead() {
                Err(error) if own.is_closing() => return Err(error),
                // If it fails, the next pass of the loop tries again.
                _ => {}
            }
            let waited = began.elapsed();
            let is_late = waited > CLOSE_TIMEOUT || interrupt::is_raised();
            if own.is_ending() || own.is_closing() && is_late {
                let timeout_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
                return Err(Error::FlushTimeout { timeout_ms });
            }
        }
    }
}

/// A failure, for a call whose messages are in the log.
fn appended(error: Error) -> Error {
    match error {
        Error::Failed { reason, .. } => Error::Failed {
            reason,
            appended: true,
        },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use crate::disk::RealDisk;
    use crate::engine::directory::agreed::Agreed;
    use crate::engine::directory::member::{Meeting, Member};
    use crate::options::Options;
    use std::time::Duration;

    /// Two processes open a store at once. One of them finds it unopened; the other one opens it
    /// and is killed before the first one has the lock. A third one may use what it has opened.
    #[test]
    fn a_process_that_leads_after_another_one_has_opened_the_store_does_not_open_it() {
        let dir = tempfile::tempdir().unwrap();
        let own = Agreed::of(&Options::default()).unwrap();
        let (root, timeout) = (dir.path(), Duration::from_secs(5));
        let member = Member::join(&RealDisk, root, Meeting::OF_PARTITIONS, timeout, &own).unwrap();
        let page = &member.page;
        let may_lead = || {
            let may_lead = !page.is_written_to();
            if may_lead {
                page.begin_epoch(0, false, 1);
            }
            may_lead
        };
        let led = member.lead_or_wait(root, may_lead, || Ok(()));
        assert_eq!(led.unwrap(), None);
        // And it leaves the lead to whoever wants it.
        let other = Member::join(&RealDisk, root, Meeting::OF_PARTITIONS, timeout, &own).unwrap();
        assert!(other.try_lead().unwrap());
    }
}
