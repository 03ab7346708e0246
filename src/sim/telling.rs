//! How stories are told: with many seeds, until enough crashes have happened, or until one finds a
//! planted bug.

use super::frame::{Breach, Story};
use crate::plant::{Bug, plant};
use crate::seeds::{Seeds, in_proof, number};
use std::time::Instant;

/// Crashes of the short run; the long run reads `FOREBAY_SIM_CRASHES`.
const CRASHES: u64 = 10_000;
/// Short stories of each kind; the long run reads `FOREBAY_SIM_STORIES`.
const STORIES: u64 = 80;
/// Every planted bug must be found within this many crashes.
pub const CRASHES_TO_FIND: u64 = 40_000;
/// A planted bug, and the seed of a story that finds it.
pub type Planted = (Bug, u64);

/// Runs the story of a seed; returns its number of crashes.
pub type Tell = fn(u64) -> Result<u64, Breach>;

pub fn tell<S: Story>(seed: u64) -> Result<u64, Breach> {
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
pub fn hold_through(crashes: u64, tell: Tell) {
    let started = Instant::now();
    match run(Seeds::half_drawn(), crashes, tell) {
        Ok(stories) => println!(
            "{crashes} crashes in {stories} stories: {:.0} a second",
            crashes as f64 / started.elapsed().as_secs_f64()
        ),
        Err((seed, breach)) => panic!("FOREBAY_SEED={seed}: {breach}"),
    }
}

/// Plants a bug. Returns the seed at which the search for it begins: in the gate, the seed of a
/// story that finds it. If that story no longer does, because the code has changed, the search
/// continues from there.
fn begin((bug, seed): Planted) -> u64 {
    plant(Some(bug));
    if in_proof() { 1 } else { seed }
}

/// Checks that stories find each planted bug before `crashes` have happened.
pub fn find_each(bugs: &[Planted], crashes: u64, tell: Tell) {
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

/// The crashes of a run of the commit log's stories. Those that take longer have a part of it.
pub fn crashes() -> u64 {
    number("FOREBAY_SIM_CRASHES").unwrap_or(CRASHES)
}

/// Runs a short story with many seeds.
pub fn tell_all(story: fn(u64) -> Result<(), Breach>) {
    let seeds = Seeds::half_drawn();
    let stories = number("FOREBAY_SIM_STORIES").unwrap_or(STORIES);
    for seed in (0..stories).map(|number| seeds.of(number)) {
        if let Err(breach) = story(seed) {
            panic!("FOREBAY_SEED={seed}: {breach}");
        }
    }
}

/// Checks that a story finds a planted bug within this many seeds.
pub fn find(planted: Planted, seeds: u64, story: fn(u64) -> Result<(), Breach>) {
    let begin = begin(planted);
    let found = (begin..begin + seeds).find(|seed| story(*seed).is_err());
    plant(None);
    assert!(found.is_some(), "{:?} was not found", planted.0);
    println!("{:?}: seed {found:?}", planted.0);
}
