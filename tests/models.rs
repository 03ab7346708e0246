//! Models of what threads of a store do to one another, in every order that the memory model
//! allows.
//!
//! Each is a few lines of the store with loom's primitives in the place of the real ones: the lists
//! of group commit (`engine/commit_log/group_commit.rs`), the published mark of the log
//! (`engine/commit_log/append.rs`, `mapped/region.rs`), the bell that wakes sleepers
//! (`engine/commit_log/service.rs`), and a file that is retired under its readers
//! (`mapped/queue.rs`). Each has a mistake planted, which loom has to find.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Whether loom finds an order in which the model breaks.
fn breaks(model: impl Fn() + Sync + Send + 'static) -> bool {
    catch_unwind(AssertUnwindSafe(|| loom::model(model))).is_err()
}

/// Two senders enlist their end; a flusher exchanges the lists, syncs once and acknowledges.
fn group_commit(swaps_late: bool) {
    struct Shared {
        published: AtomicUsize,
        durable: AtomicUsize,
        waiting: Mutex<Vec<usize>>,
        enlisted: Condvar,
        acknowledged: [AtomicBool; 2],
    }
    let shared = Arc::new(Shared {
        published: AtomicUsize::new(0),
        durable: AtomicUsize::new(0),
        waiting: Mutex::new(Vec::new()),
        enlisted: Condvar::new(),
        acknowledged: [AtomicBool::new(false), AtomicBool::new(false)],
    });
    let senders: Vec<_> = (0..2)
        .map(|_| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let end = shared.published.fetch_add(1, Ordering::AcqRel) + 1;
                shared.waiting.lock().unwrap().push(end);
                shared.enlisted.notify_one();
            })
        })
        .collect();
    let mut served = 0;
    while served < 2 {
        let mut list = shared.waiting.lock().unwrap();
        while list.is_empty() {
            list = shared.enlisted.wait(list).unwrap();
        }
        let mut read = Vec::new();
        if !swaps_late {
            std::mem::swap(&mut *list, &mut read);
        }
        drop(list);
        // The sync covers what is published when it begins.
        let covered = shared.published.load(Ordering::Acquire);
        thread::yield_now();
        shared.durable.store(covered, Ordering::Release);
        if swaps_late {
            std::mem::swap(&mut *shared.waiting.lock().unwrap(), &mut read);
        }
        for end in read {
            assert!(
                end <= shared.durable.load(Ordering::Acquire),
                "acknowledged too early"
            );
            shared.acknowledged[end - 1].store(true, Ordering::Release);
            served += 1;
        }
    }
    senders.into_iter().for_each(|it| it.join().unwrap());
    let acknowledged = |it: &AtomicBool| it.load(Ordering::Acquire);
    assert!(shared.acknowledged.iter().all(acknowledged));
}

#[test]
fn a_sender_is_acknowledged_by_a_sync_that_began_after_it_enlisted() {
    loom::model(|| group_commit(false));
    assert!(
        breaks(|| group_commit(true)),
        "lists that change places late"
    );
}

/// An appender stores a record and moves the mark; a reader that sees the mark reads the record.
fn published(order: Ordering) {
    let bytes = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let mark = Arc::new(AtomicUsize::new(0));
    let appender = {
        let (bytes, mark) = (Arc::clone(&bytes), Arc::clone(&mark));
        thread::spawn(move || {
            for at in 0..2 {
                bytes[at].store(at + 1, Ordering::Relaxed);
                mark.store(at + 1, order);
            }
        })
    };
    let end = mark.load(Ordering::Acquire);
    for at in 0..end {
        assert_eq!(
            bytes[at].load(Ordering::Relaxed),
            at + 1,
            "read before it was there"
        );
    }
    appender.join().unwrap();
}

#[test]
fn below_the_published_mark_all_bytes_are_there() {
    loom::model(|| published(Ordering::Release));
    assert!(
        breaks(|| published(Ordering::Relaxed)),
        "a mark without order"
    );
}

/// A sender makes news and rings if somebody sleeps; the other says that it sleeps, and looks once
/// more before it does.
fn bell(fenced: bool) {
    let news = Arc::new(AtomicBool::new(false));
    let sleepers = Arc::new(AtomicUsize::new(0));
    let fence = move || {
        if fenced {
            fence(Ordering::SeqCst);
        }
    };
    let sender = {
        let (news, sleepers) = (Arc::clone(&news), Arc::clone(&sleepers));
        thread::spawn(move || {
            news.store(true, Ordering::Relaxed);
            fence();
            sleepers.load(Ordering::Relaxed) > 0
        })
    };
    sleepers.fetch_add(1, Ordering::Relaxed);
    fence();
    let sleeps = !news.load(Ordering::Relaxed);
    let rung = sender.join().unwrap();
    assert!(!sleeps || rung, "asleep, and nobody rings");
}

#[test]
fn nobody_sleeps_over_news() {
    loom::model(|| bell(true));
    assert!(breaks(|| bell(false)), "a bell without fences");
}

/// A file is taken out of the row and its name away, while a reader looks it up and reads.
fn retire(owned: bool) {
    struct File {
        mapped: AtomicBool,
    }
    let file = Arc::new(File {
        mapped: AtomicBool::new(true),
    });
    let row = Arc::new(Mutex::new(Some(Arc::clone(&file))));
    drop(file);
    let retirement = {
        let row = Arc::clone(&row);
        thread::spawn(move || {
            let Some(file) = row.lock().unwrap().take() else {
                return;
            };
            // The last owner unmaps; a retirement that does so itself pulls the map away.
            if !owned || Arc::strong_count(&file) == 1 {
                file.mapped.store(false, Ordering::Release);
            }
        })
    };
    let found = row.lock().unwrap().clone();
    if let Some(file) = found {
        thread::yield_now();
        assert!(
            file.mapped.load(Ordering::Acquire),
            "read from a map that is gone"
        );
    }
    retirement.join().unwrap();
}

#[test]
fn a_retired_file_stays_mapped_for_its_readers() {
    loom::model(|| retire(true));
    assert!(breaks(|| retire(false)), "a map that is pulled away");
}
