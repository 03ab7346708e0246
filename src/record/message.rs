//! A message that a caller holds: a record in a mapped file, which stays mapped meanwhile.

use super::common::{Flaw, PropertyKind};
use super::layout::Layout;
use super::row::Row;
use super::{kafka, rocketmq};
use crate::clock::{Clock, RealClock};
use crate::error::{At, Error, Op, Result};
use crate::region::Region;
use crate::region::guard;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// A message that was read and checked. Clones share the mapped bytes.
#[derive(Clone, Debug)]
pub struct Message {
    region: Arc<Region>,
    start: usize,
    layout: Layout,
}

impl Message {
    /// The record in RocketMQ's form that begins at byte `start` of `region`, or the [`Flaw`] of
    /// the bytes. Does not verify checksums.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the bytes cannot be read.
    pub fn new(region: Arc<Region>, start: usize) -> Result<Result<Message, Flaw>> {
        let bytes = rocketmq::layout::extent(|len| region.run(start, len));
        let layout = rocketmq::Layout::parse(bytes.at(Op::Read, region.path())?);
        Ok(layout.map(|layout| Message::with_layout(region, start, layout.into())))
    }

    /// The record at `start` of `region` whose layout is known.
    pub fn with_layout(region: Arc<Region>, start: usize, layout: Layout) -> Message {
        Message {
            region,
            start,
            layout,
        }
    }

    /// A message over a copy of a record's bytes, or the flaw of the bytes. The magic tells the
    /// form of the record.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if there is no memory for the copy.
    pub fn from_record(bytes: &[u8]) -> Result<Result<Message, Flaw>> {
        Message::in_copy(&copy_of(bytes)?, 0, bytes)
    }

    /// As [`Message::from_record`], of several records in one copy, which takes much less time and
    /// less memory than a copy of each. Leaves out records with a flaw.
    ///
    /// # Errors
    ///
    /// As [`Message::from_record`].
    pub fn from_records<'a>(records: impl Iterator<Item = Row<'a>>) -> Result<Vec<Message>> {
        let (mut all, mut ends) = (Vec::new(), Vec::new());
        for record in records {
            all.extend_from_slice(&record.bytes());
            ends.push(all.len());
        }
        let region = copy_of(&all)?;
        let mut messages = Vec::with_capacity(ends.len());
        let mut start = 0;
        for end in ends {
            let bytes = all.get(start..end).unwrap_or_default();
            messages.extend(Message::in_copy(&region, start, bytes)?.ok());
            start = end;
        }
        Ok(messages)
    }

    /// The message at `start` of a copy, which has these bytes there.
    fn in_copy(region: &Arc<Region>, start: usize, bytes: &[u8]) -> Result<Result<Message, Flaw>> {
        let region = Arc::clone(region);
        match kafka::Apart::parse(bytes) {
            Err(Flaw::Magic(_)) => Message::new(region, start),
            layout => Ok(layout.map(|layout| Message::with_layout(region, start, layout.into()))),
        }
    }

    /// Loads a byte from each page of the record. To be called before a record is used that was
    /// read long ago, because its pages may have left memory and may no longer be readable.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] with the path and the byte of the file.
    pub fn touch(&self) -> Result<()> {
        guard::renew_at(RealClock.coarse_ms());
        let touched = self.region.slice(self.start, self.layout.end() as usize);
        touched.map(drop).at(Op::Read, self.region.path())
    }

    /// The fields of the record.
    pub fn record(&self) -> Row<'_> {
        let len = self.layout.end() as usize;
        let bytes = self.region.slice_again(self.start, len);
        let Ok(record) = Row::with_layout(bytes.unwrap_or_default(), self.layout) else {
            unreachable!("the record was readable when the message was made, and regions only grow")
        };
        record
    }

    /// The mapped file, and the byte at which the record begins.
    pub fn place(&self) -> (&Arc<Region>, usize) {
        (&self.region, self.start)
    }

    /// The topic.
    pub fn topic(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.record().topic())
    }

    /// The topic that the message was sent to, if it is a retried message.
    pub fn retry_topic(&self) -> Option<String> {
        let topic = self.record().property(super::common::names::RETRY_TOPIC)?;
        Some(String::from_utf8_lossy(topic).into_owned())
    }

    /// The body, decompressed if necessary.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the compressed bytes are damaged or decompress to more than
    /// [`BODY_LEN_MAX`](crate::BODY_LEN_MAX).
    pub fn body(&self) -> Result<Cow<'_, [u8]>> {
        self.record().body().map_err(|reason| {
            Error::corrupt(
                self.region.path(),
                self.start as u64,
                format!("body: {reason}"),
            )
        })
    }

    /// The keys, in order.
    pub fn keys(&self) -> Vec<Cow<'_, str>> {
        self.record().keys()
    }

    /// The tag.
    pub fn tags(&self) -> Option<Cow<'_, str>> {
        self.record().tags()
    }

    /// The first key as bytes.
    pub fn key_bytes(&self) -> Option<Cow<'_, [u8]>> {
        self.record().key_bytes()
    }

    /// Whether the body is null, as opposed to empty: a tombstone.
    pub fn is_null(&self) -> bool {
        self.record().is_null()
    }

    /// The user's properties in stored order; the values as bytes. Only Kafka's can be null.
    pub fn headers(&self) -> Vec<(Cow<'_, str>, Option<&[u8]>)> {
        self.record().headers()
    }

    /// The user's properties, or the system's, which have reserved names. Without keys, tags and
    /// checksum.
    pub fn properties(&self, which: PropertyKind) -> BTreeMap<String, String> {
        self.record().properties(which)
    }

    /// RocketMQ's message id: store host and position, in upper-case hex. For a record in Kafka's
    /// form `topic-partition@offset`.
    pub fn id(&self) -> String {
        let mut id = String::new();
        self.record().write_id(&mut id);
        id
    }
}

/// A region in memory with these bytes.
fn copy_of(bytes: &[u8]) -> Result<Arc<Region>> {
    let name = Path::new("record");
    let region = Region::anonymous(bytes.len(), name).and_then(|region| {
        region.write(0, bytes)?;
        region.publish(bytes.len());
        Ok(region)
    });
    Ok(Arc::new(region.at(Op::Allocate, name)?))
}
