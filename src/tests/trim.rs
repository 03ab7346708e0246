//! The bytes after the end of a log.

use crate::disk::{Disk, RealDisk};
use crate::{Draft, Durability, Mode, Options, Store};

#[test]
fn opening_a_closed_log_finds_no_data_after_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let probe = dir.path().join("probe");
    std::fs::write(&probe, [1; 4096]).unwrap();
    RealDisk.drop_zeros(&probe, 0, 4096);
    if RealDisk.next_data(&probe, 0).unwrap().is_some() {
        return eprintln!("skipped: the file system cannot zero blocks");
    }
    let root = dir.path().join("store");
    let open = |mode| {
        let options = Options {
            mode,
            ..Options::default()
        };
        Store::open(&root, options).unwrap()
    };
    let store = open(Mode::Append);
    let producer = store.producer("orders", Some(0)).unwrap();
    let draft = Draft {
        body: &[7; 1000],
        ..Draft::default()
    };
    let sent = producer.send(&draft, 0, Durability::Default).unwrap();
    store.close().unwrap();

    let file = root.join("commitlog/00000000000000000000");
    let behind = sent.end.next_multiple_of(4096);
    assert_eq!(RealDisk.next_data(&file, behind).unwrap(), None);
    for mode in [Mode::Read, Mode::Append] {
        open(mode).close().unwrap();
        assert_eq!(RealDisk.next_data(&file, behind).unwrap(), None, "{mode:?}");
    }
}
