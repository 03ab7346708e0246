//! Arbitrary changes to a partition log, which is then written.
#![no_main]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation)]

#[path = "../../tests/store/fuzz_targets.rs"]
mod fuzz_targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_targets::run("partition_log", bytes));
