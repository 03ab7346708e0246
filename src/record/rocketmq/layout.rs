//! A record of the commit log: the places of its fields, and its checks.
//!
//! The layout is RocketMQ's. With born and store hosts of `B` and `S` bytes (8 for IPv4, 20 for
//! IPv6):
//!
//! ```text
//! at           width  field
//! 0            i32    totalSize, this field included
//! 4            i32    magic: 0xDAA320A7 (version 1), 0xDAA320AB (version 2)
//! 8            i32    bodyCRC: CRC-32 of the stored body, & 0x7FFFFFFF, 0 for an empty one
//! 12           i32    queueId
//! 16           i32    flag (the user's)
//! 20           i64    queueOffset
//! 28           i64    physicalOffset: the position of byte 0 in the log
//! 36           i32    sysFlag
//! 40           i64    bornTimestamp (ms)
//! 48           B      bornHost: address, then port as i32
//! 48+B         i64    storeTimestamp (ms)
//! 56+B         S      storeHost
//! 56+B+S       i32    reconsumeTimes
//! 60+B+S       i64    preparedTransactionOffset
//! 68+B+S       i32+n  body
//!              i8+n   topic (version 2: i16+n)
//!              i16+n  properties
//! ```

pub use super::properties::{CRC_LEN, CRC_PROPERTY};
pub(crate) use crate::num::{be_u32, be_u64};
use crate::num::{low_u8, low_u16, short};
use crate::record::common::Flaw;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Magic of a record with a topic length of one byte.
pub const MAGIC_V1: u32 = 0xDAA3_20A7;
/// Magic of a record with a topic length of two bytes.
pub const MAGIC_V2: u32 = 0xDAA3_20AB;
/// Magic of the BLANK that closes a file.
pub const MAGIC_BLANK: u32 = 0xCBD4_3194;
/// Bytes of a BLANK. This many must stay free after every record of a file.
pub const BLANK_LEN: usize = 8;

pub(crate) const AT_MAGIC: usize = 4;
pub(crate) const AT_BODY_CRC: usize = 8;
pub(crate) const AT_QUEUE_ID: usize = 12;
pub(crate) const AT_FLAG: usize = 16;
pub(crate) const AT_QUEUE_OFFSET: usize = 20;
pub(crate) const AT_POSITION: usize = 28;
pub(crate) const AT_SYS_FLAG: usize = 36;
pub(crate) const AT_BORN_TIMESTAMP: usize = 40;
pub(crate) const AT_BORN_HOST: usize = 48;

pub(super) const HOST_V4: usize = 8;
const HOST_V6: usize = 20;
/// Bytes of a version-1 record with IPv4 hosts, an empty body, topic and properties.
pub const RECORD_LEN_MIN: usize = 91;
const HOST_GROWTH: usize = HOST_V6 - HOST_V4;
pub(crate) const FIXED_LEN_V4: usize = 88;

/// Bits of `sysFlag`.
pub mod sys_flag {
    /// The body is compressed.
    pub const COMPRESSED: u32 = 0x1;
    /// Both bits of the transaction type.
    pub const TRANSACTION: u32 = 0xC;
    /// A prepared ("half") message: not in a queue.
    pub const PREPARED: u32 = 0x4;
    /// A rolled back message: not in a queue.
    pub const ROLLBACK: u32 = 0xC;
    /// The born host is an IPv6 address.
    pub const BORN_V6: u32 = 0x10;
    /// The store host is an IPv6 address.
    pub const STORE_V6: u32 = 0x20;
    /// One record holds many messages.
    pub const INNER_BATCH: u32 = 0x80;
    /// The kind of compression, shifted left by 8.
    pub const COMPRESSION: u32 = 0x700;
}

const CRC_PREFIX: &[u8; 9] = b"__CRC32#\x01";

/// The places of the parts of one record, relative to its first byte.
///
/// Lengths fit `u32` because a record has at most [`RECORD_LEN_MAX`] bytes; see [`Layout::parse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub(crate) total_len: u32,
    pub(crate) body_at: u32,
    pub(crate) body_len: u32,
    pub(crate) topic_at: u32,
    pub(crate) properties_at: u32,
    pub(crate) topic_len: u16,
    pub(crate) properties_len: u16,
    pub(crate) store_timestamp_at: u8,
    pub(crate) compressed: bool,
}

/// Maximum length of a record. A longer one is treated as damage.
pub const RECORD_LEN_MAX: usize = 256 << 20;

impl Layout {
    /// Finds the parts of the record at the start of `bytes`; more bytes may follow it.
    ///
    /// Checks the magic and that the lengths add up, but no checksum.
    ///
    /// # Errors
    ///
    /// The first [`Flaw`] found. A BLANK is [`Flaw::Magic`] with [`MAGIC_BLANK`].
    #[inline(always)]
    pub fn parse(bytes: &[u8]) -> Result<Layout, Flaw> {
        match bytes.first_chunk::<FIXED_LEN_V4>() {
            Some(head) if head_u32(head, AT_MAGIC) == MAGIC_V1 => parse_from(head, bytes, 1),
            Some(head) if head_u32(head, AT_MAGIC) == MAGIC_V2 => parse_from(head, bytes, 2),
            _ => Err(no_record(bytes)),
        }
    }
}

/// The bytes of the record at the beginning of `run`, or the first bytes if there is no record.
/// `run` returns as many of the next bytes as requested, or all that exist.
///
/// # Errors
///
/// That of `run`.
#[inline]
pub fn extent<'a>(run: impl Fn(usize) -> io::Result<&'a [u8]>) -> io::Result<&'a [u8]> {
    let head = run(BLANK_LEN)?;
    match be_u32(head, AT_MAGIC) {
        MAGIC_V1 | MAGIC_V2 => run((be_u32(head, 0) as usize).clamp(BLANK_LEN, RECORD_LEN_MAX)),
        _ => Ok(head),
    }
}

/// The flaw of bytes that do not begin with a record's magic or end too early.
#[cold]
fn no_record(bytes: &[u8]) -> Flaw {
    if bytes.len() < BLANK_LEN {
        return Flaw::Length(bytes.len() as i64);
    }
    match (be_u32(bytes, 0), be_u32(bytes, AT_MAGIC)) {
        (0, 0) => Flaw::Empty,
        (total, MAGIC_V1 | MAGIC_V2) => Flaw::Length(i64::from(total.cast_signed())),
        (_, magic) => Flaw::Magic(magic),
    }
}

#[inline]
fn head_u32(head: &[u8; FIXED_LEN_V4], at: usize) -> u32 {
    be_u32(head, at)
}

#[inline(always)]
fn parse_from(head: &[u8; FIXED_LEN_V4], bytes: &[u8], topic_width: usize) -> Result<Layout, Flaw> {
    let total = head_u32(head, 0) as usize;
    let length = |total: usize| Flaw::Length(i64::from(short(total).cast_signed()));
    let Some(record) = bytes.get(..total).filter(|_| total <= RECORD_LEN_MAX) else {
        return Err(length(total));
    };
    let sys_flag = head_u32(head, AT_SYS_FLAG);
    let (store_timestamp_at, body_at) = match sys_flag & (sys_flag::BORN_V6 | sys_flag::STORE_V6) {
        0 => (AT_BORN_HOST + HOST_V4, FIXED_LEN_V4),
        sys_flag::BORN_V6 => (AT_BORN_HOST + HOST_V6, FIXED_LEN_V4 + HOST_GROWTH),
        sys_flag::STORE_V6 => (AT_BORN_HOST + HOST_V4, FIXED_LEN_V4 + HOST_GROWTH),
        _ => (AT_BORN_HOST + HOST_V6, FIXED_LEN_V4 + 2 * HOST_GROWTH),
    };
    let Some(room) = total.checked_sub(body_at + topic_width + 2) else {
        return Err(length(total));
    };
    let body_len = be_u32(record, body_at - 4) as usize;
    if body_len > room {
        return Err(Flaw::Field("body length"));
    }
    let topic_at = body_at + body_len + topic_width;
    // The length is signed in the format: if its top bit is set, the record is damaged.
    let topic_len = match topic_width {
        1 => record
            .get(topic_at - 1)
            .map_or(usize::MAX, |len| usize::from(*len)),
        _ => be_u16(record, topic_at - 2),
    };
    let topic_len_max = if topic_width == 1 { 0x7F } else { 0x7FFF };
    if topic_len > topic_len_max || body_len + topic_len > room {
        return Err(Flaw::Field("topic length"));
    }
    let properties_at = topic_at + topic_len + 2;
    let properties_len = be_u16(record, properties_at - 2);
    if properties_len > 0x7FFF || properties_at + properties_len != total {
        return Err(length(total));
    }
    Ok(Layout {
        total_len: short(total),
        body_at: short(body_at),
        body_len: short(body_len),
        topic_at: short(topic_at),
        properties_at: short(properties_at),
        topic_len: low_u16(short(topic_len)),
        properties_len: low_u16(short(properties_len)),
        store_timestamp_at: low_u8(store_timestamp_at),
        compressed: sys_flag & sys_flag::COMPRESSED != 0,
    })
}

/// Reads a big-endian `u16`. Returns an impossible length after the end.
#[inline]
fn be_u16(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at..).and_then(|rest| rest.first_chunk::<2>()) {
        Some(b) => usize::from(u16::from_be_bytes(*b)),
        None => usize::MAX,
    }
}

/// One record: its bytes and the places of its parts.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    bytes: &'a [u8],
    layout: Layout,
}

impl<'a> Record<'a> {
    /// The record at the start of `bytes`. Checks the magic and that the lengths add up, but no
    /// checksum.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Record<'a>, Flaw> {
        let layout = Layout::parse(bytes)?;
        Record::with_layout(bytes, layout)
    }

    /// The record at the start of `bytes`, whose layout is known.
    #[inline]
    pub fn with_layout(bytes: &'a [u8], layout: Layout) -> Result<Record<'a>, Flaw> {
        match bytes.get(..layout.total_len as usize) {
            Some(bytes) => Ok(Record { bytes, layout }),
            None => Err(Flaw::Length(i64::from(layout.total_len))),
        }
    }

    /// All bytes of the record.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The places of the parts.
    #[inline]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    #[inline]
    fn part(&self, at: u32, len: u32) -> &'a [u8] {
        self.bytes
            .get(at as usize..(at + len) as usize)
            .unwrap_or_default()
    }

    /// The magic: `MAGIC_V1` or `MAGIC_V2`.
    pub fn magic(&self) -> u32 {
        be_u32(self.bytes, AT_MAGIC)
    }

    /// Checksum of the stored body, as stated in the record.
    pub fn body_crc(&self) -> u32 {
        be_u32(self.bytes, AT_BODY_CRC)
    }

    /// Queue number; negative only in records of other systems.
    #[inline]
    pub fn queue_id(&self) -> i32 {
        be_u32(self.bytes, AT_QUEUE_ID) as i32
    }

    /// The flag set by the user.
    pub fn flag(&self) -> i32 {
        be_u32(self.bytes, AT_FLAG) as i32
    }

    /// Offset in the queue.
    #[inline]
    pub fn queue_offset(&self) -> i64 {
        be_u64(self.bytes, AT_QUEUE_OFFSET) as i64
    }

    /// Position in the log, as stated in the record.
    #[inline]
    pub fn position(&self) -> i64 {
        be_u64(self.bytes, AT_POSITION) as i64
    }

    /// System flags: compression, transaction, and the form of the hosts.
    #[inline]
    pub fn sys_flag(&self) -> u32 {
        be_u32(self.bytes, AT_SYS_FLAG)
    }

    /// When the producer made the message, in ms since the epoch.
    #[inline]
    pub fn born_timestamp(&self) -> i64 {
        be_u64(self.bytes, AT_BORN_TIMESTAMP) as i64
    }

    /// When the message was stored, in ms since the epoch.
    #[inline]
    pub fn store_timestamp(&self) -> i64 {
        be_u64(self.bytes, self.layout.store_timestamp_at as usize) as i64
    }

    /// Address of the producer.
    pub fn born_host(&self) -> SocketAddr {
        self.host(
            AT_BORN_HOST,
            self.layout.store_timestamp_at as usize - AT_BORN_HOST,
        )
    }

    /// Address of the store.
    pub fn store_host(&self) -> SocketAddr {
        let at = self.layout.store_timestamp_at as usize + 8;
        self.host(at, self.layout.body_at as usize - 16 - at)
    }

    fn host(&self, at: usize, len: usize) -> SocketAddr {
        let port = low_u16(be_u32(self.bytes, at + len - 4));
        let ip = if len == HOST_V4 {
            IpAddr::V4(Ipv4Addr::from_bits(be_u32(self.bytes, at)))
        } else {
            let high = u128::from(be_u64(self.bytes, at));
            IpAddr::V6(Ipv6Addr::from_bits(
                high << 64 | u128::from(be_u64(self.bytes, at + 8)),
            ))
        };
        SocketAddr::new(ip, port)
    }

    /// Bytes of the store host as stored: address, then port.
    pub(crate) fn store_host_bytes(&self) -> &'a [u8] {
        let at = u32::from(self.layout.store_timestamp_at) + 8;
        self.part(at, self.layout.body_at - 16 - at)
    }

    /// Bytes of the born host as stored: address, then port.
    pub(crate) fn born_host_bytes(&self) -> &'a [u8] {
        let at = short(AT_BORN_HOST);
        self.part(at, u32::from(self.layout.store_timestamp_at) - at)
    }

    /// How often the message was delivered before.
    pub fn reconsume_times(&self) -> i32 {
        be_u32(self.bytes, self.layout.body_at as usize - 16) as i32
    }

    /// Position of the prepared message that this one commits; else 0.
    pub fn prepared_transaction_offset(&self) -> i64 {
        be_u64(self.bytes, self.layout.body_at as usize - 12) as i64
    }

    /// The body as stored, perhaps compressed.
    #[inline]
    pub fn stored_body(&self) -> &'a [u8] {
        self.part(self.layout.body_at, self.layout.body_len)
    }

    /// The bytes of the topic. May be invalid UTF-8.
    #[inline]
    pub fn topic(&self) -> &'a [u8] {
        self.part(self.layout.topic_at, u32::from(self.layout.topic_len))
    }

    /// The properties as stored.
    #[inline]
    pub fn raw_properties(&self) -> &'a [u8] {
        self.part(
            self.layout.properties_at,
            u32::from(self.layout.properties_len),
        )
    }

    /// Whether the record belongs to a queue. Prepared and rolled-back records do not.
    #[inline]
    pub fn is_queued(&self) -> bool {
        !matches!(
            self.sys_flag() & sys_flag::TRANSACTION,
            sys_flag::PREPARED | sys_flag::ROLLBACK
        )
    }

    /// The whole-record checksum, if the last 20 bytes of the properties are one.
    #[inline]
    pub fn stated_crc(&self) -> Option<u32> {
        let properties = self.raw_properties();
        let tail = properties.last_chunk::<CRC_LEN>()?;
        if tail.first_chunk::<9>() != Some(CRC_PREFIX) || tail.last() != Some(&0x02) {
            return None;
        }
        // Ten digits, the least significant first.
        let (low, high) = tail.get(9..19)?.split_first_chunk::<8>()?;
        let [nine, ten] = *high.first_chunk::<2>()?;
        if !nine.is_ascii_digit() || !ten.is_ascii_digit() {
            return None;
        }
        let high = u64::from(nine - b'0') + 10 * u64::from(ten - b'0');
        let value = eight_digits(u64::from_be_bytes(*low))? + 100_000_000 * high;
        u32::try_from(value).ok()
    }

    /// Checks what a read requires: the position, and the whole-record checksum; without one, the
    /// checksum of the body.
    ///
    /// A whole-record checksum that matches also covers the body. One that does not match is
    /// ignored if the record is a broker's copy (it has `REAL_TOPIC` or `RETRY_TOPIC`) and its
    /// body's checksum matches: brokers copy the property, which is then stale.
    ///
    /// # Errors
    ///
    /// The first [`Flaw`] found.
    #[inline]
    pub fn check(&self, position: u64) -> Result<Freshness, Flaw> {
        if self.position() != position as i64 {
            return Err(Flaw::Position(self.position()));
        }
        let Some(stated) = self.stated_crc() else {
            return self.check_body().map(|()| Freshness::Fresh);
        };
        let covered = self.part(0, self.layout.total_len - short(CRC_LEN));
        if crc32fast::hash(covered) & 0x7FFF_FFFF == stated {
            return Ok(Freshness::Fresh);
        }
        let raw = self.raw_properties();
        let is_copy = super::properties::find(raw, b"REAL_TOPIC").is_some()
            || super::properties::find(raw, b"RETRY_TOPIC").is_some();
        if is_copy && self.check_body().is_ok() {
            return Ok(Freshness::Stale);
        }
        Err(Flaw::RecordChecksum)
    }

    /// Checks the body against its checksum.
    pub fn check_body(&self) -> Result<(), Flaw> {
        let body = self.stored_body();
        let crc = if body.is_empty() {
            0
        } else {
            crc32fast::hash(body) & 0x7FFF_FFFF
        };
        // In a store of another system, the checksum of an empty body may be any value.
        if body.is_empty() || crc == self.body_crc() {
            Ok(())
        } else {
            Err(Flaw::BodyChecksum)
        }
    }
}

/// The number that eight ASCII digits represent, the most significant digit in the lowest byte;
/// `None` if one is not a digit.
///
/// One multiplication each joins pairs, then groups of four, then all eight.
#[inline]
fn eight_digits(digits: u64) -> Option<u64> {
    const HIGH: u64 = 0xF0F0_F0F0_F0F0_F0F0;
    const ZEROS: u64 = 0x3030_3030_3030_3030;
    const SIXES: u64 = 0x0606_0606_0606_0606;
    if digits & HIGH != ZEROS || digits.wrapping_add(SIXES) & HIGH != ZEROS {
        return None;
    }
    let ones = digits - ZEROS;
    let pairs = (ones.wrapping_mul(10) + (ones >> 8)) & 0x00FF_00FF_00FF_00FF;
    let fours = (pairs.wrapping_mul(100) + (pairs >> 16)) & 0x0000_FFFF_0000_FFFF;
    Some((fours.wrapping_mul(10_000) + (fours >> 32)) & 0xFFFF_FFFF)
}

/// Whether the whole-record checksum was computed for this record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The checksum matches, or there is none.
    Fresh,
    /// A broker copied the record together with the checksum of the original.
    Stale,
}
