//! A store that runs out of descriptors or memory for a moment.

use crate::disk::{Call, HookedDisk};
use crate::engine::commit_log::CommitLog;
use crate::engine::{Atomicity, Durability, Engine};
use crate::error::{Error, Op, Result};
use crate::machine::Machine;
use crate::options::{Flush, Options};
use crate::record::Draft;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// A store whose disk fails with the error number `short_of`, unless that is 0.
struct Bed {
    engine: CommitLog,
    short_of: Arc<AtomicI32>,
}

fn open(root: &Path, flush: Flush) -> Bed {
    let short_of = Arc::new(AtomicI32::new(0));
    let short = Arc::clone(&short_of);
    let disk = HookedDisk::shared(move |call, _| match short.load(Ordering::Relaxed) {
        libc::ENOMEM if !matches!(call, Call::Map | Call::Sync) => Ok(()),
        // A process that locks all its memory may lock no more.
        libc::EAGAIN if call != Call::Map => Ok(()),
        0 => Ok(()),
        _ if call == Call::SyncRange => Ok(()),
        number => Err(io::Error::from_raw_os_error(number)),
    });
    let options = Options {
        flush: Some(flush),
        commitlog_file_size: Some(8192),
        queue_file_entries: Some(64),
        index_slots: Some(16),
        index_entries: Some(8),
        ..Options::default()
    };
    let engine = CommitLog::open(&Machine::stepped(disk), root, &options, Vec::new()).unwrap();
    Bed { engine, short_of }
}

impl Bed {
    fn send(&self, topic: &str) -> Result<u64> {
        let topic = self.engine.topic_for_append(topic)?;
        let mut batch = self.engine.form().batch();
        let draft = Draft {
            body: &[7; 3000],
            keys: &["a", "b", "c"],
            ..Draft::default()
        };
        let clock_ms = self.engine.parts().clock.now_ms();
        batch.push(&topic.name, 0, &draft, clock_ms)?;
        let sent = self.engine.append(
            &mut [(&topic, &mut batch)],
            Atomicity::Rows,
            Durability::Written,
        )?;
        Ok(sent.rows[0].offset)
    }

    fn dispatch(&self) -> Result<()> {
        while self.engine.parts().dispatcher.step()? {}
        Ok(())
    }

    fn files(&self) -> BTreeSet<String> {
        let directory = self.engine.parts().root.join("commitlog");
        let names = std::fs::read_dir(directory).unwrap();
        let names = names.map(|name| name.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect()
    }
}

/// A single call without a free descriptor made the store fail for good. One log file that could
/// not be mapped stayed, so that each later roll found its name taken.
#[test]
fn want_of_descriptors_or_memory_passes() {
    for flush in [Flush::Async, Flush::Sync] {
        for number in [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EAGAIN] {
            let dir = tempfile::tempdir().unwrap();
            let bed = open(dir.path(), flush);
            let mut sent = vec![("a".to_owned(), bed.send("a").unwrap())];
            bed.dispatch().unwrap();
            let files = bed.files();

            bed.short_of.store(number, Ordering::Relaxed);
            for turn in 0..8 {
                let topic = format!("t{turn}");
                match bed.send(&topic) {
                    Ok(offset) => sent.push((topic, offset)),
                    Err(Error::Io { source, .. }) => {
                        assert_eq!(source.raw_os_error(), Some(number));
                    }
                    Err(error) => panic!("{error}"),
                }
                let _ = bed.engine.flush(&mut || true);
                let _ = bed.dispatch();
                let _ = bed.engine.parts().full_pass();
                bed.engine.parts().health.check().unwrap();
            }
            assert!((2..9).contains(&sent.len()), "{} were sent", sent.len());
            assert_eq!(bed.files(), files, "nothing that is half made stays");

            bed.short_of.store(0, Ordering::Relaxed);
            for turn in 0..8 {
                let topic = format!("t{turn}");
                let offset = bed.send(&topic).unwrap();
                sent.push((topic, offset));
            }
            bed.engine.flush(&mut || true).unwrap();
            bed.dispatch().unwrap();
            bed.engine.parts().full_pass().unwrap();
            for (topic, offset) in &sent {
                let topic = bed.engine.topics().get(topic).unwrap();
                assert!(bed.engine.get(&topic, 0, *offset).unwrap().is_some());
            }
            let found = bed.engine.verify(&mut |_, _| true).unwrap();
            assert_eq!(found.damage, []);
            assert_eq!(found.queue_entries, sent.len() as u64);
            assert_eq!(found.index_entries, 3 * sent.len() as u64);
            bed.engine.close().unwrap();
        }
    }
}

/// A sync that failed for lack of a descriptor is repeated when there is one.
#[test]
fn what_could_not_be_opened_for_a_sync_is_synced_later() {
    let dir = tempfile::tempdir().unwrap();
    let bed = open(dir.path(), Flush::Async);
    bed.send("a").unwrap();
    bed.dispatch().unwrap();
    bed.short_of.store(libc::EMFILE, Ordering::Relaxed);
    assert!(bed.engine.parts().full_pass().is_err());
    let queues = &bed.engine.parts().queues;
    let queue = &queues.all(bed.engine.topics()).unwrap()[0].1;
    assert!(queue.is_behind());
    bed.short_of.store(0, Ordering::Relaxed);
    bed.engine.parts().full_pass().unwrap();
    assert!(!queue.is_behind());
}

/// A failed sync is final, even if its error number is temporary for other calls.
#[test]
fn a_sync_without_room_or_memory_is_final() {
    for number in [libc::ENOMEM, libc::ENOSPC, libc::EIO] {
        let error = |op| Error::io(op, "file", io::Error::from_raw_os_error(number));
        for sync in [Op::Sync, Op::SyncFileSystem] {
            assert!(error(sync).is_of_sync() && error(sync).ends_writing());
        }
        assert_eq!(error(Op::Map).ends_writing(), number == libc::EIO);
    }
}
