//! What a commit log must keep through every crash, and the planted bugs that break it.

use crate::plant::Bug;
use crate::sim::life::Lives;
use crate::sim::telling::{
    CRASHES_TO_FIND, crashes, find, find_each, hold_through, tell, tell_all,
};
use crate::sim::{lost_ends, rare, rare_index, repairs, reported};

#[test]
fn what_was_acknowledged_outlives_every_power_loss() {
    hold_through(crashes(), tell::<Lives>);
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
fn queues_and_index_that_are_being_replaced_are_rebuilt() {
    tell_all(repairs::by_parts);
}

#[test]
fn what_a_dead_process_failed_to_sync_is_stored_by_the_next() {
    tell_all(rare::refused_sync);
    tell_all(rare::refused_sync_of_the_index);
}

#[test]
fn a_removed_index_file_does_not_come_back() {
    tell_all(rare_index::returning_index_file);
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
    tell_all(rare_index::index_after_a_life_without);
}

#[test]
fn the_directories_above_a_store_become_durable_with_it() {
    tell_all(rare::directories_made_above);
}

#[test]
fn an_index_whose_rebuild_was_interrupted_is_rebuilt() {
    tell_all(rare_index::killed_rebuild);
    tell_all(rare_index::torn_rebuild);
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
fn the_offset_of_a_lost_message_is_not_given_again_whoever_recovers_the_store() {
    tell_all(lost_ends::of_a_closed_store);
    tell_all(lost_ends::of_a_dead_process);
    find(
        (Bug::OffsetsLate, 417),
        20_000,
        lost_ends::of_a_closed_store,
    );
    find((Bug::ForgetLost, 1), 1000, lost_ends::of_a_dead_process);
    tell_all(lost_ends::of_an_open_store);
    find((Bug::ForgetGiven, 1), 1000, lost_ends::of_an_open_store);
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
