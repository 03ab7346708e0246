//! Assigns the queues of a group to its members.

use std::collections::BTreeMap;

/// Shares queues among members. Returns the member for each queue, `None` if no member reads it.
///
/// `current` is the present owner of each queue; `takes` tells whether a member reads a queue.
/// Members that read the same topics get equal numbers of queues, or differ by one. No queue moves
/// without need: an owner keeps its queues where possible.
pub fn share(
    current: &[Option<u64>],
    members: &[u64],
    takes: impl Fn(u64, usize) -> bool,
) -> Vec<Option<u64>> {
    let mut owners: Vec<Option<u64>> = current
        .iter()
        .enumerate()
        .map(|(queue, owner)| owner.filter(|it| members.contains(it) && takes(*it, queue)))
        .collect();
    let mut held: BTreeMap<u64, usize> = members.iter().map(|member| (*member, 0)).collect();
    for owner in owners.iter().flatten() {
        held.entry(*owner).and_modify(|count| *count += 1);
    }
    for (queue, owner) in owners.iter_mut().enumerate() {
        if owner.is_none() {
            let readers = held.iter().filter(|(member, _)| takes(**member, queue));
            let least = readers.min_by_key(|(_, count)| **count);
            *owner = least.map(|(member, _)| *member);
            if let Some(member) = owner {
                held.entry(*member).and_modify(|count| *count += 1);
            }
        }
    }
    // Each move reduces the difference between two members, so this ends.
    while let Some((queue, member)) = next_move(&owners, &held, &takes) {
        if let Some(slot) = owners.get_mut(queue) {
            if let Some(from) = slot.replace(member) {
                held.entry(from).and_modify(|count| *count -= 1);
            }
            held.entry(member).and_modify(|count| *count += 1);
        }
    }
    owners
}

/// A queue to move, and its new member, which has at least two queues fewer than its owner.
fn next_move(
    owners: &[Option<u64>],
    held: &BTreeMap<u64, usize>,
    takes: &impl Fn(u64, usize) -> bool,
) -> Option<(usize, u64)> {
    let count = |member: &u64| held.get(member).copied().unwrap_or(0);
    let moves = owners
        .iter()
        .enumerate()
        .rev()
        .filter_map(|(queue, owner)| {
            let owner = (*owner)?;
            let readers = held.keys().filter(|member| takes(**member, queue));
            let least = *readers.min_by_key(|member| count(member))?;
            let gap = count(&owner).checked_sub(count(&least))?;
            (gap >= 2).then_some((gap, queue, least))
        });
    let (_, queue, member) = moves.max_by_key(|(gap, ..)| *gap)?;
    Some((queue, member))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counts(owners: &[Option<u64>], members: &[u64]) -> Vec<usize> {
        let of = |member: &u64| owners.iter().filter(|it| **it == Some(*member)).count();
        members.iter().map(of).collect()
    }

    #[test]
    fn a_member_that_joins_gets_its_share_and_the_others_keep_theirs() {
        let one = share(&[None; 8], &[1], |_, _| true);
        assert_eq!(one, [Some(1); 8]);
        let two = share(&one, &[1, 2], |_, _| true);
        assert_eq!(counts(&two, &[1, 2]), [4, 4]);
        let three = share(&two, &[1, 2, 3], |_, _| true);
        assert_eq!(counts(&three, &[1, 2, 3]), [3, 3, 2]);
        let moved = two
            .iter()
            .zip(&three)
            .filter(|(old, new)| old != new)
            .count();
        assert_eq!(moved, 2);
    }

    #[test]
    fn members_of_different_topics_get_only_what_they_read() {
        // Queues 0 to 3 belong to one topic, 4 to 7 to the other; member 2 reads both.
        let takes = |member: u64, queue: usize| match member {
            1 => queue < 4,
            2 => true,
            _ => queue >= 4,
        };
        let owners = share(&[None; 8], &[1, 2, 3], takes);
        let all = owners.iter().enumerate();
        assert!(
            all.clone()
                .all(|(queue, owner)| takes(owner.unwrap(), queue))
        );
        let counts = counts(&owners, &[1, 2, 3]);
        assert!(
            counts.iter().all(|count| (2..=3).contains(count)),
            "{counts:?}"
        );
    }

    proptest! {
        #![proptest_config(crate::seeds::proptest_config())]

        /// Members that read everything differ by at most one queue, all queues have an owner, and
        /// sharing again moves nothing.
        #[test]
        fn shares_are_even_and_stay(
            current in prop::collection::vec(prop::option::of(0..6u64), 0..30),
            members in prop::collection::btree_set(0..6u64, 1..6),
        ) {
            let members: Vec<u64> = members.into_iter().collect();
            let owners = share(&current, &members, |_, _| true);
            let counts = counts(&owners, &members);
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            prop_assert!(most - least <= 1);
            prop_assert_eq!(counts.iter().sum::<usize>(), owners.len());
            prop_assert_eq!(share(&owners, &members, |_, _| true), owners);
        }
    }
}
