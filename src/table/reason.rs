//! Why a file holds no table.

use std::fmt;

/// Why a file holds no table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is a directory, or something else that is no file.
    NotAFile,
    /// It has more of something than any table may.
    TooMuch(String),
    /// It is empty, no JSON, or JSON of another kind.
    Unreadable(String),
}

impl Reason {
    /// That this error was met in the text.
    pub fn unreadable(error: serde_json::Error) -> Reason {
        Reason::Unreadable(error.to_string())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::NotAFile => f.write_str("not a regular file"),
            Reason::TooMuch(what) => write!(f, "the table has {what}"),
            Reason::Unreadable(what) => write!(f, "no table: {what}"),
        }
    }
}
