//! Disks that fail while a commit is taken up.

use super::*;
use std::io::Error as IoError;
use std::sync::atomic::AtomicBool;

fn open(
    root: &Path,
    before: impl Fn(Call, &Path) -> std::io::Result<()> + Send + Sync + 'static,
) -> Opened {
    let machine = Machine::stepped(HookedDisk::shared(before));
    Opened::open(&machine, root, &Options::default()).unwrap()
}

fn publish_rows(root: &Path, query: &str) {
    let bodies: Vec<Vec<u8>> = (0..100).map(|n| vec![n; 100]).collect();
    publish(root, query, &[stage(root, query, &bodies, 500)], 500);
}

/// A commit that waits for space is retried again and again, without visible progress.
#[test]
fn a_commit_without_space_is_checked_once() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    publish_rows(root, "q");
    let full = |call: Call, path: &Path| match call {
        Call::Create if path.parent().is_some_and(|it| it.ends_with("commitlog")) => {
            Err(IoError::from_raw_os_error(libc::ENOSPC))
        }
        _ => Ok(()),
    };
    let engine = open(root, full);
    let page = StatePage::open(&RealDisk, root, Access::Read);
    let page = page.unwrap().unwrap();
    let notified = || {
        let before = page.read_word(Word::Taken);
        assert!(engine.take_commits().is_err());
        page.read_word(Word::Taken).wrapping_sub(before)
    };
    assert!(notified() > 0);
    assert_eq!(notified(), 0);
    let state = commit::state(&RealDisk, root, "q", 0).unwrap();
    assert_eq!(state, CommitState::Pending);
    let stats = engine.stats();
    assert_eq!(
        (stats.sends_failed, stats.busy),
        (0, 0),
        "the owner sent nothing"
    );
}

/// The kernel may report a failed sync only once, after dropping the pages.
#[test]
fn a_commit_whose_sync_failed_is_refused_even_if_the_refusal_cannot_be_written_at_first() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    publish_rows(root, "q");
    let (unsynced, untold) = (AtomicBool::new(false), AtomicBool::new(false));
    let engine = open(root, move |call, path| {
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.unwrap_or_default();
        match call {
            Call::Fsync
                if name.starts_with("stage-") && !unsynced.swap(true, Ordering::Relaxed) =>
            {
                Err(IoError::from_raw_os_error(libc::EIO))
            }
            Call::Write if name == "refused-0.tmp" && !untold.swap(true, Ordering::Relaxed) => {
                Err(IoError::from_raw_os_error(libc::ENOSPC))
            }
            _ => Ok(()),
        }
    });
    assert!(engine.take_commits().is_err());
    engine.take_commits().unwrap();
    assert!(refusal(root, "q").contains("sync"));
    assert!(engine.parts().topics.get("t").is_none());
}

#[test]
fn a_query_with_an_unreadable_manifest_does_not_block_others() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    publish_rows(root, "a");
    publish_rows(root, "b");
    let engine = open(root, |call, path| match call {
        Call::Read if path.ends_with("a/commit-0") => Err(IoError::from_raw_os_error(libc::EIO)),
        _ => Ok(()),
    });
    assert!(engine.take_commits().is_err());
    let state = |query| commit::state(&RealDisk, root, query, 0).unwrap();
    assert_eq!(state("a"), CommitState::Pending);
    assert_eq!(state("b"), CommitState::Gone);
}
