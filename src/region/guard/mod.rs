//! Loads from and stores to mapped bytes that survive a fault: each gives an error where the kernel
//! cannot bring the page in, and no signal kills the process.
//!
//! ```text
//!   copy, words, touch ... --> routine between two labels --fault--> SIGBUS handler
//!        ^                                                               |
//!        +-------- returns the address that faulted <--------------------+
//! ```
//!
//! A load or a store in a map raises SIGBUS where a sector cannot be read, where a shared extent
//! finds no room on a full disk, where the file system has shut down, and where somebody truncates
//! the file. All guarded accesses are made by the routines below, which are leaves: they use no
//! stack and save no register. So the handler ends one early by setting two registers, the result
//! and the program counter, which it points at a return instruction. It jumps over no frame of Rust
//! or Python and maps nothing. A signal that is not a fault in one of the routines goes to the
//! handler that was installed before, or does what it would do without us.
//!
//! The handler exists on Linux on `x86_64` and `aarch64`. Elsewhere the accesses are plain ones,
//! and a fault kills the process.

#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicI64, Ordering};

/// Size of a page of the machines that Forebay runs on; larger pages only make steps coarser.
pub const PAGE: usize = 4096;

/// A load or store that the kernel could not serve. It is the inner error of an [`io::Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Byte of the file.
    pub position: u64,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the kernel cannot provide the page (bus error)")
    }
}

impl std::error::Error for Fault {}

impl Fault {
    /// The fault that an error tells of, if it tells of one.
    pub fn of(error: &io::Error) -> Option<Fault> {
        error.get_ref()?.downcast_ref().copied()
    }
}

/// What a routine returns, in two registers.
#[repr(C)]
#[derive(Clone, Copy)]
struct Outcome {
    /// 0, or the address that faulted.
    fault: usize,
    /// What was loaded, for those that load one word.
    value: u64,
}

/// The address at which an access faulted.
pub type Faulted = usize;

impl Outcome {
    #[inline]
    fn done(self) -> Result<u64, Faulted> {
        match self.fault {
            0 => Ok(self.value),
            at => Err(at),
        }
    }
}

pub use handler::{install, renew};

/// [`renew`], at most once for each value of a clock that ticks some hundred times a second: for
/// paths that are taken often. What faults within a tick of another handler's installation, that
/// handler sees first.
#[inline]
pub fn renew_at(clock_ms: i64) {
    static LAST_MS: AtomicI64 = AtomicI64::new(0);
    if LAST_MS.load(Ordering::Relaxed) != clock_ms {
        LAST_MS.store(clock_ms, Ordering::Relaxed);
        renew();
    }
}

/// Copies `len` bytes. Where it fails, some of them may have been copied.
///
/// # Safety
///
/// Both ranges belong to the caller as for [`std::ptr::copy_nonoverlapping`], but for that one of
/// them may be mapped bytes of a file that cannot be had.
#[inline]
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) -> Result<(), Faulted> {
    // SAFETY: the caller's promise.
    unsafe { routines::copy(to, from, len) }.done().map(drop)
}

/// Loads from each page that `len` bytes from `from` on lie in.
///
/// # Safety
///
/// The range lies within a map.
#[inline]
pub unsafe fn touch(from: *const u8, len: usize) -> Result<(), Faulted> {
    match len {
        0 => Ok(()),
        // SAFETY: the caller's promise; the last byte is within the range, which is not empty.
        _ => unsafe { routines::touch(from, from.add(len - 1)) }
            .done()
            .map(drop),
    }
}

/// Loads `count` words of 4 bytes, each as a relaxed atomic, in their order.
///
/// # Safety
///
/// `from` is aligned, and its words lie within a map; `to` has room for them.
#[inline]
pub unsafe fn load_words(from: *const u32, to: *mut u8, count: usize) -> Result<(), Faulted> {
    // SAFETY: the caller's promise.
    unsafe { routines::load_words(to, from, count) }
        .done()
        .map(drop)
}

/// Stores `count` words of 4 bytes, each as a releasing atomic, from the last to the first.
///
/// # Safety
///
/// `to` is aligned, and its words lie within a writable map; `from` has as many.
#[inline]
pub unsafe fn store_words(from: *const u8, to: *mut u32, count: usize) -> Result<(), Faulted> {
    // SAFETY: the caller's promise.
    unsafe { routines::store_words(to, from, count) }
        .done()
        .map(drop)
}

/// Loads a word as an acquiring atomic.
///
/// # Safety
///
/// The word is aligned and lies within a map.
#[inline]
pub unsafe fn load_u32(from: *const u32) -> Result<u32, Faulted> {
    // SAFETY: the caller's promise.
    let loaded = unsafe { routines::load_u32(from) }.done();
    loaded.map(crate::num::low_u32)
}

/// Loads a word as an acquiring atomic.
///
/// # Safety
///
/// The word is aligned and lies within a map.
#[inline]
pub unsafe fn load_u64(from: *const u64) -> Result<u64, Faulted> {
    // SAFETY: the caller's promise.
    unsafe { routines::load_u64(from) }.done()
}

/// Stores a word as a releasing atomic.
///
/// # Safety
///
/// The word is aligned and lies within a writable map.
#[inline]
pub unsafe fn store_u64(to: *mut u64, value: u64) -> Result<(), Faulted> {
    // SAFETY: the caller's promise.
    unsafe { routines::store_u64(to, value) }.done().map(drop)
}

/// Adds to a word as one atomic step; its value before.
///
/// # Safety
///
/// The word is aligned and lies within a writable map.
#[inline]
pub unsafe fn add_u32(to: *mut u32, value: u32) -> Result<u32, Faulted> {
    // SAFETY: the caller's promise.
    let added = unsafe { routines::add_u32(to, value) }.done();
    added.map(crate::num::low_u32)
}

/// Replaces `old` by `new` as one atomic step; the value before, which is `old` where it was
/// replaced.
///
/// # Safety
///
/// The word is aligned and lies within a writable map.
#[inline]
pub unsafe fn exchange_u64(to: *mut u64, old: u64, new: u64) -> Result<u64, Faulted> {
    // SAFETY: the caller's promise.
    unsafe { routines::exchange_u64(to, old, new) }.done()
}

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod routines;

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod handler;

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
#[path = "plain.rs"]
mod routines;

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
mod handler {
    /// Nothing is guarded here.
    pub fn install() {}

    /// As [`install`].
    pub fn renew() {}
}

#[cfg(all(
    test,
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod test;
