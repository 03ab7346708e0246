//! Assigns the queues of a group to its members.
//!
//! A group may have thousands of queues, and other threads wait while they are shared. So the
//! queues of each member are counted once, and a move compares members, not queues. Topics that the
//! same members read are shared as one, since a group may have a thousand topics too.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Shares queues among members. Returns the member for each queue, `None` if no member reads it.
///
/// `current` has the present owner of each queue and the number of its topic, counted from 0;
/// `reads` tells whether a member reads a topic. Members that read the same topics get equal
/// numbers of queues, or differ by one. No queue moves without need: an owner keeps its queues
/// where possible.
pub fn share(
    current: &[(Option<u64>, usize)],
    members: &[u64],
    reads: impl Fn(u64, usize) -> bool,
) -> Vec<Option<u64>> {
    let mut shares = Shares::new(current, members, reads);
    let mut free = Vec::new();
    for (queue, (owner, topic)) in current.iter().enumerate() {
        let Some(audience) = shares.of_topics.get(*topic).copied() else {
            continue;
        };
        match owner.and_then(|owner| shares.reader(owner, audience)) {
            Some(member) => shares.give(queue, audience, member),
            None => free.push((queue, audience)),
        }
    }
    for (queue, audience) in free {
        if let Some(member) = shares.least(audience) {
            shares.give(queue, audience, member);
        }
    }
    // Each move reduces the difference between two members, so this ends.
    while let Some(next) = shares.next_move() {
        shares.take(&next);
        shares.give(next.queue, next.audience, next.to);
    }
    shares.owners(current.len())
}

/// The queues of each member. Members, topics and audiences are identified by their indexes.
struct Shares {
    /// The members in ascending order.
    members: Vec<u64>,
    /// How many queues each member has.
    counts: Vec<usize>,
    /// The audience of each topic.
    of_topics: Vec<usize>,
    audiences: Vec<Audience>,
}

/// Members that read the same topics, and the queues of these topics that they have.
struct Audience {
    /// In ascending order.
    readers: Vec<usize>,
    /// The queues of each member that has any.
    held: BTreeMap<usize, BTreeSet<usize>>,
}

struct Move {
    queue: usize,
    audience: usize,
    from: usize,
    to: usize,
}

impl Shares {
    fn new(
        current: &[(Option<u64>, usize)],
        members: &[u64],
        reads: impl Fn(u64, usize) -> bool,
    ) -> Shares {
        let members: BTreeSet<u64> = members.iter().copied().collect();
        let members: Vec<u64> = members.into_iter().collect();
        let topics = current.iter().map(|(_, topic)| topic + 1).max();
        let mut known: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
        let mut audiences = Vec::new();
        let of_topics = (0..topics.unwrap_or(0)).map(|topic| {
            let readers = members.iter().enumerate();
            let readers = readers.filter(|(_, member)| reads(**member, topic));
            let readers: Vec<usize> = readers.map(|(number, _)| number).collect();
            *known.entry(readers).or_insert_with_key(|readers| {
                audiences.push(Audience {
                    readers: readers.clone(),
                    held: BTreeMap::new(),
                });
                audiences.len() - 1
            })
        });
        Shares {
            of_topics: of_topics.collect(),
            audiences,
            counts: vec![0; members.len()],
            members,
        }
    }

    /// The number of a member of an audience.
    fn reader(&self, member: u64, audience: usize) -> Option<usize> {
        let number = self.members.binary_search(&member).ok()?;
        let readers = &self.audiences.get(audience)?.readers;
        readers.binary_search(&number).ok().map(|_| number)
    }

    fn count(&self, member: usize) -> usize {
        self.counts.get(member).copied().unwrap_or(0)
    }

    /// The member of an audience with the fewest queues.
    fn least(&self, audience: usize) -> Option<usize> {
        let readers = self.audiences.get(audience)?.readers.iter().copied();
        readers.min_by_key(|member| self.count(*member))
    }

    fn give(&mut self, queue: usize, audience: usize, member: usize) {
        if let Some(audience) = self.audiences.get_mut(audience)
            && let Some(count) = self.counts.get_mut(member)
        {
            audience.held.entry(member).or_default().insert(queue);
            *count += 1;
        }
    }

    fn take(&mut self, next: &Move) {
        if let Some(audience) = self.audiences.get_mut(next.audience)
            && let Some(count) = self.counts.get_mut(next.from)
            && let Some(held) = audience.held.get_mut(&next.from)
        {
            held.remove(&next.queue);
            *count -= 1;
            if held.is_empty() {
                audience.held.remove(&next.from);
            }
        }
    }

    /// The move of a queue to a member that has at least two queues fewer than its owner, with the
    /// largest difference.
    fn next_move(&self) -> Option<Move> {
        let mut largest: Option<((usize, Reverse<usize>), Move)> = None;
        for (audience, of) in self.audiences.iter().enumerate() {
            let Some(to) = self.least(audience) else {
                continue;
            };
            for (from, held) in &of.held {
                let gap = self.count(*from).saturating_sub(self.count(to));
                let Some(queue) = held.first().filter(|_| gap >= 2) else {
                    continue;
                };
                let rank = (gap, Reverse(*queue));
                if largest.as_ref().is_none_or(|(least, _)| rank > *least) {
                    let (queue, from) = (*queue, *from);
                    largest = Some((
                        rank,
                        Move {
                            queue,
                            audience,
                            from,
                            to,
                        },
                    ));
                }
            }
        }
        largest.map(|(_, next)| next)
    }

    fn owners(&self, queues: usize) -> Vec<Option<u64>> {
        let mut owners = vec![None; queues];
        let held = self.audiences.iter().flat_map(|it| &it.held);
        for (member, queues) in held {
            for queue in queues {
                if let Some(owner) = owners.get_mut(*queue) {
                    *owner = self.members.get(*member).copied();
                }
            }
        }
        owners
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counts(owners: &[Option<u64>], members: &[u64]) -> Vec<usize> {
        let of = |member: &u64| owners.iter().filter(|it| **it == Some(*member)).count();
        members.iter().map(of).collect()
    }

    /// Queues of one topic.
    fn of_one(owners: &[Option<u64>]) -> Vec<(Option<u64>, usize)> {
        owners.iter().map(|owner| (*owner, 0)).collect()
    }

    #[test]
    fn a_member_that_joins_gets_its_share_and_the_others_keep_theirs() {
        let one = share(&[(None, 0); 8], &[1], |_, _| true);
        assert_eq!(one, [Some(1); 8]);
        let two = share(&of_one(&one), &[1, 2], |_, _| true);
        assert_eq!(counts(&two, &[1, 2]), [4, 4]);
        let three = share(&of_one(&two), &[1, 2, 3], |_, _| true);
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
        let reads = |member: u64, topic: usize| match member {
            1 => topic == 0,
            2 => true,
            _ => topic == 1,
        };
        let queues: Vec<_> = (0..8).map(|queue| (None, queue / 4)).collect();
        let owners = share(&queues, &[1, 2, 3], reads);
        let all = owners.iter().enumerate();
        assert!(
            all.clone()
                .all(|(queue, owner)| reads(owner.unwrap(), queue / 4))
        );
        let counts = counts(&owners, &[1, 2, 3]);
        assert!(
            counts.iter().all(|count| (2..=3).contains(count)),
            "{counts:?}"
        );
    }

    /// Each move compares all audiences.
    #[test]
    fn topics_that_the_same_members_read_are_shared_as_one() {
        let queues: Vec<_> = (0..1_000).map(|topic| (Some(1), topic)).collect();
        let reads = |member: u64, topic: usize| member < 3 || topic < 500;
        let shares = Shares::new(&queues, &[1, 2, 3], reads);
        assert_eq!(shares.audiences.len(), 2);
        let owners = share(&queues, &[1, 2, 3], reads);
        let mut counts = counts(&owners, &[1, 2, 3]);
        counts.sort_unstable();
        assert_eq!(counts, [333, 333, 334]);
    }

    /// The same in the simplest way: it examines all queues for each move.
    fn simple(
        current: &[(Option<u64>, usize)],
        members: &[u64],
        reads: impl Fn(u64, usize) -> bool,
    ) -> Vec<Option<u64>> {
        let mut held: BTreeMap<u64, usize> = members.iter().map(|it| (*it, 0)).collect();
        let mut owners = Vec::new();
        for (owner, topic) in current {
            let owner = owner.filter(|it| members.contains(it) && reads(*it, *topic));
            if let Some(owner) = owner {
                *held.get_mut(&owner).unwrap() += 1;
            }
            owners.push(owner);
        }
        let least = |held: &BTreeMap<u64, usize>, topic: usize| {
            let readers = held.iter().filter(|(member, _)| reads(**member, topic));
            let least = readers.min_by_key(|(_, count)| **count);
            least.map(|(member, count)| (*member, *count))
        };
        for (owner, (_, topic)) in owners.iter_mut().zip(current) {
            if owner.is_none() {
                *owner = least(&held, *topic).map(|(member, _)| member);
                if let Some(owner) = owner {
                    *held.get_mut(owner).unwrap() += 1;
                }
            }
        }
        loop {
            let moves = owners.iter().zip(current).enumerate().rev();
            let moves = moves.filter_map(|(queue, (owner, (_, topic)))| {
                let (to, count) = least(&held, *topic)?;
                let gap = held[&(*owner)?].checked_sub(count)?;
                (gap >= 2).then_some((gap, queue, to))
            });
            let Some((_, queue, to)) = moves.max_by_key(|(gap, ..)| *gap) else {
                return owners;
            };
            let from = owners[queue].replace(to).unwrap();
            *held.get_mut(&from).unwrap() -= 1;
            *held.get_mut(&to).unwrap() += 1;
        }
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
            let owners = share(&of_one(&current), &members, |_, _| true);
            let counts = counts(&owners, &members);
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            prop_assert!(most - least <= 1);
            prop_assert_eq!(counts.iter().sum::<usize>(), owners.len());
            prop_assert_eq!(share(&of_one(&owners), &members, |_, _| true), owners);
        }

        /// Members of different topics get what the simple way gives them.
        #[test]
        fn shares_are_those_of_the_simple_way(
            current in prop::collection::vec((prop::option::of(0..6u64), 0..4usize), 0..30),
            members in prop::collection::btree_set(0..6u64, 0..6),
            topics in prop::collection::vec(0..16usize, 6),
        ) {
            let members: Vec<u64> = members.into_iter().collect();
            let reads = |member: u64, topic: usize| {
                let member = usize::try_from(member).unwrap();
                topics[member] >> topic & 1 == 1
            };
            let owners = share(&current, &members, reads);
            prop_assert_eq!(owners, simple(&current, &members, reads));
        }
    }
}
