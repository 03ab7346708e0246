//! Retention, sealing by age and commits in shared stores: one process does this for all, and
//! another one continues when it dies.

use super::intake::{count, publish, stage, thread::wait};
use crate::record::Draft;
use crate::stages::CommitState;
use crate::{ConsumerOptions, Delay, Durability, EngineKind, Mode, Options, SCHEDULE_TOPIC, Store};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const FILE_LEN: u64 = 16 << 10;
/// Far longer than anything here takes.
const LONG: Duration = Duration::from_secs(120);

fn options() -> Options {
    Options {
        mode: Mode::Share,
        commitlog_file_size: Some(FILE_LEN),
        queue_file_entries: Some(16),
        default_queues: Some(1),
        busy_timeout: LONG,
        flush_interval: Duration::from_millis(10),
        disk_reserve: Some(0),
        ..Options::default()
    }
}

fn removing() -> Options {
    Options {
        retention_bytes: Some(2 * FILE_LEN),
        ..options()
    }
}

fn open(path: &Path, options: Options) -> Store {
    Store::open(path, options).unwrap()
}

/// Sends a message of 1 KiB, and returns its offset.
fn send(store: &Store) -> u64 {
    let producer = store.producer("orders", Some(0)).unwrap();
    let draft = Draft {
        body: &[b'x'; 1 << 10],
        ..Draft::default()
    };
    let sent = producer.send(&draft, 0, Durability::Default).unwrap();
    sent.place.offset
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn log_files(path: &Path) -> usize {
    std::fs::read_dir(path.join("commitlog")).unwrap().count()
}

fn bounds(store: &Store) -> std::ops::Range<u64> {
    let topic = store.topic("orders").unwrap();
    let bounds = store.engine().unwrap().bounds(&topic, 0).unwrap();
    bounds.unwrap()
}

/// The program of a process that `start` starts. In an ordinary run of the tests it does nothing.
#[test]
fn a_process_that_leads() {
    let Ok(path) = std::env::var("FOREBAY_LED") else {
        return;
    };
    let options = match std::env::var("FOREBAY_REMOVES") {
        Ok(_) => removing(),
        Err(_) => options(),
    };
    let store = open(Path::new(&path), options);
    println!("open");
    std::io::stdout().flush().unwrap();
    // The process runs until it dies or its input ends.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    store.close().unwrap();
}

/// Starts a process that leads the store and dies at a point.
fn start(path: &Path, point: &str, removes: bool) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let name = "tests::shared_upkeep::a_process_that_leads";
    command
        .args(["--exact", name, "--nocapture", "--test-threads", "1"])
        .env("FOREBAY_LED", path)
        .env("FOREBAY_DIE_AT", point)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    if removes {
        command.env("FOREBAY_REMOVES", "1");
    }
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines = lines.map(Result::unwrap);
    assert!(lines.any(|line| line.contains("open")), "{point}");
    child
}

fn has_died(mut child: Child, point: &str) {
    let status = child.wait().unwrap();
    assert!(!status.success(), "{point}: the process has not died");
}

/// Checks that no message is lost or duplicated, and that the store is whole.
fn is_whole(path: &Path) {
    let alone = open(path, Options::default());
    assert!(alone.recovery().clean);
    let verified = alone.verify(&mut |_, _| true).unwrap();
    assert!(verified.damage.is_empty(), "{:?}", verified.damage);
    alone.close().unwrap();
}

#[test]
fn whoever_leads_removes_old_files_for_all() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let first = open(&path, removing());
    // The second process gives no options of its own, and gets those of the others.
    let second = open(&path, options());
    let third = open(&path, options());
    let mut next = 0;
    for store in [&second, &third] {
        for _ in 0..100 {
            assert_eq!(send(store), next);
            next += 1;
        }
        until("nothing was removed", || log_files(&path) <= 3);
        for reader in [&second, &third] {
            let bounds = bounds(reader);
            assert!(bounds.start + 60 > next, "{bounds:?}");
            assert_eq!(bounds.end, next);
            assert!(reader.get("orders", 0, 0).is_err());
            let first = bounds.start.cast_signed();
            assert_eq!(
                reader
                    .get("orders", 0, first)
                    .unwrap()
                    .record()
                    .queue_offset(),
                first
            );
        }
        // The others continue when the process that leads leaves.
        first.close().unwrap();
    }
    second.close().unwrap();
    third.close().unwrap();
    is_whole(&path);
}

#[test]
fn a_leader_that_dies_while_it_removes_files_is_outlived() {
    for point in ["Retired:0", "Retired:2"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        // Creates many files before retention begins.
        let before = Options {
            mode: Mode::Append,
            ..options()
        };
        let store = open(&path, before);
        for _ in 0..100 {
            send(&store);
        }
        store.close().unwrap();
        let child = start(&path, point, true);
        has_died(child, point);
        let other = open(&path, removing());
        assert_eq!(send(&other), 100, "{point}");
        until("nothing was removed", || log_files(&path) <= 3);
        let bounds = bounds(&other);
        for offset in bounds {
            other.get("orders", 0, offset.cast_signed()).unwrap();
        }
        other.close().unwrap();
        is_whole(&path);
    }
}

/// Each send once changed the word on which readers sleep and made a system call to wake them, even
/// if none slept.
#[test]
fn a_send_to_a_shared_partition_log_wakes_nobody_where_nobody_sleeps() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let options = Options {
        mode: Mode::Share,
        engine: Some(EngineKind::PartitionLog),
        default_queues: Some(1),
        ..Options::default()
    };
    let [first, second] = [(), ()].map(|()| open(&path, options.clone()));
    send(&first);
    let word_of_news = || {
        let page = std::fs::read(path.join("forebay.shared")).unwrap();
        page[576..580].to_vec()
    };
    let before = word_of_news();
    for _ in 0..10 {
        send(&first);
        send(&second);
    }
    assert_eq!(word_of_news(), before);
    first.close().unwrap();
    second.close().unwrap();
}

/// A group counts in whichever process its consumers are.
#[test]
fn what_a_group_of_another_process_has_not_consumed_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let leader = open(&path, removing());
    let other = open(&path, options());
    let all_of = |group: &str| {
        let consumer = other.consumer(&["orders"], group, ConsumerOptions::default());
        consumer.unwrap()
    };
    // The first group has begun before there is anything to remove.
    let billing = all_of("billing");
    for _ in 0..100 {
        send(&leader);
    }
    let taken = billing.poll(50, LONG).unwrap();
    assert_eq!(taken.len(), 50);
    // Nothing of the second group is saved yet.
    let shipping = all_of("shipping");
    assert_eq!(shipping.poll(1, LONG).unwrap().len(), 1);
    let first = leader.get("orders", 0, 0).unwrap();
    let first = first.record().position().cast_unsigned();
    assert!(leader.keep_from().unwrap() <= first);
    drop(shipping);
    other
        .reset_offsets("shipping", "orders", &crate::Bound::Latest)
        .unwrap();
    billing.ack(taken.iter().map(|it| &it.receipt)).unwrap();
    // All files that are due are removed in one step.
    until("nothing was removed", || bounds(&other).start > 0);
    let kept = bounds(&other);
    assert!(kept.start > 30 && kept.start <= 50, "{kept:?}");
    assert_eq!(
        leader.get("orders", 0, 50).unwrap().record().queue_offset(),
        50
    );
    let taken = billing.poll(50, LONG).unwrap();
    billing.ack(taken.iter().map(|it| &it.receipt)).unwrap();
    until("nothing was removed", || log_files(&path) <= 3);
    billing.close().unwrap();
    other.close().unwrap();
    leader.close().unwrap();
    is_whole(&path);
}

/// A refused message waits in a topic that the table of topics does not list.
#[test]
fn what_a_consumer_of_another_process_has_refused_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let leader = open(&path, removing());
    let other = open(&path, options());
    let consumer = other.consumer(&["orders"], "billing", ConsumerOptions::default());
    let consumer = consumer.unwrap();
    send(&other);
    let taken = consumer.poll(1, LONG).unwrap();
    consumer.nack(&taken[0], Some(18)).unwrap();
    consumer.close().unwrap();
    let refused = other.get(SCHEDULE_TOPIC, 17, 0).unwrap();
    let refused = refused.record().position().cast_unsigned();
    assert_eq!(leader.keep_from().unwrap(), refused);
    other.close().unwrap();
    leader.close().unwrap();
}

#[test]
fn whoever_leads_seals_files_by_their_age() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let rolling = Options {
        roll_after: Some(Duration::from_millis(20)),
        ..options()
    };
    let leader = open(&path, rolling);
    let other = open(&path, options());
    send(&other);
    until("the file was not sealed", || {
        other.sealed_files().unwrap().len() == 1
    });
    leader.close().unwrap();
    send(&other);
    until("the file was not sealed", || {
        other.sealed_files().unwrap().len() == 2
    });
    assert_eq!(bounds(&other), 0..2);
    other.close().unwrap();
    is_whole(&path);
}

#[test]
fn whoever_leads_takes_commits_up() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let leader = open(&path, options());
    let other = open(&path, options());
    let stages = [stage(&path, "q", &[vec![1]], 500)];
    publish(&path, "q", &stages, 500);
    assert_eq!(wait(&path), CommitState::Gone);
    assert_eq!((count(&leader, "t"), count(&other, "t")), (1, 1));
    publish(&path, "p", &[stage(&path, "p", &[vec![2]], 500)], 500);
    other.take_commits().unwrap();
    assert_eq!((count(&leader, "t"), count(&other, "t")), (2, 2));
    leader.close().unwrap();
    publish(&path, "o", &[stage(&path, "o", &[vec![3]], 500)], 500);
    other.take_commits().unwrap();
    assert_eq!(count(&other, "t"), 3);
    other.close().unwrap();
    is_whole(&path);
}

/// The next process that leads appends the missing parts of a commit, and none twice.
#[test]
fn a_leader_that_dies_while_it_takes_a_commit_up_is_outlived() {
    let bodies: Vec<Vec<u8>> = (0..40u8).map(|number| vec![number; 100]).collect();
    for point in ["Begun:0", "PartAppended:0", "PartAppended:3", "Taken:0"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let child = start(&path, point, false);
        let other = open(&path, options());
        let stages = [stage(&path, "q", &bodies, 500)];
        assert!(stages[0].slices.len() > 5);
        publish(&path, "q", &stages, 500);
        assert_eq!(wait(&path), CommitState::Gone, "{point}");
        has_died(child, point);
        assert_eq!(count(&other, "t"), 40, "{point}");
        for (offset, body) in bodies.iter().enumerate() {
            let found = other.get("t", 0, offset as i64).unwrap();
            assert_eq!(found.body().unwrap().as_ref(), body, "{point}");
        }
        other.close().unwrap();
        is_whole(&path);
    }
}

/// The process that leads has sent nothing, but still knows the topic of delayed messages.
#[test]
fn whoever_leads_delivers_the_first_delayed_message_of_another_process() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let leader = open(&path, options());
    let other = open(&path, options());
    let producer = other.producer("orders", Some(0)).unwrap();
    let draft = Draft::default();
    let delay = Delay::For(Duration::from_millis(1));
    producer
        .send_delayed(&draft, delay, Durability::Default)
        .unwrap();
    until("it was not delivered", || bounds(&other).end == 1);
    let level = Delay::level(1);
    producer
        .send_delayed(&draft, level, Durability::Default)
        .unwrap();
    until("it was not delivered", || bounds(&other).end == 2);
    other.close().unwrap();
    leader.close().unwrap();
    is_whole(&path);
}
