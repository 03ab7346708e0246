//! Options that a store cannot save.

use crate::disk::{Call, HookedDisk};
use crate::engine::Engine;
use crate::engine::commit_log::CommitLog;
use crate::engine::directory::names;
use crate::machine::Machine;
use crate::options::{Flush, Options};

/// A store can be opened on a full disk, even if its owner gives an option that is not saved
/// yet, as with a store of release 0.1.0.
#[test]
fn options_that_find_no_room_are_reported_and_kept_by_the_next_opening() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("store");
    let open = |room: bool| {
        let disk = HookedDisk::shared(move |call, path| {
            let is_options = path.to_string_lossy().contains(names::OPTIONS);
            match call == Call::Write && is_options && !room {
                true => Err(std::io::Error::from_raw_os_error(libc::ENOSPC)),
                false => Ok(()),
            }
        });
        let options = Options {
            flush: Some(Flush::Sync),
            ..Options::default()
        };
        CommitLog::open(&Machine::stepped(disk), &root, &options, Vec::new()).unwrap()
    };
    for room in [false, true] {
        let engine = open(room);
        assert_eq!(engine.options().flush(), Flush::Sync);
        assert_eq!(engine.report().warnings.take().is_empty(), room);
        assert_eq!(root.join(names::OPTIONS).exists(), room);
        engine.close().unwrap();
    }
}
