//! What another process does to a directory while it is opened.

use super::write::{bodies, send, writing};
use super::*;
use crate::disk::{Call, HookedDisk};
use std::sync::atomic::{AtomicBool, Ordering};

/// The directory is empty when an opening first checks it, and has a log when the opening lists it
/// or takes the lock. By then the other process is dead.
#[test]
fn a_log_that_another_process_makes_meanwhile_is_recovered_and_not_foreign() {
    for (call, mode) in [
        (Call::List, Mode::Append),
        (Call::List, Mode::Share),
        (Call::Sync, Mode::Append),
        (Call::Sync, Mode::Share),
    ] {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().to_owned();
        let is_made = AtomicBool::new(false);
        let make = move |made, _: &Path| {
            if made == call && !is_made.swap(true, Ordering::AcqRel) {
                let other = writing(&path, &Options::default()).unwrap();
                send(&other, "orders", &[(0, b"one")]);
                other.close().unwrap();
                fs::remove_file(path.join(".kafka_cleanshutdown")).unwrap();
            }
            Ok(())
        };
        let machine = Machine {
            disk: HookedDisk::shared(make),
            ..Machine::real()
        };
        let options = Options {
            mode,
            ..Options::default()
        };
        let engine = PartitionLog::open(&machine, root.path(), &options);
        let engine = engine.unwrap_or_else(|error| panic!("{call:?}, {mode:?}: {error}"));
        assert!(!engine.report().recovery().clean, "{call:?}, {mode:?}");
        assert_eq!(bodies(&engine, "orders", 0), [b"one"], "{call:?}, {mode:?}");
        engine.close().unwrap();
    }
}
