//! Messages as their senders give them.

use crate::error::{Error, Result};

/// A message to be stored, as its sender gives it.
#[derive(Clone, Copy, Debug)]
pub struct Draft<'a> {
    /// The body; may be empty.
    pub body: &'a [u8],
    /// Whether there is no body, not even an empty one. Only Kafka's form can say so, and only of a
    /// message with a key.
    pub is_null: bool,
    /// Keys for the index: not empty, without spaces and control characters. In Kafka's form the
    /// first may be any text.
    pub keys: &'a [&'a str],
    /// The first key, if it is not text; `keys` has the others. For Kafka's form only.
    pub key: Option<&'a [u8]>,
    /// The tag.
    pub tags: Option<&'a str>,
    /// The user's properties.
    pub properties: &'a [(&'a str, &'a str)],
    /// Names and values that follow the properties, in this order; a value can be null. For Kafka's
    /// form only.
    pub headers: &'a [(&'a str, Option<&'a [u8]>)],
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
    /// Bytes that must be left for further properties of copies. For RocketMQ's form only, whose
    /// properties have a limit.
    pub properties_room: usize,
}

/// A message without anything.
const EMPTY: Draft<'static> = Draft {
    body: &[],
    is_null: false,
    keys: &[],
    key: None,
    tags: None,
    properties: &[],
    headers: &[],
    system_properties: &[],
    queue: None,
    born_timestamp: None,
    flag: 0,
    reconsume_times: 0,
    properties_room: 0,
};

impl Default for Draft<'_> {
    // A constant: fields that are taken from it need not be stored and loaded first.
    #[inline]
    fn default() -> Self {
        EMPTY
    }
}

impl<'a> Draft<'a> {
    /// The first key, as bytes.
    #[inline]
    pub fn first_key(&self) -> Option<&'a [u8]> {
        self.key
            .or_else(|| self.keys.first().map(|key| key.as_bytes()))
    }

    /// The keys after the first.
    #[inline]
    pub fn further_keys(&self) -> &'a [&'a str] {
        match self.key {
            Some(_) => self.keys,
            None => self.keys.get(1..).unwrap_or_default(),
        }
    }

    /// Refuses what only Kafka's form can hold.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for a null body and for a key that is not text;
    /// [`Error::Unsupported`] for headers.
    #[inline]
    pub fn check_is_text(&self) -> Result<()> {
        match self.is_null || self.key.is_some() || !self.headers.is_empty() {
            false => Ok(()),
            true => self.refuse_bytes(),
        }
    }

    #[cold]
    fn refuse_bytes(&self) -> Result<()> {
        const ENGINES: &str = "the engines commitlog and memory";
        if self.is_null {
            let reason = format!("{ENGINES} have no tombstones; a partition log does");
            return Err(Error::option("body", "None", reason));
        }
        if let Some(key) = self.key {
            let shown = format!("\"{}\"", key.escape_ascii());
            let rule = format!("be UTF-8 in {ENGINES}; a partition log keeps any bytes");
            return Err(Error::must("key", shown, rule));
        }
        Err(Error::Unsupported {
            what: format!("headers in {ENGINES}; pass properties, or use a partition log"),
        })
    }
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
