//! What a roll makes sure of before the next append, which may find its place ready.

use super::golden::golden;
use super::write::{send, writing};
use super::*;
use crate::engine::QueueLogs;
use crate::record::kafka::Header;

const TORN: [&str; 2] = ["partition.metadata", "leader-epoch-checkpoint"];

fn opened(root: &Path, mode: Mode) -> PartitionLog {
    let options = Options {
        mode,
        adopt: true,
        ..Options::default()
    };
    writing(root, &options).unwrap()
}

/// The broker's epoch is 3. The first batches after a roll had epoch 0: a broker that serves the
/// partition again would cut its log by them.
#[test]
fn batches_after_a_roll_have_the_epoch_of_the_leader() {
    for mode in [Mode::Append, Mode::Share] {
        let root = golden(&["none-0"]);
        let engine = opened(root.path(), mode);
        assert!(engine.roll().unwrap());
        let sent = send(&engine, "none", &[(0, b"one")]);
        engine.close().unwrap();
        let log = root.path().join(format!("none-0/{:020}.log", sent[0]));
        let header = Header::parse(&fs::read(log).unwrap()).unwrap();
        assert_eq!(header.first_offset(), sent[0]);
        assert_eq!(header.leader_epoch, 3, "{mode:?}");
    }
}

/// A power loss took the small files, which the sync after a roll stores in a store that processes
/// share.
#[test]
fn a_roll_makes_small_files_that_are_missing() {
    for mode in [Mode::Append, Mode::Share] {
        let root = tempfile::tempdir().unwrap();
        let options = Options {
            mode,
            ..Options::default()
        };
        let file = |name: &str| root.path().join("orders-0").join(name);
        let engine = writing(root.path(), &options).unwrap();
        send(&engine, "orders", &[(0, b"one")]);
        engine.close().unwrap();
        let known = TORN.map(|name| fs::read(file(name)).unwrap());
        for name in TORN {
            fs::remove_file(file(name)).unwrap();
        }
        let engine = writing(root.path(), &options).unwrap();
        assert!(engine.roll().unwrap());
        assert_eq!(TORN.map(|name| fs::read(file(name)).unwrap()), known);
        assert_eq!(send(&engine, "orders", &[(0, b"two")]), [1]);
        engine.flush(&mut || true).unwrap();
        engine.close().unwrap();
    }
}
