//! The power-loss simulator: the engine that ships, on a disk in memory that loses what was not
//! synced, step by step and crash by crash.
//!
//! ```text
//!   seed --> lives: open, check the law, work, crash --> open, check the law, ...
//!                                       ^
//!                     at a call of the disk, or between two steps
//! ```
//!
//! [`disk`] is the disk, [`life`] what one process does until it dies, [`model`] what is known of
//! the messages and must hold of the store, [`tests`](self) the runs. [`commits`] tells stories of
//! another kind: of rows that are staged, committed and taken up, each exactly once. [`rare`] tells
//! what these meet too seldom.

#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic, and every number here is small"
)]

mod commits;
mod disk;
mod life;
mod model;
mod random;
mod rare;

use crate::plant::{Bug, plant};
use life::Story;

/// Crashes of the short run; the long one reads `FOREBAY_SIM_CRASHES`.
const CRASHES: u64 = 20_000;
/// Within so many crashes every planted bug has to show.
const CRASHES_TO_FIND: u64 = 40_000;

/// Tells stories from `seed` on until `crashes` have happened; the seed and the breach of the first
/// that breaks the law.
fn run(seed: u64, crashes: u64) -> Result<u64, (u64, String)> {
    let mut happened = 0;
    let mut story = seed;
    while happened < crashes {
        let told = Story::new(story).tell();
        happened += told.map_err(|breach| (story, breach))?;
        story += 1;
    }
    Ok(story - seed)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn what_was_acknowledged_outlives_every_power_loss() {
    let seed = number("FOREBAY_SIM_SEED").unwrap_or(1);
    let crashes = number("FOREBAY_SIM_CRASHES").unwrap_or(CRASHES);
    let started = std::time::Instant::now();
    match run(seed, crashes) {
        Ok(stories) => println!(
            "{crashes} crashes in {stories} stories from seed {seed}: {:.0} a second",
            crashes as f64 / started.elapsed().as_secs_f64()
        ),
        Err((story, breach)) => panic!("FOREBAY_SIM_SEED={story}: {breach}"),
    }
}

/// Tells a story of a few steps with many seeds.
fn tell_all(story: fn(u64) -> Result<(), model::Breach>) {
    for seed in 0..300 {
        if let Err(breach) = story(seed) {
            panic!("seed {seed}: {breach}");
        }
    }
}

#[test]
fn what_a_dead_process_failed_to_sync_is_stored_by_the_next() {
    tell_all(rare::refused_sync);
}

#[test]
fn an_index_file_that_was_removed_does_not_come_back() {
    tell_all(rare::returning_index_file);
}

#[test]
fn a_torn_index_is_not_believed_after_a_life_without_index() {
    tell_all(rare::index_behind_a_life_without);
}

#[test]
fn the_directories_above_a_store_are_durable_with_it() {
    tell_all(rare::directories_made_above);
}

#[test]
fn an_index_that_was_being_built_is_built_again() {
    tell_all(rare::killed_rebuild);
}

#[test]
fn a_sync_of_dispatch_that_failed_is_never_tried_again() {
    tell_all(rare::unheard_failure_of_dispatch);
}

#[test]
fn a_map_that_fails_on_opening_costs_no_message() {
    tell_all(rare::failing_map_on_opening);
    plant(Some(Bug::TakeErrorForAbsence));
    let found = (0..300).any(|seed| rare::failing_map_on_opening(seed).is_err());
    plant(None);
    assert!(found, "the planted bug is not found");
}

#[test]
fn the_simulator_finds_every_planted_bug() {
    let mut missed = Vec::new();
    for bug in [
        Bug::AcknowledgeEarly,
        Bug::NoDirectorySync,
        Bug::NoChecksum,
        Bug::TrustIndex,
        Bug::StaleTail,
        Bug::RetryFailedSync,
        Bug::TrustCache,
        Bug::SyncPopulated,
        Bug::SwapLate,
        Bug::ProgressAhead,
        Bug::TakeErrorForAbsence,
    ] {
        plant(Some(bug));
        let found = run(1, CRASHES_TO_FIND);
        plant(None);
        match found {
            Ok(stories) => missed.push(format!("{bug:?} in {stories} stories")),
            Err((story, breach)) => println!("{bug:?}: seed {story}: {breach}"),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

/// Tells stories of commits from `seed` on until `crashes` have happened.
fn run_commits(seed: u64, crashes: u64) -> Result<u64, (u64, String)> {
    let mut happened = 0;
    let mut story = seed;
    while happened < crashes {
        let told = commits::Story::new(story).tell();
        happened += told.map_err(|breach| (story, breach))?;
        story += 1;
    }
    Ok(story - seed)
}

#[test]
fn what_was_committed_is_in_the_log_exactly_once() {
    let seed = number("FOREBAY_SIM_SEED").unwrap_or(1);
    let crashes = number("FOREBAY_SIM_CRASHES").unwrap_or(CRASHES) / 10;
    match run_commits(seed, crashes) {
        Ok(stories) => println!("{crashes} crashes in {stories} stories from seed {seed}"),
        Err((story, breach)) => panic!("FOREBAY_SIM_SEED={story}: {breach}"),
    }
}

#[test]
fn the_simulator_finds_what_makes_commits_go_wrong() {
    let mut missed = Vec::new();
    for bug in [
        Bug::ForgetMarkers,
        Bug::FinishEarly,
        Bug::ReplaceManifest,
        Bug::RetireMarkers,
    ] {
        plant(Some(bug));
        let found = run_commits(1, CRASHES_TO_FIND / 4);
        plant(None);
        match found {
            Ok(stories) => missed.push(format!("{bug:?} in {stories} stories")),
            Err((story, breach)) => println!("{bug:?}: seed {story}: {breach}"),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
