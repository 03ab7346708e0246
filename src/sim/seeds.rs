//! Which stories are told.

use super::number;
use std::time::{SystemTime, UNIX_EPOCH};

/// First of the seeds that every run begins with.
const FIXED: u64 = 1;

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
        let drawn = given.is_none().then(|| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            let drawn = 1_000_000_000 + now.as_nanos() as u64 % 1_000_000_000_000;
            println!("every second story from FOREBAY_SEED={drawn} on");
            drawn
        });
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
