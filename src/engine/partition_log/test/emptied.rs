//! Log files that were emptied after what was in them was durable.

use super::promised::closed;
use super::write::send;
use super::*;
use crate::cleanup::{CleanupPolicy, Compaction, Policy};
use crate::engine::partition_log::segments::names::CLEAN;
use crate::engine::{Damage, DamageKind, QueueLogs};
use crate::error::Error;
use std::ops::Range;

/// A store of five segments of ten messages each, one of which was emptied.
struct Emptied {
    root: TempDir,
    log: PathBuf,
    len: u64,
    lost: Range<u64>,
}

impl Emptied {
    /// Empties the segment with this number. `zeros`: whether its file keeps its length.
    fn new(number: usize, zeros: bool, is_clean: bool) -> Emptied {
        let root = tempfile::tempdir().unwrap();
        let logs = closed(root.path());
        let log = logs[number].clone();
        if log == logs[4] {
            // The empty segment that the roll has begun.
            fs::remove_file(log.with_file_name(format!("{:020}.log", 50))).unwrap();
        }
        if !is_clean {
            fs::remove_file(root.path().join(CLEAN)).unwrap();
        }
        let whole = fs::metadata(&log).unwrap().len();
        let len = if zeros { whole } else { 0 };
        let file = fs::OpenOptions::new().write(true).open(&log).unwrap();
        file.set_len(0).unwrap();
        file.set_len(len).unwrap();
        let lost = 10 * number as u64;
        Emptied {
            root,
            log,
            len,
            lost: lost..lost + 10,
        }
    }

    fn open(&self, mode: Mode) -> PartitionLog {
        let options = Options {
            mode,
            ..Options::default()
        };
        PartitionLog::open(&Machine::real(), self.root.path(), &options).unwrap()
    }

    /// Checks that the segment is there, and that its messages alone are reported.
    fn check(&self, engine: &PartitionLog, what: &str) {
        assert_eq!(fs::metadata(&self.log).unwrap().len(), self.len, "{what}");
        let found = engine.report().damage();
        assert_eq!(found.len(), 1, "{what}: {found:?}");
        assert_eq!(found[0].path, self.log, "{what}");
        let lost: Vec<_> = self
            .lost
            .clone()
            .map(|it| ("t".to_owned(), 0, it))
            .collect();
        assert_eq!(found[0].lost, lost, "{what}");
        let left = messages(engine, "t", 7).into_iter();
        let left: Vec<u64> = left.map(|it| it.record().queue_offset() as u64).collect();
        let expected: Vec<u64> = (0..50).filter(|it| !self.lost.contains(it)).collect();
        assert_eq!(left, expected, "{what}");
        let verified = engine.verify(&mut |_, _| true).unwrap();
        let is_log = |it: &&Damage| it.kind == DamageKind::Log;
        assert_eq!(verified.damage.iter().filter(is_log).count(), 1, "{what}");
    }
}

fn cases() -> impl Iterator<Item = (usize, bool, bool)> {
    let kinds = [(false, false), (false, true), (true, false), (true, true)];
    let numbers = [0, 2, 4].into_iter();
    numbers.flat_map(move |number| kinds.map(|(zeros, is_clean)| (number, zeros, is_clean)))
}

/// An opening after a crash silently removed it, as if a failed append had left it.
#[test]
fn an_emptied_log_file_is_kept_and_each_opening_tells_its_messages() {
    for (number, zeros, is_clean) in cases() {
        let made = Emptied::new(number, zeros, is_clean);
        let modes = [
            Mode::Read,
            Mode::Append,
            Mode::Share,
            Mode::Append,
            Mode::Read,
        ];
        for (opening, mode) in modes.into_iter().enumerate() {
            let what = format!("{number}, {zeros}, {is_clean}, opening {opening}");
            let engine = made.open(mode);
            made.check(&engine, &what);
            engine.close().unwrap();
        }
        // Its offsets are not given again, and it stays where it is.
        let engine = made.open(Mode::Append);
        assert_eq!(send(&engine, "t", &[(0, b"next")]), [50]);
        let lost = engine.get(&topic(&engine, "t"), 0, made.lost.start + 3);
        assert!(matches!(lost, Err(Error::Corrupt { .. })), "{lost:?}");
        engine.close().unwrap();
        let engine = made.open(Mode::Append);
        assert_eq!(engine.report().damage().len(), 1);
        assert_eq!(bounds(&engine), 0..51);
    }
}

/// Only one of the processes that share a store has recovered it.
#[test]
fn each_process_that_shares_a_store_tells_what_was_emptied() {
    let made = Emptied::new(2, false, false);
    let all = [(); 2].map(|()| made.open(Mode::Share));
    for engine in &all {
        made.check(engine, "shared");
    }
    all.iter().for_each(|engine| engine.close().unwrap());
}

/// A replacement would hide that it was emptied.
#[test]
fn an_emptied_log_file_is_not_compacted_away() {
    let made = Emptied::new(2, false, true);
    let options = Options {
        compaction: Compaction {
            cleanup_policy: CleanupPolicy {
                default: Policy::Compact,
                ..CleanupPolicy::default()
            },
            ..Compaction::default()
        },
        ..Options::default()
    };
    let engine = PartitionLog::open(&Machine::real(), made.root.path(), &options).unwrap();
    let refused = engine.compact(Some("t"), &mut |_, _| true);
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
    made.check(&engine, "compacted");
    engine.close().unwrap();
}

#[test]
fn a_repair_makes_an_emptied_log_file_one_without_messages() {
    for zeros in [false, true] {
        let made = Emptied::new(2, zeros, true);
        let engine = made.open(Mode::Append);
        let repair = engine.repair(&mut |_, _| true).unwrap();
        let steps: Vec<_> = repair.steps.iter().map(|step| &step.path).collect();
        assert_eq!(steps, [&made.log]);
        assert_eq!(repair.steps[0].lost.len(), 10);
        assert_eq!((repair.left, engine.report().damage()), (vec![], vec![]));
        engine.close().unwrap();
        let engine = made.open(Mode::Append);
        assert_eq!(engine.report().damage(), []);
        assert_eq!(messages(&engine, "t", 7).len(), 40);
    }
}
