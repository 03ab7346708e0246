//! A number in the state page that tells readers in other processes whether to list the queues.
//!
//! ```text
//! at    width  field
//! 1728  u64    changes before the first messages of a queue are dispatched
//! 1736  u64    the epoch whose writer keeps that number; it counts in no other epoch
//! ```
//!
//! A writer of a release without this number leaves the epoch at 1736 unchanged, and readers then
//! list each time. If another process overwrites the number, a reader may miss queues for as long
//! as it trusts a listing ([`LISTED_MS`]).

use super::page::StatePage;
use super::page_layout::AT_EPOCHS;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Where its fields begin, and how long they are together.
pub(super) const AT_CATALOGUE: usize = 1728;
pub(super) const CATALOGUE_LEN: usize = 2 * size_of::<u64>();
const AT_NUMBER: usize = AT_CATALOGUE;
const AT_EPOCH_OF_IT: usize = AT_NUMBER + size_of::<u64>();
const _: () = assert!(AT_CATALOGUE + CATALOGUE_LEN <= AT_EPOCHS);

/// How long a listing is trusted, in ms, whatever the number says.
pub const LISTED_MS: u64 = 1_000;

impl StatePage {
    /// Begins to keep the number, in this epoch.
    pub(super) fn begin_catalogue(&self, epoch: u64) {
        self.next_catalogue();
        self.fields.store(AT_EPOCH_OF_IT, epoch);
    }

    /// Tells readers that there is another queue. Its files must exist, and its messages must not
    /// be dispatched yet.
    pub fn next_catalogue(&self) {
        self.fields
            .store(AT_NUMBER, self.fields.load(AT_NUMBER).wrapping_add(1));
    }

    /// The number, if the writer keeps it.
    fn catalogue(&self) -> Option<u64> {
        let number = self.fields.load(AT_NUMBER);
        (self.fields.load(AT_EPOCH_OF_IT) == self.epoch()).then_some(number)
    }
}

/// What a reader has listed.
#[derive(Debug)]
pub struct Listed {
    number: AtomicU64,
    /// When, by the coarse clock; `NEVER` if nothing is listed.
    at_ms: AtomicI64,
}

/// The time of a listing that is not trusted.
const NEVER: i64 = i64::MIN;

impl Default for Listed {
    fn default() -> Listed {
        Listed {
            number: AtomicU64::new(0),
            at_ms: AtomicI64::new(NEVER),
        }
    }
}

impl Listed {
    /// Whether all queues with messages below the dispatched mark are listed. The caller loads the
    /// mark first.
    pub fn is_current(&self, page: &StatePage, now_ms: i64) -> bool {
        // A listing stores the time last, so the number belongs to this listing or to a later one.
        let at_ms = self.at_ms.load(Ordering::Acquire);
        at_ms != NEVER
            && now_ms.abs_diff(at_ms) < LISTED_MS
            && page.catalogue() == Some(self.number.load(Ordering::Acquire))
    }

    /// Lists the queues with `list`. No other thread may do so meanwhile.
    ///
    /// # Errors
    ///
    /// Those of `list`.
    pub fn list<E>(
        &self,
        page: &StatePage,
        now_ms: i64,
        list: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        // Read before the listing: a queue that is added meanwhile changes it again.
        let number = page.catalogue();
        self.forget();
        list()?;
        if let Some(number) = number {
            self.number.store(number, Ordering::Release);
            self.at_ms.store(now_ms, Ordering::Release);
        }
        Ok(())
    }

    /// Lists again the next time.
    pub fn forget(&self) {
        self.at_ms.store(NEVER, Ordering::Release);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod test {
    use super::*;

    #[test]
    fn a_listing_is_current_until_the_number_changes_and_not_for_long() {
        let page = StatePage::in_memory().unwrap().shared();
        let listed = Listed::default();
        let list = || listed.list(&page, 5, || Ok::<(), ()>(())).unwrap();
        page.begin_epoch(0, true, 1);
        assert!(!listed.is_current(&page, 5));
        list();
        assert!(listed.is_current(&page, 5));
        assert!(!listed.is_current(&page, 5 + LISTED_MS.cast_signed()));
        assert!(!listed.is_current(&page, -2 * LISTED_MS.cast_signed()));
        page.next_catalogue();
        assert!(!listed.is_current(&page, 5));
        list();
        assert!(listed.is_current(&page, 5));
        let failed = listed.list(&page, 5, || Err(()));
        assert!(failed.is_err() && !listed.is_current(&page, 5));
    }

    #[test]
    fn the_number_of_a_writer_that_does_not_keep_it_is_not_trusted() {
        let page = StatePage::in_memory().unwrap().shared();
        let listed = Listed::default();
        let list = || listed.list(&page, 5, || Ok::<(), ()>(())).unwrap();
        page.begin_epoch(0, true, 1);
        list();
        assert!(listed.is_current(&page, 5));
        // As a release begins an epoch that does not know the number.
        page.fields.store(32, page.epoch() + 1);
        assert!(!listed.is_current(&page, 5));
        list();
        assert!(!listed.is_current(&page, 5));
        page.begin_epoch(0, true, 1);
        list();
        assert!(listed.is_current(&page, 5));
    }
}
