//! Manifests: the contents of commits.
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
//! Rows and sum distinguish a retry of a batch from another batch with its number. Manifests of
//! release 0.1.0 have neither.

use super::name::Name;
use super::place::is_query;
use crate::record::Contents;
use serde_json::{Value, json};

/// Maximum bytes of a commit that is a single part, unless it is one row.
pub const PART_LEN: u64 = 4 << 20;
/// Maximum bytes of a part of a longer commit, unless it is one slice. An atomic batch may be
/// longer, but the log is locked while a part is appended, and sends of the writing process wait.
const LONG_PART_LEN: u64 = 1 << 20;

/// Maximum bytes of a part, for a commit of `len` bytes.
pub fn part_len(len: u64) -> u64 {
    match len <= PART_LEN {
        true => PART_LEN,
        false => LONG_PART_LEN,
    }
}

/// Maximum length of a part that is read. Parts are written much shorter.
const PART_LEN_MAX: u64 = 48 << 20;
/// The version that this release writes and reads.
pub const VERSION: u64 = 1;

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
    pub fn parse(value: &Value) -> Option<Manifest> {
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
