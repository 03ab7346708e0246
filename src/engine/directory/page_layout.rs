//! The bytes of the state page, `forebay.state`: marks that other processes read while the writer
//! runs, and information for the next writer.
//!
//! One page of 4096 bytes in the machine's byte order:
//!
//! ```text
//! at    width  field
//! 0     8      magic "FOREBAY1"
//! 8     u32    version, 1
//! 12    u32    1 after a clean close, else 0
//! 16    16     boot id of the machine that wrote the marks
//! 32    u64    epoch: incremented by each opening for writing
//! 40    u64    end of the log when the epoch began
//! 48    u64    process id of the writer, 0 if there is none
//! 56    u32    bytes of the store host: 8 or 20
//! 60    20     store host: address, then port, as in a record
//! 80    u64    bytes of a commit log file
//! 88    u64    entries of a queue file
//! 96    u32    slots of an index file
//! 100   u32    entries of an index file
//! 104   u32    CRC-32 of bytes 56 to 103
//! 108   u32    1 if every record of the epoch carries a whole-record checksum
//! 112   u32    1 while a store that another system wrote to is being recovered
//! 116   u32    1 if the writer builds no index
//! 120   u32    changes when existing files are replaced: readers reopen them
//! 128   u64    published: end of what readers may see
//! 192   u64    dispatched: end of what queues and index cover
//! 256   u64    durable: end of the durable log
//! 320   u64    minimum: first position of the log
//! 384   u64    full pass: end of what is durable in log, queues and index
//! 448   u32    changes when a commit is pending; processes sleep on it
//! 456   5 u64  identity of this file while its writer vouches for the page cache, else zeros:
//!              mount, device, subvolume, inode, creation time in ns since 1970
//! 512   u32    changes when a commit was taken up; processes sleep on it
//! 576   u32    changes when the dispatched mark has moved and when an epoch begins; readers in
//!              other processes sleep on it
//! 580   u32    1 if one of them may sleep on it; see `sharing.rs`
//! 640   u64    end of the bytes after the log that are being erased; 0 once that is durable
//! 648   u64    position of the last record at a clean close, plus 1; 0 if unknown
//! 704   840    what the processes of a shared store tell one another; see `sharing.rs`
//! 1664  56     what they have agreed on; see `agreed.rs`
//! 1728  16     when to list the queues again; see `catalogue.rs`
//! 1744  48     the second copy of what they have agreed on
//! 1792  208    how long the sends of the writer take; see `writer_stats.rs`
//! 2048  16 each    the last 128 epochs, each at its number modulo 128: u64 time at which it
//!                  began, in ns since 1970, u64 end of the log at that time
//! ```
//!
//! Each mark has its own cache line. The marks are exact as long as the page cache is kept, because
//! it outlives a process. Otherwise `durable` and `full pass` are lower bounds (each is stored only
//! after its sync), and the other marks mean nothing.
//!
//! The same boot id does not prove that the page cache was kept: within one boot a device can
//! disappear and come back, a snapshot can be mounted, or an image can be copied. So the identity
//! of the file must also be the same ([`Identity`](crate::disk::Identity)); zeros, as in a page of
//! release 0.1.0, match nothing. The writer vouches for the page cache as long as it knows of no
//! stored bytes that may be missing from it. It stops vouching when a sync fails, because the
//! kernel may drop the pages, and when it begins to recover; it vouches again once everything was
//! synced. Boot id, identity and marks lie in one sector of 512 bytes, which is written atomically.
//!
//! The page is only a hint: no value is trusted before the log confirms it.

use crate::num::index;
use crate::region::PAGE;

pub const MAGIC: [u8; 8] = *b"FOREBAY1";
pub const VERSION: u32 = 1;
const _: () = assert!(AT_VERSION == MAGIC.len());
pub const AT_VERSION: usize = 8;
pub const AT_CLEAN: usize = 12;
pub const AT_BOOT_ID: usize = 16;
pub const AT_EPOCH: usize = 32;
pub const AT_EPOCH_START: usize = 40;
pub const AT_PID: usize = 48;
pub const AT_HOST_LEN: usize = 56;
pub const AT_HOST: usize = 60;
pub const AT_LOG_FILE_LEN: usize = 80;
pub const AT_QUEUE_FILE_ENTRIES: usize = 88;
pub const AT_INDEX_SLOTS: usize = 96;
pub const AT_INDEX_ENTRIES: usize = 100;
pub const AT_CRC: usize = 104;
pub const AT_CHECKSUMS: usize = 108;
pub const AT_FOREIGN: usize = 112;
pub const AT_UNINDEXED: usize = 116;
pub const AT_GENERATION: usize = 120;
pub const AT_PUBLISHED: usize = 128;
pub const AT_DISPATCHED: usize = 192;
pub const AT_DURABLE: usize = 256;
pub const AT_MINIMUM: usize = 320;
pub const AT_FULL_PASS: usize = 384;
pub const AT_PENDING: usize = 448;
pub const AT_IDENTITY: usize = 456;
const _: () = assert!(AT_IDENTITY + IDENTITY_LEN <= AT_TAKEN);
pub const AT_TAKEN: usize = 512;
pub const AT_NEWS: usize = 576;
pub const AT_ERASING: usize = 640;
pub const AT_LAST: usize = 648;
pub const AT_WORK: usize = 768;
pub const AT_DUTY: usize = 776;
pub const AT_WANTED: usize = 832;
pub const AT_FLUSHED: usize = 896;
pub const AT_GROUPS: usize = 1600;
pub const AT_EPOCHS: usize = 2048;
const _: () = assert!(AT_EPOCHS + index(EPOCHS_KEPT) * EPOCH_LEN == PAGE);

/// Length of the identity.
const IDENTITY_LEN: usize = 5 * size_of::<u64>();

/// Number of epochs kept.
pub const EPOCHS_KEPT: u64 = 128;
/// Number of marks; `MARK_LEN` is the length of one.
pub const MARKS: usize = (AT_PENDING - AT_PUBLISHED) / MARK_LEN;
pub const MARK_LEN: usize = 64;
/// Length of an epoch.
pub const EPOCH_LEN: usize = 2 * size_of::<u64>();

/// One of the marks of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// End of what readers may see.
    Published = AT_PUBLISHED as isize,
    /// End of what queues and index cover.
    Dispatched = AT_DISPATCHED as isize,
    /// End of the durable log.
    Durable = AT_DURABLE as isize,
    /// First position of the log.
    Minimum = AT_MINIMUM as isize,
    /// End of what is durable in log, queues and index.
    FullPass = AT_FULL_PASS as isize,
}

/// A word that processes sleep on. Only changes of its value have a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Notified by a process that left a commit for the writer.
    Pending = AT_PENDING as isize,
    /// Notified by the writer when it has processed one.
    Taken = AT_TAKEN as isize,
    /// Notified by the writer when there is something new for readers, which only load it.
    News = AT_NEWS as isize,
    /// Notified by the processes of a shared store when there is something to dispatch.
    Work = AT_WORK as isize,
    /// Notified when the readers on duty of the process that leads have work or news.
    Duty = AT_DUTY as isize,
    /// Notified by the processes of a shared store that wait for the disk.
    Wanted = AT_WANTED as isize,
    /// Notified when the log of a shared store became durable further, or writing has failed.
    Flushed = AT_FLUSHED as isize,
    /// Notified when the service of the consumers of a shared store has work.
    Groups = AT_GROUPS as isize,
}
