//! Unguarded accesses, for systems without the handler: a fault kills the process.

use super::Registers;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const DONE: Registers = Registers { fault: 0, value: 0 };

pub unsafe fn copy(to: *mut u8, from: *const u8, len: usize) -> Registers {
    // SAFETY: the caller's promise, see `guard::copy`.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
    DONE
}

pub unsafe fn touch(_first: *const u8, _last: *const u8) -> Registers {
    DONE
}

pub unsafe fn load_words(to: *mut u8, from: *const u32, count: usize) -> Registers {
    for index in 0..count {
        // SAFETY: the caller's promise, see `guard::load_words`.
        let word = unsafe { AtomicU32::from_ptr(from.cast_mut().add(index)) };
        let bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.add(4 * index), 4) };
    }
    DONE
}

pub unsafe fn store_words(to: *mut u32, from: *const u8, count: usize) -> Registers {
    for index in (0..count).rev() {
        // SAFETY: the caller's promise, see `guard::store_words`.
        let value = unsafe { from.add(4 * index).cast::<u32>().read_unaligned() };
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(to.add(index)) }.store(value, Ordering::Release);
    }
    DONE
}

pub unsafe fn load_u32(from: *const u32) -> Registers {
    // SAFETY: the caller's promise, see `guard::load_u32`.
    let value = unsafe { AtomicU32::from_ptr(from.cast_mut()) }.load(Ordering::Acquire);
    let value = u64::from(value);
    Registers { fault: 0, value }
}

pub unsafe fn load_u64(from: *const u64) -> Registers {
    // SAFETY: the caller's promise, see `guard::load_u64`.
    let value = unsafe { AtomicU64::from_ptr(from.cast_mut()) }.load(Ordering::Acquire);
    Registers { fault: 0, value }
}

pub unsafe fn store_u64(to: *mut u64, value: u64) -> Registers {
    // SAFETY: the caller's promise, see `guard::store_u64`.
    unsafe { AtomicU64::from_ptr(to) }.store(value, Ordering::Release);
    DONE
}

pub unsafe fn add_u32(to: *mut u32, value: u32) -> Registers {
    // SAFETY: the caller's promise, see `guard::add_u32`.
    let before = unsafe { AtomicU32::from_ptr(to) }.fetch_add(value, Ordering::AcqRel);
    let value = u64::from(before);
    Registers { fault: 0, value }
}

pub unsafe fn exchange_u64(to: *mut u64, old: u64, new: u64) -> Registers {
    // SAFETY: the caller's promise, see `guard::exchange_u64`.
    let word = unsafe { AtomicU64::from_ptr(to) };
    let (Ok(value) | Err(value)) =
        word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire);
    Registers { fault: 0, value }
}
