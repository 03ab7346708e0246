//! Why bytes are not a record.

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Zeros where a record would begin: nothing was written here.
    Empty,
    /// The magic is not that of a record.
    Magic(u32),
    /// The length is out of bounds, or not the sum of the parts.
    Length(i64),
    /// The record states another position.
    Position(i64),
    /// The checksum of the body is wrong.
    BodyChecksum,
    /// The checksum of the whole record is wrong.
    RecordChecksum,
    /// Packed bytes unpack to more than this many.
    Unpacked(u64),
    /// A field has an invalid value.
    Field(&'static str),
}

impl std::fmt::Display for Flaw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Flaw::Empty => write!(f, "zeros instead of a record"),
            Flaw::Magic(magic) => write!(f, "magic {magic:#010x}"),
            Flaw::Length(length) => write!(f, "length {length}"),
            Flaw::Position(position) => write!(f, "the record states position {position}"),
            Flaw::BodyChecksum => write!(f, "the body's checksum is wrong"),
            Flaw::RecordChecksum => write!(f, "the record's checksum is wrong"),
            Flaw::Unpacked(limit) => write!(f, "it unpacks to more than {limit} bytes"),
            Flaw::Field(name) => write!(f, "bad {name}"),
        }
    }
}
