//! Durability of commits, and their remains after a power loss.

use super::*;
use crate::engine::Engine;
use crate::error::{Error, Op};
use crate::plant::{Bug, plant};
use crate::record::Contents;

/// The file name in the path of a call.
fn name_of(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn engine_on(disk: Arc<dyn Disk>, root: &Path) -> Opened {
    Opened::open(&Machine::stepped(disk), root, &Options::default()).unwrap()
}

/// A commit is reported as done only after the log is durable, and an interrupted commit is
/// repeated.
#[test]
fn files_of_a_commit_are_synced_by_the_writer_and_only_where_it_has_several_parts() {
    for parts in [1, 4] {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let synced = Arc::new(Mutex::new(HashSet::new()));
        let seen = Arc::clone(&synced);
        let note = move |call: Call, path: &Path| {
            if matches!(call, Call::Sync | Call::SyncRange) {
                seen.lock().insert(name_of(path));
            }
            Ok(())
        };
        let disk = HookedDisk::shared(note);
        let engine = engine_on(Arc::clone(&disk), root);
        synced.lock().clear();
        let values = BinaryArray::from_iter_values((0..parts).map(|n| vec![n; 400]));
        let batch = RecordBatch::try_from_iter([("value", Arc::new(values) as _)]).unwrap();
        let stager = Stager::new(Arc::clone(&disk), root, "q", Some("t")).unwrap();
        let mut stager = stager.cut_at(400);
        stager.write(&batch).unwrap();
        let stages = [stager.finish().unwrap().unwrap()];
        let commit = Commit {
            query: "q",
            batch: 0,
            kind: CommitKind::Stream,
            conflict: Conflict::Fail,
            stages: &stages,
        };
        publish_cut(&*disk, root, &commit, 400).unwrap();
        assert_eq!(*synced.lock(), HashSet::new());
        engine.take_commits().unwrap();
        for name in ["commit-0", &stages[0].name, STAGES] {
            assert_eq!(synced.lock().contains(name), parts > 1, "{name}");
        }
        let batch = ("q", 0);
        assert!(
            engine
                .holds_commit(batch, stages[0].contents, false)
                .unwrap()
        );
    }
}

#[test]
fn a_missing_or_unsynced_file_is_not_retried() {
    let io = |op, number| {
        let error = std::io::Error::from_raw_os_error(number);
        Stop::of_file(Error::io(op, "stage-1", error))
    };
    assert!(matches!(io(Op::Read, libc::ENOENT), Stop::Refuse(_)));
    assert!(matches!(io(Op::Read, libc::EIO), Stop::Later(_)));
    // The kernel may have dropped the pages, but a second sync would succeed.
    assert!(matches!(io(Op::Sync, libc::EIO), Stop::Refuse(_)));
    let disk = HookedDisk::shared(|call, _| match call {
        Call::Sync => Err(std::io::Error::from_raw_os_error(libc::EMFILE)),
        _ => Ok(()),
    });
    let unbegun = disk.sync_file(Path::new("stage-1")).unwrap_err();
    assert!(matches!(Stop::of_file(unbegun), Stop::Later(_)));
}

/// A power loss may leave a manifest without its bytes. A manifest of a later version is complete.
#[test]
fn a_truncated_manifest_blocks_nobody() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let path = root.join(STAGES).join("q").join("commit-0");
    let store = Store::open(root, Options::default()).unwrap();
    let found = |text: &[u8]| {
        publish(root, "q", &[stage(root, "q", &[vec![1]], 500)], 500);
        std::fs::write(&path, text).unwrap();
        store.take_commits().unwrap();
        commit::state(&RealDisk, root, "q", 0).unwrap()
    };
    for (text, word) in [(&b""[..], "damaged"), (br#"{"version": 2}"#, "version 2")] {
        let CommitState::Refused(refusal) = found(text) else {
            panic!("{word}");
        };
        assert!(
            refusal.reason.contains(word) && !refusal.appended,
            "{refusal:?}"
        );
    }
    assert_eq!(run_batch(&store, root, 0, &[vec![2]], Conflict::Fail), None);
    // The only part is in the log.
    assert_eq!(found(b""), CommitState::Gone);
    assert_eq!(count(&store, "t"), 1);
    store.close().unwrap();
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let bodies: Vec<Vec<u8>> = (0..20).map(|n| vec![n; 100]).collect();
    die_after_the_first_part(root, &bodies);
    std::fs::write(root.join(STAGES).join("q").join("taken-0"), b"").unwrap();
    let store = Store::open(root, Options::default()).unwrap();
    store.take_commits().unwrap();
    assert!(refusal(root, "q").contains("part 1 of"));
}

/// An earlier attempt was refused while this one was published.
#[test]
fn a_refusal_is_removed_by_the_next_commit() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    publish(root, "q", &[stage(root, "q", &[vec![1]], 500)], 500);
    std::fs::write(root.join(STAGES).join("q").join("refused-0"), b"{}").unwrap();
    let store = Store::open(root, Options::default()).unwrap();
    store.take_commits().unwrap();
    let state = commit::state(&RealDisk, root, "q", 0).unwrap();
    assert_eq!(state, CommitState::Gone);
}

#[test]
fn a_commit_counts_once_its_marker_is_durable() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let engine = engine_on(Arc::new(RealDisk), root);
    let staged = stage(root, "q", &[vec![1]], 500);
    let contents = staged.contents;
    let holds = |batch, contents, skips| engine.holds_commit(("q", batch), contents, skips);
    assert!(!holds(1, contents, true).unwrap());
    publish_batch(root, "q", 1, &[staged], 500);
    // The files are removed before the marker is durable.
    plant(Some(Bug::FinishEarly));
    engine.take_commits().unwrap();
    plant(None);
    let state = commit::state(&RealDisk, root, "q", 1).unwrap();
    assert_eq!(state, CommitState::Gone);
    assert!(!holds(1, contents, false).unwrap());
    engine.flush(&mut || true).unwrap();
    assert!(holds(1, contents, false).unwrap());
    let others = Contents { rows: 1, sum: 0 };
    assert!(!holds(1, others, false).unwrap() && holds(1, others, true).unwrap());
    assert!(!holds(0, contents, false).unwrap() && holds(0, contents, true).unwrap());
    assert!(!holds(2, contents, true).unwrap());
}
