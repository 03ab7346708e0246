//! Seeds of tests that draw their cases.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use proptest::test_runner::{Config, RngSeed};
use std::time::{SystemTime, UNIX_EPOCH};

/// The number in an environment variable.
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// First of the seeds that every run begins with.
const FIXED: u64 = 1;

/// A seed that nobody has chosen, far from the fixed ones.
fn draw() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    1_000_000_000 + now.as_nanos() as u64 % 1_000_000_000_000
}

/// Has proptest draw by `FOREBAY_SEED`, or by a seed that a failure prints. Its own variables count
/// for the rest, and nothing is written beside the source.
pub fn proptest_config() -> Config {
    let seed = number("FOREBAY_SEED").unwrap_or_else(draw);
    println!("FOREBAY_SEED={seed}");
    Config {
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..Config::default()
    }
}

/// The seeds of a run.
#[derive(Clone, Copy, Debug)]
pub struct Seeds {
    first: u64,
    /// First of the seeds that every second story has.
    drawn: Option<u64>,
}

impl Seeds {
    /// Half of the stories are those of every run, so that a change is told from chance, the others
    /// are drawn, so that every run tries something that none has tried. `FOREBAY_SEED` fixes all.
    pub fn half_drawn() -> Seeds {
        let given = number("FOREBAY_SEED");
        let drawn = given.is_none().then(draw);
        if let Some(drawn) = drawn {
            println!("every second story from FOREBAY_SEED={drawn} on");
        }
        Seeds {
            first: given.unwrap_or(FIXED),
            drawn,
        }
    }

    /// The stories are the same in every run, but for `FOREBAY_SEED`.
    pub fn fixed() -> Seeds {
        Seeds {
            first: number("FOREBAY_SEED").unwrap_or(FIXED),
            drawn: None,
        }
    }

    /// The seed of the `number`th story.
    pub fn of(self, number: u64) -> u64 {
        match self.drawn {
            None => self.first + number,
            Some(drawn) if number % 2 == 1 => drawn + number / 2,
            Some(_) => self.first + number / 2,
        }
    }
}
