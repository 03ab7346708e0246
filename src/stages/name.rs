//! The meanings of file names in the directory of a query.

use super::place::is_query;

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
