//! What the processes that share a store have agreed on: when log files are sealed and removed.
//!
//! One of them does it for all, and when it dies another one takes over. So all must have the same
//! options. The first process to join writes its own into the state page:
//!
//! ```text
//! at    width  field
//! 1664  u32    1 if the fields below were written, else 0
//! 1668  u32    hours of the day in which files are removed, one bit each; 0: any hour
//! 1672  u64    `roll_after` in ms, plus 1; 0: none
//! 1680  u64    `retention` in ms, plus 1; 0: none
//! 1688  u64    `retention_bytes`; 0: none
//! 1696  u64    `disk_warning_ratio`, the bits of an f64; 0: none
//! 1704  u64    `disk_reserve`
//! 1712  u32    bit 0: `keep_unconsumed`, bit 1: `keep_unarchived`
//! ```

use super::page::{AT_EPOCHS, StatePage};
use crate::error::{Error, Result};
use crate::options::Options;
use std::time::Duration;

const AT_AGREED: usize = 1664;
const AT_HOURS: usize = 1668;
const AT_ROLL_AFTER: usize = 1672;
const AT_RETENTION: usize = 1680;
const AT_RETENTION_BYTES: usize = 1688;
const AT_RATIO: usize = 1696;
const AT_RESERVE: usize = 1704;
const AT_KEEPS: usize = 1712;
const _: () = assert!(AT_KEEPS + size_of::<u32>() <= AT_EPOCHS);

/// Hours of a day.
const HOURS: u32 = 24;

/// Options that are the same in all processes that share a store.
#[derive(Clone, Debug, PartialEq)]
pub struct Agreed {
    roll_after: Option<Duration>,
    retention: Option<Duration>,
    retention_bytes: Option<u64>,
    disk_reserve: u64,
    disk_warning_ratio: Option<f64>,
    /// One bit for each hour of `delete_when`.
    hours: u32,
    keep_unconsumed: bool,
    keep_unarchived: bool,
}

impl Agreed {
    /// Those of `options`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for invalid hours.
    pub fn of(options: &Options) -> Result<Agreed> {
        let hours = options.delete_hours()?.into_iter();
        Ok(Agreed {
            roll_after: options.roll_after.map(in_ms),
            retention: options.retention.map(in_ms),
            retention_bytes: options.retention_bytes,
            disk_reserve: options.disk_reserve(),
            disk_warning_ratio: options.disk_warning_ratio,
            hours: hours.fold(0, |bits, hour| bits | 1 << hour),
            keep_unconsumed: options.keep_unconsumed,
            keep_unarchived: options.keep_unarchived,
        })
    }

    /// Sets these options where `options` has the defaults.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] that names an option with another value.
    pub fn settle(&self, options: &mut Options) -> Result<()> {
        let given = Agreed::of(options)?.named();
        let usual = Agreed::of(&Options::default())?.named();
        let each = given.into_iter().zip(usual).zip(self.named());
        for (((name, own), (_, usual)), (_, agreed)) in each {
            if own != usual && own != agreed {
                let reason = format!("the processes that share the store have {agreed}");
                return Err(Error::option(name, own, reason));
            }
        }
        options.roll_after = self.roll_after;
        options.retention = self.retention;
        options.retention_bytes = self.retention_bytes;
        options.disk_reserve = Some(self.disk_reserve);
        options.disk_warning_ratio = self.disk_warning_ratio;
        options.delete_when = (self.hours != 0).then(|| self.hours());
        options.keep_unconsumed = self.keep_unconsumed;
        options.keep_unarchived = self.keep_unarchived;
        Ok(())
    }

    /// Names and values, as in Python.
    fn named(&self) -> [(&'static str, String); 8] {
        let seconds = |age: Option<Duration>| text(age.map(|age| age.as_secs_f64()));
        let hours = (self.hours != 0).then(|| format!("{:?}", self.hours()));
        let truth = |is: bool| if is { "True" } else { "False" }.to_owned();
        [
            ("roll_after", seconds(self.roll_after)),
            ("retention", seconds(self.retention)),
            ("retention_bytes", text(self.retention_bytes)),
            ("disk_warning_ratio", text(self.disk_warning_ratio)),
            ("delete_when", text(hours)),
            ("disk_reserve", self.disk_reserve.to_string()),
            ("keep_unconsumed", truth(self.keep_unconsumed)),
            ("keep_unarchived", truth(self.keep_unarchived)),
        ]
    }

    /// The hours as in `delete_when`.
    fn hours(&self) -> String {
        let hours = (0..HOURS).filter(|hour| self.hours & 1 << hour != 0);
        let hours: Vec<_> = hours.map(|hour| format!("{hour:02}")).collect();
        hours.join(";")
    }

    /// Whether an opening could have these values.
    fn is_valid(&self) -> bool {
        let mut options = Options {
            keep_unconsumed: self.keep_unconsumed,
            ..Options::default()
        };
        self.hours < 1 << HOURS && self.settle(&mut options).is_ok() && options.check().is_ok()
    }
}

impl StatePage {
    /// Writes down what the processes that share the store will agree on.
    pub fn agree(&self, agreed: &Agreed) {
        let age = |age: Option<Duration>| age.map_or(0, |age| ms(age).saturating_add(1));
        let ratio = agreed.disk_warning_ratio.map_or(0, f64::to_bits);
        let keeps = u32::from(agreed.keep_unconsumed) | u32::from(agreed.keep_unarchived) << 1;
        self.store(AT_ROLL_AFTER, age(agreed.roll_after));
        self.store(AT_RETENTION, age(agreed.retention));
        self.store(AT_RETENTION_BYTES, agreed.retention_bytes.unwrap_or(0));
        self.store(AT_RATIO, ratio);
        self.store(AT_RESERVE, agreed.disk_reserve);
        self.set_words(AT_HOURS, &agreed.hours.to_ne_bytes());
        self.set_words(AT_KEEPS, &keeps.to_ne_bytes());
        self.set_words(AT_AGREED, &1u32.to_ne_bytes());
    }

    /// What they have agreed on.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the page holds something else.
    pub fn agreed(&self) -> Result<Agreed> {
        let age = |at| self.load(at).checked_sub(1).map(Duration::from_millis);
        let given = |at| Some(self.load(at)).filter(|value| *value != 0);
        let keeps = self.word(AT_KEEPS);
        let agreed = Agreed {
            roll_after: age(AT_ROLL_AFTER),
            retention: age(AT_RETENTION),
            retention_bytes: given(AT_RETENTION_BYTES),
            disk_reserve: self.load(AT_RESERVE),
            disk_warning_ratio: given(AT_RATIO).map(f64::from_bits),
            hours: self.word(AT_HOURS),
            keep_unconsumed: keeps & 1 != 0,
            keep_unarchived: keeps & 2 != 0,
        };
        let is_written = self.word(AT_AGREED) == 1;
        self.check()?;
        if !is_written || keeps > 3 || !agreed.is_valid() {
            let reason = "not options that processes have agreed on";
            return Err(Error::corrupt(self.path(), AT_AGREED as u64, reason));
        }
        Ok(agreed)
    }
}

/// Whole milliseconds, as the page has them.
fn in_ms(age: Duration) -> Duration {
    Duration::from_millis(ms(age))
}

fn ms(age: Duration) -> u64 {
    // An age that is not zero stays so.
    u64::try_from(age.as_millis()).unwrap_or(u64::MAX).max(1)
}

fn text(value: Option<impl ToString>) -> String {
    value.map_or("None".to_owned(), |value| value.to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod test {
    use super::*;

    fn all() -> Options {
        Options {
            roll_after: Some(Duration::from_secs(60)),
            retention: Some(Duration::from_secs(3600)),
            retention_bytes: Some(1 << 30),
            disk_reserve: Some(0),
            disk_warning_ratio: Some(0.75),
            delete_when: Some("4;16".to_owned()),
            keep_unconsumed: false,
            keep_unarchived: true,
            ..Options::default()
        }
    }

    #[test]
    fn who_gives_none_gets_those_of_the_first_and_who_gives_others_is_told_which() {
        let page = StatePage::in_memory().unwrap();
        assert!(page.agreed().is_err());
        for first in [Options::default(), all()] {
            let agreed = Agreed::of(&first).unwrap();
            page.agree(&agreed);
            assert_eq!(page.agreed().unwrap(), agreed);
            for second in [Options::default(), first.clone()] {
                let mut second = second;
                agreed.settle(&mut second).unwrap();
                assert_eq!(Agreed::of(&second).unwrap(), agreed);
            }
        }
        let mut other = Options {
            retention: Some(Duration::from_secs(60)),
            ..all()
        };
        let told = page.agreed().unwrap().settle(&mut other).unwrap_err();
        assert_eq!(
            told.to_string(),
            "retention is 60: the processes that share the store have 3600"
        );
    }

    #[test]
    fn a_page_with_impossible_values_is_refused() {
        let page = StatePage::in_memory().unwrap();
        for (at, value) in [
            (AT_AGREED, 2),
            (AT_HOURS, 1 << 24),
            (AT_KEEPS, 4),
            (AT_RATIO + 4, 0x4100_0000),
            (AT_ROLL_AFTER, 1),
        ] {
            page.agree(&Agreed::of(&all()).unwrap());
            if at == AT_ROLL_AFTER {
                page.set_words(AT_ROLL_AFTER + 4, &[0; 4]);
            }
            page.set_words(at, &u32::to_ne_bytes(value));
            let found = page.agreed();
            assert!(
                matches!(found, Err(Error::Corrupt { .. })),
                "{at}: {found:?}"
            );
        }
    }
}
