//! Why a file holds no table.

use std::fmt;

/// Why a file holds no table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is not a regular file, but a directory for example.
    NotAFile,
    /// It has more of something than any table may.
    TooMuch(String),
    /// It is empty, not JSON, or JSON with other members.
    Unreadable(String),
}

impl Reason {
    /// The reason for an error of the parser.
    pub fn unreadable(error: serde_json::Error) -> Reason {
        Reason::Unreadable(error.to_string())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::NotAFile => f.write_str("not a regular file"),
            Reason::TooMuch(what) => write!(f, "the table has {what}"),
            Reason::Unreadable(what) => write!(f, "not a table: {what}"),
        }
    }
}
