//! The syncs whose purpose no story shows, and why. Every other sync is left out in turn, and a
//! story must notice.

use super::sites::What;

/// Syncs whose purpose no story shows, and why: file, function and number in it, what it makes
/// durable.
pub const UNSHOWN: &[(&str, &str, What, &str)] = &[
    (
        "src/engine/commit_log/retention/mod.rs",
        "retire 1",
        What::Range,
        "for a mark without which an opening would report a file that was removed as missing",
    ),
    (
        "src/engine/partition_log/write/indexing.rs",
        "index 1",
        What::Directory,
        "for the names of indexes, which may be missing",
    ),
    (
        "src/engine/partition_log/write/files.rs",
        "sync_small 1",
        What::File,
        "a small file that is torn is written again before the next append",
    ),
    (
        "src/engine/partition_log/write/files.rs",
        "sync_small 1",
        What::Directory,
        "as above, for one that is missing; names of segments have their own sync",
    ),
    (
        "src/engine/directory/page_file.rs",
        "create_marks 1",
        What::File,
        "only processes that live at the same time believe the page",
    ),
    (
        "src/engine/directory/page_file.rs",
        "create_marks 1",
        What::Directory,
        "as above",
    ),
    (
        "src/engine/partition_log/write/room.rs",
        "cut_room 1",
        What::File,
        "a file that a power loss makes long again is cut by the next opening",
    ),
    (
        "src/engine/directory/salvage.rs",
        "sync 1",
        What::FileSystem,
        "instead of many syncs of files, which stories show",
    ),
    (
        "src/engine/partition_log/write/swap.rs",
        "replace 4",
        What::Directory,
        "a crash shows it only if the next compaction of the partition has begun a copy and not \
         yet synced its name",
    ),
    (
        "src/engine/partition_log/write/swap.rs",
        "finish 1",
        What::Directory,
        "the next opening does again what a crash has undone, unless another compaction has \
         begun and crashed meanwhile",
    ),
    (
        "src/engine/partition_log/write/swap.rs",
        "remove 1",
        What::Directory,
        "as above",
    ),
    (
        "src/engine/partition_log/compact/copy.rs",
        "finish 2",
        What::File,
        "Forebay takes how a transaction ended from the log; Kafka's readers use the index",
    ),
    (
        "src/engine/partition_log/repair.rs",
        "repair 1",
        What::Directory,
        "a crash shows it only if the repair before has died between a rename and its sync",
    ),
    (
        "src/engine/partition_log/write/restore.rs",
        "restore 1",
        What::File,
        "an index is a hint; random stories see a torn one once in some thousand",
    ),
    (
        "src/engine/partition_log/write/tables.rs",
        "mend_metadata 1",
        What::File,
        "the next repair, or the next send, writes a torn file again",
    ),
    (
        "src/engine/partition_log/write/tables.rs",
        "mend_metadata 1",
        What::Directory,
        "as above",
    ),
    (
        "src/engine/partition_log/write/files.rs",
        "save_seed 1",
        What::File,
        "the name of the file decides, and its contents make ids only",
    ),
    (
        "src/engine/partition_log/write/producers.rs",
        "find 1",
        What::File,
        "no story has the producers of a broker",
    ),
    (
        "src/engine/partition_log/write/producers.rs",
        "find 1",
        What::Directory,
        "as above",
    ),
    (
        "src/engine/partition_log/write/producers.rs",
        "keep 1",
        What::File,
        "as above",
    ),
    (
        "src/engine/partition_log/write/producers.rs",
        "keep 1",
        What::Directory,
        "as above",
    ),
    (
        "src/engine/partition_log/write/producers.rs",
        "remove_after_end 1",
        What::Directory,
        "as above",
    ),
    (
        "src/engine/partition_log/write/follow.rs",
        "index_transactions 1",
        What::File,
        "as above",
    ),
    (
        "src/engine/partition_log/write/follow.rs",
        "index_transactions 1",
        What::Directory,
        "as above",
    ),
    (
        "src/engine/partition_log/write/files.rs",
        "save_epochs 1",
        What::File,
        "no story has the epochs of a broker",
    ),
    (
        "src/engine/partition_log/write/files.rs",
        "save_epochs 1",
        What::Directory,
        "as above",
    ),
    (
        "src/engine/partition_log/write/files.rs",
        "add_opening 1",
        What::File,
        "no story sets the clock while retention goes by the time",
    ),
    (
        "src/engine/partition_log/write/files.rs",
        "add_opening 1",
        What::Directory,
        "as above",
    ),
    (
        "src/engine/partition_log/write/files.rs",
        "save_checkpoint 1",
        What::File,
        "a torn checkpoint is none, and without one all batches are checked",
    ),
    (
        "src/engine/partition_log/write/files.rs",
        "save_checkpoint 1",
        What::Directory,
        "an older checkpoint has more batches checked",
    ),
    (
        "src/engine/partition_log/write/files.rs",
        "save_clean_stop 1",
        What::File,
        "only its name is read",
    ),
    (
        "src/engine/partition_log/write/files.rs",
        "save_clean_stop 1",
        What::Directory,
        "without the mark all batches above the recovery points are checked",
    ),
    (
        "src/engine/partition_log/write/indexes.rs",
        "save 1",
        What::File,
        "an index is a hint; random stories see a torn one once in some thousand",
    ),
    (
        "src/engine/partition_log/write/begin.rs",
        "take_clean_mark 1",
        What::Directory,
        "the checkpoint that opening saves syncs the same directory before anything is \
         appended",
    ),
    (
        "src/engine/partition_log/write/durable.rs",
        "save_sealed 1",
        What::Directory,
        "for the names of indexes, which may be missing",
    ),
    (
        "src/engine/partition_log/write/unsynced.rs",
        "complete 1",
        What::Directory,
        "as above",
    ),
    (
        "src/engine/partition_log/write/unsynced.rs",
        "sync 3",
        What::File,
        "a small file that is torn is written again before the next append",
    ),
    (
        "src/engine/partition_log/write/kept.rs",
        "keep 1",
        What::Directory,
        "as above",
    ),
    (
        "src/engine/partition_log/write/strays.rs",
        "remove 1",
        What::Directory,
        "`keep` syncs the same directory before anything is appended",
    ),
    (
        "src/engine/partition_log/write/writing.rs",
        "remove_strays 1",
        What::Directory,
        "a segment stays unused only after an error; random stories meet its return once in \
         some thousand",
    ),
    (
        "src/engine/commit_log/tables/checkpoint.rs",
        "open 1",
        What::File,
        "opening rebuilds a truncated checkpoint, which holds nothing yet; except for \
         `test_power.py`, where an earlier verification reports it as damage",
    ),
    (
        "src/engine/commit_log/tables/checkpoint.rs",
        "open 1",
        What::Directory,
        "opening rebuilds a missing one",
    ),
    (
        "src/engine/directory/page_file.rs",
        "create 1",
        What::File,
        "the page is synced again before `abort` is created, so before anything depends on it",
    ),
    (
        "src/engine/directory/page_file.rs",
        "create 1",
        What::Directory,
        "its name becomes durable with that of `abort`, before the directory of the log exists",
    ),
    (
        "src/table/file.rs",
        "replace_with_backup 1",
        What::Directory,
        "the table itself follows, with a sync of the same directory; until then the old table \
         exists, whatever the backup is",
    ),
    (
        "src/table/file.rs",
        "replace_known 1",
        What::Directory,
        "until then the table of offsets before it counts: what was settled since is delivered \
         again, as after a death",
    ),
    (
        "src/table/timer.rs",
        "save 1",
        What::File,
        "a cache with a checksum: opening reads the messages again where it does not hold",
    ),
    (
        "src/table/timer.rs",
        "save 1",
        What::Directory,
        "opening reads the messages again where there is none, or an older one",
    ),
    ("src/table/pending.rs", "save 1", What::File, "as above"),
    (
        "src/table/pending.rs",
        "save 1",
        What::Directory,
        "as above",
    ),
    (
        "src/engine/commit_log/log/append/shared.rs",
        "erase_unpublished 1",
        What::Directory,
        "before a file of that name is stored to, the directory is synced again",
    ),
    (
        "src/engine/commit_log/log/append/shared.rs",
        "open_made 1",
        What::File,
        "a sync of its first records stores its length, too",
    ),
    (
        "src/engine/commit_log/log/append/shared.rs",
        "open_made 1",
        What::Directory,
        "a crash shows it only if the process that made the file died before its own sync, and \
         nothing else has synced the directory since",
    ),
    (
        "src/mapped/allocate.rs",
        "warm_up 1",
        What::Range,
        "the pages are zeros: the sync only keeps dirty pages from piling up",
    ),
];
