//! Every place that makes something durable is left out in turn, and a story notices.
//!
//! A place that no story reaches fails the test, so a sync that is added needs a story that shows
//! what it is for, or an entry in [`UNSHOWN`] that says why there is none.

use super::model::Breach;
use super::seeds::Seeds;
use super::{commits, rare, repairs, settled, sites, tell_commits, tell_lives};
use sites::{Site, What};
use std::collections::BTreeMap;

/// Stories of one kind: tells that of a seed, and returns how many crashes it has.
type Tell = fn(u64) -> Result<u64, Breach>;

macro_rules! steps {
    ($story:path) => {
        (stringify!($story), |seed| $story(seed).map(|()| 2), false)
    };
}

/// All kinds, and whether the power may go soon after a sync that is left out: a story of a few
/// steps has its own crashes.
const KINDS: [(&str, Tell, bool); 24] = [
    steps!(settled::at_its_end),
    steps!(settled::meddled_with),
    steps!(settled::at_its_begin),
    steps!(settled::behind_an_erased_end),
    steps!(settled::cut_short),
    steps!(settled::without_a_directory),
    steps!(settled::made_by_the_dead),
    steps!(settled::of_many_queues),
    steps!(repairs::of_a_record),
    steps!(repairs::of_the_index),
    steps!(repairs::of_a_queue),
    steps!(repairs::of_the_checkpoint),
    steps!(repairs::by_parts),
    steps!(commits::Story::is_dealt_with),
    steps!(commits::Story::is_committed),
    steps!(rare::refused_sync),
    steps!(rare::refused_sync_of_the_index),
    steps!(rare::returning_index_file),
    steps!(rare::index_behind_a_life_without),
    steps!(rare::directories_made_above),
    steps!(rare::killed_rebuild),
    steps!(rare::unheard_failure_of_dispatch),
    ("lives", tell_lives, true),
    ("commits", tell_commits, true),
];

/// Seeds of each kind by which all places are met.
const SEEDS_TO_MEET: u64 = 25;
/// Seeds of each kind that are tried in turn, until one notices; then more of them.
const ROUNDS: [u64; 5] = [2, 6, 24, 100, 400];
/// Rounds of the long run.
const ROUNDS_AT_LENGTH: [u64; 6] = [2, 6, 24, 100, 400, 2000];

/// Places that no story shows the need of, and why: file, function and number there, and what is
/// left out.
const UNSHOWN: [(&str, &str, What, &str); 21] = [
    (
        "src/engine/commit_log/checkpoint.rs",
        "open 1",
        What::File,
        "a checkpoint that is cut short is made again on opening, and it tells nothing yet",
    ),
    (
        "src/engine/commit_log/checkpoint.rs",
        "open 1",
        What::Directory,
        "so is one that is not there",
    ),
    (
        "src/engine/commit_log/state.rs",
        "create 1",
        What::File,
        "the page is synced again before the store is marked as running",
    ),
    (
        "src/engine/commit_log/state.rs",
        "create 1",
        What::Directory,
        "its name becomes durable with that of `abort`, before anything is stored",
    ),
    (
        "src/engine/commit_log/open.rs",
        "mark_running 1",
        What::Range,
        "it orders the page before `abort` for a store that another system left; no story has one",
    ),
    (
        "src/engine/commit_log/open.rs",
        "mark_running 2",
        What::Range,
        "the page is synced again before opening returns",
    ),
    (
        "src/engine/commit_log/open.rs",
        "mark_running 2",
        What::Directory,
        "the directories above a store are durable before there is one, but for another system's",
    ),
    (
        "src/engine/commit_log/running.rs",
        "leave 1",
        What::Directory,
        "the directory is synced again before the log is changed",
    ),
    (
        "src/engine/commit_log/running.rs",
        "leave 2",
        What::Directory,
        "the directory is synced again before the log is changed",
    ),
    (
        "src/engine/commit_log/running.rs",
        "leave 2",
        What::File,
        "until then the file has the text of an earlier writer of ours",
    ),
    (
        "src/engine/commit_log/shared.rs",
        "settle_for_close 1",
        What::Range,
        "times that lag behind cost a reader a walk",
    ),
    (
        "src/engine/commit_log/tables.rs",
        "save 1",
        What::Directory,
        "the table itself comes next, and its sync is of the same directory",
    ),
    (
        "src/engine/commit_log/intake/manifest.rs",
        "begin 1",
        What::Directory,
        "no story withdraws a commit that has its first name again, with parts in the log",
    ),
    (
        "src/engine/commit_log/intake/manifest.rs",
        "finish 1",
        What::Directory,
        "a manifest that comes back is found in the log by its markers, and goes again",
    ),
    (
        "src/mapped/allocate.rs",
        "warm_up 1",
        What::Range,
        "the pages are zeros: it keeps dirty ones from piling up",
    ),
    (
        "src/engine/commit_log/index.rs",
        "flush_again 1",
        What::Range,
        "no story tears an index, that was not synced, such that opening believes it",
    ),
    (
        "src/engine/commit_log/reindex.rs",
        "doubt_index 1",
        What::Range,
        "no story loses the flag and keeps half an index that looks whole",
    ),
    (
        "src/engine/commit_log/repair.rs",
        "rebuild_index 1",
        What::Range,
        "as in an index that opening builds again",
    ),
    (
        "src/engine/commit_log/repair.rs",
        "rebuild_index 2",
        What::Range,
        "a full pass comes next, and syncs the page",
    ),
    (
        "src/engine/commit_log/intake/manifest.rs",
        "refuse 1",
        What::Directory,
        "no story ends between this sync and the next one of the same directory",
    ),
    (
        "src/stages/stager.rs",
        "finish 1",
        What::Directory,
        "the commit that names the stage syncs the same directory",
    ),
];

/// Kinds of stories that meet each place.
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

/// Leaves a place out until a story notices: which, and in the how manieth.
fn notice(site: &Site, kinds: &[usize], seeds: Seeds, rounds: &[u64]) -> Option<String> {
    let (mut told, mut from) = (0, 0);
    for round in rounds {
        for (name, tell, hasty) in kinds.iter().map(|kind| KINDS[*kind]) {
            for number in from..from + round {
                sites::leave_out(Some(site), hasty);
                let found = tell(seeds.of(number));
                sites::leave_out(None, false);
                told += 1;
                if let Err(breach) = found {
                    return Some(format!("{name}, after {told} stories: {breach}"));
                }
            }
        }
        from += round;
    }
    None
}

/// Whether an excuse is of one place in the source.
fn names_one(source: &BTreeMap<Site, String>, excuse: &(&str, &str, What, &str)) -> bool {
    let (file, of, what, _) = *excuse;
    let is_meant =
        |(site, text): &(&Site, &String)| (&*site.file, &***text, site.what) == (file, of, what);
    source.iter().filter(is_meant).count() == 1
}

#[test]
fn every_sync_that_is_left_out_is_noticed() {
    let met = meet();
    let source = sites::of_the_source();
    let is_excused = |site: &Site| {
        let text = source.get(site).map_or("", String::as_str);
        let mut excuses = UNSHOWN.iter();
        excuses.any(|(file, of, what, _)| (*file, *of, *what) == (&*site.file, text, site.what))
    };
    let of_no_place: Vec<_> = UNSHOWN
        .iter()
        .filter(|excuse| !names_one(&source, excuse))
        .collect();
    assert!(
        of_no_place.is_empty(),
        "an excuse is of no place, or of two: {of_no_place:#?}"
    );
    let unmet = source
        .keys()
        .filter(|site| !met.contains_key(site) && !is_excused(site));
    let unmet: Vec<_> = unmet.map(Site::to_string).collect();
    assert!(unmet.is_empty(), "no story meets {unmet:#?}");
    let unknown = met.keys().filter(|site| !source.contains_key(site));
    let unknown: Vec<_> = unknown.map(Site::to_string).collect();
    assert!(unknown.is_empty(), "not found in the source: {unknown:#?}");

    let seeds = Seeds::fixed();
    let long = std::env::var_os("FOREBAY_PROOF").is_some();
    let rounds: &[u64] = if long { &ROUNDS_AT_LENGTH } else { &ROUNDS };
    let mut unnoticed = Vec::new();
    for (site, kinds) in met.iter().filter(|(site, _)| !is_excused(site)) {
        match notice(site, kinds, seeds, rounds) {
            Some(how) => println!("{site}: {how}"),
            None => unnoticed.push(site.to_string()),
        }
    }
    assert!(unnoticed.is_empty(), "nobody notices {unnoticed:#?}");
}
