//! Seeds of randomised tests.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use proptest::test_runner::{Config, RngSeed};
use std::time::{SystemTime, UNIX_EPOCH};

/// The value of an environment variable, as a number.
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Whether this run is long.
pub fn in_proof() -> bool {
    std::env::var_os("FOREBAY_PROOF").is_some()
}

/// First of the seeds used in every run.
const FIXED: u64 = 1;

/// A seed from `FOREBAY_DRAWN`, or else from the clock, far from the fixed ones.
fn draw() -> u64 {
    let drawn = number("FOREBAY_DRAWN").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        now.as_nanos() as u64
    });
    1_000_000_000 + drawn % 1_000_000_000_000
}

/// Configures proptest with the seed `FOREBAY_SEED`, or else a random seed, which is printed.
/// Other settings come from proptest's own variables. No regression files are written.
pub fn proptest_config() -> Config {
    let seed = number("FOREBAY_SEED").unwrap_or_else(draw);
    println!("FOREBAY_SEED={seed}");
    Config {
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..Config::default()
    }
}

/// The same with another number of cases, unless `PROPTEST_CASES` sets one.
pub fn proptest_cases(cases: u32) -> Config {
    let config = proptest_config();
    Config {
        cases: if number("PROPTEST_CASES").is_none() {
            cases
        } else {
            config.cases
        },
        ..config
    }
}

/// The seeds of a run.
#[derive(Clone, Copy, Debug)]
pub struct Seeds {
    first: u64,
    /// First of the random seeds, used by every second story.
    drawn: Option<u64>,
}

impl Seeds {
    /// Half of the stories are the same in every run, so that a regression can be distinguished
    /// from chance. The others are random, so that every run tests something different.
    /// `FOREBAY_SEED` fixes all stories.
    pub fn half_drawn() -> Seeds {
        let given = number("FOREBAY_SEED");
        let drawn = given.is_none().then(draw);
        if let Some(drawn) = drawn {
            println!("random stories start at FOREBAY_SEED={drawn}");
        }
        Seeds {
            first: given.unwrap_or(FIXED),
            drawn,
        }
    }

    /// The stories are the same in every run, unless `FOREBAY_SEED` is set.
    pub fn fixed() -> Seeds {
        Seeds::fixed_from(FIXED)
    }

    /// The same, beginning at another seed.
    pub fn fixed_from(first: u64) -> Seeds {
        Seeds {
            first: number("FOREBAY_SEED").unwrap_or(first),
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
