//! Manifests: the contents of commits, their files, and their state.
//!
//! ```text
//! {"version": 1, "id": "...", "query": "...", "batch": 7, "kind": "stream" or "batch",
//!  "created_ms": 1700000000000, "rows": 100, "sum": "0123456789abcdef", "conflict": "fail",
//!  "stages": ["stage-...", ...],
//!  "parts": [[[stage, begin, end], ...], ...]}
//! ```
//!
//! A manifest with `"resolution"` has no stages and one empty part. It decides what happens to a
//! batch that is only partly in the log.
//!
//! A part is a list of slices of stages: index of the stage, first byte, end. The manifest
//! defines the parts, so that a process that continues a commit divides it in the same way.
//!
//! Rows and sum tell a retry of a batch from another batch with its number. Manifests of release
//! 0.1.0 have neither.

use super::place::{QueryPlace, StagePlace, is_query, unlink};
use crate::disk::{Disk, read_small};
use crate::error::Result;
use crate::plant::{Bug, planted};
use crate::record::Contents;
use crate::table::json;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Maximum bytes of a commit that is a single part, unless it is one row.
pub const PART_LEN: u64 = 4 << 20;
/// Maximum bytes of a part of a longer commit, unless it is one slice. An atomic batch may be
/// longer, but the log is locked while a part is appended, and sends of the owner wait.
const LONG_PART_LEN: u64 = 1 << 20;

/// Maximum bytes of a part, for a commit of `len` bytes.
pub fn part_len(len: u64) -> u64 {
    match len <= PART_LEN {
        true => PART_LEN,
        false => LONG_PART_LEN,
    }
}

/// Maximum length of a manifest that is read.
const LEN_MAX: u64 = 64 << 20;
/// Maximum length of a part that is read. Parts are written much shorter.
const PART_LEN_MAX: u64 = 48 << 20;
const VERSION: u64 = 1;

/// Defines the words for the variants of an enum in a manifest.
macro_rules! words {
    ($name:ident { $($kind:ident = $word:literal),+ }) => {
        impl $name {
            /// The word for this variant.
            pub fn word(self) -> &'static str {
                match self {
                    $($name::$kind => $word,)+
                }
            }

            /// The variant for a word.
            pub fn of(word: &str) -> Option<$name> {
                match word {
                    $($word => Some($name::$kind),)+
                    _ => None,
                }
            }
        }
    };
}

/// Whether a batch belongs to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitKind {
    /// One of many batches of a query, with ascending numbers.
    Stream,
    /// The only batch of its query.
    Batch,
}

words!(CommitKind { Stream = "stream", Batch = "batch" });

/// What happens to a batch if the log holds its number with other rows, so that it is not a retry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conflict {
    /// It is refused.
    #[default]
    Fail,
    /// It is appended, and the next batches of the query must follow it.
    Append,
    /// It counts as appended.
    Skip,
}

words!(Conflict { Fail = "fail", Append = "append", Skip = "skip" });

/// What happens to a batch that is only partly in the log and cannot be completed. A commit without
/// rows carries the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// It counts as appended.
    Appended,
    /// It counts as missing: when the batch runs again, all of it is appended.
    Again,
}

words!(Resolution { Appended = "appended", Again = "again" });

/// Writes the contents of a batch into a manifest or a marker.
pub fn write_contents(contents: Contents, value: &mut Value) {
    if let Some(fields) = value.as_object_mut() {
        fields.insert("rows".to_owned(), json!(contents.rows));
        fields.insert("sum".to_owned(), json!(format!("{:016x}", contents.sum)));
    }
}

/// The contents stated in a manifest or a marker; `None` if there are none.
pub fn read_contents(value: &Value) -> Option<Contents> {
    let sum = value.get("sum")?.as_str()?;
    Some(Contents {
        rows: value.get("rows")?.as_u64()?,
        sum: u64::from_str_radix(sum, 16).ok()?,
    })
}

/// A slice of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Index into the manifest's stages.
    pub stage: usize,
    /// First byte.
    pub begin: u64,
    /// After the last byte.
    pub end: u64,
}

/// The contents of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Distinguishes this attempt from others at the same batch.
    pub id: String,
    /// The query.
    pub query: String,
    /// Number of the batch in its query.
    pub batch: u64,
    /// Whether the batch belongs to a stream.
    pub kind: CommitKind,
    /// When it was written, in ms.
    pub created_ms: i64,
    /// Fingerprint of the rows; `None` in a manifest of 0.1.0.
    pub contents: Option<Contents>,
    /// What happens if the log holds this batch number with other rows.
    pub conflict: Conflict,
    /// Without rows: the decision about the batch.
    pub resolution: Option<Resolution>,
    /// Names of the stages.
    pub stages: Vec<String>,
    /// The parts in order.
    pub parts: Vec<Vec<Slice>>,
}

impl Manifest {
    /// The text of the file.
    pub fn text(&self) -> Vec<u8> {
        let part = |part: &Vec<Slice>| {
            let slices = part.iter().map(|it| json!([it.stage, it.begin, it.end]));
            Value::Array(slices.collect())
        };
        let mut value = json!({
            "version": VERSION,
            "id": self.id,
            "query": self.query,
            "batch": self.batch,
            "kind": self.kind.word(),
            "created_ms": self.created_ms,
            "conflict": self.conflict.word(),
            "stages": self.stages,
            "parts": self.parts.iter().map(part).collect::<Vec<_>>(),
        });
        if let Some(contents) = self.contents {
            write_contents(contents, &mut value);
        }
        if let (Some(resolution), Some(fields)) = (self.resolution, value.as_object_mut()) {
            fields.insert("resolution".to_owned(), json!(resolution.word()));
        }
        value.to_string().into_bytes()
    }

    /// Parses a manifest; `None` if it is not one, or not one that Forebay could have written.
    fn parse(value: &Value) -> Option<Manifest> {
        let word = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        if value.get("version")?.as_u64()? != VERSION {
            return None;
        }
        let stages = value.get("stages")?.as_array()?.iter();
        let stages: Option<Vec<String>> = stages
            .map(|name| name.as_str().map(str::to_owned))
            .collect();
        let stages = stages?;
        if stages
            .iter()
            .any(|name| !matches!(Name::of(name), Name::Stage))
        {
            return None;
        }
        let parts = value.get("parts")?.as_array()?.iter();
        let parts: Option<Vec<Vec<Slice>>> = parts.map(|part| slices(part, &stages)).collect();
        Some(Manifest {
            id: word("id")?,
            query: word("query").filter(|query| is_query(query))?,
            batch: value.get("batch")?.as_u64()?,
            kind: CommitKind::of(&word("kind")?)?,
            created_ms: value.get("created_ms")?.as_i64()?,
            contents: read_contents(value),
            resolution: match word("resolution") {
                Some(word) => Some(Resolution::of(&word)?),
                None => None,
            },
            conflict: word("conflict").map_or(Some(Conflict::Fail), |it| Conflict::of(&it))?,
            stages,
            parts: parts.filter(|parts| !parts.is_empty())?,
        })
    }
}

fn slices(part: &Value, stages: &[String]) -> Option<Vec<Slice>> {
    let mut left = PART_LEN_MAX;
    let one = |value: &Value| {
        let [stage, begin, end] = value.as_array()?.first_chunk::<3>()?;
        let (stage, begin, end) = (stage.as_u64()?, begin.as_u64()?, end.as_u64()?);
        left = left.checked_sub(end.checked_sub(begin)?)?;
        let stage = usize::try_from(stage).ok()?;
        (stage < stages.len()).then_some(Slice { stage, begin, end })
    };
    part.as_array()?.iter().map(one).collect()
}

/// The meaning of a file name in the directory of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// Rows of a finished task.
    Stage,
    /// A manifest of this batch that may be withdrawn.
    Commit(u64),
    /// A manifest of this batch that the writer has begun.
    Taken(u64),
    /// Why the commit of this batch cannot be appended.
    Refused(u64),
    /// An incomplete file.
    Temporary,
    /// Not a name of Forebay's.
    Other,
}

impl Name {
    /// Parses a name.
    pub fn of(name: &str) -> Name {
        let rest = |prefix: &str| name.strip_prefix(prefix).filter(|rest| is_query(rest));
        let number = |prefix: &str| {
            let digits = rest(prefix).filter(|rest| rest.bytes().all(|b| b.is_ascii_digit()));
            digits.and_then(|digits| digits.parse().ok())
        };
        if let Some(stem) = name.strip_suffix(".tmp") {
            let begins = ["stage-", "commit-", "refused-", "withdrawn-"];
            let ours = begins.iter().any(|prefix| stem.starts_with(prefix));
            return if ours { Name::Temporary } else { Name::Other };
        }
        if rest("stage-").is_some() {
            return Name::Stage;
        }
        match (number("commit-"), number("taken-"), number("refused-")) {
            (Some(batch), _, _) => Name::Commit(batch),
            (_, Some(batch), _) => Name::Taken(batch),
            (_, _, Some(batch)) => Name::Refused(batch),
            _ => Name::Other,
        }
    }

    /// The file name with this meaning.
    pub fn text(self) -> String {
        match self {
            Name::Commit(batch) => format!("commit-{batch}"),
            Name::Taken(batch) => format!("taken-{batch}"),
            Name::Refused(batch) => format!("refused-{batch}"),
            Name::Stage | Name::Temporary | Name::Other => String::new(),
        }
    }
}

/// Why a commit can never be appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason, and what can be done about it.
    pub reason: String,
    /// Whether a part of the batch is in the log.
    pub appended: bool,
}

/// A manifest that waits to be taken up or was begun.
#[derive(Debug)]
pub struct Pending {
    /// The files of its query.
    pub place: QueryPlace,
    /// Its current name.
    pub name: Name,
    /// Its contents; `None` if it is not a manifest of this version.
    pub manifest: Option<Manifest>,
    /// The version that it states; `None` if it is damaged.
    pub version: Option<u64>,
}

impl Pending {
    /// Number of the batch, from the name.
    pub fn batch(&self) -> u64 {
        match self.name {
            Name::Commit(batch) | Name::Taken(batch) | Name::Refused(batch) => batch,
            Name::Stage | Name::Temporary | Name::Other => 0,
        }
    }

    /// Whether it can no longer be withdrawn.
    pub fn is_begun(&self) -> bool {
        matches!(self.name, Name::Taken(_))
    }

    /// The file.
    pub fn path(&self) -> PathBuf {
        self.place.path(&self.name.text())
    }

    /// Why it cannot be read.
    pub fn flaw(&self) -> String {
        match self.version {
            Some(version) if version != VERSION => {
                format!("it has version {version}; this release reads version {VERSION}")
            }
            _ => "not a manifest: it is damaged, or was truncated by a power loss".to_owned(),
        }
    }

    /// Marks it as begun. After a power loss it may have its old name again. Returns false if it
    /// was withdrawn meanwhile, even if another commit of the batch has its name by then.
    pub fn begin(&mut self, disk: &dyn Disk) -> Result<bool> {
        let (from, name) = (self.path(), Name::Taken(self.batch()));
        match disk.rename(&from, &self.place.path(&name.text())) {
            Err(error) if error.is_not_found() => return Ok(false),
            renamed => renamed?,
        }
        self.name = name;
        let there = read(disk, &self.place, name)?;
        if there.is_none_or(|there| there.manifest != self.manifest) {
            self.take_back(disk)?;
            return Ok(false);
        }
        Ok(true)
    }

    /// Removes it and its stages, whose rows are in the durable log. Also removes the refusal of an
    /// earlier commit of the batch, which no longer matters.
    pub fn finish(&self, disk: &dyn Disk) -> Result<()> {
        unlink(disk, &self.place.path(&Name::Refused(self.batch()).text()))?;
        self.unlink_stages(disk)?;
        unlink(disk, &self.path())?;
        sync(disk, &self.place.folder)
    }

    /// Allows it to be withdrawn again: nothing of it is in the log. Not durable: it may simply be
    /// begun again, and a withdrawal makes it durable. It stays begun if a later commit of the
    /// batch has the name.
    pub fn take_back(&mut self, disk: &dyn Disk) -> Result<()> {
        let (from, name) = (self.path(), Name::Commit(self.batch()));
        match disk.rename_new(&from, &self.place.path(&name.text())) {
            Err(error) if error.kind() == Some(ErrorKind::AlreadyExists) => return Ok(()),
            renamed => renamed?,
        }
        self.name = name;
        Ok(())
    }

    /// Records why it can never be appended, and durably removes it, with its stages if nothing of
    /// it is in the log.
    pub fn refuse(&self, disk: &dyn Disk, refusal: &Refusal) -> Result<()> {
        let refused = Name::Refused(self.batch()).text();
        let path = self.place.path(&refused);
        let id = self.manifest.as_ref().map(|manifest| manifest.id.as_str());
        let Refusal { reason, appended } = refusal;
        let text = json!({"reason": reason, "id": id, "appended": appended}).to_string();
        // Only for the waiting driver, so it need not survive a power loss.
        let temporary = self.place.path(&format!("{refused}.tmp"));
        unlink(disk, &temporary)?;
        disk.write_at(&temporary, 0, text.as_bytes())?;
        disk.rename(&temporary, &path)?;
        if planted(Bug::RefuseTorn) {
            return Ok(());
        }
        unlink(disk, &self.path())?;
        if !refusal.appended {
            self.unlink_stages(disk)?;
        }
        sync(disk, &self.place.folder)
    }

    fn unlink_stages(&self, disk: &dyn Disk) -> Result<()> {
        let mut stages = self.manifest.iter().flat_map(|manifest| &manifest.stages);
        stages.try_for_each(|stage| unlink(disk, &self.place.path(stage)))
    }
}

/// Makes the names in a directory durable.
#[cfg_attr(test, track_caller)]
pub fn sync(disk: &dyn Disk, directory: &Path) -> Result<()> {
    disk.sync_directory(directory)
}

/// Makes the names of a query's files durable, and those of the folders up to that of the store,
/// which may be new too. The writer made the name of the store durable when it opened it.
pub fn sync_up(disk: &dyn Disk, stages: &StagePlace, place: &QueryPlace) -> Result<()> {
    sync(disk, &place.folder)?;
    let Some(top) = place.top() else {
        return Ok(());
    };
    sync(disk, top)?;
    sync(disk, stages.root())
}

/// Why a commit was refused, if the file with the refusal exists.
pub fn refusal(disk: &dyn Disk, path: &Path) -> Result<Option<Refusal>> {
    let text = read_small(disk, path, LEN_MAX)?;
    Ok(text.map(|text| {
        let value = json::parse(&text).unwrap_or_default();
        let reason = value.get("reason").and_then(Value::as_str);
        let appended = value.get("appended").and_then(Value::as_bool);
        Refusal {
            reason: reason.unwrap_or("no reason is given").to_owned(),
            appended: appended.unwrap_or(false),
        }
    }))
}

/// The files of a query, with their meanings.
///
/// A manifest that is renamed during a listing may be missed under both names. So the directory is
/// listed until two consecutive listings have manifests of the same batches.
pub fn files(disk: &dyn Disk, place: &QueryPlace) -> Result<Vec<(String, Name)>> {
    let batches = |files: &[(String, Name)]| -> BTreeSet<u64> {
        let names = files.iter().map(|(_, name)| *name);
        let batch = |name| match name {
            Name::Commit(batch) | Name::Taken(batch) => Some(batch),
            _ => None,
        };
        names.filter_map(batch).collect()
    };
    let mut found = listed(disk, place)?;
    loop {
        let again = listed(disk, place)?;
        if batches(&again) == batches(&found) {
            return Ok(again);
        }
        found = again;
    }
}

fn listed(disk: &dyn Disk, place: &QueryPlace) -> Result<Vec<(String, Name)>> {
    let names = place.list(disk)?.into_iter();
    let named = names.map(|name| {
        let says = Name::of(&name);
        (name, says)
    });
    Ok(named.collect())
}

/// Reads a manifest; `None` if the file no longer exists.
pub fn read(disk: &dyn Disk, place: &QueryPlace, name: Name) -> Result<Option<Pending>> {
    let path = place.path(&name.text());
    let text = match read_small(disk, &path, LEN_MAX) {
        Err(error) if error.kind() == Some(ErrorKind::InvalidData) => Some(Vec::new()),
        Err(error) if error.is_not_found() => None,
        text => text?,
    };
    let mut pending = Pending {
        place: place.clone(),
        name,
        manifest: None,
        version: None,
    };
    let Some(text) = text else { return Ok(None) };
    let fits = |it: &Manifest| it.query == pending.place.query && it.batch == pending.batch();
    let value = json::parse(&text);
    let manifest = value.as_ref().and_then(Manifest::parse).filter(fits);
    pending.manifest = manifest;
    pending.version = value.and_then(|value| value.get("version")?.as_u64());
    Ok(Some(pending))
}

/// The pending and begun manifests of a query, in the order in which to take them up: begun ones
/// first, then by batch.
pub fn of_query(disk: &dyn Disk, place: &QueryPlace) -> Result<Vec<Pending>> {
    let mut found = Vec::new();
    for (_, name) in files(disk, place)? {
        if matches!(name, Name::Commit(_) | Name::Taken(_)) {
            found.extend(read(disk, place, name)?);
        }
    }
    found.sort_by_key(|it| (!it.is_begun(), it.batch()));
    Ok(found)
}
