//! Whether the page cache holds what the last writer stored, as the state page says.

use super::page::{Cache, StatePage};
use super::page_layout::{AT_BOOT_ID, AT_IDENTITY};
use crate::disk::Identity;
use crate::plant::{Bug, planted};

impl StatePage {
    /// Whether the marks were written since the machine started.
    pub(super) fn is_of_this_boot(&self) -> bool {
        self.fields.words::<16>(AT_BOOT_ID) == self.boot_id
    }

    /// State of the page cache that the last writer stored to, if it did not close the store.
    pub fn cache(&self) -> Cache {
        let written = self.fields.words::<16>(AT_BOOT_ID);
        if written == [0; 16] || self.boot_id == [0; 16] {
            return Cache::Unknown;
        }
        if written != self.boot_id {
            return Cache::Lost;
        }
        let same = self
            .identity
            .is_some_and(|identity| self.words_of_identity() == words_of(&identity));
        match same || planted(Bug::TrustBoot) {
            true => Cache::Kept,
            false => Cache::Unknown,
        }
    }

    fn words_of_identity(&self) -> [u64; 5] {
        std::array::from_fn(|number| self.fields.load(AT_IDENTITY + number * size_of::<u64>()))
    }

    fn set_identity(&self, words: [u64; 5]) {
        for (number, word) in words.into_iter().enumerate() {
            self.fields
                .store(AT_IDENTITY + number * size_of::<u64>(), word);
        }
    }

    /// Records that the page cache holds everything that was stored.
    pub fn vouch(&self) {
        self.set_identity(self.identity.as_ref().map_or([0; 5], words_of));
    }

    /// Withdraws [`StatePage::vouch`]. This need not be durable, because any later cache has
    /// another identity. But the kernel must not drop the page while the page on disk still
    /// vouches; see [`StatePage::sync`].
    pub fn doubt(&self) {
        if planted(Bug::VouchBlindly) {
            return;
        }
        self.set_identity([0; 5]);
    }
}

/// An identity as the words of the page.
fn words_of(identity: &Identity) -> [u64; 5] {
    [
        identity.mount,
        identity.device,
        identity.subvolume,
        identity.inode,
        identity.born_ns,
    ]
}
