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
use super::{
    Tell, partition_cases, partition_repairs, rare, repairs, reported, shared_commit_log,
    shared_partition_log, sites, tell,
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
    steps!(rare::returning_index_file),
    steps!(rare::returning_log_file),
    steps!(rare::index_after_a_life_without),
    steps!(rare::directories_made_above),
    steps!(rare::killed_rebuild),
    steps!(rare::torn_rebuild),
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
/// Number of seeds of each kind to try in turn until one notices; then more of them.
const ROUNDS: [u64; 5] = [2, 6, 24, 100, 400];
/// Rounds of the long run.
const ROUNDS_AT_LENGTH: [u64; 6] = [2, 6, 24, 100, 400, 2000];

/// Syncs whose purpose no story shows, and why: file, function and number in it, what it makes
/// durable.
const UNSHOWN: [(&str, &str, What, &str); 52] = [
    (
        "src/engine/partition_log/write/indexing.rs",
        "index 1",
        What::Directory,
        "for the names of indexes, which may be missing",
    ),
    (
        "src/engine/partition_log/write/files.rs",
        "sync_small 1",
        What::File,
        "a small file that is torn is written again before the next append",
    ),
    (
        "src/engine/partition_log/write/files.rs",
        "sync_small 1",
        What::Directory,
        "as above, for one that is missing; names of segments have their own sync",
    ),
    (
        "src/engine/directory/page.rs",
        "create_marks 1",
        What::File,
        "only processes that live at the same time believe the page",
    ),
    (
        "src/engine/directory/page.rs",
        "create_marks 1",
        What::Directory,
        "as above",
    ),
    (
        "src/engine/partition_log/write/room.rs",
        "cut_room 1",
        What::File,
        "a file that a power loss makes long again is cut by the next opening",
    ),
    (
        "src/engine/partition_log/write/swap.rs",
        "replace 4",
        What::Directory,
        "a crash shows it only if the next compaction of the partition has begun a copy and not \
         yet synced its name",
    ),
    (
        "src/engine/partition_log/write/swap.rs",
        "complete 1",
        What::Directory,
        "the next opening does again what a crash has undone, unless another compaction has \
         begun and crashed meanwhile",
    ),
    (
        "src/engine/partition_log/write/swap.rs",
        "remove 1",
        What::Directory,
        "as above",
    ),
    (
        "src/engine/partition_log/compact/copy.rs",
        "finish 2",
        What::File,
        "Forebay takes how a transaction ended from the log; Kafka's readers use the index",
    ),
    (
        "src/engine/partition_log/repair.rs",
        "repair 1",
        What::Directory,
        "a crash shows it only if the repair before has died between a rename and its sync",
    ),
    (
        "src/engine/partition_log/write/restore.rs",
        "restore 1",
        What::File,
        "an index is a hint; random stories see a torn one once in some thousand",
    ),
    (
        "src/engine/partition_log/write/tables.rs",
        "mend_metadata 1",
        What::File,
        "the next repair, or the next send, writes a torn file again",
    ),
    (
        "src/engine/partition_log/write/tables.rs",
        "mend_metadata 1",
        What::Directory,
        "as above",
    ),
    (
        "src/engine/partition_log/write/files.rs",
        "save_seed 1",
        What::File,
        "the name of the file decides, and its contents make ids only",
    ),
    (
        "src/engine/partition_log/write/producers.rs",
        "find 1",
        What::File,
        "no story has the producers of a broker",
    ),
    (
        "src/engine/partition_log/write/producers.rs",
        "find 1",
        What::Directory,
        "as above",
    ),
    (
        "src/engine/partition_log/write/producers.rs",
        "keep 1",
        What::File,
        "as above",
    ),
    (
        "src/engine/partition_log/write/producers.rs",
        "keep 1",
        What::Directory,
        "as above",
    ),
    (
        "src/engine/partition_log/write/producers.rs",
        "remove_after_end 1",
        What::Directory,
        "as above",
    ),
    (
        "src/engine/partition_log/write/follow.rs",
        "index_transactions 1",
        What::File,
        "as above",
    ),
    (
        "src/engine/partition_log/write/follow.rs",
        "index_transactions 1",
        What::Directory,
        "as above",
    ),
    (
        "src/engine/partition_log/write/files.rs",
        "save_epochs 1",
        What::File,
        "no story has the epochs of a broker",
    ),
    (
        "src/engine/partition_log/write/files.rs",
        "save_epochs 1",
        What::Directory,
        "as above",
    ),
    (
        "src/engine/partition_log/write/files.rs",
        "add_opening 1",
        What::File,
        "no story sets the clock while retention goes by the time",
    ),
    (
        "src/engine/partition_log/write/files.rs",
        "add_opening 1",
        What::Directory,
        "as above",
    ),
    (
        "src/engine/partition_log/write/files.rs",
        "save_checkpoint 1",
        What::File,
        "a torn checkpoint is none, and without one all batches are checked",
    ),
    (
        "src/engine/partition_log/write/files.rs",
        "save_checkpoint 1",
        What::Directory,
        "an older checkpoint has more batches checked",
    ),
    (
        "src/engine/partition_log/write/files.rs",
        "save_clean_stop 1",
        What::File,
        "only its name is read",
    ),
    (
        "src/engine/partition_log/write/files.rs",
        "save_clean_stop 1",
        What::Directory,
        "without the mark all batches above the recovery points are checked",
    ),
    (
        "src/engine/partition_log/write/indexes.rs",
        "save 1",
        What::File,
        "an index is a hint; random stories see a torn one once in some thousand",
    ),
    (
        "src/engine/partition_log/write/open.rs",
        "take_clean_mark 1",
        What::Directory,
        "the checkpoint that opening saves syncs the same directory before anything is \
         appended",
    ),
    (
        "src/engine/partition_log/write/durable.rs",
        "save_sealed 1",
        What::Directory,
        "for the names of indexes, which may be missing",
    ),
    (
        "src/engine/partition_log/write/unsynced.rs",
        "complete 1",
        What::Directory,
        "as above",
    ),
    (
        "src/engine/partition_log/write/unsynced.rs",
        "sync 3",
        What::File,
        "a small file that is torn is written again before the next append",
    ),
    (
        "src/engine/partition_log/write/recovery.rs",
        "keep 1",
        What::Directory,
        "as above",
    ),
    (
        "src/engine/partition_log/write/recovery.rs",
        "remove 1",
        What::Directory,
        "`keep` syncs the same directory before anything is appended",
    ),
    (
        "src/engine/partition_log/write/writing.rs",
        "remove_strays 1",
        What::Directory,
        "a segment stays unused only after an error; random stories meet its return once in \
         some thousand",
    ),
    (
        "src/engine/commit_log/tables/checkpoint.rs",
        "open 1",
        What::File,
        "opening rebuilds a truncated checkpoint, which holds nothing yet; except for \
         `test_power.py`, where an earlier verification reports it as damage",
    ),
    (
        "src/engine/commit_log/tables/checkpoint.rs",
        "open 1",
        What::Directory,
        "opening rebuilds a missing one",
    ),
    (
        "src/engine/directory/page.rs",
        "create 1",
        What::File,
        "the page is synced again before `abort` is created, so before anything depends on it",
    ),
    (
        "src/engine/directory/page.rs",
        "create 1",
        What::Directory,
        "its name becomes durable with that of `abort`, before the directory of the log exists",
    ),
    (
        "src/table/file.rs",
        "replace_with_backup 1",
        What::Directory,
        "the table itself follows, with a sync of the same directory; until then the old table \
         exists, whatever the backup is",
    ),
    (
        "src/table/file.rs",
        "replace_known 1",
        What::Directory,
        "until then the table of offsets before it counts: what was settled since is delivered \
         again, as after a death",
    ),
    (
        "src/table/timer.rs",
        "save 1",
        What::File,
        "a cache with a checksum: opening reads the messages again where it does not hold",
    ),
    (
        "src/table/timer.rs",
        "save 1",
        What::Directory,
        "opening reads the messages again where there is none, or an older one",
    ),
    ("src/table/pending.rs", "save 1", What::File, "as above"),
    (
        "src/table/pending.rs",
        "save 1",
        What::Directory,
        "as above",
    ),
    (
        "src/engine/commit_log/log/append/shared.rs",
        "erase_unpublished 1",
        What::Directory,
        "before a file of that name is stored to, the directory is synced again",
    ),
    (
        "src/engine/commit_log/log/append/shared.rs",
        "open_made 1",
        What::File,
        "a sync of its first records stores its length, too",
    ),
    (
        "src/engine/commit_log/log/append/shared.rs",
        "open_made 1",
        What::Directory,
        "a crash shows it only if the process that made the file died before its own sync, and \
         nothing else has synced the directory since",
    ),
    (
        "src/mapped/allocate.rs",
        "warm_up 1",
        What::Range,
        "the pages are zeros: the sync only keeps dirty pages from piling up",
    ),
];

/// Syncs that few stories show, the kind that does, and the number of the story that did when the
/// entry was made: the search begins there. Trying one kind alone takes a fifth of the time.
const SHOWN_BY: [(&str, &str, What, &str, u64); 24] = [
    (
        "src/engine/partition_log/write/mend.rs",
        "cut 1",
        What::File,
        "shared_partition_log::torn_by_the_dead",
        0,
    ),
    (
        "src/engine/partition_log/write/mend.rs",
        "cut 1",
        What::Directory,
        "shared_partition_log::torn_by_the_dead",
        0,
    ),
    (
        "src/engine/partition_log/retention/service.rs",
        "unlink 1",
        What::Directory,
        "partitions",
        745,
    ),
    (
        "src/engine/commit_log/log/append/shared.rs",
        "erase_unpublished 1",
        What::File,
        "shared_commit_log::torn_by_the_dead",
        54,
    ),
    (
        "src/engine/commit_log/index/mod.rs",
        "flush 1",
        What::Directory,
        "rare::returning_index_file",
        0,
    ),
    (
        "src/engine/commit_log/parts/durable.rs",
        "full_pass_for_close 1",
        What::Range,
        "reported::meddled_with",
        0,
    ),
    (
        "src/engine/commit_log/recovery/mark.rs",
        "make_directories 1",
        What::Directory,
        "reported::without_a_directory",
        0,
    ),
    (
        "src/engine/commit_log/recovery/mark.rs",
        "mark_running 1",
        What::Range,
        "reported::left_by_another",
        0,
    ),
    (
        "src/engine/commit_log/recovery/rebuild.rs",
        "sync_removals 1",
        What::Directory,
        "rare::returning_log_file",
        352,
    ),
    (
        "src/engine/commit_log/recovery/reindex.rs",
        "doubt_index 1",
        What::Range,
        "rare::torn_rebuild",
        63,
    ),
    (
        "src/engine/commit_log/recovery/trim.rs",
        "erase_tail 1",
        What::File,
        "reported::after_an_erased_end",
        73,
    ),
    (
        "src/engine/commit_log/recovery/trim.rs",
        "keep 1",
        What::Range,
        "reported::at_its_end",
        0,
    ),
    (
        "src/engine/commit_log/recovery/trim.rs",
        "trim_files 1",
        What::Directory,
        "reported::at_its_begin",
        0,
    ),
    (
        "src/engine/commit_log/repair/mod.rs",
        "rebuild_index 1",
        What::Range,
        "rare::torn_rebuild",
        0,
    ),
    (
        "src/engine/directory/salvage.rs",
        "make_directory 1",
        What::Directory,
        "repairs::of_a_record",
        41,
    ),
    (
        "src/engine/partition_log/write/swap.rs",
        "replace 3",
        What::Directory,
        "compactions",
        92,
    ),
    (
        "src/stages/commit.rs",
        "withdraw 1",
        What::Directory,
        "Commits::is_dealt_with",
        36,
    ),
    (
        "src/stages/manifest.rs",
        "finish 1",
        What::Directory,
        "Commits::is_over",
        131,
    ),
    (
        "src/stages/manifest.rs",
        "refuse 1",
        What::Directory,
        "Commits::is_dealt_with",
        0,
    ),
    (
        "src/stages/manifest.rs",
        "sync_up 1",
        What::Directory,
        "Commits::is_begun",
        0,
    ),
    (
        "src/stages/manifest.rs",
        "sync_up 2",
        What::Directory,
        "commits",
        94,
    ),
    (
        "src/stages/manifest.rs",
        "sync_up 3",
        What::Directory,
        "Commits::is_begun",
        114,
    ),
    ("src/stages/staged.rs", "sync 1", What::File, "commits", 0),
    (
        "src/stages/take.rs",
        "append_rest 1",
        What::Directory,
        "Commits::is_begun",
        0,
    ),
];

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

/// Leaves a sync out until a story notices, from this number on: returns which, and after how many.
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
