//! The places and lost messages that a verification has found. There may be many messages in a
//! hole, and the opening may have reported each of them.

use super::inspection::Inspection;
use crate::damage::Lost;
use crate::engine::Damage;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

/// A place in which a message was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The hole that begins at a position of the log.
    Hole(u64),
    /// The damage with an index.
    Damage(usize),
}

/// The places, and the lost messages with their places.
#[derive(Debug, Default)]
pub struct Told {
    places: HashSet<(PathBuf, u64)>,
    lost: HashMap<Lost, Vec<Place>>,
}

impl Told {
    /// Those that an inspection has found.
    pub fn of(inspection: &Inspection) -> Told {
        let mut told = Told::default();
        for hole in &inspection.holes {
            for lost in &hole.lost {
                told.add(lost, Place::Hole(hole.range.start));
            }
        }
        for (index, damage) in inspection.found.damage.iter().enumerate() {
            told.add_damage(index, damage);
        }
        told
    }

    /// Adds the damage with an index.
    pub fn add_damage(&mut self, index: usize, damage: &Damage) {
        self.places.insert((damage.path.clone(), damage.position));
        for lost in &damage.lost {
            self.add(lost, Place::Damage(index));
        }
    }

    /// Adds a message that was lost in a place. Returns false if that is known.
    pub fn add(&mut self, lost: &Lost, place: Place) -> bool {
        if self.places_of(lost).contains(&place) {
            return false;
        }
        self.lost.entry(lost.clone()).or_default().push(place);
        true
    }

    /// Whether the place of a damage is known, or another place in which all its messages were
    /// lost.
    pub fn has(&self, damage: &Damage) -> bool {
        let has_cost = |place: &Place| {
            let mut lost = damage.lost.iter();
            lost.all(|lost| self.places_of(lost).contains(place))
        };
        let first = damage.lost.first();
        self.places
            .contains(&(damage.path.clone(), damage.position))
            || first.is_some_and(|first| self.places_of(first).iter().any(has_cost))
    }

    fn places_of(&self, lost: &Lost) -> &[Place] {
        self.lost.get(lost).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::damage::DamageKind;
    use crate::engine::commit_log::verify::inspection::LostRange;

    #[test]
    fn damage_is_told_of_by_its_place_and_by_all_its_messages() {
        let lost = |numbers: std::ops::Range<u64>| {
            let named = numbers.map(|number| ("t".to_owned(), 0, number));
            named.collect::<Vec<_>>()
        };
        let damage = |at, numbers| {
            Damage::new(DamageKind::Log, "log", at..at + 1, "why").losing(lost(numbers))
        };
        let mut inspection = Inspection::default();
        inspection.holes.push(LostRange {
            lost: lost(0..5),
            ..LostRange::unnamed(100..200)
        });
        inspection.found.damage.push(damage(300, 7..9));
        let mut told = Told::of(&inspection);
        assert!(told.has(&damage(300, 0..0)));
        assert!(told.has(&damage(1, 2..4)) && told.has(&damage(1, 7..9)));
        assert!(!told.has(&damage(1, 0..0)));
        assert!(!told.has(&damage(1, 4..6)) && !told.has(&damage(1, 4..8)));
        let fifth = ("t".to_owned(), 0, 5);
        assert!(told.add(&fifth, Place::Hole(100)) && !told.add(&fifth, Place::Hole(100)));
        assert!(told.has(&damage(1, 4..6)));
        told.add_damage(1, &damage(400, 9..10));
        assert!(told.has(&damage(400, 0..0)) && told.has(&damage(1, 9..10)));
    }
}
