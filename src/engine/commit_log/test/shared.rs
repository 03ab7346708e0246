//! Two processes of a shared store, one of which is held up.

use crate::engine::commit_log::CommitLog;
use crate::engine::commit_log::share::Share;
use crate::engine::directory::page::Mark;
use crate::engine::{Atomicity, Durability, Engine};
use crate::machine::Machine;
use crate::options::{Mode, Options};
use crate::record::Draft;

const FILE_LEN: u64 = 16 << 10;

/// A process was stopped while others sent and retention removed what they had sent. It has walked
/// none of that, and knows the next offsets all the same.
#[test]
fn a_process_that_has_not_walked_what_was_removed_goes_on_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let options = Options {
        mode: Mode::Share,
        commitlog_file_size: Some(FILE_LEN),
        default_queues: Some(1),
        retention_bytes: Some(2 * FILE_LEN),
        disk_reserve: 0,
        ..Options::default()
    };
    let machine = Machine::real();
    let leader = CommitLog::open(&machine, &root, &options, Vec::new()).unwrap();
    let topic = leader.topic_for_append("orders").unwrap();
    let send = || {
        let draft = Draft {
            body: &[1; 1 << 10],
            ..Draft::default()
        };
        let mut batch = leader.batch();
        batch.push("orders", 0, &draft, 1).unwrap();
        let batches = &mut [(&*topic, &mut batch)];
        let durability = Durability::Default;
        leader.append(batches, Atomicity::Rows, durability).unwrap();
    };
    send();
    let (share, opened) = Share::open(&machine, &root, &options, Vec::new()).unwrap();
    // No thread of this process walks on while the lock is held.
    let mut tail = share.core.lock_tail();
    let before = tail.position();
    (0..100).for_each(|_| send());
    let minimum = || share.core.page().get(Mark::Minimum);
    let first = root.join("commitlog").join(format!("{:020}", 0));
    while minimum() == 0 || first.exists() {
        std::thread::yield_now();
    }
    assert!(before < minimum());
    share.core.catch_up(&mut tail).unwrap();
    assert_eq!(tail.position(), share.core.published());
    let topic = opened.parts.topics.get("orders").unwrap();
    assert_eq!(tail.next_offset(&topic, 0), 101);
    drop(tail);
    share.close().unwrap();
    leader.close().unwrap();
}
