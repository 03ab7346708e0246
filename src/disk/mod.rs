//! The disk.
pub fn fork_generation() -> u32 {
    0
}
