//! Readers that open a store while retention removes files of it.

use super::{Bench, by_age};
use crate::disk::HookedDisk;
use crate::engine::Engine;
use crate::engine::commit_log::CommitLog;
use crate::machine::Machine;
use crate::options::{Mode, Options};
use crate::sync::Mutex;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Opens a store for reading. Before disk call `number` of the opening, a writer removes all log
/// files but the last; a writer that is not `running` first opens the store. Returns whether the
/// opening made that call.
fn open_beside_a_removal(number: usize, running: bool) -> bool {
    let mut bench = Bench::new(by_age);
    bench.fill("a", &[1, 1, 1]);
    let parts = Arc::clone(bench.parts());
    parts.full_pass().unwrap();
    drop(parts);
    if !running {
        bench.die();
    }
    let root = bench.dir.path().to_owned();
    let options = Options {
        mode: Mode::Read,
        ..bench.options.clone()
    };
    let calls = Arc::new(AtomicUsize::new(0));
    let bench = Arc::new(Mutex::new(bench));
    let disk = HookedDisk::shared({
        let (calls, bench) = (Arc::clone(&calls), Arc::clone(&bench));
        move |_, _| {
            if calls.fetch_add(1, Ordering::Relaxed) == number {
                let mut bench = bench.lock();
                if !running {
                    bench.revive();
                }
                assert_eq!(bench.step(10_000), [3]);
            }
            Ok(())
        }
    });
    let machine = Machine {
        disk,
        ..Machine::real()
    };
    let told = format!("call {number}, {running}");
    let engine = CommitLog::open(&machine, &root, &options, Vec::new());
    let engine = engine.unwrap_or_else(|error| panic!("{told}: {error}"));
    let topic = engine.topics().get("a").unwrap();
    let bounds = engine.bounds(&topic, 0).unwrap().unwrap();
    assert_eq!(bounds.end, 10, "{told}");
    assert_eq!(engine.report().damage(), [], "{told}");
    calls.load(Ordering::Relaxed) > number
}

/// Opens a store for reading on a disk that lists the first log file but cannot find it. Returns
/// how often the opening asked for the file.
fn open_without_a_file() -> usize {
    let mut bench = Bench::new(by_age);
    bench.fill("a", &[1, 1, 1]);
    bench.parts().full_pass().unwrap();
    bench.die();
    let asked = Arc::new(AtomicUsize::new(0));
    let disk = HookedDisk::shared({
        let asked = Arc::clone(&asked);
        move |_, path| match path.ends_with(format!("commitlog/{:020}", 0)) {
            true => {
                asked.fetch_add(1, Ordering::Relaxed);
                Err(ErrorKind::NotFound.into())
            }
            false => Ok(()),
        }
    });
    let machine = Machine {
        disk,
        ..Machine::real()
    };
    let options = Options {
        mode: Mode::Read,
        ..bench.options.clone()
    };
    let opened = CommitLog::open(&machine, bench.dir.path(), &options, Vec::new());
    assert!(opened.err().unwrap().is_not_found());
    asked.load(Ordering::Relaxed)
}

/// Such an opening made ten attempts before it failed.
#[test]
fn a_file_that_is_listed_and_missing_is_asked_for_twice() {
    assert_eq!(open_without_a_file(), 2);
}

#[test]
fn a_store_can_be_opened_for_reading_whenever_files_are_removed() {
    for running in [false, true] {
        let tried = (0..).take_while(|number| open_beside_a_removal(*number, running));
        assert!(tried.count() > 3);
    }
}
