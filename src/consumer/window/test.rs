//! Windows, by themselves and against a model of them.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[test]
fn the_smallest_unsettled_offset_is_committed() {
    let mut window = Window::new(2101);
    let serials: Vec<u32> = (2101..2201).map(|at| window.deliver(at, 10)).collect();
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
    assert_eq!(window.due(9), None);
    assert_eq!(window.due(10), Some(0));
    assert_eq!(window.check(0, first), Settling::Done);
    let second = window.deliver_again(0, 20).unwrap();
    assert_eq!(window.attempts(0), 2);
    assert_eq!(window.settle(0, first), Settling::Lost);
    assert_eq!(window.extend(0, second, 30), Settling::Done);
    assert_eq!(window.due(29), None);
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
    // A later one is taken back, and nobody can settle or keep it.
    assert_eq!(window.settle(1, serials[1]), Settling::TakenBack);
    assert_eq!(window.extend(1, serials[1], 50), Settling::TakenBack);
    assert_eq!(window.refuse(1, serials[1], 5), Settling::TakenBack);
    assert_eq!((window.due(4), window.due(5)), (None, Some(0)));
    let again = window.deliver_again(0, 20).unwrap();
    assert_eq!(window.settle(0, serials[0]), Settling::Lost);
    assert_eq!(window.settle(0, again), Settling::Done);
    assert_eq!(window.committed(), 1);
    window.due(5);
    window.give_up(1);
    assert_eq!((window.committed(), window.unsettled()), (2, 0));
}

#[test]
fn in_order_nothing_passes_the_first_message_that_is_not_settled() {
    let mut window = Window::new(7);
    let serials = [7, 8, 9].map(|offset| window.deliver(offset, 10));
    window.settle(7, serials[0]);
    window.refuse(8, serials[1], 5);
    // The last one waits with it, and the delivery that nobody has seen is no attempt.
    window.give_back(9, serials[2], 1);
    assert_eq!(window.attempts(9), 0);
    assert_eq!(window.first_deadline(), Some(5));
    assert_eq!(
        (window.due_in_order(0, 4), window.due_in_order(0, 5)),
        (None, Some(8))
    );
    assert_eq!(window.due_in_order(9, 5), Some(9));
    assert_eq!(window.due_in_order(10, 5), None);
    // It is due before the one that comes first.
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

#[derive(Clone, Debug)]
enum Step {
    Deliver(u64),
    Again,
    Settle(usize),
    Recall(u64),
    Extend(usize, i64),
    GiveBack(usize),
    Pass(i64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..3u64).prop_map(Step::Deliver),
        Just(Step::Again),
        (0..40usize).prop_map(Step::Settle),
        (0..20u64).prop_map(Step::Recall),
        ((0..40usize), (0..9i64)).prop_map(|(which, by)| Step::Extend(which, by)),
        (0..40usize).prop_map(Step::GiveBack),
        (0..5i64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..200)
}

/// Gives a delivery back, and checks that the message has one attempt fewer if the delivery
/// counts.
fn give_back(
    window: &mut Window,
    model: &mut BTreeMap<u64, (u32, i64)>,
    (offset, serial): (u64, u32),
    now: i64,
) -> bool {
    let before = window.attempts(offset);
    window.give_back(offset, serial, now);
    let known = model.get_mut(&offset).filter(|(last, _)| *last == serial);
    let counts = u32::from(known.is_some());
    if let Some((_, deadline)) = known {
        *deadline = now;
    }
    window.attempts(offset) == before.saturating_sub(counts)
}

proptest! {
    #![proptest_config(crate::seeds::proptest_config())]

    /// Compares a window with a map of all unsettled messages.
    #[test]
    fn a_window_equals_its_model(steps in steps()) {
        let mut window = Window::new(5);
        // By offset: serial number of the last delivery, and its deadline.
        let mut model: BTreeMap<u64, (u32, i64)> = BTreeMap::new();
        let mut deliveries: Vec<(u64, u32)> = Vec::new();
        let mut now = 0;
        for step in steps {
            match step {
                Step::Deliver(skipped) => {
                    let offset = window.next() + skipped;
                    let serial = window.deliver(offset, now + 4);
                    deliveries.push((offset, serial));
                    model.insert(offset, (serial, now + 4));
                }
                Step::Again => {
                    let due = model.iter().find(|(_, (_, deadline))| *deadline <= now);
                    let due = due.map(|(offset, _)| *offset);
                    prop_assert_eq!(window.due(now), due);
                    if let Some(offset) = due {
                        let serial = window.deliver_again(offset, now + 4).unwrap();
                        deliveries.push((offset, serial));
                        model.insert(offset, (serial, now + 4));
                    }
                }
                Step::Settle(which) if !deliveries.is_empty() => {
                    let (offset, serial) = deliveries[which % deliveries.len()];
                    let expected = match model.get(&offset) {
                        None => Settling::Already,
                        Some((last, _)) if *last != serial => Settling::Lost,
                        Some(_) => Settling::Done,
                    };
                    prop_assert_eq!(window.settle(offset, serial), expected);
                    if expected == Settling::Done {
                        model.remove(&offset);
                    }
                }
                Step::Extend(which, by) if !deliveries.is_empty() => {
                    let (offset, serial) = deliveries[which % deliveries.len()];
                    let done = window.extend(offset, serial, now + by) == Settling::Done;
                    let known = model.get_mut(&offset).filter(|(last, _)| *last == serial);
                    prop_assert_eq!(done, known.is_some());
                    if let Some((_, deadline)) = known {
                        *deadline = now + by;
                    }
                }
                Step::GiveBack(which) if !deliveries.is_empty() => {
                    let delivery = deliveries[which % deliveries.len()];
                    prop_assert!(give_back(&mut window, &mut model, delivery, now));
                }
                Step::Recall(from) => {
                    window.recall_from(5 + from, now);
                    for (_, (_, deadline)) in model.range_mut(5 + from..) {
                        *deadline = now;
                    }
                }
                Step::Pass(by) => now += by,
                Step::Settle(_) | Step::Extend(..) | Step::GiveBack(_) => {}
            }
            prop_assert_eq!(window.unsettled(), model.len());
            let first = model.first_key_value().map(|(offset, _)| *offset);
            prop_assert_eq!(window.committed(), first.unwrap_or(window.next()));
            let earliest = model.values().map(|(_, deadline)| *deadline).min();
            prop_assert_eq!(window.next_deadline().is_some(), earliest.is_some());
            prop_assert_eq!(window.next_deadline(), earliest);
            prop_assert_eq!(window.out_until(now).is_some(), window.is_out(now));
        }
    }
}
