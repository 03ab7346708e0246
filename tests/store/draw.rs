//! Random numbers, and random choices from many points that a test could try.
//!
//! The gate tries some points, `FOREBAY_PROOF` all. Half of the drawn points are the same each
//! time; the other half depend on `FOREBAY_SEED` or `FOREBAY_DRAWN`, or on a seed that the test
//! prints.

use proptest::test_runner::{Config, RngSeed};
use std::fmt::Debug;
use std::hash::{BuildHasher, RandomState};

/// A random number generator.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn of_seed(seed: u64) -> Random {
        // Small seeds leave the generator's state nearly empty, so it is stirred.
        let mut random = Random((seed ^ 0x9E37_79B9_7F4A_7C15).max(1));
        for _ in 0..20 {
            random.next();
        }
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }
}

/// Whether this run is long.
pub(crate) fn in_proof() -> bool {
    std::env::var_os("FOREBAY_PROOF").is_some()
}

/// Draws the points of a test, and prints the seed.
pub(crate) struct Draw {
    fixed: Random,
    pub(crate) random: Random,
    /// Whether all points are tried.
    pub(crate) all: bool,
}

/// The seed that an environment variable gives.
pub(crate) fn given(name: &str) -> Option<u64> {
    Some(std::env::var(name).ok()?.parse().unwrap())
}

/// `FOREBAY_DRAWN`, or a random seed.
pub(crate) fn drawn() -> u64 {
    given("FOREBAY_DRAWN").unwrap_or_else(|| RandomState::new().hash_one(0u8) >> 32)
}

/// `FOREBAY_SEED`, or a drawn one; a failure prints it.
fn seed() -> u64 {
    let seed = given("FOREBAY_SEED").unwrap_or_else(drawn);
    println!("FOREBAY_SEED={seed}");
    seed
}

/// Configures proptest with the same seed. Other settings come from proptest's own variables. No
/// regression files are written.
pub(crate) fn proptest_config() -> Config {
    Config {
        rng_seed: RngSeed::Fixed(seed()),
        failure_persistence: None,
        ..Config::default()
    }
}

impl Draw {
    pub(crate) fn new() -> Draw {
        Draw {
            fixed: Random::of_seed(1),
            random: Random::of_seed(seed()),
            all: in_proof(),
        }
    }

    /// All points, or `count` of them.
    pub(crate) fn some<T>(&mut self, count: usize, mut points: Vec<T>) -> Vec<T> {
        if self.all || points.len() <= count {
            return points;
        }
        let mut drawn = Vec::with_capacity(count);
        while drawn.len() < count {
            let random = match drawn.len() < count / 2 {
                true => &mut self.fixed,
                false => &mut self.random,
            };
            drawn.push(points.swap_remove(random.below(points.len())));
        }
        drawn
    }

    /// Calls `try_point` with all points, or with `count` of them.
    pub(crate) fn each<T: Debug>(
        &mut self,
        count: usize,
        points: Vec<T>,
        mut try_point: impl FnMut(&T),
    ) {
        for point in self.some(count, points) {
            println!("{point:?}");
            try_point(&point);
        }
    }
}
