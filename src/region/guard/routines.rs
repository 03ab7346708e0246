//! The guarded routines, all between two labels. Each is a leaf without a stack frame, so that it
//! can be left from any instruction by a return instruction.

use super::Registers;
use std::arch::global_asm;

#[cfg(target_arch = "x86_64")]
global_asm!(include_str!("x86_64.s"), page = const super::PAGE);
#[cfg(target_arch = "aarch64")]
global_asm!(include_str!("aarch64.s"), page = const super::PAGE);

unsafe extern "C" {
    #[link_name = "forebay_guard_copy"]
    pub fn copy(to: *mut u8, from: *const u8, len: usize) -> Registers;
    #[link_name = "forebay_guard_touch"]
    pub fn touch(first: *const u8, last: *const u8) -> Registers;
    #[link_name = "forebay_guard_load_words"]
    pub fn load_words(to: *mut u8, from: *const u32, count: usize) -> Registers;
    #[link_name = "forebay_guard_store_words"]
    pub fn store_words(to: *mut u32, from: *const u8, count: usize) -> Registers;
    #[link_name = "forebay_guard_load_u32"]
    pub fn load_u32(from: *const u32) -> Registers;
    #[link_name = "forebay_guard_load_u64"]
    pub fn load_u64(from: *const u64) -> Registers;
    #[link_name = "forebay_guard_store_u64"]
    pub fn store_u64(to: *mut u64, value: u64) -> Registers;
    #[link_name = "forebay_guard_add_u32"]
    pub fn add_u32(to: *mut u32, value: u32) -> Registers;
    #[link_name = "forebay_guard_exchange_u64"]
    pub fn exchange_u64(to: *mut u64, old: u64, new: u64) -> Registers;

    /// The first instruction of the routines.
    fn forebay_guard_begin();
    /// The return instruction at the end of the routines.
    fn forebay_guard_end();
}

/// Whether an instruction belongs to one of the routines.
pub fn holds(instruction: usize) -> bool {
    let begin = forebay_guard_begin as *const () as usize;
    (begin..end()).contains(&instruction)
}

/// The return instruction through which a faulting routine is left.
pub fn end() -> usize {
    forebay_guard_end as *const () as usize
}
