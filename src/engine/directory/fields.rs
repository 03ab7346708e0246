//! The fields of a mapped file that processes load and store at the same time.
//!
//! A field that cannot be accessed, because the disk under the map fails, counts as 0, and the
//! fault is kept. So a caller checks for a fault ([`Fields::check`]) after it has loaded fields and
//! before it acts on them.

use crate::error::{Error, Op, Result};
use crate::region::{Fault, Region};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

/// A mapped file, field by field.
#[derive(Debug)]
pub struct Fields {
    region: Region,
    /// The first access that faulted.
    fault: OnceLock<Fault>,
}

impl Fields {
    /// The fields of a map.
    pub fn new(region: Region) -> Fields {
        Fields {
            region,
            fault: OnceLock::new(),
        }
    }

    /// Returns an error if an access has faulted since the file was mapped.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    #[inline]
    pub fn check(&self) -> Result<()> {
        self.fault.get().map_or(Ok(()), |fault| {
            let error = std::io::Error::other(*fault);
            Err(Error::io(Op::Access, self.path(), error))
        })
    }

    #[inline]
    fn noted<T>(&self, done: std::io::Result<T>, otherwise: T) -> T {
        done.unwrap_or_else(|error| {
            if let Some(fault) = Fault::of(&error) {
                let _ = self.fault.set(fault);
            }
            otherwise
        })
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        self.region.path()
    }

    /// Whether the map can be stored to.
    #[inline]
    pub fn is_writable(&self) -> bool {
        self.region.is_writable()
    }

    /// The map, for a sync.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The error for a field that holds what no process stores.
    #[cold]
    pub fn corrupt(&self, at: usize, reason: impl Into<String>) -> Error {
        Error::corrupt(self.path(), at as u64, reason)
    }

    /// Loads a field of 4 bytes, acquiring.
    #[inline]
    pub fn word(&self, at: usize) -> u32 {
        self.noted(self.region.load_u32(at), 0)
    }

    /// Stores a field of 4 bytes.
    #[inline]
    pub fn set_word(&self, at: usize, value: u32) {
        self.set_words(at, &value.to_ne_bytes());
    }

    /// Loads a field of 8 bytes, acquiring.
    #[inline]
    pub fn load(&self, at: usize) -> u64 {
        self.noted(self.region.load_u64(at), 0)
    }

    /// Stores a field of 8 bytes, releasing.
    #[inline]
    pub fn store(&self, at: usize, value: u64) {
        self.noted(self.region.store_u64(at, value), ());
    }

    /// Loads `N` bytes as words.
    #[inline]
    pub fn words<const N: usize>(&self, at: usize) -> [u8; N] {
        self.noted(self.region.words(at), [0; N])
    }

    /// Stores bytes as words, from the last to the first.
    #[inline]
    pub fn set_words(&self, at: usize, bytes: &[u8]) {
        self.noted(self.region.set_words(at, bytes), ());
    }

    /// Replaces a field of 8 bytes by `new` if it is `old`, in one atomic step. Returns whether it
    /// was. A field that cannot be accessed counts as replaced, so that no caller retries forever.
    #[inline]
    pub fn exchange(&self, at: usize, old: u64, new: u64) -> bool {
        self.noted(self.region.exchange_u64(at, old, new), old) == old
    }

    /// Applies `change` to a field of 8 bytes, in one atomic step. Leaves the field unchanged if
    /// `change` returns `None`.
    pub fn update(&self, at: usize, change: impl Fn(u64) -> Option<u64>) {
        self.noted(self.region.update_u64(at, change), ());
    }

    /// Sleeps until a field of 4 bytes is notified, at most for `timeout`. Returns at once if it is
    /// not `seen`, and may return early.
    pub fn sleep_on(&self, at: usize, seen: u32, timeout: Duration) {
        self.region.sleep_on(at, seen, timeout);
    }

    /// Changes a field of 4 bytes and wakes the sleepers on it, in all processes. Returns how many
    /// were woken; 0 on a system that does not say.
    pub fn notify(&self, at: usize) -> usize {
        self.region.notify(at)
    }

    /// Wakes the sleepers on a field and leaves it as it is. Returns as [`Fields::notify`].
    pub fn wake(&self, at: usize) -> usize {
        self.region.wake(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::{Access, PAGE, guard};

    /// A holder of a lock tries to exchange its word until it succeeds, so a word that is gone
    /// would have kept it trying forever.
    #[test]
    fn a_field_that_faults_counts_as_replaced_and_the_fault_is_kept() {
        guard::install();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fields");
        std::fs::write(&path, [0; PAGE]).unwrap();
        let mut options = std::fs::File::options();
        let file = options.read(true).write(true).open(&path).unwrap();
        let region = Region::map(&file, &path, PAGE, Access::ReadWrite).unwrap();
        let fields = Fields::new(region);
        assert!(fields.exchange(0, 0, 7) && !fields.exchange(0, 0, 8));
        assert_eq!((fields.load(0), fields.word(0)), (7, 7));
        assert!(fields.check().is_ok());
        file.set_len(0).unwrap();
        assert_eq!(fields.load(0), 0);
        assert!(fields.exchange(0, 7, 8));
        let error = fields.check().unwrap_err();
        assert!(error.is_fault(), "{error}");
    }
}
