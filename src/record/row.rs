//! One record of any form, read by field.

use super::common::id::{ID_LEN_MAX, write_id};
use super::common::{Flaw, Known, Labels, PropertyKind};
use super::kafka;
use super::layout::Layout;
use super::rocketmq::{self, Record};
use crate::error::{Error, Result};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The address of a record that states none.
const NO_HOST: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// One record: its bytes and the places of its parts.
#[derive(Clone, Copy, Debug)]
pub enum Row<'a> {
    /// In RocketMQ's form.
    RocketMq(Record<'a>),
    /// In Kafka's form.
    Kafka(kafka::Record<'a>),
}

impl<'a> From<Record<'a>> for Row<'a> {
    #[inline]
    fn from(record: Record<'a>) -> Row<'a> {
        Row::RocketMq(record)
    }
}

impl<'a> From<kafka::Record<'a>> for Row<'a> {
    #[inline]
    fn from(record: kafka::Record<'a>) -> Row<'a> {
        Row::Kafka(record)
    }
}

impl<'a> Row<'a> {
    /// The record in RocketMQ's form at the start of `bytes`. Checks the magic and that the lengths
    /// add up, but no checksum.
    ///
    /// # Errors
    ///
    /// The [`Flaw`] of bytes that are not a record.
    pub fn parse(bytes: &'a [u8]) -> Result<Row<'a>, Flaw> {
        Record::parse(bytes).map(Row::RocketMq)
    }

    /// The record whose layout in `bytes` is known.
    ///
    /// # Errors
    ///
    /// [`Flaw::Length`] if there are fewer bytes.
    #[inline]
    pub fn with_layout(bytes: &'a [u8], layout: Layout) -> Result<Row<'a>, Flaw> {
        match layout {
            Layout::RocketMq(layout) => Record::with_layout(bytes, layout).map(Row::RocketMq),
            Layout::Kafka(layout) => kafka::Record::with_layout(bytes, layout).map(Row::Kafka),
        }
    }

    /// The record in RocketMQ's form, for callers that know no other.
    #[inline]
    pub fn rocketmq(self) -> rocketmq::Record<'a> {
        match self {
            Row::RocketMq(record) => record,
            Row::Kafka(_) => unreachable!("a commit log parses records in RocketMQ's form only"),
        }
    }

    /// The places of its parts.
    #[inline]
    pub fn layout(&self) -> Layout {
        match self {
            Row::RocketMq(record) => Layout::RocketMq(*record.layout()),
            Row::Kafka(record) => Layout::Kafka(*record.layout()),
        }
    }

    /// All bytes of the record; of one in Kafka's form, apart from its batch.
    #[inline]
    pub fn bytes(&self) -> Cow<'a, [u8]> {
        match self {
            Row::RocketMq(record) => Cow::Borrowed(record.bytes()),
            Row::Kafka(record) => record.bytes(),
        }
    }

    /// The bytes of the topic. May be invalid UTF-8.
    #[inline]
    pub fn topic(&self) -> &'a [u8] {
        match self {
            Row::RocketMq(record) => record.topic(),
            Row::Kafka(record) => record.topic(),
        }
    }

    /// Queue number; negative only in records of other systems.
    #[inline]
    pub fn queue_id(&self) -> i32 {
        match self {
            Row::RocketMq(record) => record.queue_id(),
            Row::Kafka(record) => record.queue_id(),
        }
    }

    /// Offset in the queue.
    #[inline]
    pub fn queue_offset(&self) -> i64 {
        match self {
            Row::RocketMq(record) => record.queue_offset(),
            Row::Kafka(record) => record.queue_offset(),
        }
    }

    /// Position in the log, as stated in the record.
    #[inline]
    pub fn position(&self) -> i64 {
        match self {
            Row::RocketMq(record) => record.position(),
            Row::Kafka(record) => record.position(),
        }
    }

    /// When the producer made the message, in ms since the epoch.
    #[inline]
    pub fn born_timestamp(&self) -> i64 {
        match self {
            Row::RocketMq(record) => record.born_timestamp(),
            Row::Kafka(record) => record.timestamp(),
        }
    }

    /// When the message was stored, in ms since the epoch.
    #[inline]
    pub fn store_timestamp(&self) -> i64 {
        match self {
            Row::RocketMq(record) => record.store_timestamp(),
            Row::Kafka(record) => record.timestamp(),
        }
    }

    /// Address of the producer.
    pub fn born_host(&self) -> SocketAddr {
        match self {
            Row::RocketMq(record) => record.born_host(),
            Row::Kafka(_) => NO_HOST,
        }
    }

    /// Address of the store.
    pub fn store_host(&self) -> SocketAddr {
        match self {
            Row::RocketMq(record) => record.store_host(),
            Row::Kafka(_) => NO_HOST,
        }
    }

    /// The flag set by the user.
    #[inline]
    pub fn flag(&self) -> i32 {
        match self {
            Row::RocketMq(record) => record.flag(),
            Row::Kafka(_) => 0,
        }
    }

    /// System flags: compression, transaction, and the form of the hosts.
    #[inline]
    pub fn sys_flag(&self) -> u32 {
        match self {
            Row::RocketMq(record) => record.sys_flag(),
            Row::Kafka(_) => 0,
        }
    }

    /// How often the message was delivered before.
    #[inline]
    pub fn reconsume_times(&self) -> i32 {
        match self {
            Row::RocketMq(record) => record.reconsume_times(),
            Row::Kafka(record) => record.reconsume_times(),
        }
    }

    /// The value of a property; of several with the name, the last one.
    pub fn property(&self, name: &str) -> Option<&'a [u8]> {
        match self {
            Row::RocketMq(record) => {
                rocketmq::properties::find(record.raw_properties(), name.as_bytes())
            }
            Row::Kafka(record) => record.property(name),
        }
    }

    /// Whether the record belongs to a queue. Prepared and rolled-back records do not.
    #[inline]
    pub fn is_queued(&self) -> bool {
        match self {
            Row::RocketMq(record) => record.is_queued(),
            Row::Kafka(_) => true,
        }
    }

    /// The body as stored, perhaps compressed.
    #[inline]
    pub fn stored_body(&self) -> &'a [u8] {
        match self {
            Row::RocketMq(record) => record.stored_body(),
            Row::Kafka(record) => record.value(),
        }
    }

    /// The body, decompressed if necessary.
    ///
    /// # Errors
    ///
    /// The reason as text, if the compressed bytes are damaged.
    pub fn body(&self) -> Result<Cow<'a, [u8]>, String> {
        match self {
            Row::RocketMq(record) => record.body(),
            Row::Kafka(record) => Ok(Cow::Borrowed(record.value())),
        }
    }

    /// Whether the value is null; only an empty body can be.
    #[inline]
    pub fn is_null(&self) -> bool {
        match self {
            Row::RocketMq(record) => record.is_null(),
            Row::Kafka(record) => record.is_null(),
        }
    }

    /// The properties as stored.
    #[inline]
    pub fn raw_properties(&self) -> &'a [u8] {
        match self {
            Row::RocketMq(record) => record.raw_properties(),
            Row::Kafka(record) => record.raw_headers().bytes,
        }
    }

    /// The stored properties as text.
    ///
    /// # Errors
    ///
    /// [`crate::Error::InvalidOption`] if they are not valid UTF-8.
    pub fn properties_text(&self) -> Result<&'a str> {
        match self {
            Row::RocketMq(record) => record.properties_text(),
            Row::Kafka(_) => Err(Error::Unsupported {
                what: "properties of a record in Kafka's form as text".to_owned(),
            }),
        }
    }

    /// The properties by which the record is found, in one walk.
    #[inline]
    pub fn known(&self) -> Known<'a> {
        match self {
            Row::RocketMq(record) => record.known(),
            Row::Kafka(record) => record.known(),
        }
    }

    /// Reads keys, tag and, with `with_own`, the user's properties.
    #[inline]
    pub fn read_labels(&self, labels: &mut Labels<'a>, with_own: bool) {
        match self {
            Row::RocketMq(record) => record.read_labels(labels, with_own),
            Row::Kafka(record) => record.read_labels(labels, with_own),
        }
    }

    /// The keys, in order.
    pub fn keys(&self) -> Vec<Cow<'a, str>> {
        match self {
            Row::RocketMq(record) => record.keys(),
            Row::Kafka(record) => {
                let further = record.further_keys().unwrap_or_default();
                let further = further.split(|byte| *byte == b' ');
                let further = further.filter(|key| !key.is_empty());
                let keys = record.key().into_iter().chain(further);
                keys.map(String::from_utf8_lossy).collect()
            }
        }
    }

    /// The tag.
    pub fn tags(&self) -> Option<Cow<'a, str>> {
        match self {
            Row::RocketMq(record) => record.tags(),
            Row::Kafka(record) => record.tags().map(String::from_utf8_lossy),
        }
    }

    /// The first key as bytes.
    pub fn key_bytes(&self) -> Option<Cow<'a, [u8]>> {
        let mut labels = Labels::default();
        self.read_labels(&mut labels, false);
        labels.key()
    }

    /// The user's properties in stored order; the values as bytes. Only Kafka's can be null.
    pub fn headers(&self) -> Vec<(Cow<'a, str>, Option<&'a [u8]>)> {
        match self {
            Row::RocketMq(record) => {
                let headers = record.headers();
                headers.map(|(name, value)| (name, Some(value))).collect()
            }
            Row::Kafka(record) => record.headers().collect(),
        }
    }

    /// The user's properties or the system's, without those that have a method of their own.
    pub fn properties(&self, which: PropertyKind) -> BTreeMap<String, String> {
        match self {
            Row::RocketMq(record) => record.properties(which),
            Row::Kafka(record) => match which {
                PropertyKind::User => record.properties(),
                PropertyKind::System => record.system_properties(),
            },
        }
    }

    /// Replaces `id` by the message id: store host and position, or topic, partition and offset.
    #[inline]
    pub fn write_id(&self, id: &mut String) {
        id.clear();
        match self {
            Row::RocketMq(record) => id.push_str(write_id(
                record.store_host_bytes(),
                record.position().cast_unsigned(),
                &mut [0; ID_LEN_MAX],
            )),
            Row::Kafka(record) => {
                let topic = String::from_utf8_lossy(record.topic());
                // Writing to text does not fail.
                let _ = write!(
                    id,
                    "{topic}-{}@{}",
                    record.queue_id(),
                    record.queue_offset()
                );
            }
        }
    }

    /// Whether [`Row::store_timestamp`] is the time of the append, as opposed to the producer's.
    #[inline]
    pub fn has_append_time(&self) -> bool {
        match self {
            Row::RocketMq(_) => true,
            Row::Kafka(record) => record.has_append_time(),
        }
    }

    /// Checks what a read requires: the position, and the whole-record checksum; without one, the
    /// checksum of the body.
    ///
    /// # Errors
    ///
    /// The first [`Flaw`] found.
    pub fn check(&self, position: u64) -> Result<(), Flaw> {
        match self {
            Row::RocketMq(record) => record.check(position).map(drop),
            // Checksums are those of the batch, which was checked when the record was read.
            Row::Kafka(_) => Ok(()),
        }
    }

    /// Whether the record has a whole-record checksum.
    pub fn has_checksum(&self) -> bool {
        match self {
            Row::RocketMq(record) => record.stated_crc().is_some(),
            Row::Kafka(_) => false,
        }
    }
}
