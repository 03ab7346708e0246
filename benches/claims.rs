//! The basic decisions of the design, each against its alternative, in turn and in one table.
//!
//! Groups: `lock` (append lock that sleeps or spins, 1 to 64 senders), `flushers` (one that syncs
//! for all, or one for each), `write` (stores to a map, `pwrite` of one record or of 1 MiB),
//! `prepare` (warm-up and locked memory), `pool` (with and without, small and large bodies),
//! `order` (sequential and random writes, each synced).

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a bench may panic"
)]

mod support;

use forebay::AppendLockKind;
use forebay::internals::{Access, Region};
use forebay::{Disk, RealDisk};
use forebay::{Draft, Durability, Options, Store};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};
use support::load::{TOPIC, new_store, options, record_len, send_for};
use support::{Figure, Report, Scratch, contest, is_wanted, run_bytes};

const UNIT: &str = "messages/s";
const RUN: Duration = Duration::from_millis(500);

fn main() {
    let mut report = Report::new("claims");
    if is_wanted("lock") {
        for senders in [1, 4, 16, 64] {
            let run = |kind| move || locked(senders, kind);
            contest(
                &mut report,
                &mut [
                    &mut run(AppendLockKind::Mutex),
                    &mut run(AppendLockKind::Spin),
                ],
            );
        }
    }
    if is_wanted("flushers") {
        contest(&mut report, &mut [&mut || flushers(1), &mut || flushers(8)]);
    }
    if is_wanted("write") {
        contest(
            &mut report,
            &mut [&mut mapped, &mut || written(1), &mut || written(4096)],
        );
    }
    if is_wanted("prepare") {
        let run = |name, warm_up, lock_memory| {
            move || {
                let options = Options {
                    warm_up,
                    lock_memory,
                    commitlog_file_size: Some(256 << 20),
                    ..options()
                };
                one_sender(name, 100, options)
            }
        };
        contest(
            &mut report,
            &mut [
                &mut run("as it comes", false, false),
                &mut run("warm_up", true, false),
                &mut run("lock_memory", false, true),
            ],
        );
    }
    if is_wanted("pool") {
        for body in [100, 16 << 10, 1 << 20] {
            let run = |buffers| {
                move || {
                    let options = Options {
                        transient_pool: buffers,
                        ..options()
                    };
                    let name = if buffers > 0 { "pool of 8" } else { "no pool" };
                    one_sender(&format!("{name}, bodies of {body}"), body, options)
                }
            };
            contest(&mut report, &mut [&mut run(0), &mut run(8)]);
        }
    }
    if is_wanted("order") {
        contest(
            &mut report,
            &mut [&mut || synced(false), &mut || synced(true)],
        );
    }
}

/// Messages a second of `senders` threads in a short run.
fn locked(senders: usize, append_lock: AppendLockKind) -> Vec<Figure> {
    let (_scratch, store) = new_store(Options {
        append_lock,
        busy_timeout: Duration::from_secs(60),
        ..options()
    });
    let (_, rate) = send_for(&store, senders, RUN);
    store.close().unwrap();
    vec![(
        format!("{senders} senders, {append_lock:?} lock"),
        UNIT,
        rate,
    )]
}

/// Records a second that become durable while 64 senders wait. One flusher syncs for all senders,
/// or `count` flushers take turns, each for its share.
fn flushers(count: usize) -> Vec<Figure> {
    const WAITING: usize = 64;
    let (scratch, record) = (Scratch::new(), vec![0xA5; record_len(100)]);
    let began = Instant::now();
    let synced: usize = std::thread::scope(|scope| {
        let flush = |number: usize| {
            let file = preallocated(&scratch, &format!("{number}"), 32 << 20);
            let share = WAITING / count;
            move || {
                let mut synced = 0;
                while began.elapsed() < RUN {
                    for _ in 0..share {
                        let at = (synced * record.len()) as u64;
                        file.write_all_at(&record, at).unwrap();
                        synced += 1;
                    }
                    file.sync_data().unwrap();
                }
                synced
            }
        };
        let threads: Vec<_> = (0..count)
            .map(|number| scope.spawn(flush.clone()(number)))
            .collect();
        threads.into_iter().map(|it| it.join().unwrap()).sum()
    });
    let rate = synced as f64 / began.elapsed().as_secs_f64();
    vec![(format!("64 waiting, {count} flushers"), "records/s", rate)]
}

fn preallocated(scratch: &Scratch, name: &str, len: u64) -> File {
    let path = scratch.path().join(name);
    RealDisk.create(&path, len).unwrap();
    RealDisk.reserve(&path, 0, len).unwrap();
    File::options().write(true).open(path).unwrap()
}

/// Records a second stored to a map with reserved blocks.
fn mapped() -> Vec<Figure> {
    let (scratch, record) = (Scratch::new(), vec![0xA5; record_len(100)]);
    let len = run_bytes() / 4;
    preallocated(&scratch, "log", len);
    let path = scratch.path().join("log");
    let region: Region = RealDisk
        .map(&path, len as usize, Access::ReadWrite)
        .unwrap();
    let count = len as usize / record.len();
    let began = Instant::now();
    for number in 0..count {
        region.write(number * record.len(), &record).unwrap();
    }
    let rate = count as f64 / began.elapsed().as_secs_f64();
    vec![("records stored to a map".to_owned(), "records/s", rate)]
}

/// Records a second written by `pwrite`, `records` in each call.
fn written(records: usize) -> Vec<Figure> {
    let (scratch, record) = (Scratch::new(), vec![0xA5; record_len(100)]);
    let chunk = record.repeat(records);
    let len = run_bytes() / if records == 1 { 16 } else { 4 };
    let file = preallocated(&scratch, "log", len);
    let count = len as usize / chunk.len();
    let began = Instant::now();
    for number in 0..count {
        file.write_all_at(&chunk, (number * chunk.len()) as u64)
            .unwrap();
    }
    let rate = (count * records) as f64 / began.elapsed().as_secs_f64();
    vec![(
        format!("records written, {records} a call"),
        "records/s",
        rate,
    )]
}

/// Messages a second of one sender over a quarter of a run, and the 99.9th percentile of its sends.
fn one_sender(name: &str, body: usize, options: Options) -> Vec<Figure> {
    let (_scratch, store): (_, Store) = new_store(options);
    let producer = store.producer(TOPIC, Some(0)).unwrap();
    let body = vec![0x5A; body];
    let draft = Draft {
        body: &body,
        keys: &["00000000"],
        ..Draft::default()
    };
    let count = (run_bytes() / 4) as usize / record_len(body.len());
    let mut slowest = Vec::with_capacity(count);
    let began = Instant::now();
    for _ in 0..count {
        let sent = Instant::now();
        producer.send(&draft, 0, Durability::Default).unwrap();
        slowest.push(sent.elapsed().as_nanos() as u32);
    }
    let rate = count as f64 / began.elapsed().as_secs_f64();
    store.close().unwrap();
    slowest.sort_unstable();
    let slow = f64::from(slowest[count - 1 - count / 1000]);
    vec![
        (format!("{name}: send"), UNIT, rate),
        (format!("{name}: p99.9"), "ns", slow),
    ]
}

/// Writes of 4 KiB a second, each synced, in sequence or at random places in 1 GiB.
fn synced(random: bool) -> Vec<Figure> {
    let scratch = Scratch::new();
    let len = 1u64 << 30;
    let file = preallocated(&scratch, "file", len);
    let page = vec![0xA5; 4096];
    let (began, mut count, mut state) = (Instant::now(), 0u64, 1u64);
    while began.elapsed() < RUN {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let number = if random { state >> 33 } else { count };
        file.write_all_at(&page, number * 4096 % len).unwrap();
        file.sync_data().unwrap();
        count += 1;
    }
    let rate = count as f64 / began.elapsed().as_secs_f64();
    let name = if random { "random" } else { "sequential" };
    vec![(
        format!("{name} writes of 4 KiB, each synced"),
        "writes/s",
        rate,
    )]
}
