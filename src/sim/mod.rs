//! The power-loss simulator: runs the real engine step by step and crash by crash, on a disk in
//! memory that loses what was not synced.
//!
//! ```text
//!   seed --> lives: open, check the law, work, crash --> open, check the law, ...
//!                                       ^
//!                     at a call of the disk, or between two steps
//! ```
//!
//! [`disk`] is the disk, [`faults`] what goes wrong with it, [`frame`] what all stories have in
//! common, and this module has the tests. The stories of [`life`] are of the commit log; [`model`]
//! knows their messages and checks the store. Those of [`commits`], with its [`driver`] and the
//! engines in [`targets`], are of rows that are staged, committed and taken up, each exactly once,
//! those of [`consumers`] of messages that are settled, retried and delayed: none is skipped. Those
//! of [`partitions`] are of a partition log, those of [`compactions`] of one that is compacted,
//! those of [`members`] of logs of either kind that processes share, some of which die ([`locks`]).
//! In [`openings`] each call of an opening fails.
//! [`rare`], [`partition_cases`], [`reported`], [`interrupted`], [`repairs`] and
//! [`partition_repairs`] cover cases that these reach too seldom. [`left_out`] leaves out each
//! sync, and [`seeds`] chooses the stories.

#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic, and every number here is small"
)]

mod commits;
mod compactions;
mod consumers;
mod controls;
mod disk;
mod disk_calls;
mod disk_loss;
mod driver;
mod faults;
mod frame;
mod inode;
mod interrupted;
mod left_out;
mod life;
mod locks;
mod meanwhile;
mod members;
mod model;
mod names;
mod openings;
mod partition_cases;
mod partition_checks;
mod partition_removal;
mod partition_repairs;
mod partitions;
mod random;
mod rare;
mod repairs;
mod reported;
mod shared_commit_log;
mod shared_partition_log;
mod sites;
mod targets;

use crate::engine::partition_log::PartitionLog;
use crate::plant::{Bug, plant};
use crate::seeds::{Seeds, in_proof, number};
use commits::Commits;
use compactions::Compactions;
use consumers::Consumers;
use frame::{Breach, Story};
use life::Lives;
use members::Members;
use partitions::Partitions;
use std::time::Instant;

/// Crashes of the short run; the long run reads `FOREBAY_SIM_CRASHES`.
const CRASHES: u64 = 10_000;
/// Short stories of each kind; the long run reads `FOREBAY_SIM_STORIES`.
const STORIES: u64 = 80;
/// Every planted bug must be found within this many crashes.
const CRASHES_TO_FIND: u64 = 40_000;
/// A planted bug, and the seed of a story that finds it.
type Planted = (Bug, u64);

/// Runs the story of a seed; returns its number of crashes.
type Tell = fn(u64) -> Result<u64, Breach>;

fn tell<S: Story>(seed: u64) -> Result<u64, Breach> {
    S::new(seed).tell()
}

/// Runs stories until `crashes` have happened. Returns their number, or the seed and the breach of
/// the first story that breaks the law.
fn run(seeds: Seeds, crashes: u64, tell: Tell) -> Result<u64, (u64, Breach)> {
    let (mut happened, mut stories) = (0, 0);
    while happened < crashes {
        let seed = seeds.of(stories);
        happened += tell(seed).map_err(|breach| (seed, breach))?;
        stories += 1;
    }
    Ok(stories)
}

/// Runs stories, none of which may break the law, until `crashes` have happened.
fn hold_through(crashes: u64, tell: Tell) {
    let started = Instant::now();
    match run(Seeds::half_drawn(), crashes, tell) {
        Ok(stories) => println!(
            "{crashes} crashes in {stories} stories: {:.0} a second",
            crashes as f64 / started.elapsed().as_secs_f64()
        ),
        Err((seed, breach)) => panic!("FOREBAY_SEED={seed}: {breach}"),
    }
}

/// Plants a bug. Returns the seed at which the search for it begins: in the gate, that of a story
/// that finds it. If a change of the code has made it another story, the search goes on from it.
fn begin((bug, seed): Planted) -> u64 {
    plant(Some(bug));
    if in_proof() { 1 } else { seed }
}

/// Checks that stories find each planted bug before `crashes` have happened.
fn find_each(bugs: &[Planted], crashes: u64, tell: Tell) {
    let mut missed = Vec::new();
    for planted in bugs {
        let found = run(Seeds::fixed_from(begin(*planted)), crashes, tell);
        plant(None);
        let bug = planted.0;
        match found {
            Ok(stories) => missed.push(format!("{bug:?} in {stories} stories")),
            Err((story, breach)) => println!("{bug:?}: seed {story}: {breach}"),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

/// The crashes of a run.
fn crashes() -> u64 {
    number("FOREBAY_SIM_CRASHES").unwrap_or(CRASHES)
}

#[test]
fn what_was_acknowledged_outlives_every_power_loss() {
    hold_through(crashes(), tell::<Lives>);
}

/// Runs a short story with many seeds.
fn tell_all(story: fn(u64) -> Result<(), Breach>) {
    let seeds = Seeds::half_drawn();
    let stories = number("FOREBAY_SIM_STORIES").unwrap_or(STORIES);
    for seed in (0..stories).map(|number| seeds.of(number)) {
        if let Err(breach) = story(seed) {
            panic!("FOREBAY_SEED={seed}: {breach}");
        }
    }
}

/// Checks that a story finds a planted bug within this many seeds.
fn find(planted: Planted, seeds: u64, story: fn(u64) -> Result<(), Breach>) {
    let begin = begin(planted);
    let found = (begin..begin + seeds).find(|seed| story(*seed).is_err());
    plant(None);
    assert!(found.is_some(), "{:?} was not found", planted.0);
    println!("{:?}: seed {found:?}", planted.0);
}

#[test]
fn close_and_full_pass_leave_everything_durable() {
    tell_all(reported::at_its_end);
    tell_all(reported::meddled_with);
}

#[test]
fn the_log_kept_by_opening_is_durable() {
    tell_all(reported::at_its_begin);
    tell_all(reported::after_an_erased_end);
    tell_all(reported::after_an_end_that_the_dead_erased);
    find(
        (Bug::TrustZeros, 1157),
        60_000,
        reported::after_an_end_that_the_dead_erased,
    );
    tell_all(reported::cut_short);
}

#[test]
fn entries_of_an_older_log_do_not_count() {
    tell_all(rare::with_queues_of_two_lives);
    find(
        (Bug::TrustEntries, 4230),
        20_000,
        rare::with_queues_of_two_lives,
    );
}

#[test]
fn a_doubt_outlives_a_failed_sync() {
    tell_all(rare::doubt_that_cannot_be_synced);
    find(
        (Bug::DropDoubt, 1),
        20_000,
        rare::doubt_that_cannot_be_synced,
    );
}

#[test]
fn recreated_directories_are_durable() {
    tell_all(reported::without_a_directory);
    tell_all(reported::made_by_the_dead);
    tell_all(reported::renamed);
}

#[test]
fn saved_options_survive_a_power_loss() {
    tell_all(reported::given_options);
}

#[test]
fn messages_of_another_system_survive_a_power_loss_during_opening() {
    tell_all(reported::left_by_another);
}

#[test]
fn an_interrupted_repair_loses_nothing_and_the_next_one_completes_it() {
    tell_all(repairs::of_a_record);
    tell_all(repairs::of_a_queue);
    tell_all(repairs::of_the_index);
    tell_all(repairs::of_the_checkpoint);
}

#[test]
fn an_interrupted_repair_of_a_partition_log_is_completed_by_the_next_one() {
    tell_all(partition_repairs::of_a_batch);
    tell_all(partition_repairs::of_an_index);
    tell_all(partition_repairs::of_a_table);
}

#[test]
fn queues_and_index_that_are_being_replaced_are_rebuilt() {
    tell_all(repairs::by_parts);
}

#[test]
fn a_refused_or_withdrawn_commit_does_not_come_back() {
    tell_all(Commits::is_dealt_with);
    tell_all(Commits::is_heard);
}

#[test]
fn a_commit_without_space_can_be_withdrawn_before_its_first_part() {
    tell_all(Commits::is_out_of_room);
    find((Bug::KeepBegun, 1), 300, Commits::is_out_of_room);
}

#[test]
fn a_commit_of_a_dead_driver_can_be_completed_after_a_power_loss() {
    tell_all(Commits::is_left_by_the_dead);
    for bug in [Bug::BeginUnsynced, Bug::StagesUnsynced] {
        find((bug, 1), 1000, Commits::is_left_by_the_dead);
    }
}

#[test]
fn a_batch_committed_during_a_power_loss_is_in_the_log_once_after_repetition() {
    tell_all(Commits::is_run_again);
    for bug in [Bug::EarlierWins, Bug::RefuseTorn] {
        find((bug, 1), 300, Commits::is_run_again);
    }
    tell_all(Commits::is_begun);
    tell_all(Commits::is_over);
}

#[test]
fn what_a_dead_process_failed_to_sync_is_stored_by_the_next() {
    tell_all(rare::refused_sync);
    tell_all(rare::refused_sync_of_the_index);
}

#[test]
fn a_removed_index_file_does_not_come_back() {
    tell_all(rare::returning_index_file);
}

#[test]
fn a_log_file_that_comes_back_has_its_queue_entries() {
    tell_all(rare::returning_log_file);
}

#[test]
fn what_a_removal_leaves_of_log_queues_and_index_takes_nothing_away() {
    tell_all(rare::removed_in_part);
    for bug in [Bug::EndAtRemoved, Bug::RetireTogether] {
        find((bug, 1), 1000, rare::removed_in_part);
    }
}

#[test]
fn a_torn_index_is_not_trusted_after_a_life_without_index() {
    tell_all(rare::index_after_a_life_without);
}

#[test]
fn the_directories_above_a_store_become_durable_with_it() {
    tell_all(rare::directories_made_above);
}

#[test]
fn an_index_whose_rebuild_was_interrupted_is_rebuilt() {
    tell_all(rare::killed_rebuild);
    tell_all(rare::torn_rebuild);
}

#[test]
fn a_failed_sync_of_dispatch_is_never_retried() {
    tell_all(rare::unheard_failure_of_dispatch);
}

#[test]
fn a_failed_call_during_opening_loses_no_message() {
    tell_all(rare::failing_map_on_opening);
    find(
        (Bug::TakeErrorForAbsence, 1),
        300,
        rare::failing_map_on_opening,
    );
    tell_all(rare::failing_call_on_opening);
    find(
        (Bug::TakeErrorForAbsence, 1),
        300,
        rare::failing_call_on_opening,
    );
}

#[test]
fn the_simulator_finds_every_planted_bug() {
    find_each(
        &[
            (Bug::AcknowledgeEarly, 24),
            (Bug::NoDirectorySync, 5),
            (Bug::NoChecksum, 27),
            (Bug::TrustIndex, 7),
            (Bug::RetryFailedSync, 157),
            (Bug::TrustCache, 51),
            (Bug::TrustBoot, 20),
            (Bug::VouchBlindly, 1326),
            (Bug::SyncPopulated, 1),
            (Bug::SwapLate, 1),
            (Bug::ProgressAhead, 27),
            (Bug::TakeErrorForAbsence, 57),
        ],
        CRASHES_TO_FIND,
        tell::<Lives>,
    );
    // Random stories find it once in some thousand.
    find_each(&[(Bug::StaleTail, 10)], CRASHES_TO_FIND, |seed| {
        reported::after_an_erased_end(seed)?;
        tell::<Lives>(seed)
    });
}

#[test]
fn every_committed_row_is_in_the_log_exactly_once() {
    hold_through(crashes() / 20, tell::<Commits>);
}

#[test]
fn the_simulator_finds_planted_bugs_of_commits() {
    find_each(
        &[
            (Bug::ForgetMarkers, 1),
            (Bug::FinishEarly, 1),
            (Bug::ReplaceManifest, 103),
            (Bug::RetireMarkers, 14),
            (Bug::TrustNumbers, 1),
            (Bug::TrustGone, 1),
            (Bug::EarlierWins, 35),
            (Bug::RefuseTorn, 1),
            (Bug::BeginUnsynced, 88),
            (Bug::StagesUnsynced, 55),
        ],
        CRASHES_TO_FIND / 4,
        tell::<Commits>,
    );
}

#[test]
fn every_durable_message_is_delivered_until_it_is_settled() {
    hold_through(crashes() / 14, tell::<Consumers>);
}

#[test]
fn the_simulator_finds_planted_bugs_of_consumers() {
    find_each(
        &[
            (Bug::CommitAhead, 303),
            (Bug::ForgetSuccessors, 28),
            (Bug::LevelsAhead, 60),
            (Bug::TimesAhead, 12),
            (Bug::KeepTable, 8),
        ],
        CRASHES_TO_FIND / 7,
        tell::<Consumers>,
    );
}

#[test]
fn what_a_partition_has_acknowledged_outlives_every_power_loss() {
    let crashes = number("FOREBAY_SIM_CRASHES").unwrap_or(CRASHES / 4);
    hold_through(crashes, tell::<Partitions>);
}

#[test]
fn a_segment_that_a_dead_process_removed_does_not_come_back() {
    tell_all(partition_cases::unlinked_by_the_dead);
}

#[test]
fn what_a_removal_leaves_of_a_partition_takes_nothing_away() {
    tell_all(partition_cases::removed_in_part);
    find(
        (Bug::EndAtRemoved, 1),
        1000,
        partition_cases::removed_in_part,
    );
}

#[test]
fn a_failed_call_while_a_partition_log_is_opened_takes_nothing_away() {
    tell_all(openings::failing_call);
}

#[test]
fn what_processes_share_outlives_their_deaths_and_every_power_loss() {
    tell_all(shared_partition_log::torn_by_the_dead);
    find(
        (Bug::TrustCut, 1),
        300,
        shared_partition_log::torn_by_the_dead,
    );
    hold_through(crashes() / 60, tell::<Members<Partitions>>);
}

#[test]
fn the_simulator_finds_planted_bugs_of_processes_that_share_a_log() {
    find_each(
        &[
            (Bug::KeepUnpublished, 442),
            (Bug::ForgetIntent, 32),
            (Bug::KeepRoom, 85),
        ],
        CRASHES_TO_FIND / 10,
        tell::<Members<Partitions>>,
    );
}

#[test]
fn what_processes_share_in_a_commit_log_outlives_their_deaths_and_every_power_loss() {
    tell_all(shared_commit_log::torn_by_the_dead);
    tell_all(shared_commit_log::begun_by_the_dead);
    hold_through(crashes() / 60, tell::<Members<Lives>>);
}

#[test]
fn what_a_dead_process_has_erased_does_not_come_back() {
    tell_all(shared_commit_log::erased_by_the_dead);
    find(
        (Bug::EraseUnnoted, 1),
        100,
        shared_commit_log::erased_by_the_dead,
    );
}

#[test]
fn the_simulator_finds_planted_bugs_of_processes_that_share_a_commit_log() {
    find_each(
        &[(Bug::KeepUnpublished, 11)],
        CRASHES_TO_FIND / 10,
        tell::<Members<Lives>>,
    );
}

#[test]
fn a_topic_that_was_created_explicitly_outlives_a_power_loss() {
    tell_all(partition_cases::created_explicitly);
}

#[test]
fn the_simulator_finds_planted_bugs_of_partitions() {
    find_each(
        &[
            (Bug::AcknowledgeEarly, 19),
            (Bug::RetryFailedSync, 35),
            (Bug::SwapLate, 54),
            (Bug::ProgressAhead, 21),
            (Bug::WrongLastOffset, 1),
            (Bug::NoChecksum, 49),
            (Bug::NoDirectorySync, 3),
            (Bug::ForgetPartition, 2),
            (Bug::KeepCleanMark, 7),
            (Bug::KeepLaterSegments, 215),
            (Bug::KeepSegmentTail, 19),
            (Bug::StartUnsaved, 16),
            (Bug::ForgetIntent, 43),
            (Bug::ReplaceIntent, 70),
            (Bug::ArchiveUnsynced, 68),
            (Bug::ForgetArchives, 92),
            (Bug::LeaveLingering, 32),
        ],
        CRASHES_TO_FIND,
        tell::<Partitions>,
    );
}

#[test]
fn compaction_keeps_the_latest_message_of_each_key_through_every_crash() {
    let crashes = number("FOREBAY_SIM_CRASHES").unwrap_or(CRASHES / 60);
    hold_through(crashes, tell::<Compactions>);
}

#[test]
fn the_simulator_finds_planted_bugs_of_compaction() {
    find_each(
        &[
            (Bug::SwapUnsynced, 14),
            (Bug::RemoveBeforeSwap, 345),
            (Bug::SwapBeforeRemove, 1409),
            (Bug::WrongCompactedOffset, 7),
            (Bug::CompactUnsaved, 2),
        ],
        CRASHES_TO_FIND,
        tell::<Compactions>,
    );
}

#[test]
fn every_row_committed_to_a_partition_log_is_there_exactly_once() {
    hold_through(crashes() / 80, tell::<Commits<PartitionLog>>);
}

#[test]
fn tasks_that_begin_at_once_share_one_page_with_the_writer() {
    tell_all(Commits::begun_at_once);
    find((Bug::ReplacePage, 1), 100, Commits::begun_at_once);
}

#[test]
fn the_simulator_finds_planted_bugs_of_commits_to_a_partition_log() {
    find_each(
        &[
            (Bug::MarkerFirst, 2),
            (Bug::MarkerLater, 65),
            (Bug::ForgetMarkers, 1),
            (Bug::FinishEarly, 1),
            (Bug::ForgetIntent, 86),
            (Bug::ReplaceManifest, 4),
            (Bug::TrustNumbers, 1),
            (Bug::TrustGone, 7),
            (Bug::EarlierWins, 2),
            (Bug::RefuseTorn, 1),
            (Bug::StagesUnsynced, 8),
        ],
        CRASHES_TO_FIND / 20,
        tell::<Commits<PartitionLog>>,
    );
}
