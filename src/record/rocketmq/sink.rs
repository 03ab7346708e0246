//! Writes the fields of a record, front to back.

use super::checksum::checksum;
use super::layout::{
    AT_BODY_CRC, AT_BORN_HOST, AT_BORN_TIMESTAMP, AT_FLAG, AT_MAGIC, AT_QUEUE_ID, AT_QUEUE_OFFSET,
    AT_SYS_FLAG, MAGIC_V2, sys_flag,
};
use super::properties::{self, KEYS_BEGIN, NAME_END, VALUE_END};
use crate::num::{low_u16, short};
use crate::record::common::{Draft, HostBytes};

/// The part of a record that is still to be written, front to back.
pub(super) struct Sink<'a>(pub(super) &'a mut [u8]);

impl Sink<'_> {
    /// Writes the next bytes. The record is long enough for all of them.
    #[inline]
    pub(super) fn put(&mut self, bytes: &[u8]) {
        let rest = std::mem::take(&mut self.0);
        if let Some((to, rest)) = rest.split_at_mut_checked(bytes.len()) {
            to.copy_from_slice(bytes);
            self.0 = rest;
        }
    }

    /// Writes the fixed fields. Those that depend on the place are left zero.
    ///
    /// Inlined into its callers, where the copies of fixed length become single stores.
    #[inline(always)]
    pub(super) fn header(
        &mut self,
        (len, magic): (usize, u32),
        queue: u32,
        draft: &Draft<'_>,
        host: &HostBytes,
        born: i64,
    ) {
        let crc = match draft.body {
            [] => 0,
            body => checksum(body) & 0x7FFF_FFFF,
        };
        let flags = if host.is_v6() {
            sys_flag::BORN_V6 | sys_flag::STORE_V6
        } else {
            0
        };
        let born = draft.born_timestamp.unwrap_or(born);
        let mut head = [0u8; AT_BORN_HOST];
        head[..AT_MAGIC].copy_from_slice(&short(len).to_be_bytes());
        head[AT_MAGIC..AT_BODY_CRC].copy_from_slice(&magic.to_be_bytes());
        head[AT_BODY_CRC..AT_QUEUE_ID].copy_from_slice(&crc.to_be_bytes());
        head[AT_QUEUE_ID..AT_FLAG].copy_from_slice(&queue.to_be_bytes());
        head[AT_FLAG..AT_QUEUE_OFFSET].copy_from_slice(&draft.flag.to_be_bytes());
        head[AT_SYS_FLAG..AT_BORN_TIMESTAMP].copy_from_slice(&flags.to_be_bytes());
        head[AT_BORN_TIMESTAMP..].copy_from_slice(&born.to_be_bytes());
        let mut tail = [0u8; 16];
        tail[..4].copy_from_slice(&draft.reconsume_times.to_be_bytes());
        tail[12..].copy_from_slice(&short(draft.body.len()).to_be_bytes());
        self.put(&head);
        self.put(host.as_bytes());
        self.put(&[0; 8]);
        self.put(host.as_bytes());
        self.put(&tail);
    }

    #[inline]
    pub(super) fn topic(&mut self, topic: &str, magic: u32) {
        let len = low_u16(short(topic.len())).to_be_bytes();
        match magic {
            MAGIC_V2 => self.put(&len),
            _ => self.put(&len[1..]),
        }
        self.put(topic.as_bytes());
    }

    #[inline]
    pub(super) fn properties(&mut self, draft: &Draft<'_>) {
        if let [first, rest @ ..] = draft.keys {
            self.put(KEYS_BEGIN);
            self.put(first.as_bytes());
            for key in rest {
                self.put(b" ");
                self.put(key.as_bytes());
            }
            self.put(&[VALUE_END]);
        }
        let tags = draft.tags.map(|tags| (properties::TAGS, tags));
        let system = draft.system_properties.iter().copied();
        let own = draft.properties.iter().copied();
        for (name, value) in tags.into_iter().chain(system).chain(own) {
            self.put(name.as_bytes());
            self.put(&[NAME_END]);
            self.put(value.as_bytes());
            self.put(&[VALUE_END]);
        }
    }
}
