//! Damage: reports of places in a store that cannot be read.

use std::ops::Range;
use std::path::PathBuf;

/// The kind of file that is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DamageKind {
    /// The log.
    Log,
    /// A queue file.
    Queue,
    /// An index file.
    Index,
    /// The table of topics.
    Topics,
    /// The checkpoint.
    Checkpoint,
    /// The options saved in the store.
    Options,
    /// Another table of Forebay.
    Table,
    /// A table of another system.
    ForeignTable,
    /// No file: retention cannot continue.
    Retention,
    /// No file: the wall clock jumped.
    Clock,
}

impl DamageKind {
    const NAMES: [(DamageKind, &str); 10] = [
        (DamageKind::Log, "log"),
        (DamageKind::Queue, "queue"),
        (DamageKind::Index, "index"),
        (DamageKind::Topics, "topics"),
        (DamageKind::Checkpoint, "checkpoint"),
        (DamageKind::Options, "options"),
        (DamageKind::Table, "table"),
        (DamageKind::ForeignTable, "foreign table"),
        (DamageKind::Retention, "retention"),
        (DamageKind::Clock, "clock"),
    ];

    /// The name used between processes.
    pub fn name(self) -> &'static str {
        let mut names = DamageKind::NAMES.into_iter();
        names.find(|it| it.0 == self).map_or("", |it| it.1)
    }

    /// The kind with this name.
    pub fn of_name(name: &str) -> Option<DamageKind> {
        let mut names = DamageKind::NAMES.into_iter();
        names.find(|it| it.1 == name).map(|it| it.0)
    }
}

/// A message that is lost: its topic, queue and offset.
pub type Lost = (String, u32, u64);

/// A damaged place in the store, and the messages lost by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// What is damaged.
    pub kind: DamageKind,
    /// The file.
    pub path: PathBuf,
    /// First damaged byte: a log position in a log file, a byte of the file in any other.
    pub position: u64,
    /// Number of unreadable bytes.
    pub length: u64,
    /// What is wrong.
    pub reason: String,
    /// Messages known to be lost.
    pub lost: Vec<Lost>,
}

impl Damage {
    /// Damage of these bytes, with no message known to be lost.
    pub(crate) fn new(
        kind: DamageKind,
        path: impl Into<PathBuf>,
        bytes: Range<u64>,
        reason: impl ToString,
    ) -> Damage {
        Damage {
            kind,
            path: path.into(),
            position: bytes.start,
            length: bytes.end.saturating_sub(bytes.start),
            reason: reason.to_string(),
            lost: Vec::new(),
        }
    }

    /// Adds lost messages.
    pub(crate) fn losing(mut self, lost: impl IntoIterator<Item = Lost>) -> Damage {
        self.lost.extend(lost);
        self
    }

    /// The place without its lost messages.
    pub(crate) fn bare(&self) -> Damage {
        let bytes = self.position..self.position.saturating_add(self.length);
        Damage::new(self.kind, &self.path, bytes, &self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_of_kinds_are_unique() {
        let names: HashSet<&str> = DamageKind::NAMES.iter().map(|it| it.1).collect();
        assert_eq!(names.len(), DamageKind::NAMES.len());
        for (kind, name) in DamageKind::NAMES {
            assert_eq!((kind.name(), DamageKind::of_name(name)), (name, Some(kind)));
        }
        assert_eq!(DamageKind::of_name("logs"), None);
    }
}
