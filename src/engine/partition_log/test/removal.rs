//! Removal of segments: what it writes, and what an interrupted one leaves.

use super::retention::{NOW, Stepped, machine, offsets};
use super::write::torn;
use super::*;
use crate::cleanup::{CleanupPolicy, Compaction, Policy};
use crate::disk::{Call, HookedDisk};
use crate::engine::QueueLogs;
use crate::engine::partition_log::retention::service::PIECE;
use crate::engine::partition_log::write::files::MARKER;
use crate::engine::service::durability::Durable;
use crate::plant::{Bug, plant};
use crate::sync::Mutex;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Of three messages each.
const SEGMENTS: usize = 20;

/// Opens the store again, on a disk that reports its calls.
pub(super) fn hooked(
    store: Stepped,
    before: impl Fn(Call, &Path) -> io::Result<()> + Send + Sync + 'static,
) -> Stepped {
    store.engine.close().unwrap();
    let machine = Machine {
        disk: HookedDisk::shared(before),
        ..machine(&store.clock)
    };
    let engine = PartitionLog::open(&machine, store.root.path(), &store.options).unwrap();
    Stepped { engine, ..store }
}

/// Deletes the messages before an offset, in one piece or all of them.
fn delete(store: &Stepped, to: u64, goes_on: bool) {
    let topic = topic(&store.engine, "t");
    let deleted = store
        .engine
        .delete_before(&topic, &[(0, to)], &mut || goes_on);
    deleted.unwrap();
}

/// Names of the index files of a topic.
fn indexes(store: &Stepped) -> Vec<String> {
    let entries = fs::read_dir(store.root.path().join("t-0")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name.ends_with("index")).collect();
    names.sort();
    names
}

#[test]
fn no_index_of_a_segment_that_goes_is_synced() {
    let synced: Arc<Mutex<Vec<PathBuf>>> = Arc::default();
    let told = Arc::clone(&synced);
    let store = hooked(Stepped::new(Options::default()), move |call, path| {
        if matches!(call, Call::Fsync | Call::SyncRange) {
            told.lock().push(path.to_owned());
        }
        Ok(())
    });
    store.send("t", [NOW; 3 * SEGMENTS + 1]);
    store.engine.flush(&mut || true).unwrap();
    synced.lock().clear();
    let to = 3 * SEGMENTS as u64;
    delete(&store, to, true);
    assert_eq!(store.bases("t"), [to]);
    let calls = std::mem::take(&mut *synced.lock());
    let is_index = |path: &&PathBuf| path.to_string_lossy().ends_with("index");
    assert_eq!(calls.iter().find(is_index), None);
    // The first offset, the table of epochs, and their names; for each piece twice the folder.
    assert_eq!(calls.len(), 4 + 2 * SEGMENTS.div_ceil(PIECE), "{calls:?}");
}

#[test]
fn what_a_stopped_removal_leaves_goes_later() {
    let store = Stepped::new(Options::default());
    store.send("t", [NOW; 3 * SEGMENTS + 1]);
    let to = 3 * SEGMENTS as u64;
    delete(&store, to, false);
    let left = (3 * PIECE as u64..=to).step_by(3).collect::<Vec<_>>();
    assert_eq!((store.start("t"), store.bases("t")), (to, left.clone()));
    // It has no indexes, and no pass makes any.
    store.engine.roll().unwrap();
    assert_eq!(
        indexes(&store),
        [
            "00000000000000000060.index",
            "00000000000000000060.timeindex"
        ]
    );
    let store = store.again(Options::default());
    assert_eq!((store.start("t"), store.bases("t")), (to, vec![to, to + 1]));
    assert_eq!(store.offsets("t"), [to]);
    // Within the life of a process, the next removal completes it.
    store.send("t", [NOW; 3 * SEGMENTS]);
    delete(&store, 2 * to, false);
    delete(&store, 2 * to, true);
    assert_eq!(store.bases("t").len(), 1);
}

#[test]
fn what_a_pass_could_not_write_is_not_written_after_the_segment_is_gone() {
    let is_full = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_full);
    let options = Options {
        index_interval_bytes: Some(0),
        ..Options::default()
    };
    let store = hooked(Stepped::new(options), move |call, path| {
        let is_index = path.to_string_lossy().ends_with("index");
        match call == Call::Write && is_index && told.load(Ordering::Relaxed) {
            true => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            false => Ok(()),
        }
    });
    store.send("t", [NOW; 2]);
    is_full.store(true, Ordering::Relaxed);
    let parts = &store.engine.writer().unwrap().parts;
    assert!(parts.full_pass().unwrap_err().is_out_of_room());
    is_full.store(false, Ordering::Relaxed);
    store.send("t", [NOW; 2]);
    delete(&store, 3, true);
    store.engine.writer().unwrap().parts.full_pass().unwrap();
    assert_eq!(store.bases("t"), [3]);
}

#[test]
fn a_sync_needs_no_segment_that_is_replaced_or_removed() {
    for default in [Policy::Compact, Policy::Delete] {
        let is_compacted = default == Policy::Compact;
        let options = Options {
            compaction: Compaction {
                cleanup_policy: CleanupPolicy {
                    default,
                    ..CleanupPolicy::default()
                },
                ..Compaction::default()
            },
            ..Options::default()
        };
        let fails = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&fails);
        let store = hooked(Stepped::new(options), move |call, path| {
            let is_log = path.to_string_lossy().ends_with(".log");
            match call == Call::Sync && is_log && told.swap(false, Ordering::Relaxed) {
                true => Err(io::Error::from_raw_os_error(libc::EMFILE)),
                false => Ok(()),
            }
        });
        store.send("t", [NOW; 2]);
        store.engine.flush(&mut || true).unwrap();
        // The segment is completed, and its sync is left to the next one.
        fails.store(true, Ordering::Relaxed);
        assert!(store.engine.roll().is_err());
        match is_compacted {
            true => {
                let compacted = store.engine.compact(Some("t"), &mut |_, _| true).unwrap();
                assert_eq!(compacted.partitions, 1);
            }
            false => delete(&store, 2, true),
        }
        store.send("t", [NOW]);
        store.engine.flush(&mut || true).unwrap();
        let expected: &[u64] = if is_compacted { &[1, 2] } else { &[2] };
        assert_eq!(offsets(&store.engine, "t"), expected);
    }
}

/// Names of the log files of a topic.
fn logs(root: &Path) -> Vec<String> {
    let entries = fs::read_dir(root.join("t-0")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".log")).collect()
}

/// Opens a store as a power failure during a removal leaves it: of three segments, the name of the
/// second is gone and the name of the first is not.
fn removed_in_part(is_rolled: bool) -> (TempDir, PartitionLog) {
    let store = Stepped::new(Options::default());
    store.send("t", vec![NOW; if is_rolled { 6 } else { 7 }]);
    if is_rolled {
        store.engine.roll().unwrap();
    }
    store.engine.flush(&mut || true).unwrap();
    assert_eq!(store.bases("t"), [0, 3, 6]);
    let first = Path::new("t-0").join(format!("{:020}.log", 0));
    let kept = fs::read(store.root.path().join(&first)).unwrap();
    delete(&store, 6, true);
    assert_eq!(store.bases("t"), [6]);
    let left = tempfile::tempdir().unwrap();
    torn(store.root.path(), left.path(), None);
    fs::write(left.path().join(first), kept).unwrap();
    if is_rolled {
        // The copy has stored the zeros of the last segment. Here they take no space again.
        let last = left.path().join(format!("t-0/{:020}.log", 6));
        fs::File::create(last).unwrap().set_len(4096).unwrap();
    }
    let machine = machine(&store.clock);
    let engine = PartitionLog::open(&machine, left.path(), &store.options).unwrap();
    (left, engine)
}

#[test]
fn a_segment_that_a_removal_leaves_takes_no_later_one_away() {
    let (left, engine) = removed_in_part(false);
    assert_eq!((bounds(&engine), offsets(&engine, "t")), (6..7, vec![6]));
    assert_eq!(engine.report().damage(), []);
    assert_eq!(engine.verify(&mut |_, _| true).unwrap().damage, []);
    assert_eq!(logs(left.path()), ["00000000000000000006.log"]);
    plant(Some(Bug::EndAtRemoved));
    let (_left, engine) = removed_in_part(false);
    plant(None);
    assert!(offsets(&engine, "t").is_empty());
}

#[test]
fn a_segment_that_a_removal_leaves_is_not_the_last_one() {
    let (left, engine) = removed_in_part(true);
    assert_eq!(bounds(&engine), 6..6);
    assert_eq!(engine.report().damage(), []);
    assert_eq!(logs(left.path()), ["00000000000000000006.log"]);
    plant(Some(Bug::EndAtRemoved));
    let (_left, engine) = removed_in_part(true);
    plant(None);
    assert_eq!(engine.report().damage().len(), 1);
}

/// Opens a store for reading. Before the call with this number, the writer removes all segments but
/// the last. Returns whether that call was made.
fn open_beside_a_removal(number: usize) -> bool {
    let store = Stepped::new(Options::default());
    store.send("t", [NOW; 10]);
    store.engine.flush(&mut || true).unwrap();
    let root = store.root.path().to_owned();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let disk = HookedDisk::shared(move |_, _| {
        if counted.fetch_add(1, Ordering::Relaxed) == number {
            delete(&store, 9, true);
        }
        Ok(())
    });
    let machine = Machine {
        disk,
        ..Machine::real()
    };
    let options = Options {
        mode: Mode::Read,
        ..Options::default()
    };
    let engine = PartitionLog::open(&machine, &root, &options);
    let engine = engine.unwrap_or_else(|error| panic!("call {number}: {error}"));
    assert_eq!(engine.report().damage(), [], "call {number}");
    assert_eq!(bounds(&engine).end, 10, "call {number}");
    calls.load(Ordering::Relaxed) > number
}

#[test]
fn a_log_can_be_opened_for_reading_whenever_segments_are_removed() {
    let tried = (0..).take_while(|number| open_beside_a_removal(*number));
    assert!(tried.count() > 0);
}

#[test]
fn a_damaged_table_of_first_offsets_brings_no_deleted_message_back() {
    for how in ["empty", "folder", "garbage"] {
        let store = Stepped::new(Options::default());
        store.send("t", [NOW; 10]);
        delete(&store, 4, true);
        store.engine.close().unwrap();
        let table = store.root.path().join("log-start-offset-checkpoint");
        fs::remove_file(&table).unwrap();
        match how {
            "empty" => fs::write(&table, b"").unwrap(),
            "folder" => fs::create_dir(&table).unwrap(),
            _ => fs::write(&table, b"\xFF\0garbage").unwrap(),
        }
        let reader = open(store.root.path(), Isolation::ReadUncommitted).unwrap();
        assert_eq!(
            reader.bounds(&topic(&reader, "t"), 0).unwrap(),
            Some(4..10),
            "{how}"
        );
        let (machine, options) = (machine(&store.clock), &store.options);
        let engine = PartitionLog::open(&machine, store.root.path(), options).unwrap();
        let store = Stepped { engine, ..store };
        assert_eq!(store.start("t"), 4, "{how}");
        assert_eq!(store.offsets("t"), [4, 5, 6, 7, 8, 9], "{how}");
    }
}

/// No checksum covers it. Readers did not see the messages before it, and the next opening for
/// writing removed their files.
#[test]
fn a_first_offset_that_no_table_of_epochs_confirms_hides_and_removes_nothing() {
    for (start, wrong) in [(0, 4), (4, 6), (4, 8), (4, 40)] {
        let store = Stepped::new(Options::default());
        store.send("t", [NOW; 10]);
        if start > 0 {
            delete(&store, start, true);
        }
        store.engine.close().unwrap();
        let table = store.root.path().join("log-start-offset-checkpoint");
        fs::write(&table, format!("0\n2\nt 0 {wrong}\nother 0 9\n")).unwrap();
        let what = format!("{wrong} instead of {start}");
        let expected: Vec<u64> = (start..10).collect();
        let reader = open(store.root.path(), Isolation::ReadUncommitted).unwrap();
        assert_eq!(offsets(&reader, "t"), expected, "{what}");
        let found = reader.report().damage();
        assert_eq!(found.len(), 1, "{what}: {found:?}");
        assert_eq!(found[0].path, table, "{what}");
        let (machine, options) = (machine(&store.clock), &store.options);
        let engine = PartitionLog::open(&machine, store.root.path(), options).unwrap();
        let store = Stepped { engine, ..store };
        assert_eq!(store.offsets("t"), expected, "{what}");
        let bases: Vec<u64> = [0, 3, 6, 9]
            .into_iter()
            .filter(|it| it + 3 > start)
            .collect();
        assert_eq!(store.bases("t"), bases, "{what}");
        assert_eq!(store.engine.report().damaged(), 1, "{what}");
        store.engine.repair(&mut |_, _| true).unwrap();
        let verified = store.engine.verify(&mut |_, _| true).unwrap();
        assert_eq!(verified.damage, [], "{what}");
        assert_eq!(
            store.again(Options::default()).offsets("t"),
            expected,
            "{what}"
        );
    }
}

/// A broker writes the table of epochs later, and a follower of a topic with remote segments gets
/// one that begins before its messages.
#[test]
fn a_brokers_first_offset_counts_although_its_table_of_epochs_begins_earlier() {
    let store = Stepped::new(Options::default());
    store.send("t", [NOW; 10]);
    store.engine.close().unwrap();
    let root = store.root.path();
    fs::write(root.join("log-start-offset-checkpoint"), "0\n1\nt 0 4\n").unwrap();
    fs::remove_file(root.join(MARKER)).unwrap();
    let reader = open(root, Isolation::ReadUncommitted).unwrap();
    assert_eq!(offsets(&reader, "t"), [4, 5, 6, 7, 8, 9]);
    assert_eq!(reader.report().damage(), []);
}

/// Its table of epochs was damaged, and written again from all batches, also from deleted ones.
#[test]
fn a_first_offset_stays_when_the_table_of_epochs_is_made_anew() {
    for is_sent in [false, true] {
        let store = Stepped::new(Options::default());
        store.send("t", [NOW; 10]);
        delete(&store, 4, true);
        store.engine.close().unwrap();
        let epochs = store.root.path().join("t-0/leader-epoch-checkpoint");
        fs::write(&epochs, "garbage").unwrap();
        let (machine, options) = (machine(&store.clock), &store.options);
        let engine = PartitionLog::open(&machine, store.root.path(), options).unwrap();
        let store = Stepped { engine, ..store };
        if is_sent {
            store.send("t", [NOW]);
        } else {
            store.engine.repair(&mut |_, _| true).unwrap();
        }
        let store = store.again(Options::default());
        let text = fs::read_to_string(&epochs).unwrap();
        assert_eq!(text, "0\n1\n0 4\n", "{is_sent}");
        assert_eq!(store.start("t"), 4, "{is_sent}");
        assert_eq!(store.engine.report().damage(), [], "{is_sent}");
    }
}
