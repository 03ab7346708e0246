//! Batches whose lengths are damaged, in a complete segment.

use super::write::{send, writing};
use super::*;
use crate::engine::{Damage, DamageKind, QueueLogs};
use crate::num::be_u32;
use std::collections::BTreeMap;

const MESSAGES: u64 = 200;

/// A closed store with one complete segment whose index names each batch, and where each begins.
fn complete(root: &Path) -> (PathBuf, Vec<usize>) {
    let options = Options {
        index_interval_bytes: Some(0),
        ..Options::default()
    };
    let engine = writing(root, &options).unwrap();
    for number in 0..MESSAGES {
        send(&engine, "t", &[(0, number.to_string().as_bytes())]);
    }
    engine.roll().unwrap();
    engine.close().unwrap();
    let log = root.join(format!("t-0/{:020}.log", 0));
    let bytes = fs::read(&log).unwrap();
    let mut begins = vec![0];
    while begins[begins.len() - 1] < bytes.len() {
        let begin = begins[begins.len() - 1];
        begins.push(begin + 12 + be_u32(&bytes[begin..], 8) as usize);
    }
    (log, begins)
}

fn log_damage(all: &[Damage]) -> BTreeMap<u64, u64> {
    let of_log = all.iter().filter(|it| it.kind == DamageKind::Log);
    let places: Vec<_> = of_log.map(|it| (it.position, it.length)).collect();
    let found: BTreeMap<_, _> = places.iter().copied().collect();
    assert_eq!(found.len(), places.len(), "each once: {places:?}");
    found
}

/// A batch with a damaged length was reported twice, with the wrong length and with the right one,
/// and readers did not report other damage over which the wrong length led. A repair saved all
/// bytes over which it led.
#[test]
fn a_damaged_length_is_named_once_and_costs_its_batch_alone() {
    for (at, bits) in [(8, 0x40), (9, 0x01), (10, 0x04), (11, 0x40), (11, 0x01)] {
        let root = tempfile::tempdir().unwrap();
        let (log, begins) = complete(root.path());
        let is_wrong = |number: usize| number % 7 == 3;
        let mut bytes = fs::read(&log).unwrap();
        let mut expected = BTreeMap::new();
        for number in (0..begins.len() - 1).filter(|number| is_wrong(*number)) {
            let (begin, end) = (begins[number], begins[number + 1]);
            bytes[begin + at] ^= bits;
            expected.insert(begin as u64, (end - begin) as u64);
        }
        fs::write(&log, bytes).unwrap();
        let what = format!("byte {at}, {bits:x}");
        let reader = open(root.path(), Isolation::ReadUncommitted).unwrap();
        let read = messages(&reader, "t", 50).len() as u64;
        assert_eq!(read, MESSAGES - expected.len() as u64, "{what}");
        assert_eq!(log_damage(&reader.report().damage()), expected, "{what}");
        let engine = writing(root.path(), &Options::default()).unwrap();
        let verified = engine.verify(&mut |_, _| true).unwrap();
        assert_eq!(log_damage(&verified.damage), expected, "{what}");
        assert_eq!(verified.records, MESSAGES - expected.len() as u64, "{what}");
        let repair = engine.repair(&mut |_, _| true).unwrap();
        let steps = repair.steps.iter().filter(|step| step.path == log);
        let removed: BTreeMap<_, _> = steps.clone().map(|it| (it.position, it.length)).collect();
        assert_eq!(removed, expected, "{what}");
        let saved = steps.filter_map(|step| step.saved.as_ref());
        let saved: u64 = saved.map(|path| fs::metadata(path).unwrap().len()).sum();
        assert_eq!(saved, expected.values().sum::<u64>(), "{what}");
        assert_eq!(repair.left, [], "{what}");
        let left = messages(&engine, "t", 50).len() as u64;
        assert_eq!(left, MESSAGES - expected.len() as u64, "{what}");
        engine.close().unwrap();
    }
}
