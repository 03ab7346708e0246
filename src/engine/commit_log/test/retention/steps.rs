//! How a step deletes, what readers see of it, and what is left when it fails.

use super::{Bench, FILE_LEN, by_age};
use crate::disk::{Call, HookedDisk, RealDisk};
use crate::engine::commit_log::log::search::next_record;
use crate::engine::commit_log::log::walker::{Step, Walker};
use crate::engine::commit_log::queues::queue::{ENTRY_LEN, GAP_MAX, QueueEntry};
use crate::engine::commit_log::read::view;
use crate::engine::commit_log::repair::repair;
use crate::engine::commit_log::services::Services;
use crate::engine::commit_log::tables::inventory::Inventory;
use crate::engine::commit_log::verify::log::is_hidden_for_good;
use crate::engine::commit_log::verify::stretch::{stretches, verify_stretch};
use crate::engine::commit_log::verify::verify as verify_all;
use crate::engine::directory::page::Mark;
use crate::engine::service::hold::Hold;
use crate::engine::service::retention::{INTERVAL, Now};
use crate::engine::{Check, Cursor, Filter, Rows, Stretch};
use crate::error::{Error, Result};
use crate::machine::{Drive, Machine};
use crate::mapped::queue::list_files;
use crate::plant::{Bug, plant};
use crate::sync::Mutex;
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A group that begins at a message says how many were deleted before it could read them.
#[test]
fn a_cursor_counts_what_was_deleted_since_it_was_asked_for() {
    let mut bench = Bench::new(by_age);
    bench.fill("a", &[1, 1, 1]);
    let topic = bench.parts().topics.get("a").unwrap();
    let cursor = |bench: &Bench| {
        let (none, check) = (Filter::default(), Check::Full);
        view::cursor(bench.parts(), &topic, 0, 0..10, &none, check).unwrap()
    };
    let read = |mut cursor: Box<dyn Cursor>| {
        let mut rows = Rows::default();
        cursor.next(1, &mut rows).unwrap();
        let first = rows.rows.first().and_then(|row| rows.message(row)).unwrap();
        (first.record().queue_offset(), rows.retired)
    };
    assert_eq!(read(cursor(&bench)), (0, 0));
    let before = cursor(&bench);
    assert_eq!(bench.step(10_000), [3]);
    assert_eq!(bench.bounds("a"), (9, 10));
    assert_eq!(read(before), (9, 9));
    assert_eq!(read(cursor(&bench)), (9, 9));
}

#[test]
fn queue_files_and_index_files_follow_and_the_last_one_stays() {
    let mut bench = Bench::new(by_age);
    // As many messages as its queue file has entries: in the end none of them points anywhere.
    for _ in 0..8 {
        bench.send("full", 1);
    }
    bench.fill("gone", &[1]);
    bench.fill("a", &[1; 10]);
    let indexes = |bench: &Bench| bench.parts().index.as_ref().unwrap().files().len();
    assert!(indexes(&bench) > 2);
    bench.step(i64::MAX);
    let queue = list_files(&RealDisk, &bench.dir.path().join("consumequeue/a/0")).unwrap();
    assert_eq!(queue.len(), 1);
    let queue = list_files(&RealDisk, &bench.dir.path().join("consumequeue/gone/0")).unwrap();
    assert_eq!(queue.len(), 1);
    assert_eq!(indexes(&bench), 1);
    let on_disk = fs::read_dir(bench.dir.path().join("index")).unwrap();
    assert_eq!(on_disk.count(), 1);
    assert_eq!(bench.bounds("gone"), (4, 4));
    let queue = list_files(&RealDisk, &bench.dir.path().join("consumequeue/full/0")).unwrap();
    assert_eq!(queue.len(), 1);
    assert_eq!(bench.bounds("full"), (8, 8));
}

/// If the first file cannot be deleted, the step ends there: nothing is lost, and the next offsets
/// are in the table, which is saved first.
#[test]
fn what_a_step_could_not_end_the_next_one_ends() {
    let mut bench = Bench::new(by_age);
    bench.fill("a", &[1, 1, 1]);
    let path = bench.parts().log.files.path_of(FILE_LEN);
    // The name is blocked, but the file can still be read.
    let file = bench.parts().log.files.find(FILE_LEN).unwrap();
    file.region().unwrap();
    let bytes = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::create_dir_all(path.join("in the way")).unwrap();
    assert_eq!(bench.parts().log.files.all().len(), 4);
    bench.at += INTERVAL;
    let parts = Arc::clone(bench.parts());
    let services = &bench.services;
    let retired = services.retention.retire(&parts, 3 * FILE_LEN);
    assert!(retired.is_err());
    services.retain(&parts, Now::stepped(i64::MAX, bench.at));
    assert_eq!(parts.log.files.first().unwrap().start(), FILE_LEN);
    assert_eq!(parts.log.min_position(), 3 * FILE_LEN);
    assert!(parts.health.check().is_ok());
    let inventory = Inventory::load(&RealDisk, bench.dir.path())
        .unwrap()
        .unwrap();
    assert_eq!(inventory.queues[0].3, 10);
    let damage = parts.report.damage();
    assert!(damage[0].reason.contains("retention"), "{damage:?}");
    drop(parts);
    fs::remove_dir_all(&path).unwrap();
    fs::write(&path, bytes).unwrap();
    // Nothing is due by the rules any more, but the deletion that was begun is completed.
    assert_eq!(bench.step(0), [3]);
    bench.reopen();
    assert_eq!(bench.bounds("a"), (9, 10));
    assert_eq!(bench.send("a", 1), 10);
}

/// The names of files are removed before the files leave the list: a reader that has listed them
/// finds no file, and continues where the log now begins.
#[test]
fn who_has_listed_files_that_go_passes_over_them() {
    let mut bench = Bench::new(by_age);
    bench.fill("a", &[1; 4]);
    let parts = Arc::clone(bench.parts());
    let survey = |start| crate::engine::commit_log::read::survey::survey(&parts, start);
    let verify = |stretch: &Stretch| verify_stretch(&parts, stretch, &[]);
    parts.flush_to(parts.log.published()).unwrap();
    let stretches = stretches(&parts).unwrap();
    let sealed = crate::engine::commit_log::read::survey::sealed(&parts);
    assert_eq!(sealed.len(), 4);
    let end = parts.log.published();
    let mut walker = Walker::new(&parts.log, 0, end);
    let files = parts.log.files.all();
    files.iter().for_each(|file| file.unmap());
    for file in &files[..2] {
        fs::remove_file(file.path()).unwrap();
    }
    assert!(
        walker.step().unwrap_err().is_not_found(),
        "nobody retired it"
    );
    assert!(next_record(&parts.log, 0, end).is_err());
    assert!(survey(0).is_err());
    let log = Stretch::Log(0..3 * FILE_LEN);
    assert!(verify(&log).is_err(), "a file is missing");

    parts.log.state.set(Mark::Minimum, 2 * FILE_LEN);
    assert!(matches!(walker.step(), Ok(Step::Blank)));
    assert_eq!(walker.position(), 2 * FILE_LEN);
    assert_eq!(next_record(&parts.log, 0, end).unwrap(), Some(2 * FILE_LEN));
    assert!(matches!(survey(0), Err(Error::NotFound { .. })));
    assert_eq!(
        crate::engine::commit_log::read::survey::sealed(&parts),
        sealed[2..]
    );
    assert_eq!(verify(&log).unwrap().found.records, 3);
    for stretch in &stretches {
        assert_eq!(verify(stretch).unwrap().found.damage, [], "{stretch:?}");
    }
    let whole = verify_all(&parts, &mut |_, _| true).unwrap();
    assert_eq!((whole.records, whole.damage.len()), (7, 0));
    let done = repair(&parts, &bench.services.retention, &mut |_, _| true).unwrap();
    assert_eq!(done.steps, []);
    drop(parts);
    assert_eq!(bench.step(0), [2, 3, 4], "the step goes on where it was");
}

/// Holds the log from a position on, and refuses all deletions while told to.
#[derive(Debug)]
struct Held {
    from: AtomicU64,
    refuses: AtomicBool,
    asked: Mutex<Vec<u64>>,
}

impl Hold for Held {
    fn keep_from(&self) -> Result<u64> {
        Ok(self.from.load(Ordering::Relaxed))
    }

    fn let_go(&self, until: u64) -> Result<bool> {
        self.asked.lock().push(until);
        Ok(!self.refuses.load(Ordering::Relaxed))
    }
}

#[test]
fn nothing_is_deleted_that_a_hold_still_needs() {
    let mut bench = Bench::new(by_age);
    bench.fill("a", &[1, 1, 1]);
    let hold = Arc::new(Held {
        from: AtomicU64::new(FILE_LEN + 1),
        refuses: AtomicBool::new(false),
        asked: Mutex::default(),
    });
    let own = Arc::<Held>::clone(&hold);
    let services = Services::new(&bench.options, bench.parts(), Drive::Threads, vec![own]);
    bench.services = Arc::new(services.unwrap());
    assert_eq!(bench.step(i64::MAX), [1, 2, 3]);
    hold.from.store(u64::MAX, Ordering::Relaxed);
    hold.refuses.store(true, Ordering::Relaxed);
    assert_eq!(bench.step(i64::MAX), [1, 2, 3]);
    hold.refuses.store(false, Ordering::Relaxed);
    assert_eq!(bench.step(i64::MAX), [3]);
    let asked = hold.asked.lock().clone();
    assert_eq!(asked, [FILE_LEN, 3 * FILE_LEN, 3 * FILE_LEN]);
}

#[test]
fn no_step_begins_while_files_are_worked_on() {
    let mut bench = Bench::new(by_age);
    bench.fill("a", &[1, 1]);
    let services = Arc::clone(&bench.services);
    let pause = services.retention.pause();
    assert_eq!(bench.step(i64::MAX), [0, 1, 2]);
    drop(pause);
    assert_eq!(bench.step(i64::MAX), [2]);
}

#[test]
fn a_store_that_failed_takes_nothing_away() {
    let mut bench = Bench::new(by_age);
    bench.fill("a", &[1, 1]);
    bench.parts().fail(&Error::Closed { path: None });
    assert_eq!(bench.step(i64::MAX), [0, 1, 2]);
}

/// A process that dies at any moment of a step leaves some of the files. The next opening finds the
/// same next offsets, and no message below the first remaining file.
#[test]
fn a_death_in_the_middle_leaves_the_next_offsets() {
    for gone in 0..=4 {
        let mut bench = Bench::new(by_age);
        bench.fill("gone", &[1]);
        bench.fill("a", &[1; 3]);
        // The mark moves before a file is removed.
        let state = &bench.parts().log.state;
        state.set(Mark::Minimum, gone * FILE_LEN);
        let flushed = bench.parts().flush_all().unwrap();
        bench.parts().save_inventory(flushed).unwrap();
        for start in 0..gone {
            fs::remove_file(bench.parts().log.files.path_of(start * FILE_LEN)).unwrap();
        }
        bench.reopen();
        assert_eq!(bench.bounds("gone").1, 4, "{gone} files were gone");
        assert_eq!(bench.bounds("a").1, 10);
        assert!(bench.parts().report.damage().is_empty());
        assert_eq!(bench.send("gone", 1), 4);
        assert_eq!(bench.send("a", 1), 10);
        bench.dispatch();
        assert_eq!(bench.bounds("gone").1, 5);
    }
}

/// A full disk has no room for the table: one log file is deleted to make room. Queue files stay as
/// long as the log files that their entries point to, because an opening shows what these hold.
#[test]
fn queue_files_stay_where_a_full_disk_keeps_log_files() {
    let is_full = Arc::new(AtomicBool::new(false));
    let disk = HookedDisk::shared({
        let is_full = Arc::clone(&is_full);
        move |call, path| {
            let is_table = path.ends_with("forebay.offsets.tmp");
            match call == Call::Write && is_table && is_full.swap(false, Ordering::Relaxed) {
                true => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
                false => Ok(()),
            }
        }
    });
    let machine = Machine {
        disk,
        ..Machine::real()
    };
    let mut bench = Bench::on(&machine, |options| {
        by_age(options);
        options.queue_file_entries = Some(2);
    });
    bench.fill("a", &[1; 3]);
    is_full.store(true, Ordering::Relaxed);
    let retire = |bench: &Bench| {
        let retention = &bench.services.retention;
        retention.retire(bench.parts(), 3 * FILE_LEN)
    };
    retire(&bench).unwrap();
    assert!(!is_full.load(Ordering::Relaxed));
    assert_eq!(bench.files("commitlog"), [1, 2, 3]);
    bench.reopen();
    assert_eq!(bench.bounds("a"), (3, 10));
    let found = verify_all(bench.parts(), &mut |_, _| true).unwrap();
    assert!(found.damage.is_empty(), "{:?}", found.damage);
    retire(&bench).unwrap();
    assert_eq!(bench.files("commitlog"), [3]);
    assert_eq!(bench.bounds("a"), (9, 10));
}

/// The sync with which a step begins fails. Messages that were not durable stay visible: after a
/// power loss their file may be back with less in it.
#[test]
fn a_file_that_cannot_be_made_durable_is_not_retired() {
    let disk = HookedDisk::shared(|call, path| {
        let in_log = path.parent().is_some_and(|it| it.ends_with("commitlog"));
        match call == Call::SyncRange && in_log {
            true => Err(io::Error::from_raw_os_error(libc::EIO)),
            false => Ok(()),
        }
    });
    let machine = Machine {
        disk,
        ..Machine::real()
    };
    let mut bench = Bench::on(&machine, by_age);
    bench.fill("a", &[1; 3]);
    assert_eq!(bench.step(9000), [0, 1, 2, 3]);
    assert!(bench.parts().health.check().is_err());
    assert_eq!(bench.parts().log.min_position(), 0);
    assert_eq!(bench.bounds("a"), (0, 10));
}

/// A queue that cannot be read has no known first offset. Then neither the log nor any queue begins
/// later, so that no offset is served whose position is refused.
#[test]
fn where_a_first_offset_cannot_be_found_everything_begins_as_before() {
    let is_out = Arc::new(AtomicBool::new(false));
    let disk = HookedDisk::shared({
        let is_out = Arc::clone(&is_out);
        move |call, path| {
            let in_queue = path.parent().is_some_and(|it| it.ends_with("b/0"));
            match call == Call::Map && in_queue && is_out.load(Ordering::Relaxed) {
                true => Err(io::Error::from_raw_os_error(libc::EMFILE)),
                false => Ok(()),
            }
        }
    });
    let machine = Machine {
        disk,
        ..Machine::real()
    };
    let mut bench = Bench::on(&machine, by_age);
    bench.fill("a", &[1]);
    bench.fill("b", &[1, 1]);
    let topic = bench.parts().topics.get("b").unwrap();
    let queue = bench.parts().queues.get(&topic, 0).unwrap().unwrap();
    queue.unmap();
    is_out.store(true, Ordering::Relaxed);
    assert_eq!(bench.step(9000), [0, 1, 2, 3]);
    is_out.store(false, Ordering::Relaxed);
    assert_eq!(bench.parts().log.min_position(), 0);
    assert_eq!(bench.bounds("a"), (0, 4));
    assert_eq!(bench.bounds("b"), (0, 7));
    let first = view::message_at(bench.parts(), 0).unwrap();
    assert_eq!(first.record().queue_offset(), 0);
    assert_eq!(bench.step(9000), [3]);
    assert_eq!(bench.bounds("a"), (4, 4));
    assert_eq!(bench.bounds("b"), (5, 7));
}

/// Bytes of a queue file are damaged while the store is open: they become zeros, or entries of
/// deleted messages. The log decides what a step deletes, so no message that it keeps is hidden.
#[test]
fn damaged_entries_do_not_decide_what_is_retired() {
    for copied in [false, true] {
        for first in 3..9 {
            for count in 1..=4 {
                let mut bench = Bench::new(by_age);
                bench.fill("a", &[1, 1, 9000]);
                bench.fill("b", &[9000]);
                let queue = {
                    let topic = bench.parts().topics.get("a").unwrap();
                    bench.parts().queues.get(&topic, 0).unwrap().unwrap()
                };
                let old = queue.entry(0).unwrap().unwrap();
                let zero = QueueEntry {
                    position: 0,
                    size: 0,
                    tags_code: 0,
                };
                for number in first..first + count {
                    let map = queue.map_of(number).unwrap().unwrap();
                    map.store(number, if copied { old } else { zero }).unwrap();
                }
                assert_eq!(bench.step(2000)[0], 2);
                let what = format!("{count} from {first} on, copied {copied}");
                assert_eq!(bench.bounds("a"), (6, 10), "{what}");
            }
        }
    }
}

/// A queue that begins after messages of the log hides them. So a verification also checks the
/// queues for each record.
#[test]
fn a_verification_names_messages_before_the_begin_of_their_queue() {
    let bench = Bench::new(by_age);
    bench.fill("a", &[1, 2]);
    let whole = verify_all(bench.parts(), &mut |_, _| true).unwrap();
    assert_eq!((whole.damage.len(), whole.queue_entries), (0, 7));
    let topic = bench.parts().topics.get("a").unwrap();
    let queue = bench.parts().queues.get(&topic, 0).unwrap().unwrap();
    queue.raise_min_to(3);
    let found = verify_all(bench.parts(), &mut |_, _| true).unwrap();
    let lost: Vec<_> = found.damage.into_iter().flat_map(|it| it.lost).collect();
    let named = |offset| ("a".to_owned(), 0, offset);
    assert_eq!(lost, [named(0), named(1), named(2)]);
}

/// Retention raises the first offsets, then the first position. A verification that meets a message
/// in between asks again after the second step.
#[test]
fn a_message_that_retires_is_not_taken_for_hidden() {
    let bench = Bench::new(by_age);
    let parts = bench.parts();
    let mut are_raising = Vec::new();
    let is_hidden = || {
        are_raising.push(parts.raising.try_lock().is_none());
        are_raising.len() == 1
    };
    assert!(!is_hidden_for_good(parts, is_hidden));
    // The lock is held by the verification, so that retention does not raise anything meanwhile.
    assert_eq!(are_raising, [false, true]);
}

/// The names of removed files need not disappear in order when the power fails: the first file of a
/// queue is still there, but many after it are gone, so the last file seemed implausibly far away.
/// Opening removed the last file, and then refused the records that it pointed to, because no gap
/// may be that long.
#[test]
fn a_queue_file_that_a_removal_leaves_takes_no_later_one_away() {
    const ENTRIES: u64 = 1 << 20;
    const BEGIN: u64 = GAP_MAX + 3 * ENTRIES;
    for bug in [None, Some(Bug::EndAtRemoved)] {
        let mut bench = Bench::new(|options| {
            by_age(options);
            options.queue_file_entries = Some(ENTRIES);
        });
        let parts = bench.parts();
        let (topic, _) = parts.topics.get_or_add("a", 1);
        let queue = parts.queues.get_or_add(&topic, 0).unwrap();
        queue.load_bounds(BEGIN, BEGIN);
        parts.tail.lock().raise_next_offset(&topic, 0, BEGIN);
        bench.fill("a", &[1, 1, 1]);
        let entry = queue.entry(BEGIN).unwrap().unwrap();
        let mut first = entry.position.to_be_bytes().to_vec();
        first.extend(entry.size.to_be_bytes());
        first.extend(entry.tags_code.to_be_bytes());
        assert_eq!(bench.step(10_000), [3]);
        assert_eq!(bench.bounds("a"), (BEGIN + 9, BEGIN + 10));
        let left = bench.dir.path().join(format!("consumequeue/a/0/{:020}", 0));
        fs::write(&left, first).unwrap();
        let file = fs::File::options().write(true).open(&left).unwrap();
        file.set_len(ENTRIES * ENTRY_LEN).unwrap();
        plant(bug);
        bench.reopen();
        plant(None);
        let is_kept = bench.bounds("a") == (BEGIN + 9, BEGIN + 10);
        let damage = bench.parts().report.damage();
        assert_eq!(is_kept && damage.is_empty(), bug.is_none(), "{damage:?}");
        assert!(bug.is_some() || !left.exists());
    }
}
