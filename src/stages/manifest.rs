//! Manifests: what a commit consists of, in which files, and how far it is.
//!
//! ```text
//! {"version": 1, "id": "...", "query": "...", "batch": 7, "kind": "stream" or "batch",
//!  "created_ms": 1700000000000, "rows": 100, "sum": "0123456789abcdef", "conflict": "fail",
//!  "stages": ["stage-...", ...],
//!  "parts": [[[stage, begin, end], ...], ...]}
//! ```
//!
//! One with `"resolution"` has no stages and one empty part: it says what becomes of a batch of
//! which only some parts are in the log.
//!
//! A part is a list of stretches of stages: the number of the stage, first byte, end. The cut into
//! parts stands in the manifest, so that whoever goes on with a commit cuts it as who began it.
//!
//! Rows and sum tell a batch that is run again from another of its number; a manifest of 0.1.0 has
//! neither.

use crate::disk::{Disk, Kind, read_small};
use crate::engine::directory::names;
use crate::error::{Error, Op, Result};
use crate::plant::{Bug, planted};
use crate::record::Contents;
use crate::table::json;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The directory of stages and manifests, in that of the store.
pub const DIRECTORY: &str = names::STAGES;

/// The longest manifest that is read.
const LEN_MAX: u64 = 64 << 20;
/// The longest part that is read; those that are written are much shorter.
const PART_LEN_MAX: u64 = 48 << 20;
const VERSION: u64 = 1;

/// Gives the kinds of an enum their words in a manifest.
macro_rules! words {
    ($name:ident { $($kind:ident = $word:literal),+ }) => {
        impl $name {
            /// The word for it.
            pub fn word(self) -> &'static str {
                match self {
                    $($name::$kind => $word,)+
                }
            }

            /// What a word stands for.
            pub fn of(word: &str) -> Option<$name> {
                match word {
                    $($word => Some($name::$kind),)+
                    _ => None,
                }
            }
        }
    };
}

/// What a commit is one of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitKind {
    /// Of many of one query, whose numbers grow.
    Stream,
    /// Of none: it is the only one of its query.
    Batch,
}

words!(CommitKind { Stream = "stream", Batch = "batch" });

/// What becomes of a batch whose number the log holds with other rows: it cannot come from a retry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conflict {
    /// It is refused.
    #[default]
    Fail,
    /// It is appended, and the next batches of the query are those that follow it.
    Append,
    /// It counts as appended.
    Skip,
}

words!(Conflict { Fail = "fail", Append = "append", Skip = "skip" });

/// What becomes of a batch of which a part is in the log, and the rest cannot follow: a commit
/// without rows says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// It counts as appended.
    Appended,
    /// It counts as if nothing of it were there: the batch that is run again is appended whole.
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

/// The contents that a manifest or a marker states; `None` where it states none.
pub fn read_contents(value: &Value) -> Option<Contents> {
    let sum = value.get("sum")?.as_str()?;
    Some(Contents {
        rows: value.get("rows")?.as_u64()?,
        sum: u64::from_str_radix(sum, 16).ok()?,
    })
}

/// A stretch of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Which of the manifest's stages.
    pub stage: usize,
    /// First byte.
    pub begin: u64,
    /// Behind the last byte.
    pub end: u64,
}

/// What a commit consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// What tells this attempt from others at the same batch.
    pub id: String,
    /// The query.
    pub query: String,
    /// Number of the batch in its query.
    pub batch: u64,
    /// What it is one of.
    pub kind: CommitKind,
    /// When it was written, in ms.
    pub created_ms: i64,
    /// Of the rows; `None` in a manifest of 0.1.0.
    pub contents: Option<Contents>,
    /// What becomes of it where the log holds its number with other rows.
    pub conflict: Conflict,
    /// Where it has no rows: what becomes of the batch.
    pub resolution: Option<Resolution>,
    /// Names of the stages.
    pub stages: Vec<String>,
    /// The parts in order.
    pub parts: Vec<Vec<Stretch>>,
}

impl Manifest {
    /// The text of the file.
    pub fn text(&self) -> Vec<u8> {
        let part = |part: &Vec<Stretch>| {
            let stretches = part.iter().map(|it| json!([it.stage, it.begin, it.end]));
            Value::Array(stretches.collect())
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

    /// The manifest that a file states; `None` where it states none, or one that no writer of ours
    /// would have left.
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
        let parts: Option<Vec<Vec<Stretch>>> = parts.map(|part| stretches(part, &stages)).collect();
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

fn stretches(part: &Value, stages: &[String]) -> Option<Vec<Stretch>> {
    let mut left = PART_LEN_MAX;
    let one = |value: &Value| {
        let [stage, begin, end] = value.as_array()?.first_chunk::<3>()?;
        let (stage, begin, end) = (stage.as_u64()?, begin.as_u64()?, end.as_u64()?);
        left = left.checked_sub(end.checked_sub(begin)?)?;
        let stage = usize::try_from(stage).ok()?;
        (stage < stages.len()).then_some(Stretch { stage, begin, end })
    };
    part.as_array()?.iter().map(one).collect()
}

/// What a name in the directory of a query says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// Rows of a task that has ended.
    Stage,
    /// A manifest of this batch that may be withdrawn.
    Commit(u64),
    /// A manifest of this batch that was begun.
    Taken(u64),
    /// Why the commit of this batch cannot be appended.
    Refused(u64),
    /// What is not complete.
    Temporary,
    /// None of ours.
    Other,
}

impl Name {
    /// What a name says.
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

    /// The name that says this of a batch.
    pub fn text(self) -> String {
        match self {
            Name::Commit(batch) => format!("commit-{batch}"),
            Name::Taken(batch) => format!("taken-{batch}"),
            Name::Refused(batch) => format!("refused-{batch}"),
            Name::Stage | Name::Temporary | Name::Other => String::new(),
        }
    }
}

/// Why a commit cannot be appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason, with what can be done about it.
    pub reason: String,
    /// Whether a part of the batch is in the log.
    pub appended: bool,
}

/// A manifest that waits to be taken up, or that was begun.
#[derive(Debug)]
pub struct Pending {
    /// The directory of its query.
    pub directory: PathBuf,
    /// The query, by the directory.
    pub query: String,
    /// The name that it has.
    pub name: Name,
    /// What it says; `None` where it is no manifest of this version.
    pub manifest: Option<Manifest>,
    /// The version that it states; `None` where it is damaged.
    pub version: Option<u64>,
}

impl Pending {
    /// Number of the batch, by the name.
    pub fn batch(&self) -> u64 {
        match self.name {
            Name::Commit(batch) | Name::Taken(batch) | Name::Refused(batch) => batch,
            Name::Stage | Name::Temporary | Name::Other => 0,
        }
    }

    /// Whether it cannot be withdrawn any more.
    pub fn is_begun(&self) -> bool {
        matches!(self.name, Name::Taken(_))
    }

    /// The file.
    pub fn path(&self) -> PathBuf {
        self.directory.join(self.name.text())
    }

    /// Why nothing can be read from it.
    pub fn flaw(&self) -> String {
        match self.version {
            Some(version) if version != VERSION => {
                format!("it is of version {version}; this release reads version {VERSION}")
            }
            _ => "it is no manifest: it is damaged, or a loss of power has cut it".to_owned(),
        }
    }

    /// Says that it is begun. After a loss of power it may have its old name. False where it was
    /// withdrawn meanwhile, even if another commit of the batch has the name by now.
    pub fn begin(&mut self, disk: &dyn Disk) -> Result<bool> {
        let (from, name) = (self.path(), Name::Taken(self.batch()));
        match disk.rename(&from, &self.directory.join(name.text())) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            renamed => renamed.map_err(|e| Error::io(Op::Rename, &from, e))?,
        }
        self.name = name;
        let there = read(disk, &self.directory, name)?;
        if there.is_none_or(|there| there.manifest != self.manifest) {
            self.take_back(disk)?;
            return Ok(false);
        }
        Ok(true)
    }

    /// Takes it away with its stages, whose rows are durable in the log. An earlier commit of the
    /// batch may have been refused after this one was published: that counts no more.
    pub fn finish(&self, disk: &dyn Disk) -> Result<()> {
        unlink(
            disk,
            &self.directory.join(Name::Refused(self.batch()).text()),
        )?;
        self.unlink_stages(disk)?;
        unlink(disk, &self.path())?;
        sync(disk, &self.directory)
    }

    /// Lets it be withdrawn again: nothing of it is in the log. Not durable, for it may as well be
    /// begun again; who withdraws it makes that durable. It stays begun where a later commit of the
    /// batch has the name.
    pub fn take_back(&mut self, disk: &dyn Disk) -> Result<()> {
        let (from, name) = (self.path(), Name::Commit(self.batch()));
        match disk.rename_new(&from, &self.directory.join(name.text())) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Ok(()),
            renamed => renamed.map_err(|e| Error::io(Op::Rename, &from, e))?,
        }
        self.name = name;
        Ok(())
    }

    /// Says why it can never be appended, and takes it away, durably, with its stages where nothing
    /// of it is in the log.
    pub fn refuse(&self, disk: &dyn Disk, refusal: &Refusal) -> Result<()> {
        let path = self.directory.join(Name::Refused(self.batch()).text());
        let id = self.manifest.as_ref().map(|manifest| manifest.id.as_str());
        let Refusal { reason, appended } = refusal;
        let text = json!({"reason": reason, "id": id, "appended": appended}).to_string();
        // For who waits, so it need not outlive a loss of power.
        let temporary = path.with_extension("tmp");
        unlink(disk, &temporary)?;
        let written = disk.write_at(&temporary, 0, text.as_bytes());
        written.map_err(|e| Error::io(Op::Write, &temporary, e))?;
        let renamed = disk.rename(&temporary, &path);
        renamed.map_err(|e| Error::io(Op::Rename, &temporary, e))?;
        if planted(Bug::RefuseTorn) {
            return Ok(());
        }
        unlink(disk, &self.path())?;
        if !refusal.appended {
            self.unlink_stages(disk)?;
        }
        sync(disk, &self.directory)
    }

    fn unlink_stages(&self, disk: &dyn Disk) -> Result<()> {
        let mut stages = self.manifest.iter().flat_map(|manifest| &manifest.stages);
        stages.try_for_each(|stage| unlink(disk, &self.directory.join(stage)))
    }
}

/// Takes a name away, if it is there.
pub fn unlink(disk: &dyn Disk, path: &Path) -> Result<()> {
    match disk.unlink(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        done => done.map_err(|e| Error::io(Op::Unlink, path, e)),
    }
}

/// Makes the names in a directory durable.
#[cfg_attr(test, track_caller)]
pub fn sync(disk: &dyn Disk, directory: &Path) -> Result<()> {
    let synced = disk.sync_directory(directory);
    synced.map_err(|e| Error::io(Op::Sync, directory, e))
}

/// Makes the names in the directory of a query durable, and those up to the store, which may be as
/// young. The name of the store itself was made durable by who opened it for writing.
pub fn sync_up(disk: &dyn Disk, root: &Path, directory: &Path) -> Result<()> {
    sync(disk, directory)?;
    sync(disk, &root.join(DIRECTORY))?;
    sync(disk, root)
}

/// Why a commit was refused, where the file of that name says so.
pub fn refusal(disk: &dyn Disk, path: &Path) -> Result<Option<Refusal>> {
    let text = read_small(disk, path, LEN_MAX).map_err(|e| Error::io(Op::Read, path, e))?;
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

/// Directories of queries below `root`, with their names. Links are not followed.
pub fn queries(disk: &dyn Disk, root: &Path) -> Result<Vec<(String, PathBuf)>> {
    let top = root.join(DIRECTORY);
    match disk.stat(&top).map_err(|e| Error::io(Op::Stat, &top, e))? {
        Some(entry) if entry.kind == Kind::Directory => {}
        _ => return Ok(Vec::new()),
    }
    let entries = disk.list(&top).map_err(|e| Error::io(Op::List, &top, e))?;
    let queries = entries.into_iter().filter_map(|entry| {
        let name = entry.name.filter(|_| entry.kind == Kind::Directory)?;
        is_query(&name).then(|| (name.clone(), top.join(name)))
    });
    Ok(queries.collect())
}

/// The files of a query's directory, with what their names say; none where it is not there.
///
/// A manifest that is renamed meanwhile may be met under neither name. So the directory is listed
/// until two listings in a row have manifests of the same batches.
pub fn files(disk: &dyn Disk, directory: &Path) -> Result<Vec<(String, Name)>> {
    let batches = |files: &[(String, Name)]| -> BTreeSet<u64> {
        let names = files.iter().map(|(_, name)| *name);
        let batch = |name| match name {
            Name::Commit(batch) | Name::Taken(batch) => Some(batch),
            _ => None,
        };
        names.filter_map(batch).collect()
    };
    let mut found = listed(disk, directory)?;
    loop {
        let again = listed(disk, directory)?;
        if batches(&again) == batches(&found) {
            return Ok(again);
        }
        found = again;
    }
}

fn listed(disk: &dyn Disk, directory: &Path) -> Result<Vec<(String, Name)>> {
    let entries = match disk.list(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        found => found.map_err(|e| Error::io(Op::List, directory, e))?,
    };
    let files = entries.into_iter().filter_map(|entry| {
        let name = entry.name.filter(|_| entry.kind == Kind::File)?;
        let says = Name::of(&name);
        Some((name, says))
    });
    Ok(files.collect())
}

/// The manifest of a name; `None` where the file is not there any more.
pub fn read(disk: &dyn Disk, directory: &Path, name: Name) -> Result<Option<Pending>> {
    let path = directory.join(name.text());
    let text = match read_small(disk, &path, LEN_MAX) {
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => Some(Vec::new()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        text => text.map_err(|e| Error::io(Op::Read, &path, e))?,
    };
    let query = directory.file_name().and_then(|name| name.to_str());
    let mut pending = Pending {
        directory: directory.to_owned(),
        query: query.unwrap_or_default().to_owned(),
        name,
        manifest: None,
        version: None,
    };
    let Some(text) = text else { return Ok(None) };
    let fits = |it: &Manifest| it.query == pending.query && it.batch == pending.batch();
    let value = json::parse(&text);
    let manifest = value.as_ref().and_then(Manifest::parse).filter(fits);
    pending.manifest = manifest;
    pending.version = value.and_then(|value| value.get("version")?.as_u64());
    Ok(Some(pending))
}

/// The manifests of a query that are begun or wait, in the order in which they are to be taken up:
/// what was begun, then batch by batch.
pub fn of_query(disk: &dyn Disk, directory: &Path) -> Result<Vec<Pending>> {
    let mut found = Vec::new();
    for (_, name) in files(disk, directory)? {
        if matches!(name, Name::Commit(_) | Name::Taken(_)) {
            found.extend(read(disk, directory, name)?);
        }
    }
    found.sort_by_key(|it| (!it.is_begun(), it.batch()));
    Ok(found)
}

/// Whether a name stands for a query: it becomes a directory and a key.
pub fn is_query(name: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=64).contains(&name.len()) && name.bytes().all(known)
}
