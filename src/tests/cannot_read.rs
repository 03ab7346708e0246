//! What cannot be read is neither absent nor lost.

use crate::disk::{Call, HookedDisk};
use crate::error::Error;
use crate::machine::Machine;
use crate::options::{EngineKind, Mode, Options};
use crate::record::Draft;
use crate::{ConsumerOptions, Durability, Store};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A machine on which some calls fail for lack of descriptors: as many as the number says.
fn lacking(
    left: &Arc<AtomicU64>,
    fails: impl Fn(Call, &Path) -> bool + Send + Sync + 'static,
) -> Machine {
    let left = Arc::clone(left);
    let disk = HookedDisk::shared(move |call, path| {
        let less = |left: u64| left.checked_sub(1);
        let is_met = fails(call, path)
            && left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
                .is_ok();
        match is_met {
            true => Err(io::Error::from_raw_os_error(libc::EMFILE)),
            false => Ok(()),
        }
    });
    Machine {
        disk,
        ..Machine::real()
    }
}

fn is_lack(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.raw_os_error() == Some(libc::EMFILE))
}

/// It was taken for a directory without a store, or for a commit log.
#[test]
fn a_partition_log_that_cannot_be_listed_once_stays_one() {
    let own = tempfile::tempdir().unwrap();
    let log = Options {
        engine: Some(EngineKind::PartitionLog),
        ..Options::default()
    };
    let made = Store::open(own.path(), log).unwrap();
    made.close().unwrap();
    let of_broker = tempfile::tempdir().unwrap();
    fs::create_dir(of_broker.path().join("t-0")).unwrap();
    fs::write(of_broker.path().join(format!("t-0/{:020}.log", 0)), b"").unwrap();
    let modes = [Mode::Read, Mode::Append];
    let modes = modes.map(|mode| [None, Some(EngineKind::PartitionLog)].map(|it| (mode, it)));
    for root in [own.path(), of_broker.path()] {
        for (mode, engine) in modes.into_iter().flatten() {
            let options = Options {
                mode,
                engine,
                adopt: true,
                ..Options::default()
            };
            let left = Arc::new(AtomicU64::new(1));
            let listed = root.to_path_buf();
            let machine = lacking(&left, move |call, of| call == Call::List && of == listed);
            let error = Store::open_on(&machine, root, options.clone()).err();
            let text = error.as_ref().map(Error::to_string);
            let is_it = error.is_some_and(|error| is_lack(&error));
            assert!(is_it, "{mode:?} {engine:?}: {text:?}");
            let store = Store::open_on(&machine, root, options).unwrap();
            let kind = store.engine().unwrap().meanings().kind;
            assert_eq!(kind, EngineKind::PartitionLog);
            store.close().unwrap();
        }
    }
}

/// Progress that leads past the end of a log that came back shorter is left out of a save. So was
/// the progress of a group whose queue could not be read, and the call that saved it succeeded.
#[test]
fn progress_is_not_left_out_of_a_save_because_its_queue_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let options = Options {
        mode: Mode::Share,
        default_queues: Some(1),
        queue_file_entries: Some(64),
        busy_timeout: Duration::from_secs(60),
        ..Options::default()
    };
    let send = |store: &Store| {
        let producer = store.producer("orders", Some(0)).unwrap();
        for _ in 0..200 {
            let draft = Draft::default();
            producer.send(&draft, 0, Durability::Default).unwrap();
        }
    };
    let store = Store::open(&root, options.clone()).unwrap();
    send(&store);
    store.close().unwrap();
    // The log was longer when progress was saved. The second epoch begins after 200 messages.
    let table = root.join("config/consumerOffset.json");
    let text = r#"{"offsetTable":{"orders@billing":{"0":5}},
        "forebayLog":{"orders@billing":{"began":0,"epoch":1,"position":1000000000}}}"#;
    fs::create_dir_all(root.join("config")).unwrap();
    fs::write(&table, text).unwrap();

    // One process cannot save, and another one cannot read the queue.
    let (writes, maps) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let is_in = |path: &Path, name| path.to_string_lossy().contains(name);
    let saving = lacking(&writes, move |call, path| {
        call == Call::Write && is_in(path, "consumerOffset")
    });
    let reading = lacking(&maps, move |call, path| {
        call == Call::Map && is_in(path, "consumequeue/orders")
    });
    let one = Store::open_on(&saving, &root, options.clone()).unwrap();
    send(&one);
    let other = Store::open_on(&reading, &root, options).unwrap();
    let join = |store: &Store, topic, group| {
        let given = ConsumerOptions::default();
        store.consumer(&[topic], group, given).unwrap()
    };
    let consumer = join(&one, "orders", "billing");
    let beside = join(&other, "bills", "beside");
    let taken = consumer.poll(10, Duration::from_secs(60)).unwrap();
    assert_eq!(taken[0].message.record().queue_offset(), 5);
    for lack in [&writes, &maps] {
        lack.store(u64::MAX, Ordering::Relaxed);
    }
    consumer.ack(taken.iter().map(|it| &it.receipt)).unwrap();
    let error = beside.close().unwrap_err();
    assert!(is_lack(&error), "{error}");
    for lack in [&writes, &maps] {
        lack.store(0, Ordering::Relaxed);
    }
    let next = 5 + taken.len();
    for store in [one, other] {
        store.close().unwrap();
    }
    let saved = fs::read_to_string(&table).unwrap();
    assert!(saved.contains(&format!("\"0\": {next}")), "{saved}");
}
