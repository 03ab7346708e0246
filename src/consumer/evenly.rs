//! Tests of consumers that join and leave at random, in several processes.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::occupation::{Begun, Occupation};
use super::patience::{Threads, is_locked};
use crate::disk::{Disk, RealDisk};
use crate::engine::directory::group_table::{GroupTable, Peers, Row};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use tempfile::TempDir;

const QUEUES: u32 = 12;
const PROCESSES: usize = 3;

/// A process that lives.
struct Slot(u32);

impl Peers for Slot {
    fn slot(&self) -> u32 {
        self.0
    }

    fn is_alive(&self, _: u32) -> bool {
        true
    }
}

/// What happens to the group.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A consumer of a process joins.
    Join(usize),
    /// One of the consumers leaves.
    Leave(prop::sample::Index),
    /// A process dies or hangs, with all of its consumers.
    Evict(usize),
    /// An owner settles the messages of a queue that it holds.
    Settle(prop::sample::Index),
}

fn event() -> impl Strategy<Value = Event> {
    let process = 0..PROCESSES;
    prop_oneof![
        4 => process.clone().prop_map(Event::Join),
        3 => any::<prop::sample::Index>().prop_map(Event::Leave),
        1 => process.prop_map(Event::Evict),
        6 => any::<prop::sample::Index>().prop_map(Event::Settle),
    ]
}

/// Processes of one store, and which consumers of their group each of them has.
struct Bed {
    processes: Vec<Occupation>,
    /// Number and process of each consumer.
    members: Vec<(u64, usize)>,
    _dir: TempDir,
}

impl Bed {
    fn new() -> Bed {
        let dir = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let open = |slot| {
            let peers = Arc::new(Slot(slot));
            let table = match slot {
                1 => GroupTable::create(&disk, dir.path(), peers).unwrap(),
                _ => GroupTable::open(&disk, dir.path(), peers).unwrap().unwrap(),
            };
            table.show_beat();
            Occupation::new(Arc::new(table))
        };
        Bed {
            processes: (1..).take(PROCESSES).map(open).collect(),
            members: Vec::new(),
            _dir: dir,
        }
    }

    fn join(&mut self, process: usize) {
        let begun = |queue| Begun {
            topic: "orders".into(),
            queue,
            committed: 0,
        };
        let begun: Vec<Begun> = (0..QUEUES).map(begun).collect();
        let topics = BTreeSet::from(["orders".into()]);
        let joined = self.processes[process].join("workers", &topics, &begun, (10_000, None), 0);
        self.members.push((joined.unwrap(), process));
    }

    fn act(&mut self, event: Event) {
        match event {
            Event::Join(process) => self.join(process),
            Event::Leave(at) if !self.members.is_empty() => {
                let (number, process) = self.members.remove(at.index(self.members.len()));
                self.processes[process].note_left(number);
                self.processes[process].remove_left(0).unwrap();
            }
            Event::Evict(process) => {
                // Any living process may notice the death.
                let by = &self.processes[(process + 1) % PROCESSES];
                let slot = self.processes[process].table().own_slot();
                by.evict(slot, 0).unwrap();
                self.members.retain(|(_, other)| *other != process);
            }
            Event::Settle(at) => self.settle(at.index(QUEUES as usize)),
            Event::Leave(_) => {}
        }
    }

    fn rows(&self) -> Vec<Row<'_>> {
        let all = self.processes[0].all().unwrap();
        let table = self.processes[0].table();
        all.iter().map(|it| table.row(it.row)).collect()
    }

    /// An owner hands a queue over, if it has an heir.
    fn settle(&self, queue: usize) {
        let all = self.processes[0].all().unwrap();
        let Some(it) = all.get(queue) else { return };
        let row = self.processes[0].table().row(it.row);
        let owner = self.members.iter().find(|it| Some(it.0) == row.owner());
        if let Some((_, process)) = owner {
            let epoch = row.fence().epoch;
            self.processes[*process]
                .hand_over(it.row, epoch, (0, Threads::Await))
                .unwrap();
        }
    }

    /// How many queues each consumer has, counting those that it will get.
    fn shares(&self) -> Vec<usize> {
        let rows = self.rows();
        let claimed = |number| {
            let claims = rows.iter().map(|row| row.heir().or(row.owner()));
            claims.filter(|it| *it == Some(number)).count()
        };
        self.members.iter().map(|it| claimed(it.0)).collect()
    }
}

/// A stopped process may hold the lock. A consumer that cannot get the lock when it is closed must
/// not keep its queues until its process ends.
#[test]
fn a_consumer_that_left_while_the_table_was_locked_is_removed_later() {
    let mut bed = Bed::new();
    bed.join(0);
    bed.join(1);
    let [first, second, _] = &bed.processes[..] else {
        panic!("there are three processes");
    };
    let (number, _) = bed.members[0];
    first.note_left(number);
    let held = second.lock().unwrap();
    assert!(first.remove_left(0).is_err_and(|error| is_locked(&error)));
    assert!(first.is_member(number));
    drop(held);
    first.remove_left(0).unwrap();
    assert!(!first.is_member(number));
    bed.members.remove(0);
    assert_eq!(bed.shares(), [QUEUES as usize]);
}

proptest! {
    #![proptest_config(crate::seeds::proptest_config())]

    /// Consumers of any process join, leave or die. All queues stay assigned, and no consumer has
    /// two queues more than another, even while queues are handed over.
    #[test]
    fn the_queues_of_a_group_stay_evenly_shared(events in prop::collection::vec(event(), 1..24)) {
        let mut bed = Bed::new();
        bed.join(0);
        for event in events {
            bed.act(event);
            let shares = bed.shares();
            let (least, most) = (shares.iter().min(), shares.iter().max());
            if let Some((least, most)) = least.zip(most) {
                prop_assert!(most - least <= 1, "{event:?}: {shares:?}");
                prop_assert_eq!(shares.iter().sum::<usize>(), QUEUES as usize, "{:?}", event);
                prop_assert!(bed.rows().iter().all(|row| row.owner().is_some()), "{event:?}");
            }
        }
        for queue in 0..QUEUES as usize {
            bed.settle(queue);
        }
        prop_assert!(bed.rows().iter().all(|row| row.heir().is_none()));
    }
}
