//! The words of a region, which change in place: loads and stores of aligned words, and sleeping on
//! one. A word may be shared between processes.

#![allow(unsafe_code)]

use super::Region;
use super::guard;
use std::io;
use std::time::Duration;

/// The longest sleep on a word. Nobody can wake the sleepers of a file that was truncated.
#[cfg(target_os = "linux")]
const SLEEP_MAX: Duration = Duration::from_secs(1);

impl Region {
    /// The address of a word, if it lies within the map and is aligned.
    #[inline]
    fn word_at<T>(&self, at: usize) -> Option<*mut T> {
        let end = at.checked_add(size_of::<T>())?;
        (end <= self.len() && at.is_multiple_of(align_of::<T>()))
            .then(|| self.map.as_mut_ptr().wrapping_add(at).cast::<T>())
    }

    /// The address of a word for stores, if the map is writable.
    #[inline]
    pub(super) fn place_of<T>(&self, at: usize) -> Option<*mut T> {
        self.word_at(at).filter(|_| self.writable)
    }

    /// Loads the 4-byte word at `at`, acquiring. Returns 0 if it is unaligned or outside the map.
    ///
    /// # Errors
    ///
    /// As [`Region::slice`].
    #[inline]
    pub fn load_u32(&self, at: usize) -> io::Result<u32> {
        let Some(word) = self.word_at(at) else {
            return Ok(0);
        };
        // SAFETY: the word lies within the map and is aligned.
        unsafe { guard::load_u32(word) }.map_err(|at| self.fault(at))
    }

    /// Loads the 8-byte word at `at`, acquiring. Returns 0 if it is unaligned or outside the map.
    ///
    /// # Errors
    ///
    /// As [`Region::slice`].
    #[inline]
    pub fn load_u64(&self, at: usize) -> io::Result<u64> {
        let Some(word) = self.word_at(at) else {
            return Ok(0);
        };
        // SAFETY: as in `load_u32`.
        unsafe { guard::load_u64(word) }.map_err(|at| self.fault(at))
    }

    /// Stores the 8-byte word at `at`, releasing. Does nothing on a read-only map, or if the word
    /// is unaligned or outside the map.
    ///
    /// # Errors
    ///
    /// As [`Region::write`].
    #[inline]
    pub fn store_u64(&self, at: usize, value: u64) -> io::Result<()> {
        let Some(word) = self.place_of(at) else {
            return Ok(());
        };
        // SAFETY: the word lies within the map, which is writable, and is aligned.
        unsafe { guard::store_u64(word, value) }.map_err(|at| self.fault(at))
    }

    /// Replaces the 8-byte word at `at` by `change` of it, in one atomic step. `None` leaves it.
    ///
    /// # Errors
    ///
    /// As [`Region::write`].
    pub fn update_u64(&self, at: usize, change: impl Fn(u64) -> Option<u64>) -> io::Result<()> {
        let Some(word) = self.place_of(at) else {
            return Ok(());
        };
        let mut old = self.load_u64(at)?;
        while let Some(new) = change(old) {
            // SAFETY: as in `store_u64`.
            let found = unsafe { guard::exchange_u64(word, old, new) };
            match found.map_err(|at| self.fault(at))? {
                found if found == old => break,
                found => old = found,
            }
        }
        Ok(())
    }

    /// Replaces the 8-byte word at `at` by `new` if it is `old`, in one atomic step. Returns what
    /// it was; a word that cannot be stored to is never `old`.
    ///
    /// # Errors
    ///
    /// As [`Region::write`].
    pub fn exchange_u64(&self, at: usize, old: u64, new: u64) -> io::Result<u64> {
        let Some(word) = self.place_of(at) else {
            return Ok(!old);
        };
        // SAFETY: as in `store_u64`.
        unsafe { guard::exchange_u64(word, old, new) }.map_err(|at| self.fault(at))
    }

    /// Reads `N` bytes at `at` as words, for ranges that change in place. `N` and `at` are
    /// multiples of 4. Returns zeros if the range is not in the map, or is in a hole that cannot be
    /// populated.
    ///
    /// # Errors
    ///
    /// As [`Region::slice`].
    #[inline]
    pub fn words<const N: usize>(&self, at: usize) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        let fits = at.checked_add(N).is_some_and(|end| end <= self.len());
        if !fits || !at.is_multiple_of(4) || self.reach(at..at + N) < N {
            return Ok(bytes);
        }
        let from = self.map.as_ptr().wrapping_add(at).cast();
        // SAFETY: the words lie within `at..at + N` and so within the map, and are aligned; `bytes`
        // has the same length.
        let loaded = unsafe { guard::load_words(from, bytes.as_mut_ptr(), N / 4) };
        loaded.map_err(|at| self.fault(at))?;
        Ok(bytes)
    }

    /// Stores bytes as words, from the last to the first: a reader that sees a word (by an
    /// acquiring load) also sees all words after it.
    ///
    /// Does nothing on a read-only map or outside the map.
    ///
    /// # Errors
    ///
    /// As [`Region::write`].
    #[inline]
    pub fn set_words(&self, at: usize, bytes: &[u8]) -> io::Result<()> {
        let fits = at
            .checked_add(bytes.len())
            .is_some_and(|end| end <= self.len());
        let Some(to) = self.place_of::<u32>(at).filter(|_| fits) else {
            return Ok(());
        };
        // SAFETY: the words lie within the map, which is writable, and are aligned; `bytes` has the
        // same length.
        let stored = unsafe { guard::store_words(bytes.as_ptr(), to, bytes.len() / 4) };
        stored.map_err(|at| self.fault(at))
    }

    /// Sleeps until [`Region::notify`] wakes the word at `at`, at most for `timeout`. Returns at
    /// once if the word is not `seen`, and may return early. The word may be shared between
    /// processes.
    pub fn sleep_on(&self, at: usize, seen: u32, timeout: Duration) {
        let Some(word) = self.word_at::<u32>(at) else {
            return;
        };
        #[cfg(target_os = "linux")]
        {
            let timeout = timeout.min(SLEEP_MAX);
            let time = libc::timespec {
                tv_sec: timeout.as_secs().cast_signed(),
                tv_nsec: i64::from(timeout.subsec_nanos()),
            };
            // SAFETY: the word is aligned, lies within the map and outlives the call, and so does
            // the time; the kernel only reads them, and reports a page it cannot load as an error.
            // Callers expect early returns.
            unsafe {
                libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, seen, &time);
            }
        }
        // Without a futex: a short sleep, after which the caller checks the word again.
        #[cfg(not(target_os = "linux"))]
        if !word.is_null() && self.load_u32(at).is_ok_and(|now| now == seen) {
            std::thread::sleep(timeout.min(Duration::from_millis(20)));
        }
    }

    /// Changes the word at `at` of a writable map and wakes all sleepers on it. If it cannot be
    /// changed, they wake by their timeouts. Returns as [`Region::wake`].
    pub fn notify(&self, at: usize) -> usize {
        let Some(word) = self.place_of::<u32>(at) else {
            return 0;
        };
        // SAFETY: the word lies within the map, which is writable, and is aligned.
        let _ = unsafe { guard::add_u32(word, 1) };
        self.wake(at)
    }

    /// Wakes all sleepers on the word at `at`, in all processes, and leaves the word as it is: a
    /// thread that is about to sleep on it still does. Returns how many were woken; 0 on a system
    /// that does not say.
    pub fn wake(&self, at: usize) -> usize {
        let Some(word) = self.word_at::<u32>(at) else {
            return 0;
        };
        // SAFETY: the word is aligned, lies within the map and outlives the call, which stores
        // nothing.
        #[cfg(target_os = "linux")]
        let woken = unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, i32::MAX) };
        #[cfg(not(target_os = "linux"))]
        let woken = {
            let _ = word;
            0_i64
        };
        usize::try_from(woken).unwrap_or(0)
    }
}
