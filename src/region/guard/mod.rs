//! Loads and stores of mapped bytes that survive a fault: if the kernel cannot provide the page,
//! the access returns an error instead of killing the process by a signal.
//!
//! ```text
//!   copy, words, touch ... --> routine between two labels --fault--> SIGBUS handler
//!        ^                                                               |
//!        +-------- returns the address that faulted <--------------------+
//! ```
//!
//! An access to a map raises SIGBUS if a sector cannot be read, a shared extent needs a block on a
//! full disk, the file system has shut down, or another process truncates the file. All guarded
//! accesses are made by the routines below. They are leaf functions that use no stack and save no
//! registers. So the handler can end one early by setting two registers: the result, and the
//! program counter, which it points at a return instruction. It unwinds no frame of Rust or Python
//! and maps nothing. Any other signal is passed to the handler installed before, or gets its
//! default action.
//!
//! The handler exists on Linux on `x86_64` and `aarch64`. Elsewhere the accesses are plain, and a
//! fault kills the process.

#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicI64, Ordering};

/// Page size of the machines that Forebay runs on. Larger pages only make steps coarser.
pub const PAGE: usize = 4096;

/// A load or store that the kernel could not serve. The inner error of an [`io::Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The byte of the file.
    pub position: u64,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the kernel cannot provide the page (bus error)")
    }
}

impl std::error::Error for Fault {}

impl Fault {
    /// Returns the fault inside an error, if there is one.
    pub fn of(error: &io::Error) -> Option<Fault> {
        error.get_ref()?.downcast_ref().copied()
    }
}

/// The result of a routine, in two registers.
#[repr(C)]
#[derive(Clone, Copy)]
struct Registers {
    /// 0, or the address that faulted.
    fault: usize,
    /// The loaded word, for routines that load one.
    value: u64,
}

/// The address at which an access faulted.
pub type Faulted = usize;

impl Registers {
    #[inline]
    fn done(self) -> Result<u64, Faulted> {
        match self.fault {
            0 => Ok(self.value),
            at => Err(at),
        }
    }
}

pub use handler::{install, renew};

/// Calls [`renew`] at most once for each value of a clock that ticks some hundred times a second,
/// for frequent paths. Within a tick after another handler is installed, that handler sees faults
/// first.
#[inline]
pub fn renew_at(clock_ms: i64) {
    static LAST_MS: AtomicI64 = AtomicI64::new(0);
    if LAST_MS.load(Ordering::Relaxed) != clock_ms {
        LAST_MS.store(clock_ms, Ordering::Relaxed);
        renew();
    }
}

/// Copies `len` bytes. If it fails, some of them may have been copied.
///
/// # Safety
///
/// As for [`std::ptr::copy_nonoverlapping`], except that one of the ranges may be mapped bytes of a
/// file that cannot be loaded.
#[inline]
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) -> Result<(), Faulted> {
    // SAFETY: the caller's promise.
    unsafe { routines::copy(to, from, len) }.done().map(drop)
}

/// Loads from each page that overlaps the `len` bytes at `from`.
///
/// # Safety
///
/// The range must lie within a map.
#[inline]
pub unsafe fn touch(from: *const u8, len: usize) -> Result<(), Faulted> {
    match len {
        0 => Ok(()),
        // SAFETY: the caller's promise; the range is not empty and contains the last byte.
        _ => unsafe { routines::touch(from, from.add(len - 1)) }
            .done()
            .map(drop),
    }
}

/// Loads `count` words of 4 bytes in ascending order, each as a relaxed atomic.
///
/// # Safety
///
/// `from` must be aligned with its words in a map; `to` must have room for them.
#[inline]
pub unsafe fn load_words(from: *const u32, to: *mut u8, count: usize) -> Result<(), Faulted> {
    // SAFETY: the caller's promise.
    unsafe { routines::load_words(to, from, count) }
        .done()
        .map(drop)
}

/// Stores `count` words of 4 bytes in descending order, each as a releasing atomic.
///
/// # Safety
///
/// `to` must be aligned with its words in a writable map; `from` must have as many bytes.
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
/// The word must be aligned and in a map.
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
/// The word must be aligned and in a map.
#[inline]
pub unsafe fn load_u64(from: *const u64) -> Result<u64, Faulted> {
    // SAFETY: the caller's promise.
    unsafe { routines::load_u64(from) }.done()
}

/// Stores a word as a releasing atomic.
///
/// # Safety
///
/// The word must be aligned and in a writable map.
#[inline]
pub unsafe fn store_u64(to: *mut u64, value: u64) -> Result<(), Faulted> {
    // SAFETY: the caller's promise.
    unsafe { routines::store_u64(to, value) }.done().map(drop)
}

/// Atomically adds to a word. Returns its value before.
///
/// # Safety
///
/// The word must be aligned and in a writable map.
#[inline]
pub unsafe fn add_u32(to: *mut u32, value: u32) -> Result<u32, Faulted> {
    // SAFETY: the caller's promise.
    let added = unsafe { routines::add_u32(to, value) }.done();
    added.map(crate::num::low_u32)
}

/// Atomically replaces `old` by `new`. Returns the value before, which is `old` if it was replaced.
///
/// # Safety
///
/// The word must be aligned and in a writable map.
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
    /// There is no guard on this system.
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
