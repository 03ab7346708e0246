//! What a broker keeps beside the log of a partition that it left without a clean stop.

use super::golden::golden;
use super::*;
use crate::engine::{Atomicity, Durability};
use crate::record::Draft;
use crate::record::kafka::Header;

const BASES: [u64; 3] = [0, 477, 955];
/// Bytes of an entry of a transaction index.
const ABORTED_LEN: usize = 34;

fn path(root: &Path, base: u64, ending: &str) -> PathBuf {
    root.join(format!("txn-0/{base:020}.{ending}"))
}

fn adopted(root: &Path) -> PartitionLog {
    let options = Options {
        adopt: true,
        ..Options::default()
    };
    PartitionLog::open(&Machine::real(), root, &options).unwrap()
}

/// Cuts the log in the middle of the batch after the first `batches` of a segment. Returns the
/// offset after them.
fn cut(root: &Path, base: u64, batches: usize) -> u64 {
    let path = path(root, base, "log");
    let bytes = fs::read(&path).unwrap();
    let (mut at, mut end) = (0, base);
    for _ in 0..batches {
        let header = Header::parse(&bytes[at..]).unwrap();
        at += header.len as usize;
        end = header.last_offset() + 1;
    }
    fs::write(path, &bytes[..at + 70]).unwrap();
    end
}

#[test]
fn transaction_indexes_are_made_again_as_the_broker_had_them() {
    let root = golden(&["txn-0"]);
    let expected = BASES.map(|base| fs::read(path(root.path(), base, "txnindex")).unwrap());
    fs::remove_file(path(root.path(), 0, "txnindex")).unwrap();
    fs::write(path(root.path(), 477, "txnindex"), [7; 300]).unwrap();
    fs::write(path(root.path(), 955, "txnindex"), []).unwrap();
    adopted(root.path()).close().unwrap();
    for (base, expected) in BASES.into_iter().zip(&expected) {
        let found = fs::read(path(root.path(), base, "txnindex")).unwrap();
        assert_eq!(found, *expected, "{base}");
    }
    let epochs = root.path().join("txn-0/leader-epoch-checkpoint");
    assert_eq!(fs::read_to_string(epochs).unwrap(), "0\n1\n3 0\n");
    assert!(path(root.path(), 1012, "snapshot").exists());
}

#[test]
fn what_lies_beside_the_log_is_cut_with_it() {
    for (base, batches) in [(955, 1), (477, 8), (477, 20), (0, 6)] {
        let root = golden(&["txn-0"]);
        let before = BASES.map(|base| fs::read(path(root.path(), base, "txnindex")).unwrap());
        let epochs = root.path().join("txn-0/leader-epoch-checkpoint");
        fs::write(&epochs, "0\n2\n3 0\n9 990\n").unwrap();
        let end = cut(root.path(), base, batches);
        assert!(end < 990);
        adopted(root.path()).close().unwrap();
        for (other, before) in BASES.into_iter().zip(before) {
            let found = fs::read(path(root.path(), other, "txnindex")).unwrap_or_default();
            let marker = |entry: &[u8]| u64::from_be_bytes(entry[18..26].try_into().unwrap());
            let kept = before.chunks(ABORTED_LEN).filter(|it| marker(it) < end);
            let kept: Vec<u8> = kept.flatten().copied().collect();
            assert_eq!(found, kept, "{other} of {end}");
            assert_eq!(path(root.path(), other, "log").exists(), other <= base);
        }
        for at in [477, 955, 1012] {
            let snapshot = path(root.path(), at, "snapshot");
            assert_eq!(snapshot.exists(), at <= end, "{at} of {end}");
        }
        assert_eq!(fs::read_to_string(&epochs).unwrap(), "0\n1\n3 0\n");
    }
}

#[test]
fn epochs_are_found_in_the_batches() {
    for damaged in [None, Some("0\n7\n3 0\n")] {
        let root = golden(&["txn-0"]);
        let epochs = root.path().join("txn-0/leader-epoch-checkpoint");
        match damaged {
            None => fs::remove_file(&epochs).unwrap(),
            Some(text) => fs::write(&epochs, text).unwrap(),
        }
        let engine = adopted(root.path());
        assert_eq!(fs::read_to_string(&epochs).unwrap(), "0\n1\n3 0\n");
        let topic = engine.topics().get("txn").unwrap();
        let mut batch = engine.form().batch();
        batch.push("txn", 0, &Draft::default(), 1000).unwrap();
        let batches = &mut [(&*topic, &mut batch)];
        let sent = engine.append(batches, Atomicity::Rows, Durability::Written);
        let position = sent.unwrap().rows[0].position as usize;
        engine.close().unwrap();
        let log = fs::read(path(root.path(), 955, "log")).unwrap();
        assert_eq!(Header::parse(&log[position..]).unwrap().leader_epoch, 3);
    }
}
