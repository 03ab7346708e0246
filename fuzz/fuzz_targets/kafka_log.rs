//! Arbitrary bytes as the files of a partition of Kafka's.
#![no_main]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation)]

#[path = "../../tests/store/fuzz_targets.rs"]
mod fuzz_targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_targets::run("kafka_log", bytes));
