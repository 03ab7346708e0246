//! The epochs of the state page: which process writes the store, and since when.

use super::page::{Cache, StatePage, Word};
use super::page_layout::{
    AT_BOOT_ID, AT_CHECKSUMS, AT_CLEAN, AT_EPOCH, AT_EPOCH_START, AT_EPOCHS, AT_FOREIGN, AT_PID,
    EPOCH_LEN, EPOCHS_KEPT,
};
use crate::engine::directory::epochs::{Epoch, Epochs};
use crate::num::index;

impl StatePage {
    /// Whether a writer is running, or died during this boot.
    pub fn is_written_to(&self) -> bool {
        self.pid().is_some() && self.is_of_this_boot()
    }

    /// Whether a writer is running or ended without closing the store, so that stored bytes may be
    /// only in the page cache.
    pub fn is_halted(&self) -> bool {
        self.epoch() > 0 && !self.is_clean() && self.cache() != Cache::Lost
    }

    /// Whether the last writer closed the store.
    pub fn is_clean(&self) -> bool {
        self.fields.word(AT_CLEAN) == 1
    }

    /// The process that writes, if there is one.
    pub fn pid(&self) -> Option<u32> {
        u32::try_from(self.fields.load(AT_PID))
            .ok()
            .filter(|pid| *pid != 0)
    }

    /// Number of the current epoch.
    pub fn epoch(&self) -> u64 {
        self.fields.load(AT_EPOCH)
    }

    /// The recorded epochs.
    pub fn epochs(&self) -> Epochs {
        let last = self.epoch();
        let first = last.saturating_sub(EPOCHS_KEPT - 1).max(1);
        let kept = (first..=last).map(|number| {
            let at = place_of(number);
            Epoch {
                number,
                began_ns: self.fields.load(at),
                start: self.fields.load(at + size_of::<u64>()),
            }
        });
        Epochs {
            number: last,
            known: kept.filter(|epoch| epoch.began_ns > 0).collect(),
        }
    }

    /// The start of the epoch, if every record since then carries a whole-record checksum.
    pub fn checksums_from(&self) -> Option<u64> {
        (self.fields.word(AT_CHECKSUMS) == 1).then(|| self.fields.load(AT_EPOCH_START))
    }

    /// Begins an epoch: this process writes from `end` on. Must be made durable before the first
    /// append.
    ///
    /// `checksums`: all records of the epoch will carry one. `now_ns`: the wall clock.
    pub fn begin_epoch(&self, end: u64, checksums: bool, now_ns: u64) {
        // Recovery may have truncated and rebuilt files.
        self.next_generation();
        // The start of the epoch is stored first: the other fields apply from there.
        self.fields.store(AT_EPOCH_START, end);
        self.fields.set_word(AT_CHECKSUMS, u32::from(checksums));
        self.set_erasing(0);
        self.show_sharing();
        self.fields.set_word(AT_FOREIGN, 0);
        self.fields.set_word(AT_CLEAN, 0);
        self.fields.set_words(AT_BOOT_ID, &self.boot_id);
        let number = self.epoch().saturating_add(1);
        let at = place_of(number);
        self.fields.store(at, now_ns);
        self.fields.store(at + size_of::<u64>(), end);
        self.fields.store(AT_EPOCH, number);
        self.begin_catalogue(number);
        self.fields.store(AT_PID, u64::from(std::process::id()));
        // Readers that were opened while nobody wrote follow from here on.
        self.notify(Word::News);
    }

    /// Names this process as the one that runs the services, in the epoch of its predecessor.
    pub fn take_over(&self) {
        self.fields.store(AT_PID, u64::from(std::process::id()));
    }

    /// Whether a writer has begun another epoch than `epoch` during this boot, and its marks hold:
    /// it is running, has died, or has closed the store.
    pub fn has_begun_since(&self, epoch: u64) -> bool {
        self.epoch() != epoch && self.is_of_this_boot() && (self.pid().is_some() || self.is_clean())
    }

    /// Ends an epoch. `clean`: everything is durable, and queues and index are complete.
    pub fn end_epoch(&self, clean: bool) {
        self.fields.store(AT_PID, 0);
        self.fields.set_word(AT_CLEAN, u32::from(clean));
    }
}

/// First byte of an epoch in the page.
fn place_of(epoch: u64) -> usize {
    AT_EPOCHS + index(epoch % EPOCHS_KEPT) * EPOCH_LEN
}
