//! Windows, by themselves and against a model of them.

use super::slots::BLOCK;
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[test]
fn the_smallest_unsettled_offset_is_committed() {
    let mut window = Window::new(2101);
    let serials: Vec<u64> = (2101..2201).map(|at| window.deliver(at, 10)).collect();
    for (offset, serial) in (2101..2201).zip(&serials).skip(1) {
        assert_eq!(window.settle(offset, *serial), Settling::Done);
        assert_eq!(window.committed(), 2101);
    }
    assert_eq!(window.unsettled(), 1);
    assert_eq!(window.settle(2101, serials[0]), Settling::Done);
    assert_eq!((window.committed(), window.next()), (2201, 2201));
    assert_eq!(window.settle(2101, serials[0]), Settling::Already);
}

#[test]
fn a_delivery_counts_until_the_message_is_delivered_again() {
    let mut window = Window::new(0);
    let first = window.deliver(0, 10);
    assert_eq!(window.due(0, 9), None);
    assert_eq!(window.due(0, 10), Some(0));
    assert_eq!(window.check(0, first), Settling::Done);
    let second = window.deliver_again(0, 20).unwrap();
    assert_eq!(window.attempts(0), 2);
    assert_eq!(window.settle(0, first), Settling::Lost);
    assert_eq!(window.extend(0, second, 30), Settling::Done);
    assert_eq!(window.due(0, 29), None);
    assert_eq!(window.settle(0, second), Settling::Done);
    assert_eq!(window.next_deadline(), None);
}

#[test]
fn a_refused_delivery_is_settled_until_the_message_is_delivered_again() {
    let mut window = Window::new(0);
    let serials = [0, 1].map(|offset| window.deliver(offset, 10));
    assert_eq!(window.refuse(0, serials[0], 5), Settling::Done);
    assert_eq!(window.refuse(0, serials[0], 6), Settling::Already);
    assert_eq!(window.settle(0, serials[0]), Settling::Already);
    assert_eq!(window.extend(0, serials[0], 50), Settling::Already);
    // A later message is taken back, and nobody can settle or extend it.
    assert_eq!(window.settle(1, serials[1]), Settling::TakenBack);
    assert_eq!(window.extend(1, serials[1], 50), Settling::TakenBack);
    assert_eq!(window.refuse(1, serials[1], 5), Settling::TakenBack);
    assert_eq!((window.due(0, 4), window.due(0, 5)), (None, Some(0)));
    let again = window.deliver_again(0, 20).unwrap();
    assert_eq!(window.settle(0, serials[0]), Settling::Lost);
    assert_eq!(window.settle(0, again), Settling::Done);
    assert_eq!(window.committed(), 1);
    window.due(0, 5);
    window.give_up(1);
    assert_eq!((window.committed(), window.unsettled()), (2, 0));
}

#[test]
fn in_order_nothing_passes_the_first_message_that_is_not_settled() {
    let mut window = Window::new(7);
    let serials = [7, 8, 9].map(|offset| window.deliver(offset, 10));
    window.settle(7, serials[0]);
    window.refuse(8, serials[1], 5);
    // The last message waits for the refused one, and a delivery that no caller has seen is no
    // attempt.
    window.give_back(9, serials[2], 1);
    assert_eq!(window.attempts(9), 0);
    assert_eq!(window.first_deadline(), Some(5));
    assert_eq!(
        (window.due_in_order(0, 4), window.due_in_order(0, 5)),
        (None, Some(8))
    );
    assert_eq!(window.due_in_order(9, 5), Some(9));
    assert_eq!(window.due_in_order(10, 5), None);
    // It is due before the first message.
    window.deliver_again(8, 20);
    assert_eq!(window.due_in_order(0, 19), None);
}

#[test]
fn what_follows_a_message_that_is_delivered_again_is_taken_back() {
    let mut window = Window::new(0);
    let serials = [0, 1].map(|offset| window.deliver(offset, 10));
    assert_eq!(window.due_in_order(0, 10), Some(0));
    window.take_back_after(0);
    let again = window.deliver_again(0, 20).unwrap();
    assert_eq!(window.extend(1, serials[1], 50), Settling::TakenBack);
    assert_eq!(window.settle(0, again), Settling::Done);
    assert_eq!(window.due_in_order(0, 10), Some(1));
    let again = window.deliver_again(1, 20).unwrap();
    assert_eq!(window.settle(1, again), Settling::Done);
}

#[test]
fn deliveries_are_settled_however_many_there_were_before() {
    for before in [1 << 31, 1 << 32] {
        let mut window = Window {
            serial: before - 3,
            ..Window::new(0)
        };
        for offset in 0..6 {
            let serial = window.deliver(offset, 10);
            assert_eq!(window.settle(offset, serial), Settling::Done);
            assert_eq!(window.settle(offset, serial), Settling::Already);
        }
        assert_eq!(window.committed(), 6);
    }
}

#[test]
fn offsets_without_a_message_take_no_memory() {
    let mut window = Window::new(0);
    let first = window.deliver(0, 10);
    // A gap that compaction leaves, and one that retention leaves.
    let after_gap = window.deliver(1 << 40, 10);
    window.skip_to(1 << 60);
    let last = window.deliver(1 << 60, 10);
    assert_eq!((window.committed(), window.slots.len()), (0, 3));
    assert_eq!(window.settle(1 << 39, first), Settling::Already);
    assert_eq!(window.settle(0, first), Settling::Done);
    assert_eq!(window.committed(), 1 << 40);
    assert_eq!(window.settle(1 << 60, last), Settling::Done);
    assert_eq!(window.settle(1 << 40, after_gap), Settling::Done);
    assert_eq!(window.committed(), (1 << 60) + 1);
}

#[test]
fn messages_settled_after_one_that_is_not_take_no_memory() {
    let mut window = Window::new(0);
    let first = window.deliver(0, 10);
    for offset in 1..10_000 {
        let serial = window.deliver(offset, 10);
        assert_eq!(window.settle(offset, serial), Settling::Done);
        assert!(window.slots.len() < 100);
    }
    assert_eq!((window.committed(), window.unsettled()), (0, 1));
    assert_eq!(window.settle(0, first), Settling::Done);
    assert_eq!((window.committed(), window.slots.len()), (10_000, 0));
}

#[test]
fn many_messages_that_are_due_are_found_without_looking_at_all_for_each() {
    const ALL: u64 = 10_000;
    let mut window = Window::new(0);
    for offset in 0..ALL {
        window.deliver(offset, 10);
    }
    // One call takes all, the others 10 each.
    for (now, most) in [(10, ALL), (20, 10)] {
        let mut again = 0;
        while again < ALL {
            let mut from = 0;
            for _ in 0..most {
                let offset = window.due(from, now).unwrap();
                window.deliver_again(offset, now + 10);
                from = offset + 1;
                again += 1;
            }
        }
        assert_eq!(window.due(0, now), None);
    }
    assert!(
        window.slots.looked_at < 200 * ALL,
        "{:?}",
        window.slots.looked_at
    );
}

#[test]
fn a_time_at_which_nothing_is_due_is_found_once() {
    let mut window = Window::new(0);
    let serials = [10, 20].map(|at| window.deliver(at, at.cast_signed()));
    window.settle(20, serials[1]);
    window.extend(10, serials[0], 30);
    // No call has updated the earliest deadline since.
    assert_eq!(window.next_deadline(), Some(10));
    assert_eq!(window.due(0, 10), None);
    assert_eq!(window.next_deadline(), Some(30));
}

#[derive(Clone, Debug)]
enum Step {
    Deliver(u64),
    Again(u64),
    Settle(usize),
    Refuse(usize),
    TakeBack(u64),
    Recall(u64),
    Extend(usize, i64),
    GiveBack(usize),
    Pass(i64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..3u64).prop_map(Step::Deliver),
        (0..20u64).prop_map(Step::Again),
        Just(Step::Again(0)),
        (0..40usize).prop_map(Step::Settle),
        (0..40usize).prop_map(Step::Refuse),
        (0..20u64).prop_map(Step::TakeBack),
        (0..20u64).prop_map(Step::Recall),
        ((0..40usize), (0..9i64)).prop_map(|(which, by)| Step::Extend(which, by)),
        (0..40usize).prop_map(Step::GiveBack),
        (0..5i64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..200)
}

/// A map of all unsettled messages, and all deliveries.
#[derive(Default)]
struct Model {
    known: BTreeMap<u64, Slot>,
    deliveries: Vec<(u64, u64)>,
    now: i64,
}

impl Model {
    fn deliver(&mut self, offset: u64, serial: u64) {
        self.deliveries.push((offset, serial));
        let attempts = self.known.get(&offset).map_or(0, |known| known.attempts);
        let slot = Slot {
            offset,
            serial,
            deadline: self.now + 4,
            attempts: attempts + 1,
            state: State::Out,
        };
        self.known.insert(offset, slot);
    }

    fn settling(&self, (offset, serial): (u64, u64)) -> Settling {
        match self.known.get(&offset) {
            None => Settling::Already,
            Some(known) if known.serial != serial => Settling::Lost,
            Some(known) => match known.state {
                State::Refused => Settling::Already,
                State::TakenBack => Settling::TakenBack,
                _ => Settling::Done,
            },
        }
    }

    fn recall_from(&mut self, offset: u64, due: i64) {
        for (_, known) in self.known.range_mut(offset..) {
            known.deadline = due;
            if known.state == State::Out {
                known.state = State::Back;
            }
        }
    }

    fn take_back_after(&mut self, offset: u64) {
        for (_, known) in self.known.range_mut(offset + 1..) {
            if known.state != State::Refused {
                known.state = State::TakenBack;
            }
        }
    }

    /// Takes a step with a delivery in both, and returns what is expected of the window and what it
    /// did.
    fn step_with(&mut self, window: &mut Window, step: &Step) -> Option<(Settling, Settling)> {
        let (Step::Settle(which)
        | Step::Refuse(which)
        | Step::Extend(which, _)
        | Step::GiveBack(which)) = *step
        else {
            return None;
        };
        let at = which.checked_rem(self.deliveries.len())?;
        let (offset, serial) = *self.deliveries.get(at)?;
        let expected = self.settling((offset, serial));
        let (now, is_done) = (self.now, expected == Settling::Done);
        let did = match *step {
            Step::Settle(_) => window.settle(offset, serial),
            Step::Refuse(_) => window.refuse(offset, serial, now + 2),
            Step::Extend(_, by) => window.extend(offset, serial, now + by),
            _ => {
                window.give_back(offset, serial, now);
                expected
            }
        };
        if is_done && let Step::Refuse(_) = step {
            self.recall_from(offset, now + 2);
            self.take_back_after(offset);
        }
        if let Some(known) = self.known.get_mut(&offset) {
            match *step {
                Step::Settle(_) if is_done => drop(self.known.remove(&offset)),
                Step::Refuse(_) if is_done => known.state = State::Refused,
                Step::Extend(_, by) if is_done => {
                    (known.state, known.deadline) = (State::Out, now + by);
                }
                Step::GiveBack(_) if is_done => {
                    (known.state, known.deadline) = (State::Back, now);
                    known.attempts = known.attempts.saturating_sub(1);
                }
                Step::GiveBack(_) if expected == Settling::TakenBack => {
                    known.attempts = known.attempts.saturating_sub(1);
                }
                _ => {}
            }
        }
        Some((expected, did))
    }
}

proptest! {
    #![proptest_config(crate::seeds::proptest_config())]

    /// Compares a window with a map of all unsettled messages.
    #[test]
    fn a_window_equals_its_model(steps in steps()) {
        let mut window = Window::new(5);
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Deliver(skipped) => {
                    let offset = window.next() + skipped;
                    model.deliver(offset, window.deliver(offset, model.now + 4));
                }
                Step::Again(from) => {
                    let mut later = model.known.range(from..);
                    let due = later.find(|(_, known)| known.deadline <= model.now);
                    let due = due.map(|(offset, _)| *offset);
                    prop_assert_eq!(window.due(from, model.now), due);
                    if let Some(offset) = due {
                        let serial = window.deliver_again(offset, model.now + 4).unwrap();
                        model.deliver(offset, serial);
                    } else if from == 0 {
                        // A poll waits until then, so it must be later than now.
                        let next = window.next_deadline();
                        prop_assert!(next.is_none_or(|next| next > model.now));
                    }
                }
                Step::TakeBack(after) => {
                    window.take_back_after(5 + after);
                    model.take_back_after(5 + after);
                }
                Step::Recall(from) => {
                    window.recall_from(5 + from, model.now);
                    model.recall_from(5 + from, model.now);
                }
                Step::Pass(by) => model.now += by,
                step => {
                    let done = model.step_with(&mut window, &step);
                    prop_assert!(done.is_none_or(|(expected, did)| did == expected));
                }
            }
            let (known, now) = (&model.known, model.now);
            prop_assert_eq!(window.unsettled(), known.len());
            prop_assert!(window.slots.iter().eq(known.values()));
            prop_assert!(window.slots.len() <= 2 * known.len() + BLOCK);
            let first = known.first_key_value().map(|(offset, _)| *offset);
            prop_assert_eq!(window.committed(), first.unwrap_or(window.next()));
            let first = known.values().next();
            prop_assert_eq!(window.first_deadline(), first.map(|known| known.deadline));
            prop_assert_eq!(window.due_in_order(7, now), {
                let later = known.range(7..).next();
                later.filter(|(_, known)| known.deadline <= now).map(|(offset, _)| *offset)
            });
            let earliest = known.values().map(|known| known.deadline).min();
            prop_assert_eq!(window.next_deadline().is_some(), earliest.is_some());
            prop_assert!(window.next_deadline() <= earliest);
            let is_out = |known: &&Slot| known.state == State::Out && known.deadline > now;
            let out = known.values().find(is_out);
            prop_assert_eq!(window.out_until(now), out.map(|known| known.deadline));
            prop_assert_eq!(window.is_out(now), out.is_some());
        }
    }
}
