//! What the processes that share a store have agreed on: when log files are sealed and removed.
//!
//! One process seals and removes files for all, and when it dies another one takes over. So all
//! must have the same options. The first process to join writes its own into the state page. A
//! process that joins later adds its own values of options that still have their defaults there:
//!
//! ```text
//! at    width  field
//! 1664  u32    number of the last write; 0: none. If odd, its copy is at 1672, else at 1744
//!
//!  0    u32    hours of the day in which files are removed, one bit each; 0: any hour
//!  4    u32    bit 0: `keep_unconsumed`, bit 1: `keep_unarchived`
//!  8    u64    `roll_after` in ms, plus 1; 0: none
//! 16    u64    `retention` in ms, plus 1; 0: none
//! 24    u64    `retention_bytes`; 0: none
//! 32    u64    `disk_warning_ratio`, the bits of an f64; 0: none
//! 40    u64    `disk_reserve`
//! ```
//!
//! A process may die while it writes, and others read meanwhile. So a process writes the copy that
//! is not valid, and then the next number.

use super::catalogue::{AT_CATALOGUE, CATALOGUE_LEN};
use super::page::StatePage;
use super::writer_stats::AT_WRITER_STATS;
use crate::error::{Error, Result};
use crate::options::Options;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

const AT_AGREED: usize = 1664;
const ODD_AT: usize = 1672;
const EVEN_AT: usize = 1744;
const HOURS_AT: usize = 0;
const KEEPS_AT: usize = 4;
const ROLL_AFTER_AT: usize = 8;
const RETENTION_AT: usize = 16;
const BYTES_AT: usize = 24;
const RATIO_AT: usize = 32;
const RESERVE_AT: usize = 40;
const LEN: usize = RESERVE_AT + size_of::<u64>();
const _: () = assert!(ODD_AT + LEN <= AT_CATALOGUE && EVEN_AT + LEN <= AT_WRITER_STATS);
const _: () = assert!(EVEN_AT >= AT_CATALOGUE + CATALOGUE_LEN);
/// Maximum attempts to read the options while others change them.
const READS: usize = 100;

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

    /// These options, and those of `own` where these are the defaults.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] with the name of an option that has different values in both,
    /// neither of them the default.
    pub fn joined(&self, own: &Agreed) -> Result<Agreed> {
        let usual = Agreed::of(&Options::default())?;
        let each = own.named().into_iter().zip(usual.named());
        for (((name, own), (_, usual)), (_, agreed)) in each.zip(self.named()) {
            if own != usual && agreed != usual && own != agreed {
                let reason = format!("the processes that share the store have {agreed}");
                return Err(Error::option(name, own, reason));
            }
        }
        Ok(Agreed {
            roll_after: self.roll_after.or(own.roll_after),
            retention: self.retention.or(own.retention),
            retention_bytes: self.retention_bytes.or(own.retention_bytes),
            disk_reserve: match self.disk_reserve == usual.disk_reserve {
                true => own.disk_reserve,
                false => self.disk_reserve,
            },
            disk_warning_ratio: self.disk_warning_ratio.or(own.disk_warning_ratio),
            hours: if self.hours == 0 {
                own.hours
            } else {
                self.hours
            },
            keep_unconsumed: self.keep_unconsumed && own.keep_unconsumed,
            keep_unarchived: self.keep_unarchived || own.keep_unarchived,
        })
    }

    /// Sets these options.
    pub fn apply(&self, options: &mut Options) {
        options.roll_after = self.roll_after;
        options.retention = self.retention;
        options.retention_bytes = self.retention_bytes;
        options.disk_reserve = Some(self.disk_reserve);
        options.disk_warning_ratio = self.disk_warning_ratio;
        options.delete_when = (self.hours != 0).then(|| self.hours());
        options.keep_unconsumed = self.keep_unconsumed;
        options.keep_unarchived = self.keep_unarchived;
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
        let mut options = Options::default();
        self.apply(&mut options);
        self.hours < 1 << HOURS && options.check().is_ok()
    }
}

impl StatePage {
    /// Writes down what the processes that share the store agree on. No other process does so at
    /// the same time.
    pub fn agree(&self, agreed: &Agreed) {
        let age = |age: Option<Duration>| age.map_or(0, |age| ms(age).saturating_add(1));
        let ratio = agreed.disk_warning_ratio.map_or(0, f64::to_bits);
        let keeps = u32::from(agreed.keep_unconsumed) | u32::from(agreed.keep_unarchived) << 1;
        // 0 means that there is no valid copy.
        let number = match self.agreed_number().wrapping_add(1) {
            0 => 2,
            number => number,
        };
        let place = place_of(number);
        self.fields
            .set_words(place + HOURS_AT, &agreed.hours.to_ne_bytes());
        self.fields
            .set_words(place + KEEPS_AT, &keeps.to_ne_bytes());
        self.fields
            .store(place + ROLL_AFTER_AT, age(agreed.roll_after));
        self.fields
            .store(place + RETENTION_AT, age(agreed.retention));
        self.fields
            .store(place + BYTES_AT, agreed.retention_bytes.unwrap_or(0));
        self.fields.store(place + RATIO_AT, ratio);
        self.fields.store(place + RESERVE_AT, agreed.disk_reserve);
        fence(Ordering::Release);
        self.fields.set_word(AT_AGREED, number);
    }

    /// Changes when the processes agree on something else.
    pub fn agreed_number(&self) -> u32 {
        self.fields.word(AT_AGREED)
    }

    /// What they have agreed on.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the page holds something else.
    pub fn agreed(&self) -> Result<Agreed> {
        let corrupt = || {
            let reason = "not options that processes have agreed on";
            Error::corrupt(self.path(), AT_AGREED as u64, reason)
        };
        for _ in 0..READS {
            let number = self.agreed_number();
            fence(Ordering::Acquire);
            let agreed = self.agreed_at(place_of(number));
            fence(Ordering::Acquire);
            if self.agreed_number() == number {
                self.check()?;
                let agreed = agreed.filter(|agreed| number != 0 && agreed.is_valid());
                return agreed.ok_or_else(corrupt);
            }
        }
        Err(corrupt())
    }

    fn agreed_at(&self, place: usize) -> Option<Agreed> {
        let age = |at| self.fields.load(place + at).checked_sub(1);
        let age = |at| age(at).map(Duration::from_millis);
        let given = |at| Some(self.fields.load(place + at)).filter(|value| *value != 0);
        let keeps = self.fields.word(place + KEEPS_AT);
        (keeps <= 3).then(|| Agreed {
            roll_after: age(ROLL_AFTER_AT),
            retention: age(RETENTION_AT),
            retention_bytes: given(BYTES_AT),
            disk_reserve: self.fields.load(place + RESERVE_AT),
            disk_warning_ratio: given(RATIO_AT).map(f64::from_bits),
            hours: self.fields.word(place + HOURS_AT),
            keep_unconsumed: keeps & 1 != 0,
            keep_unarchived: keeps & 2 != 0,
        })
    }
}

/// Where the options with this number are.
const fn place_of(number: u32) -> usize {
    match number % 2 {
        0 => EVEN_AT,
        _ => ODD_AT,
    }
}

/// Whole milliseconds, as the page has them.
fn in_ms(age: Duration) -> Duration {
    Duration::from_millis(ms(age))
}

fn ms(age: Duration) -> u64 {
    // An age of less than 1 ms becomes 1 ms.
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
    fn who_gives_none_has_those_of_others_and_who_gives_other_ones_is_told_which() {
        let page = StatePage::in_memory().unwrap();
        assert!(page.agreed().is_err());
        let none = Agreed::of(&Options::default()).unwrap();
        let all = Agreed::of(&all()).unwrap();
        for (first, second) in [(&none, &none), (&none, &all), (&all, &none), (&all, &all)] {
            let joined = first.joined(second).unwrap();
            assert_eq!(&joined, if second == &none { first } else { &all });
            page.agree(&joined);
            assert_eq!(page.agreed().unwrap(), joined);
            let mut options = Options::default();
            joined.apply(&mut options);
            assert_eq!(Agreed::of(&options).unwrap(), joined);
        }
        let other = Agreed {
            retention: Some(Duration::from_secs(60)),
            ..all
        };
        let told = page.agreed().unwrap().joined(&other).unwrap_err();
        assert_eq!(
            told.to_string(),
            "retention is 60: the processes that share the store have 3600"
        );
    }

    /// One process gives some options, and another one others.
    #[test]
    fn each_process_adds_what_it_gives() {
        let of = |options| Agreed::of(&options).unwrap();
        let first = of(Options {
            retention_bytes: all().retention_bytes,
            keep_unconsumed: false,
            delete_when: all().delete_when,
            ..Options::default()
        });
        let second = of(Options {
            retention_bytes: None,
            keep_unconsumed: true,
            delete_when: None,
            ..all()
        });
        assert_eq!(first.joined(&second).unwrap(), of(all()));
        assert_eq!(second.joined(&first).unwrap(), of(all()));
    }

    #[test]
    fn what_is_half_written_does_not_count() {
        let page = StatePage::in_memory().unwrap();
        let all = Agreed::of(&all()).unwrap();
        for number in [1, 2, u32::MAX] {
            page.fields
                .set_words(AT_AGREED, &(number - 1).to_ne_bytes());
            page.agree(&all);
            assert_eq!(page.agreed_number(), number);
            let next = place_of(number.wrapping_add(1));
            page.fields.set_words(next + HOURS_AT, &[0xFF; LEN]);
            assert_eq!(page.agreed().unwrap(), all);
        }
        page.fields.set_words(AT_AGREED, &u32::MAX.to_ne_bytes());
        page.agree(&all);
        assert_eq!(page.agreed().unwrap(), all);
    }

    #[test]
    fn a_page_with_impossible_values_is_refused() {
        let page = StatePage::in_memory().unwrap();
        let place = place_of(1);
        for (at, value) in [
            (AT_AGREED, 0),
            (place + HOURS_AT, 1 << 24),
            (place + KEEPS_AT, 4),
            (place + RATIO_AT + 4, 0x4100_0000),
            (place + ROLL_AFTER_AT, 1),
        ] {
            page.fields.set_words(AT_AGREED, &[0; 4]);
            page.agree(&Agreed::of(&all()).unwrap());
            if at == place + ROLL_AFTER_AT {
                page.fields.set_words(at + 4, &[0; 4]);
            }
            page.fields.set_words(at, &u32::to_ne_bytes(value));
            let found = page.agreed();
            assert!(
                matches!(found, Err(Error::Corrupt { .. })),
                "{at}: {found:?}"
            );
        }
    }
}
