//! Messages as their senders give them.

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
    /// Properties with reserved names, for the store's own use.
    pub system_properties: &'a [(&'a str, &'a str)],
    /// Queue; if `None`, the topic chooses one.
    pub queue: Option<u32>,
    /// When the message was made, in ms, in the years 1 to 9999; `None` means now.
    pub born_timestamp: Option<i64>,
    /// A number set by the user.
    pub flag: i32,
    /// How often the message was delivered before.
    pub reconsume_times: i32,
}

/// What a copy of a record changes.
#[derive(Clone, Copy, Debug)]
pub struct Copied<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The queue.
    pub queue: u32,
    /// Properties that are not copied.
    pub without: &'a [&'a str],
    /// Additional properties. If a name is also copied, its last value counts.
    pub with: &'a [(&'a str, &'a str)],
    /// How often the message was delivered before.
    pub reconsume_times: i32,
    /// The sender's clock in ms.
    pub clock_ms: i64,
}
