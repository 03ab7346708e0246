//! What a sender gives: a message before it is a record.

/// A message to be stored, as its sender gives it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Draft<'a> {
    /// The body; may be empty.
    pub body: &'a [u8],
    /// Keys for the index: not empty, without spaces and control characters.
    pub keys: &'a [&'a str],
    /// The tag.
    pub tags: Option<&'a str>,
    /// The user's properties.
    pub properties: &'a [(&'a str, &'a str)],
    /// Properties under reserved names; for the store's own use.
    pub system_properties: &'a [(&'a str, &'a str)],
    /// Queue; where none is given the topic's rule chooses.
    pub queue: Option<u32>,
    /// When the message was made, in ms, in the years 1 to 9999; now, where it is not given.
    pub born_timestamp: Option<i64>,
    /// A number of the user's.
    pub flag: i32,
    /// How often the message was delivered before.
    pub reconsume_times: i32,
}

/// What a copy of a record has instead of the original's.
#[derive(Clone, Copy, Debug)]
pub struct Copied<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The queue.
    pub queue: u32,
    /// Properties that the copy does not take over.
    pub without: &'a [&'a str],
    /// Properties that it has besides. Of a name that is taken over, the last value counts.
    pub with: &'a [(&'a str, &'a str)],
    /// How often the message was delivered before.
    pub reconsume_times: i32,
    /// The time by the sender's clock, in ms.
    pub clock_ms: i64,
}
