//! The thread that takes commits up: when it starts, and how it ends.

use super::*;
use crate::error::Error;

pub(in crate::tests) fn wait(root: &Path) -> CommitState {
    let patience = &mut Patience::new(Duration::from_secs(600));
    let slice = Duration::from_secs(600);
    let (state, _) = commit::wait(&RealDisk, root, ("q", 0), patience, slice).unwrap();
    state
}

#[test]
fn the_thread_starts_once_somebody_stages() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let opened: Opened = Opened::open(&Machine::real(), root, &Options::default()).unwrap();
    let intake = opened.intake.as_ref().unwrap();
    assert!(!intake.has_thread());
    intake.start();
    assert!(!intake.has_thread());
    publish(root, "q", &[stage(root, "q", &[vec![1]], 500)], 500);
    assert_eq!(wait(root), CommitState::Gone);
    assert!(intake.has_thread());
    for service in opened.services() {
        service.end();
    }
    assert!(!intake.has_thread());
    intake.start();
    assert!(!intake.has_thread());
    opened.engine.close().unwrap();
}

#[test]
fn a_close_by_the_progress_of_a_repair_does_not_wait_for_ever() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    publish(root, "q", &[stage(root, "q", &[vec![1]], 500)], 500);
    let store = Store::open(root, Options::default()).unwrap();
    assert_eq!(wait(root), CommitState::Gone);
    let mut told = Vec::new();
    let repaired = store.repair(&mut |_, _| {
        told.push(store.close());
        true
    });
    repaired.unwrap();
    assert!(
        matches!(told.first(), Some(Err(Error::Busy { .. }))),
        "{told:?}"
    );
}
