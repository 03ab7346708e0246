//! Log files that are prepared ahead of use and released after it.

use crate::disk::{Call, HookedDisk};
use crate::engine::commit_log::CommitLog;
use crate::engine::commit_log::log::append::RESERVE_STEP;
use crate::engine::service::flush::FlushService;
use crate::engine::{Atomicity, Durability, Engine};
use crate::machine::{Drive, Machine};
use crate::mapped::Ready;
use crate::mapped::queue::file_name;
use crate::options::Options;
use crate::record::Draft;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

const FILE_LEN: u64 = 1 << 20;

fn open(root: &Path, drive: Drive, options: Options) -> CommitLog {
    let machine = Machine {
        drive,
        ..Machine::real()
    };
    open_on(&machine, root, options)
}

/// A store with short log files, unless `options` gives a length.
fn open_on(machine: &Machine, root: &Path, options: Options) -> CommitLog {
    let options = Options {
        commitlog_file_size: options.commitlog_file_size.or(Some(FILE_LEN)),
        index: Some(false),
        ..options
    };
    CommitLog::open(machine, root, &options, Vec::new()).unwrap()
}

/// A machine that asks `before` about every disk call.
fn hooked(before: impl Fn(Call, &Path) -> io::Result<()> + Send + Sync + 'static) -> Machine {
    Machine::stepped(HookedDisk::shared(before))
}

/// Sends messages of 100 KiB each.
fn send(engine: &CommitLog, count: usize) {
    let topic = engine.topic_for_append("orders").unwrap();
    let body = vec![7; 100 << 10];
    for _ in 0..count {
        let mut batch = engine.form().batch();
        let draft = Draft {
            body: &body,
            ..Draft::default()
        };
        let clock_ms = engine.parts().clock.now_ms();
        batch.push("orders", 0, &draft, clock_ms).unwrap();
        engine
            .append(
                &mut [(&topic, &mut batch)],
                Atomicity::Rows,
                Durability::Written,
            )
            .unwrap();
    }
}

/// Waits until the allocator has finished all requests.
fn settle(engine: &CommitLog) {
    let file = engine.parts().log.files.first().unwrap();
    let last = engine.parts().allocator.reserve(&file, 0);
    last.wait(Duration::from_secs(60))
        .and_then(Ready::done)
        .unwrap();
}

/// Starts of the log files below `root` that are locked in memory.
#[cfg(target_os = "linux")]
fn locked(root: &Path) -> Vec<u64> {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut current = None;
    let mut found = Vec::new();
    for line in maps.lines() {
        if let Some(at) = line.find('/') {
            let path = Path::new(&line[at..]);
            let name = path.file_name().unwrap().to_string_lossy();
            current = path
                .starts_with(root.join("commitlog"))
                .then(|| name.parse::<u64>().unwrap());
        } else if let Some(flags) = line.strip_prefix("VmFlags:")
            && let Some(start) = current.take()
            && flags.split_whitespace().any(|flag| flag == "lo")
        {
            found.push(start);
        }
    }
    found.sort_unstable();
    found
}

/// Each file stayed locked until the store was closed, and the file in use of a reopened store was
/// never locked.
#[test]
#[cfg(target_os = "linux")]
fn the_file_in_use_and_the_next_one_are_locked_and_no_others() {
    use crate::warning::Warning;
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        lock_memory: true,
        ..Options::default()
    };
    let engine = open(dir.path(), Drive::Threads, options.clone());
    send(&engine, 36);
    settle(&engine);
    let warnings = engine.report().warnings.take();
    if let Some(refused) = warnings
        .iter()
        .find(|it| matches!(it, Warning::Unlocked { .. }))
    {
        let required = std::env::var("CI_REQUIRES").unwrap_or_default();
        let is_required = required.split(',').any(|name| name == "memlock");
        assert!(!is_required, "CI_REQUIRES names memlock, but {refused:?}");
        return eprintln!("skipped: {refused:?}");
    }
    let current = engine.parts().log.published() / FILE_LEN * FILE_LEN;
    assert!(current >= 3 * FILE_LEN);
    assert_eq!(locked(dir.path()), [current, current + FILE_LEN]);
    engine.close().unwrap();
    drop(engine);

    let engine = open(dir.path(), Drive::Threads, options);
    settle(&engine);
    assert_eq!(locked(dir.path()), [current]);
    send(&engine, 10);
    settle(&engine);
    let current = current + FILE_LEN;
    assert_eq!(locked(dir.path()), [current, current + FILE_LEN]);
    engine.close().unwrap();
}

#[test]
#[cfg(unix)]
fn a_file_that_is_warmed_up_has_all_its_blocks_and_its_messages_are_read() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        warm_up: true,
        ..Options::default()
    };
    let engine = open(dir.path(), Drive::Threads, options.clone());
    send(&engine, 12);
    settle(&engine);
    for number in 0..2 {
        let path = dir
            .path()
            .join("commitlog")
            .join(file_name(number * FILE_LEN));
        let found = std::fs::metadata(path).unwrap();
        assert!(found.len() == FILE_LEN && found.blocks() * 512 >= FILE_LEN);
    }
    engine.close().unwrap();
    drop(engine);
    let engine = open(dir.path(), Drive::Threads, options);
    let found = engine.verify(&mut |_, _| true).unwrap();
    assert_eq!((found.records, found.damage.len()), (12, 0));
    engine.close().unwrap();
}

/// Every full file stayed mapped until the store was closed.
#[test]
fn a_full_file_that_nobody_reads_is_unmapped() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path(), Drive::Steps, Options::default());
    send(&engine, 36);
    engine.parts().dispatcher.catch_up(u64::MAX).unwrap();
    engine.parts().full_pass().unwrap();
    let parts = engine.parts();
    let mut service = FlushService::new(engine.flush_rules(), Instant::now());
    let mapped = || -> Vec<bool> {
        let files = parts.log.files.all();
        files.iter().map(|file| file.is_mapped()).collect()
    };
    let held = parts.log.files.first().unwrap().region().unwrap();
    assert_eq!(mapped(), [true; 4]);
    let mut time = Instant::now();
    for _ in 0..3 {
        time += Duration::from_secs(20);
        service.step(parts, time);
    }
    // The first is held by a reader, the last is in use.
    assert_eq!(mapped(), [true, false, false, true]);
    drop(held);
    service.step(parts, time + Duration::from_secs(20));
    assert_eq!(mapped(), [false, false, false, true]);

    let found = engine.verify(&mut |_, _| true).unwrap();
    assert_eq!((found.records, found.damage.len()), (36, 0));
    send(&engine, 36);
    engine.close().unwrap();
}

/// Starts of the log files below `root`.
fn files(root: &Path) -> Vec<u64> {
    let names = std::fs::read_dir(root.join("commitlog")).unwrap();
    let names = names.map(|name| name.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<u64> = names.map(|name| name.parse().unwrap()).collect();
    files.sort_unstable();
    files
}

#[test]
fn a_store_that_is_half_full_has_two_files_ahead_and_a_small_one_has_none() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path(), Drive::Steps, Options::default());
    send(&engine, 4);
    assert_eq!(files(dir.path()), [0]);
    send(&engine, 2);
    assert_eq!(files(dir.path()), [0, FILE_LEN, 2 * FILE_LEN]);
    // The next file is begun; half of it is unused.
    send(&engine, 6);
    assert_eq!(files(dir.path()), [0, FILE_LEN, 2 * FILE_LEN]);
    send(&engine, 6);
    assert_eq!(files(dir.path()), [0, 1, 2, 3].map(|file| file * FILE_LEN));
    engine.close().unwrap();
    assert_eq!(files(dir.path()), [0, FILE_LEN]);
}

/// The second file ahead is optional: it is removed when its room is needed, and no call fails if
/// it cannot be created.
#[test]
fn the_second_file_ahead_refuses_no_send() {
    for lacking in [1, 2] {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().to_path_buf();
        let has_room = move |call: Call, path: &Path| {
            let full = || Err(io::Error::from_raw_os_error(libc::ENOSPC));
            let is_log = path.starts_with(root.join("commitlog"));
            match call {
                // The disk has room for this many files.
                Call::Create if is_log && files(&root).len() > lacking => full(),
                _ => Ok(()),
            }
        };
        let engine = open_on(&hooked(has_room), dir.path(), Options::default());
        send(&engine, 9 * lacking);
        assert_eq!(files(dir.path()).len(), lacking + 1);
        engine.close().unwrap();
    }
}

/// Blocks of the current file are needed, and there is room only after the second file ahead is
/// deleted.
#[test]
fn the_second_file_ahead_gives_its_room_to_the_one_that_is_written() {
    const LEN: u64 = 4 * RESERVE_STEP;
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_path_buf();
    let has_room = move |call: Call, path: &Path| {
        let first = root.join("commitlog").join(file_name(0));
        match call {
            Call::Reserve(start, _) if path == first && start >= 3 * RESERVE_STEP => {
                match files(&root).len() > 2 {
                    true => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
                    false => Ok(()),
                }
            }
            _ => Ok(()),
        }
    };
    let options = Options {
        commitlog_file_size: Some(LEN),
        ..Options::default()
    };
    let engine = open_on(&hooked(has_room), dir.path(), options);
    let needed = (3 * RESERVE_STEP + (1 << 20)) / (100 << 10);
    send(&engine, usize::try_from(needed).unwrap());
    assert_eq!(files(dir.path()), [0, LEN]);
    engine.close().unwrap();
}
