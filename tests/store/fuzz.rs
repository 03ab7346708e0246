//! The fuzz targets with bytes from proptest: random ones, and valid ones with changes.

use crate::draw::{in_proof, proptest_config};
use crate::fuzz_targets::{TARGETS, run};
use proptest::prelude::*;

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: if in_proof() { 5_000 } else { 80 },
        ..proptest_config()
    }
}

/// Bytes typical of damaged disks: many zeros, many extreme values, some text of tables.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![3 => Just(0u8), 1 => Just(0xFF), 1 => Just(0x7F), 3 => any::<u8>()];
    let text = "(queue|position|index|orders|bills|[{}\",:\\[\\]]|-?[0-9]{1,20}| |\n){0,40}";
    prop_oneof![
        prop::collection::vec(byte, 0..600),
        text.prop_map(String::into_bytes),
    ]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn arbitrary_bytes_anywhere_cause_no_panic(bytes in bytes(), target in 0..TARGETS.len()) {
        let name = TARGETS[target].0;
        let outcome = std::panic::catch_unwind(|| run(name, &bytes));
        prop_assert!(outcome.is_ok(), "target {}", name);
    }
}
