//! The parts of a commit and its states, step by step in one process.

mod durable;
mod failing;
mod flat;
pub(super) mod thread;

use crate::Store;
use crate::disk::{Call, Disk, HookedDisk, RealDisk};
use crate::engine::directory::names::STAGES;
use crate::engine::directory::page::StatePage;
use crate::engine::directory::page::Word;
use crate::engine::topic::PERMISSION_READ;
use crate::engine::{Engine, Filter};
use crate::machine::Machine;
use crate::options::{Mode, Options};
use crate::record::rocketmq::{Batch, Record};
use crate::record::{Draft, HostBytes, RecordStyle};
use crate::region::Access;
use crate::stages::commit::{self, Patience, publish_cut};
use crate::stages::manifest::{self, PART_LEN};
use crate::stages::marker::{self, Marker};
use crate::stages::name::Name;
use crate::stages::pending;
use crate::stages::place::{StagePlace, is_query};
use crate::stages::stop::Stop;
use crate::stages::{Commit, CommitKind, CommitState, Conflict, Resolution, Stage, Stager};
use crate::store::Opened;
use crate::sync::Mutex;
use arrow_array::{ArrayRef, BinaryArray, RecordBatch, StringArray};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub(super) fn stage(root: &Path, query: &str, bodies: &[Vec<u8>], part_len: u64) -> Stage {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let stager = Stager::new(disk, root, query, Some("t")).unwrap();
    let mut stager = stager.cut_at(usize::try_from(part_len).unwrap());
    let values = BinaryArray::from_iter_values(bodies);
    let batch = RecordBatch::try_from_iter([("value", Arc::new(values) as _)]).unwrap();
    stager.write(&batch).unwrap();
    stager.finish().unwrap().unwrap()
}

pub(super) fn publish(root: &Path, query: &str, stages: &[Stage], part_len: u64) {
    publish_batch(root, query, 0, stages, part_len);
}

fn publish_batch(root: &Path, query: &str, batch: u64, stages: &[Stage], part_len: u64) {
    let kind = CommitKind::Stream;
    let commit = Commit {
        query,
        batch,
        kind,
        conflict: Conflict::Fail,
        stages,
    };
    publish_cut(&RealDisk, root, &commit, part_len).unwrap();
}

pub(super) fn count(store: &Store, topic: &str) -> u64 {
    let Ok(topic) = store.topic(topic) else {
        return 0;
    };
    let engine = store.engine().unwrap();
    let bounds = |queue| engine.bounds(&topic, queue).unwrap().unwrap();
    engine
        .queues(&topic)
        .into_iter()
        .map(bounds)
        .map(|b| b.end)
        .sum()
}

/// Returns why the first commit of a query was refused.
fn refusal(root: &Path, query: &str) -> String {
    match commit::state(&RealDisk, root, query, 0).unwrap() {
        CommitState::Refused(refusal) => refusal.reason,
        state => panic!("{state:?}"),
    }
}

#[test]
fn a_damaged_part_causes_refusal_before_the_first_part_is_appended() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let bodies: Vec<Vec<u8>> = (0..20).map(|n| vec![n; 100]).collect();
    let stages = [stage(root, "q", &bodies, 500)];
    assert!(stages[0].slices.len() > 3);
    publish(root, "q", &stages, 500);
    let path = root.join(STAGES).join("q").join(&stages[0].name);
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 60;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let store = Store::open(root, Options::default()).unwrap();
    store.take_commits().unwrap();
    assert_eq!(count(&store, "t"), 0);
    assert!(refusal(root, "q").contains("checksum"));
}

#[test]
fn a_row_for_no_topic_causes_refusal_before_the_first_part_is_appended() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let store = Store::open(root, Options::default()).unwrap();
    store.create_topic("closed", 1).unwrap();
    let closed = store.topic("closed").unwrap();
    closed.configure(1, 1, PERMISSION_READ);
    let values = BinaryArray::from_iter_values([[1; 100]; 18]);
    let topics = [["t"; 9], ["closed"; 9]].concat();
    let columns: [(&str, ArrayRef); 2] = [
        ("value", Arc::new(values)),
        ("topic", Arc::new(StringArray::from_iter_values(topics))),
    ];
    let stager = Stager::new(Arc::new(RealDisk), root, "q", None).unwrap();
    let mut stager = stager.cut_at(500);
    stager
        .write(&RecordBatch::try_from_iter(columns).unwrap())
        .unwrap();
    publish(root, "q", &[stager.finish().unwrap().unwrap()], 500);
    store.take_commits().unwrap();
    assert_eq!(count(&store, "t"), 0);
    assert!(refusal(root, "q").contains("closed"));
}

/// Parts are encoded while others are appended.
#[test]
fn rows_of_many_parts_and_stages_keep_their_order() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let bodies: Vec<Vec<u8>> = (0..200u8).map(|n| vec![n; 100]).collect();
    let (first, second) = bodies.split_at(90);
    let stages = [stage(root, "q", first, 500), stage(root, "q", second, 500)];
    publish(root, "q", &stages, 500);
    let options = Options {
        default_queues: Some(1),
        ..Options::default()
    };
    let store = Store::open(root, options).unwrap();
    store.take_commits().unwrap();
    assert!(count(&store, marker::TOPIC) > 30);
    let found = store.read("t", 0, 0, bodies.len(), None, &Filter::default());
    let found = found.unwrap().messages;
    let found: Vec<&[u8]> = found.iter().map(|it| it.record().stored_body()).collect();
    assert_eq!(found, bodies);
}

/// Makes the entries of the newest marker point to no record, in the order of the chains.
fn spoil_newest_entries(root: &Path, slots: u64) {
    let mut names = std::fs::read_dir(root.join("index")).unwrap();
    let path = names.next().unwrap().unwrap().path();
    let file = std::fs::File::options().read(true).write(true).open(path);
    let (file, mut count) = (file.unwrap(), [0; 4]);
    file.read_exact_at(&mut count, 36).unwrap();
    // A marker has two keys; numbers begin with 1.
    assert_eq!(u32::from_be_bytes(count), 5);
    let position_at = |number: u64| 40 + 4 * slots + 20 * number + 4;
    let mut before = [0; 8];
    file.read_exact_at(&mut before, position_at(2)).unwrap();
    let nowhere = u64::from_be_bytes(before) + 1;
    for number in [3, 4] {
        file.write_all_at(&nowhere.to_be_bytes(), position_at(number))
            .unwrap();
    }
}

#[test]
fn a_repeated_batch_is_recognised_without_the_index() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let options = Options {
        index_slots: Some(16),
        index_entries: Some(128),
        ..Options::default()
    };
    let store = Store::open(root, options).unwrap();
    for batch in [0, 1] {
        let stages = [stage(root, "q", &[vec![1]], 500)];
        publish_batch(root, "q", batch, &stages, 500);
        store.take_commits().unwrap();
    }
    spoil_newest_entries(root, 16);
    let stages = [stage(root, "q", &[vec![1]], 500)];
    publish_batch(root, "q", 1, &stages, 500);
    store.take_commits().unwrap();
    assert_eq!(count(&store, "t"), 2);
}

#[test]
fn a_commit_that_has_begun_is_not_withdrawn() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let stages = [stage(root, "q", &[vec![1]], 500)];
    publish(root, "q", &stages, 500);
    let place = StagePlace::nested(root).query("q").unwrap();
    let name = Name::Commit(0);
    let mut first = pending::read(&RealDisk, &place, name).unwrap().unwrap();
    let mut second = pending::read(&RealDisk, &place, name).unwrap().unwrap();
    assert!(first.begin(&RealDisk).unwrap());
    assert!(!commit::withdraw(&RealDisk, root, "q", 0).unwrap());
    assert!(!second.begin(&RealDisk).unwrap());
    let state = commit::state(&RealDisk, root, "q", 0).unwrap();
    assert_eq!(state, CommitState::Begun);
}

#[test]
fn a_commit_that_cannot_continue_does_not_block_others() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let a = [stage(root, "a", &[vec![1]], 500)];
    let b = [stage(root, "b", &[vec![2], vec![3]], 500)];
    publish(root, "a", &a, 500);
    publish(root, "b", &b, 500);
    // The file of that name is not a manifest.
    std::fs::write(root.join(STAGES).join("a").join("commit-0"), b"{}").unwrap();
    let store = Store::open(root, Options::default()).unwrap();
    store.take_commits().unwrap();
    assert_eq!(count(&store, "t"), 2);
    assert!(refusal(root, "a").contains("not a manifest"));
}

#[test]
fn opening_takes_up_pending_commits() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let stages = [stage(root, "q", &[vec![1], vec![2]], 500)];
    publish(root, "q", &stages, 500);
    let store = Store::open(root, Options::default()).unwrap();
    let query = ("q", 0);
    loop {
        let pause = Duration::from_secs(60);
        let mut patience = Patience::new(pause);
        let waited = commit::wait(&RealDisk, root, query, &mut patience, pause);
        let (state, held) = waited.unwrap();
        assert!(held, "the store was opened");
        if state == CommitState::Gone {
            break;
        }
    }
    assert_eq!(count(&store, "t"), 2);
    store.close().unwrap();
    let reader = Options {
        mode: Mode::Read,
        ..Options::default()
    };
    let store = Store::open(root, reader).unwrap();
    assert!(store.verify(&mut |_, _| true).unwrap().damage.is_empty());
    assert_eq!(count(&store, marker::TOPIC), 1);
}

#[test]
fn a_record_copied_from_a_stage_equals_a_freshly_encoded_one() {
    let host = |address: &str| HostBytes::new(address.parse::<SocketAddr>().unwrap());
    let style = |host| RecordStyle {
        host,
        checksum: true,
        max_message_size: 1 << 20,
    };
    let (there, here) = (style(host("0.0.0.0:0")), style(host("10.1.2.3:99")));
    for len in [0, 3, 100, 40_000] {
        let body = vec![7; len];
        let draft = Draft {
            body: &body,
            keys: &["k"],
            properties: &[("a", "b")],
            born_timestamp: Some(5),
            ..Draft::default()
        };
        let mut staged = Batch::new(there);
        staged.push("t", u32::MAX, &draft, 1).unwrap();
        let row = staged.rows()[0];
        let staged = staged.seal(row, 0, 0, 1).to_vec();
        let staged = Record::parse(&staged).unwrap();
        let (mut taken, mut encoded) = (Batch::new(here), Batch::new(here));
        encoded.push("t", 4, &draft, 1).unwrap();
        assert!(taken.push_encoded(&staged, 4, 1));
        let (a, b) = (taken.rows()[0], encoded.rows()[0]);
        assert_eq!(taken.seal(a, 9, 1234, 77), encoded.seal(b, 9, 1234, 77));
        let v6 = style(host("[::1]:99"));
        assert!(!Batch::new(v6).push_encoded(&staged, 4, 1));
    }
}

#[test]
fn names_and_queries_of_others_are_recognised() {
    assert_eq!(Name::of("commit-7"), Name::Commit(7));
    assert_eq!(Name::of("taken-0"), Name::Taken(0));
    assert_eq!(Name::of("stage-ab12"), Name::Stage);
    assert_eq!(Name::of("commit-ab.tmp"), Name::Temporary);
    for name in [
        "commit-",
        "commit-x",
        "stage-",
        "stage-../x",
        "x.tmp",
        "commit--1",
    ] {
        assert_eq!(Name::of(name), Name::Other, "{name}");
    }
    for query in ["", ".", "..", "a/b", "a b", &"x".repeat(65)] {
        assert!(!is_query(query), "{query}");
    }
    assert!(is_query("0a1b-_Z"));
}

/// Position of the marker record that ends part `part`, counted from 1.
fn marker_at(store: &Store, part: i64) -> u64 {
    let found = store.get(marker::TOPIC, 0, part - 1).unwrap();
    let position = found.record().position().cast_unsigned();
    let marker = Marker::of(&found.record()).unwrap();
    assert_eq!(marker.part.cast_signed(), part);
    position
}

/// Takes up a commit of several parts, and leaves the log as if the process had died after the
/// first. Returns the numbers of rows and parts in the log.
fn die_after_the_first_part(root: &Path, bodies: &[Vec<u8>]) -> (u64, u64) {
    let stages = [stage(root, "q", bodies, 500)];
    publish(root, "q", &stages, 500);
    let store = Store::open(root, Options::default()).unwrap();
    store.take_commits().unwrap();
    let parts = count(&store, marker::TOPIC);
    assert!(parts > 3);
    // Between them are the end record of the first part and the begin record of the second.
    let first = marker_at(&store, 1);
    let next = |position: u64| {
        let message = store.message_at(position).unwrap();
        position + message.record().bytes().len() as u64
    };
    let end = next(next(first));
    store.close().unwrap();
    let log = root.join("commitlog").join(format!("{:020}", 0));
    let log = std::fs::File::options().write(true).open(log).unwrap();
    log.write_all_at(&vec![0; 64 << 10], end).unwrap();
    for name in ["forebay.state", "forebay.offsets", "checkpoint"] {
        std::fs::remove_file(root.join(name)).unwrap();
    }
    for name in ["consumequeue", "index"] {
        std::fs::remove_dir_all(root.join(name)).unwrap();
    }
    std::fs::write(root.join("abort"), b"1").unwrap();
    // Without the state page the store counts as that of another system.
    let adopting = Options {
        adopt: true,
        ..Options::default()
    };
    let store = Store::open(root, adopting).unwrap();
    assert_eq!(count(&store, marker::TOPIC), 1);
    let rows = count(&store, "t");
    assert!(0 < rows && rows < bodies.len() as u64);
    store.close().unwrap();
    (rows, parts)
}

/// Appending the rest of another commit after the first part of this one would make up a batch that
/// nobody wrote.
#[test]
fn a_commit_does_not_continue_another_one_of_its_batch() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let bodies: Vec<Vec<u8>> = (0..20).map(|n| vec![n; 100]).collect();
    let (rows, parts) = die_after_the_first_part(root, &bodies);
    let other: Vec<Vec<u8>> = (100..120).map(|n| vec![n; 100]).collect();
    publish(root, "q", &[stage(root, "q", &other, 500)], 500);
    let store = Store::open(root, Options::default()).unwrap();
    store.take_commits().unwrap();
    assert_eq!(count(&store, "t"), rows);
    assert_eq!(count(&store, marker::TOPIC), 1);
    let reason = refusal(root, "q");
    let expected = format!("part 1 of {parts} of batch 0 is in the log, from another commit");
    assert!(reason.contains(&expected), "{reason}");
    // Commits of other batches are taken up.
    publish_batch(root, "q", 1, &[stage(root, "q", &other, 500)], 500);
    store.take_commits().unwrap();
    assert_eq!(count(&store, "t"), rows + other.len() as u64);
}

/// Commits a batch of one stage and takes it up. Returns why it was refused.
fn run_batch(
    store: &Store,
    root: &Path,
    batch: u64,
    bodies: &[Vec<u8>],
    conflict: Conflict,
) -> Option<pending::Refusal> {
    let stages = [stage(root, "q", bodies, 500)];
    let commit = Commit {
        query: "q",
        batch,
        kind: CommitKind::Stream,
        conflict,
        stages: &stages,
    };
    publish_cut(&RealDisk, root, &commit, 500).unwrap();
    store.take_commits().unwrap();
    match commit::state(&RealDisk, root, "q", batch).unwrap() {
        CommitState::Gone => None,
        CommitState::Refused(refusal) => Some(refusal),
        state => panic!("{state:?}"),
    }
}

/// A checkpoint was rolled back, copied or forked: its rows are not a retry, and must not be lost.
#[test]
fn a_batch_whose_number_is_in_the_log_with_other_rows_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let store = Store::open(root, Options::default()).unwrap();
    let rows = |of: u8| (0..9).map(|n| vec![of, n]).collect::<Vec<_>>();
    let run = |batch, of, conflict| run_batch(&store, root, batch, &rows(of), conflict);
    for (batch, of) in [(0, 0), (1, 1), (2, 2)] {
        assert_eq!(run(batch, of, Conflict::Fail), None);
    }
    assert_eq!(count(&store, "t"), 27);
    // A repeated batch is skipped, even if the checkpoint is older than its last batch.
    assert_eq!(run(2, 2, Conflict::Fail), None);
    assert_eq!(run(0, 0, Conflict::Fail), None);
    assert_eq!(count(&store, "t"), 27);
    let refused = run(2, 7, Conflict::Fail).unwrap();
    assert!(
        refused
            .reason
            .contains("batch 2 of this query with other rows (9 rows there, 9 rows")
    );
    assert!(
        refused.reason.contains("new checkpoint"),
        "{}",
        refused.reason
    );
    assert!(!refused.appended);
    let refused = run(1, 7, Conflict::Fail).unwrap();
    assert!(
        refused.reason.contains("holds batch 2"),
        "{}",
        refused.reason
    );
    let mut more = rows(2);
    more.push(vec![2, 8]);
    assert!(run_batch(&store, root, 2, &more, Conflict::Fail).is_some());
    assert_eq!(count(&store, "t"), 27);
    assert_eq!(run(1, 7, Conflict::Skip), None);
    assert_eq!(count(&store, "t"), 27);
    // The query continues from an accepted batch, whose retry is skipped like any other.
    assert_eq!(run(1, 7, Conflict::Append), None);
    assert_eq!(run(1, 7, Conflict::Append), None);
    assert_eq!(count(&store, "t"), 36);
    // A batch that was in the log before the accepted one is skipped too.
    assert_eq!(run(2, 2, Conflict::Fail), None);
    assert_eq!(count(&store, "t"), 36);
    assert_eq!(run(2, 9, Conflict::Fail), None);
    assert_eq!(run(2, 9, Conflict::Fail), None);
    assert_eq!(count(&store, "t"), 45);
}

/// Removes from a manifest what release 0.1.0 does not write.
fn make_old(root: &Path, batch: u64) {
    let path = root.join(STAGES).join("q").join(format!("commit-{batch}"));
    let text = std::fs::read(&path).unwrap();
    let mut value: serde_json::Value = serde_json::from_slice(&text).unwrap();
    for name in ["rows", "sum", "conflict"] {
        value.as_object_mut().unwrap().remove(name).unwrap();
    }
    std::fs::write(path, value.to_string()).unwrap();
}

#[test]
fn for_a_marker_of_the_first_version_only_the_number_decides() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    for batch in [3, 4] {
        // No writer takes it up meanwhile.
        publish_batch(root, "q", batch, &[stage(root, "q", &[vec![1]], 500)], 500);
        make_old(root, batch);
        let store = Store::open(root, Options::default()).unwrap();
        store.take_commits().unwrap();
        store.close().unwrap();
    }
    let store = Store::open(root, Options::default()).unwrap();
    let found = store.get(marker::TOPIC, 0, 1).unwrap();
    assert_eq!(Marker::of(&found.record()).unwrap().contents, None);
    assert_eq!(run_batch(&store, root, 4, &[vec![2]], Conflict::Fail), None);
    assert_eq!(count(&store, "t"), 2);
    // A batch with an earlier number is not a retry, whatever its rows are.
    assert!(run_batch(&store, root, 3, &[vec![1]], Conflict::Fail).is_some());
    assert_eq!(run_batch(&store, root, 5, &[vec![2]], Conflict::Fail), None);
    assert_eq!(count(&store, "t"), 3);
}

/// The stages of a commit disappear after its first part: the refusal says that a part is in the
/// log.
#[test]
fn a_stage_lost_after_the_first_part_is_reported_with_the_appended_parts() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let bodies: Vec<Vec<u8>> = (0..20).map(|n| vec![n; 100]).collect();
    let directory = root.join(STAGES).join("q");
    let (rows, parts) = die_after_the_first_part(root, &bodies);
    // The manifest of the interrupted commit still exists, but not its stage.
    let store = Store::open(root, Options::default()).unwrap();
    let marker = store.get(marker::TOPIC, 0, 0).unwrap();
    let id = Marker::of(&marker.record()).unwrap().commit;
    store.close().unwrap();
    let stages = [stage(root, "q", &bodies, 500)];
    publish(root, "q", &stages, 500);
    let path = directory.join("commit-0");
    let text = std::fs::read(&path).unwrap();
    let mut value: serde_json::Value = serde_json::from_slice(&text).unwrap();
    value["id"] = id.into();
    std::fs::remove_file(directory.join(&stages[0].name)).unwrap();
    std::fs::write(directory.join("taken-0"), value.to_string()).unwrap();
    std::fs::remove_file(&path).unwrap();
    let store = Store::open(root, Options::default()).unwrap();
    store.take_commits().unwrap();
    let CommitState::Refused(refusal) = commit::state(&RealDisk, root, "q", 0).unwrap() else {
        panic!("the commit was not refused");
    };
    assert!(refusal.appended);
    let said = format!("1 of {parts} parts are in the log");
    assert!(refusal.reason.contains(&said), "{}", refusal.reason);
    assert_eq!(count(&store, "t"), rows);
}

#[test]
fn a_batch_that_cannot_be_completed_is_resolved() {
    for resolution in [Resolution::Appended, Resolution::Again] {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let bodies: Vec<Vec<u8>> = (0..20).map(|n| vec![n; 100]).collect();
        let (rows, _) = die_after_the_first_part(root, &bodies);
        let store = Store::open(root, Options::default()).unwrap();
        let refused = run_batch(&store, root, 0, &bodies, Conflict::Append).unwrap();
        assert!(refused.appended && refused.reason.contains("commits resolve"));
        let resolve = |batch| {
            commit::resolve(&RealDisk, root, ("q", batch), resolution).unwrap();
            store.take_commits().unwrap();
            commit::state(&RealDisk, root, "q", batch).unwrap()
        };
        assert_eq!(resolve(0), CommitState::Gone);
        assert_eq!(count(&store, "t"), rows);
        assert_eq!(run_batch(&store, root, 0, &bodies, Conflict::Fail), None);
        let all = match resolution {
            Resolution::Appended => rows,
            Resolution::Again => rows + 20,
        };
        assert_eq!(count(&store, "t"), all);
        assert_eq!(run_batch(&store, root, 1, &bodies, Conflict::Fail), None);
        for batch in [0, 1, 2] {
            assert!(matches!(resolve(batch), CommitState::Refused(_)), "{batch}");
        }
        assert_eq!(count(&store, "t"), all + 20);
        store.close().unwrap();
    }
}

#[test]
fn a_short_commit_does_not_wait_for_all_of_a_long_one() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let bodies: Vec<Vec<u8>> = (0..100).map(|n| vec![n; 100]).collect();
    publish(root, "long", &[stage(root, "long", &bodies, 500)], 500);
    publish(root, "short", &[stage(root, "short", &[vec![1]], 500)], 500);
    let store = Store::open(root, Options::default()).unwrap();
    store.take_commits().unwrap();
    let markers = count(&store, marker::TOPIC);
    assert!(markers > 20);
    let found = store.read(marker::TOPIC, 0, 0, 1000, None, &Filter::default());
    let found = found.unwrap().messages;
    let is_short = |it: &crate::record::Message| Marker::of(&it.record()).unwrap().query == "short";
    let at = found.iter().position(is_short).unwrap();
    assert!(at < 10, "{at} of {markers} parts come before it");
    assert_eq!(count(&store, "t"), 101);
    assert!(store.verify(&mut |_, _| true).unwrap().damage.is_empty());
}

/// Opens a store whose disk calls are passed to `before`, and takes up pending commits.
fn take_up(root: &Path, before: impl Fn(Call, &Path) + Send + Sync + 'static) -> Opened {
    let disk = HookedDisk::shared(move |call, path| {
        before(call, path);
        Ok(())
    });
    let engine: Opened = Opened::open(&Machine::stepped(disk), root, &Options::default()).unwrap();
    engine.take_commits().unwrap();
    engine
}

/// Each turn once read the manifests of all commits, so long commits that took turns cost the
/// square of their parts.
#[test]
fn a_manifest_is_read_as_often_for_many_turns_as_for_few() {
    let reads = |rows: u8| {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let bodies: Vec<Vec<u8>> = (0..rows).map(|n| vec![n; 100]).collect();
        for query in ["one", "other"] {
            publish(root, query, &[stage(root, query, &bodies, 500)], 500);
        }
        let reads = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&reads);
        let engine = take_up(root, move |call, path| {
            let name = path.file_name().and_then(|name| name.to_str());
            let name = name.unwrap_or_default();
            let is_manifest = matches!(Name::of(name), Name::Commit(_) | Name::Taken(_));
            if call == Call::Read && is_manifest {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        assert!(engine.stats().messages_sent > 2 * u64::from(rows));
        reads.load(Ordering::Relaxed)
    };
    assert_eq!(reads(200), reads(50));
}

#[test]
fn a_commit_published_during_a_long_one_does_not_wait_for_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_owned();
    let bodies: Vec<Vec<u8>> = (0..600u32).map(|n| vec![n as u8; 100]).collect();
    publish(&root, "long", &[stage(&root, "long", &bodies, 500)], 500);
    let (from, reads) = (root.clone(), AtomicUsize::new(0));
    // The stages are read once for the check and once for the append. The check is under way.
    let engine = take_up(&root, move |call, path| {
        let is_long = call == Call::Read && path.parent().is_some_and(|it| it.ends_with("long"));
        if is_long && reads.fetch_add(1, Ordering::Relaxed) == 10 {
            publish(
                &from,
                "short",
                &[stage(&from, "short", &[vec![1]], 500)],
                500,
            );
        }
    });
    engine.close().unwrap();
    let store = Store::open(&root, Options::default()).unwrap();
    let found = store.read(marker::TOPIC, 0, 0, 1000, None, &Filter::default());
    let found = found.unwrap().messages;
    let is_short = |it: &crate::record::Message| Marker::of(&it.record()).unwrap().query == "short";
    let at = found.iter().position(is_short).unwrap();
    assert!(
        found.len() > 40 && at == 0,
        "part {at} of {}: it waited for the check of the long one",
        found.len()
    );
}

/// The log is locked while a part is appended, so a commit that is too long for one part is divided
/// into short ones.
#[test]
fn a_commit_longer_than_a_part_is_divided_into_short_ones() {
    for (count, shorter) in [(3, PART_LEN), (9, PART_LEN / 2)] {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let bodies: Vec<Vec<u8>> = (0..count).map(|n| vec![n; 1 << 20]).collect();
        let stages = [stage(root, "q", &bodies, 1 << 20)];
        let commit = Commit {
            query: "q",
            batch: 0,
            kind: CommitKind::Stream,
            conflict: Conflict::Fail,
            stages: &stages,
        };
        commit::publish(&RealDisk, root, &commit).unwrap();
        let place = StagePlace::nested(root).query("q").unwrap();
        let found = pending::of_query(&RealDisk, &place).unwrap().remove(0);
        let parts = found.manifest.unwrap().parts;
        let len = |part: &Vec<manifest::Slice>| part.iter().map(|it| it.end - it.begin).sum();
        let longest: u64 = parts.iter().map(len).max().unwrap();
        assert!(longest < shorter, "{longest} bytes");
        assert_eq!(parts.len() == 1, count == 3);
    }
}

/// A timeout counts the time without progress, so each part must be visible as progress.
#[test]
fn a_waiting_driver_sees_each_part() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let store = Store::open(root, Options::default()).unwrap();
    let page = StatePage::open(&RealDisk, root, Access::Read)
        .unwrap()
        .unwrap();
    let before = page.read_word(Word::Taken);
    let bodies: Vec<Vec<u8>> = (0..100).map(|n| vec![n; 100]).collect();
    publish(root, "q", &[stage(root, "q", &bodies, 500)], 500);
    store.take_commits().unwrap();
    let parts = count(&store, marker::TOPIC);
    let notified = page.read_word(Word::Taken).wrapping_sub(before);
    assert!(u64::from(notified) > 2 * parts && parts > 20);
}

/// A driver withdraws a manifest that was read but has not begun, and publishes the batch again.
#[test]
fn a_commit_whose_name_is_taken_by_another_is_not_begun() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let place = StagePlace::nested(root).query("q").unwrap();
    let of = |name| pending::read(&RealDisk, &place, name).unwrap();
    let again = || publish(root, "q", &[stage(root, "q", &[vec![1]], 500)], 500);
    again();
    let mut first = of(Name::Commit(0)).unwrap();
    assert!(commit::withdraw(&RealDisk, root, "q", 0).unwrap());
    again();
    assert!(!first.begin(&RealDisk).unwrap());
    assert!(of(Name::Taken(0)).is_none());
    let mut second = of(Name::Commit(0)).unwrap();
    assert_ne!(second.manifest, first.manifest);
    // A begun commit does not remove the name of a later one.
    assert!(second.begin(&RealDisk).unwrap());
    let path = place.path("commit-0");
    std::fs::write(&path, b"later").unwrap();
    second.take_back(&RealDisk).unwrap();
    assert!(second.is_begun());
    assert_eq!(std::fs::read(&path).unwrap(), b"later");
}

#[test]
fn a_manifest_that_is_being_renamed_is_listed() {
    let dir = tempfile::tempdir().unwrap();
    // Listing takes several calls of the kernel.
    let count = 2_000;
    let place = StagePlace::nested(dir.path()).query("q").unwrap();
    std::fs::create_dir_all(&place.folder).unwrap();
    let name = |name: Name| place.path(&name.text());
    for batch in 0..count {
        std::fs::write(name(Name::Commit(batch)), b"").unwrap();
    }
    std::thread::scope(|scope| {
        let renaming = scope.spawn(|| {
            for batch in 0..count {
                std::fs::rename(name(Name::Commit(batch)), name(Name::Taken(batch))).unwrap();
                std::thread::yield_now();
            }
        });
        let mut ended = false;
        while !ended {
            // The last listing begins after the last rename.
            ended = renaming.is_finished();
            let found = pending::files(&RealDisk, &place).unwrap();
            let batches: HashSet<u64> = found
                .iter()
                .filter_map(|(_, name)| match name {
                    Name::Commit(batch) | Name::Taken(batch) => Some(*batch),
                    _ => None,
                })
                .collect();
            assert_eq!(batches.len() as u64, count);
        }
    });
}
