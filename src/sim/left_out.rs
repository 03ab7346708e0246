//! Leaves out each sync of the source in turn, and checks that a story notices.
//!
//! A sync that no story reaches fails the test. So each added sync needs a story that shows its
//! purpose, or an entry in [`UNSHOWN`] that says why there is none.

use super::commits::Commits;
use super::compactions::Compactions;
use super::consumers::Consumers;
use super::life::Lives;
use super::members::Members;
use super::partitions::Partitions;
use super::shown_by::SHOWN_BY;
use super::telling::{Tell, tell};
use super::unshown::UNSHOWN;
use super::{
    partition_cases, partition_repairs, rare, rare_index, repairs, reported, shared_commit_log,
    shared_partition_log, sites,
};
use crate::seeds::{Seeds, in_proof};
use sites::{Site, What};
use std::collections::BTreeMap;

macro_rules! steps {
    ($story:path) => {
        (stringify!($story), |seed| $story(seed).map(|()| 2), false)
    };
}

/// All kinds, and whether the power should fail soon after a sync that is left out. Short stories
/// have their own crashes.
const KINDS: [(&str, Tell, bool); 46] = [
    steps!(reported::at_its_end),
    steps!(reported::meddled_with),
    steps!(reported::at_its_begin),
    steps!(reported::after_an_erased_end),
    steps!(reported::cut_short),
    steps!(reported::without_a_directory),
    steps!(reported::made_by_the_dead),
    steps!(reported::of_many_queues),
    steps!(reported::renamed),
    steps!(reported::left_by_another),
    steps!(reported::given_options),
    steps!(repairs::of_a_record),
    steps!(repairs::of_the_index),
    steps!(repairs::of_a_queue),
    steps!(repairs::of_the_checkpoint),
    steps!(repairs::by_parts),
    steps!(partition_repairs::of_a_batch),
    steps!(partition_repairs::of_an_index),
    steps!(partition_repairs::of_a_table),
    steps!(Commits::is_dealt_with),
    steps!(Commits::is_heard),
    steps!(Commits::is_run_again),
    steps!(Commits::is_left_by_the_dead),
    steps!(Commits::is_begun),
    steps!(Commits::is_over),
    steps!(rare::refused_sync),
    steps!(rare::refused_sync_of_the_index),
    steps!(rare_index::returning_index_file),
    steps!(rare::returning_log_file),
    steps!(rare_index::index_after_a_life_without),
    steps!(rare::directories_made_above),
    steps!(rare_index::killed_rebuild),
    steps!(rare_index::torn_rebuild),
    steps!(rare::unheard_failure_of_dispatch),
    ("lives", tell::<Lives>, true),
    ("commits", tell::<Commits>, true),
    ("consumers", tell::<Consumers>, true),
    ("partitions", tell::<Partitions>, true),
    ("compactions", tell::<Compactions>, true),
    ("members", tell::<Members<Partitions>>, true),
    steps!(partition_cases::unlinked_by_the_dead),
    steps!(shared_partition_log::torn_by_the_dead),
    ("members of a commit log", tell::<Members<Lives>>, true),
    steps!(shared_commit_log::torn_by_the_dead),
    steps!(shared_commit_log::begun_by_the_dead),
    steps!(shared_commit_log::erased_by_the_dead),
];

/// Number of seeds of each kind that together reach all syncs.
const SEEDS_TO_MEET: u64 = 25;
/// Number of seeds of each kind to try, in rounds, until a story notices.
const ROUNDS: [u64; 5] = [2, 6, 24, 100, 400];
/// Rounds of the long run.
const ROUNDS_AT_LENGTH: [u64; 6] = [2, 6, 24, 100, 400, 2000];

/// Kinds of stories that reach each sync.
fn meet() -> BTreeMap<Site, Vec<usize>> {
    let mut met: BTreeMap<Site, Vec<usize>> = BTreeMap::new();
    for (number, (name, tell, _)) in KINDS.iter().enumerate() {
        sites::take_met();
        for seed in 0..SEEDS_TO_MEET {
            if let Err(breach) = tell(seed) {
                panic!("{name}, seed {seed}: {breach}");
            }
        }
        for site in sites::take_met() {
            met.entry(site).or_default().push(number);
        }
    }
    met
}

/// Leaves a sync out until a story notices, beginning at the given seed. Returns the story, and how
/// many were tried.
fn notice(
    site: &Site,
    kinds: &[usize],
    seeds: Seeds,
    mut from: u64,
    rounds: &[u64],
) -> Option<String> {
    let mut count = 0;
    for round in rounds {
        for (name, tell, hasty) in kinds.iter().map(|kind| KINDS[*kind]) {
            for number in from..from + round {
                sites::leave_out(Some(site), hasty);
                let found = tell(seeds.of(number));
                sites::leave_out(None, false);
                count += 1;
                if let Err(breach) = found {
                    // Without the omission the story must succeed.
                    let kept = tell(seeds.of(number));
                    assert!(kept.is_ok(), "{name}, seed {}: {kept:?}", seeds.of(number));
                    return Some(format!("{name}, after {count} stories: {breach}"));
                }
            }
        }
        from += round;
    }
    None
}

/// The sync of an entry: file, function and number in it, what it makes durable.
type Place = (&'static str, &'static str, What);

/// Whether an entry is of this sync.
fn is_of(source: &BTreeMap<Site, String>, site: &Site, place: Place) -> bool {
    let text = source.get(site).map_or("", String::as_str);
    (&*site.file, text, site.what) == place
}

fn is_one(source: &BTreeMap<Site, String>, place: Place) -> bool {
    let its = source.keys().filter(|site| is_of(source, site, place));
    its.count() == 1
}

#[test]
fn every_sync_that_is_left_out_is_noticed() {
    let met = meet();
    let source = sites::of_the_source();
    let is_excused = |site: &Site| {
        let mut excuses = UNSHOWN.iter();
        excuses.any(|(file, of, what, _)| is_of(&source, site, (file, of, *what)))
    };
    let shown_by = |site: &Site| {
        let mut entries = SHOWN_BY.iter();
        entries.find(|(file, of, what, ..)| is_of(&source, site, (file, of, *what)))
    };
    let excused = UNSHOWN
        .iter()
        .map(|(file, of, what, _)| (*file, *of, *what));
    let shown = SHOWN_BY
        .iter()
        .map(|(file, of, what, ..)| (*file, *of, *what));
    let of_no_place: Vec<_> = excused
        .chain(shown)
        .filter(|it| !is_one(&source, *it))
        .collect();
    assert!(
        of_no_place.is_empty(),
        "entries that do not match exactly one sync: {of_no_place:#?}"
    );
    let unmet = source
        .keys()
        .filter(|site| !met.contains_key(site) && !is_excused(site));
    let unmet: Vec<_> = unmet.map(Site::to_string).collect();
    assert!(unmet.is_empty(), "no story reaches {unmet:#?}");
    let unknown = met.keys().filter(|site| !source.contains_key(site));
    let unknown: Vec<_> = unknown.map(Site::to_string).collect();
    assert!(unknown.is_empty(), "not found in the source: {unknown:#?}");

    let seeds = Seeds::fixed();
    let long = in_proof();
    let mut unnoticed = Vec::new();
    for (site, kinds) in met.iter().filter(|(site, _)| !is_excused(site)) {
        let alone = shown_by(site);
        let may_show = |kind: &&usize| alone.is_none_or(|it| KINDS[**kind].0 == it.3);
        let kinds: Vec<usize> = kinds.iter().filter(may_show).copied().collect();
        let rounds: &[u64] = match long || alone.is_some() {
            true => &ROUNDS_AT_LENGTH,
            false => &ROUNDS,
        };
        let from = alone.map_or(0, |it| it.4);
        match notice(site, &kinds, seeds, from, rounds) {
            Some(how) => println!("{site}, {}: {how}", source.get(site).map_or("", |it| it)),
            None => unnoticed.push(site.to_string()),
        }
    }
    assert!(unnoticed.is_empty(), "no story notices {unnoticed:#?}");
}
