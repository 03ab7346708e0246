//! What keeps bytes from being a record.

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Zeros where a record would begin: nothing was written here.
    Empty,
    /// The magic is none that a record has.
    Magic(u32),
    /// The length is out of bounds, or not the sum of its parts.
    Length(i64),
    /// The record says that it belongs to another position.
    Position(i64),
    /// The checksum of the body does not fit.
    BodyChecksum,
    /// The checksum of the whole record does not fit.
    RecordChecksum,
    /// A field has a value that it cannot have.
    Field(&'static str),
}

impl std::fmt::Display for Flaw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Flaw::Empty => write!(f, "zeros instead of a record"),
            Flaw::Magic(magic) => write!(f, "magic {magic:#010x}"),
            Flaw::Length(length) => write!(f, "length {length}"),
            Flaw::Position(position) => write!(f, "the record says it lies at {position}"),
            Flaw::BodyChecksum => write!(f, "the body's checksum does not fit"),
            Flaw::RecordChecksum => write!(f, "the record's checksum does not fit"),
            Flaw::Field(name) => write!(f, "bad {name}"),
        }
    }
}
