//! Steps by hand, in a store without threads: nothing happens between two lines of a test.

use crate::clock::{Clock, RealClock};
use crate::disk::{Call, HookedDisk, RealDisk};
use crate::engine::commit_log::log::append::Appender;
use crate::engine::commit_log::log::search::next_record;
use crate::engine::commit_log::log::walker::{Step, Walker};
use crate::engine::commit_log::parts::Parts;
use crate::engine::commit_log::queues::queue::QueueEntry;
use crate::engine::commit_log::read::view;
use crate::engine::commit_log::recovery::assemble::Opened;
use crate::engine::commit_log::recovery::open::open;
use crate::engine::commit_log::repair::repair;
use crate::engine::commit_log::services::Services;
use crate::engine::commit_log::tables::inventory::Inventory;
use crate::engine::commit_log::verify::stretch::{stretches, verify_stretch};
use crate::engine::commit_log::verify::verify as verify_all;
use crate::engine::directory::page::Mark;
use crate::engine::service::hold::Hold;
use crate::engine::service::retention::INTERVAL;
use crate::engine::{Appended, Check, Cursor, Filter, Rows, Stretch};
use crate::error::{Error, Result};
use crate::machine::{Drive, Machine};
use crate::mapped::queue::list_files;
use crate::options::Options;
use crate::record::{Batch, Draft, HostBytes, RecordStyle};
use crate::sync::Mutex;
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const FILE_LEN: u64 = 4096;
const HOUR: Duration = Duration::from_secs(3600);

/// The services of a store with these options. No thread runs.
fn services(machine: &Machine, parts: &Arc<Parts>, options: &Options) -> Arc<Services> {
    Arc::new(Services::new(options, parts, machine.drive, Vec::new()).unwrap())
}

/// A store, and the time of its last step.
struct Bench {
    dir: TempDir,
    opened: Option<Opened>,
    services: Arc<Services>,
    options: Options,
    at: Instant,
    clock_ms: Option<i64>,
}

impl Bench {
    fn new(change: impl FnOnce(&mut Options)) -> Bench {
        Bench::on(&Machine::real(), change)
    }

    fn on(machine: &Machine, change: impl FnOnce(&mut Options)) -> Bench {
        let mut options = Options {
            commitlog_file_size: Some(FILE_LEN),
            queue_file_entries: Some(8),
            index_slots: Some(8),
            index_entries: Some(16),
            disk_reserve: 0,
            ..Options::default()
        };
        change(&mut options);
        options.check().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let opened = open(machine, dir.path(), &options).unwrap();
        let services = services(machine, &opened.parts, &options);
        let at = Instant::now();
        Bench {
            dir,
            opened: Some(opened),
            services,
            options,
            at,
            clock_ms: None,
        }
    }

    fn parts(&self) -> &Arc<Parts> {
        &self.opened.as_ref().unwrap().parts
    }

    /// Opens the store again without closing it, as after its process died.
    fn reopen(&mut self) {
        // A thread that is still creating a file ends with its process.
        self.parts().allocator.stop();
        self.opened = None;
        let machine = Machine::real();
        self.opened = Some(open(&machine, self.dir.path(), &self.options).unwrap());
        self.services = services(&machine, self.parts(), &self.options);
    }

    /// Sends a body of 1000 bytes; three of them fill a file.
    fn send(&self, topic: &str, clock_ms: i64) -> u64 {
        let parts = self.parts();
        let style = RecordStyle {
            host: HostBytes::new("10.0.0.1:0".parse().unwrap()),
            checksum: true,
            max_message_size: 2000,
        };
        let (topic, _) = parts.topics.get_or_add(topic, 1);
        let mut batch = Batch::in_rocketmq_form(style);
        let draft = Draft {
            body: &[7; 1000],
            keys: &["k"],
            ..Draft::default()
        };
        batch.push(&topic.name, 0, &draft, clock_ms).unwrap();
        let with = Appender {
            log: &parts.log,
            allocator: &parts.allocator,
            disk: &parts.disk,
            pool: None,
            pool_fail_fast: false,
        };
        let batches = &mut [(&*topic, &mut batch)];
        let mut appended = Appended::default();
        let mut tail = parts.tail.lock();
        tail.append(&with, batches, clock_ms, &mut appended)
            .unwrap();
        appended.rows[0].offset
    }

    /// Fills one file with each of these times, and begins another with the last time.
    fn fill(&self, topic: &str, times: &[i64]) {
        for time in times {
            for _ in 0..3 {
                self.send(topic, *time);
            }
        }
        self.send(topic, times[times.len() - 1]);
        self.dispatch();
    }

    fn dispatch(&self) {
        let parts = self.parts();
        parts.dispatcher.catch_up(parts.log.published()).unwrap();
    }

    /// Runs a step, with as much time since the last one as the clock says. Returns the starts of
    /// the log files on the disk.
    fn step(&mut self, clock_ms: i64) -> Vec<u64> {
        let passed = clock_ms.saturating_sub(self.clock_ms.unwrap_or(clock_ms));
        let passed = Duration::from_millis(passed.max(0).cast_unsigned());
        self.step_after(passed.max(INTERVAL), clock_ms)
    }

    /// Runs a step with this time since the last one, whatever the clock says.
    fn step_after(&mut self, passed: Duration, clock_ms: i64) -> Vec<u64> {
        self.at += passed;
        self.clock_ms = Some(clock_ms);
        self.services.retain(self.parts(), clock_ms, self.at);
        self.files("commitlog")
    }

    fn files(&self, directory: &str) -> Vec<u64> {
        let found = list_files(&RealDisk, &self.dir.path().join(directory)).unwrap();
        // Another file may have been created ahead of use.
        let used = found
            .iter()
            .filter(|file| file.start < self.parts().log.published());
        let len = self.options.commitlog_file_size.unwrap();
        used.map(|file| file.start / len).collect()
    }

    fn offsets(&self, text: &str) {
        fs::create_dir_all(self.dir.path().join("config")).unwrap();
        fs::write(self.dir.path().join("config/consumerOffset.json"), text).unwrap();
    }

    fn bounds(&self, topic: &str) -> (u64, u64) {
        let topic = self.parts().topics.get(topic).unwrap();
        let queue = self.parts().queues.get(&topic, 0).unwrap().unwrap();
        (queue.min(), queue.max())
    }
}

fn by_age(options: &mut Options) {
    options.retention = Some(Duration::from_millis(1000));
}

fn by_size(options: &mut Options) {
    options.retention_bytes = Some(2 * FILE_LEN);
}

#[test]
fn nothing_goes_where_nobody_asked_for_it() {
    let mut bench = Bench::new(|options| options.disk_reserve = u64::MAX);
    bench.fill("a", &[1, 2, 3]);
    assert_eq!(bench.step(i64::MAX), [0, 1, 2, 3]);
}

#[test]
fn a_file_goes_when_the_time_of_its_last_record_is_over() {
    let mut bench = Bench::new(by_age);
    bench.send("a", 1);
    bench.fill("a", &[5000, 6000, 9000]);
    // The first file has records of 1 and of 5000, and the next begins with one of 5000.
    assert_eq!(bench.step(5999), [0, 1, 2, 3]);
    assert_eq!(bench.step(6000), [1, 2, 3]);
    assert_eq!(bench.step(6999), [1, 2, 3]);
    // The last file stays, however old it is.
    assert_eq!(bench.step(i64::MAX), [3]);
    assert_eq!(bench.bounds("a"), (9, 11));
    assert!(bench.parts().report.damage().is_empty());
}

#[test]
fn the_last_record_of_a_file_is_found_behind_long_and_damaged_ones() {
    let mut bench = Bench::new(|options| {
        by_age(options);
        options.commitlog_file_size = Some(1 << 20);
    });
    for time in 1..=1500 {
        bench.send("a", time);
    }
    bench.dispatch();
    let file = bench.parts().log.files.first().unwrap();
    assert!(bench.parts().log.files.last().unwrap().start() > 0);
    // The last 300 KiB of the first file are damaged, so a record in the middle is the last.
    let path = file.path().to_path_buf();
    let bytes = fs::read(&path).unwrap();
    let zeros = vec![0; 300 << 10];
    std::os::unix::fs::FileExt::write_all_at(
        &fs::OpenOptions::new().write(true).open(&path).unwrap(),
        &zeros,
        (bytes.len() - zeros.len()) as u64,
    )
    .unwrap();
    let last = ((1 << 20) - (300 << 10)) / (bytes.len() as i64 / 900);
    let gone_at = (1..3000).find(|clock| bench.step(*clock).len() == 1);
    let stored = gone_at.unwrap() - 1000;
    assert!(
        (last - 100..800).contains(&stored),
        "{stored}, about {last}"
    );
}

const DAY_MS: i64 = 86_400_000;

fn by_a_day(options: &mut Options) {
    options.retention = Some(Duration::from_secs(86_400));
}

#[test]
fn a_clock_that_jumps_takes_nothing_for_an_hour_and_is_reported_once() {
    let minute = Duration::from_secs(60);
    let (now, hour) = (RealClock.now_ms(), DAY_MS / 24);
    let mut bench = Bench::new(by_a_day);
    bench.fill("a", &[now - DAY_MS + 2 * hour, now]);
    let far = now + 400 * DAY_MS;
    assert_eq!(bench.step_after(INTERVAL, now), [0, 1, 2]);
    assert_eq!(bench.step_after(INTERVAL, far), [0, 1, 2]);
    for _ in 0..59 {
        assert_eq!(bench.step_after(minute, far), [0, 1, 2]);
    }
    let told = bench.parts().report.damage();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].reason.contains("jumped forward"), "{told:?}");
    let verified = verify_all(bench.parts(), &mut |_, _| true).unwrap();
    assert_eq!(verified.damage, []);
    // The clock is corrected, and old files are deleted.
    assert_eq!(bench.step_after(minute / 2, now + hour), [0, 1, 2]);
    assert_eq!(bench.step_after(2 * HOUR, now + 3 * hour), [1, 2]);
    // The clock is set, and stays so.
    assert_eq!(bench.step_after(minute, far + 1), [1, 2]);
    assert_eq!(bench.step_after(60 * minute, far + 1), [2]);
    assert_eq!(bench.parts().report.damage().len(), 2);
}

#[test]
fn a_clock_that_was_set_between_two_openings_takes_nothing_for_an_hour() {
    let now = RealClock.now_ms();
    let mut bench = Bench::new(by_a_day);
    bench.fill("a", &[now - 2 * DAY_MS, now]);
    bench.reopen();
    let far = now + 400 * DAY_MS;
    assert_eq!(bench.step_after(INTERVAL, far), [1, 2]);
    assert_eq!(bench.step_after(INTERVAL, far), [1, 2]);
    bench.reopen();
    assert_eq!(
        bench.step_after(2 * HOUR, far),
        [1, 2],
        "an hour of this opening"
    );
    assert_eq!(bench.step_after(HOUR, far), [2]);
    assert_eq!(bench.parts().report.damage(), []);
}

#[test]
fn steps_are_a_second_apart() {
    let mut bench = Bench::new(by_age);
    bench.fill("a", &[1, 2000]);
    assert_eq!(bench.step(1000), [0, 1, 2]);
    let parts = Arc::clone(bench.parts());
    let services = Arc::clone(&bench.services);
    let soon = bench.at + INTERVAL - Duration::from_millis(1);
    services.retain(&parts, 3000, soon);
    assert_eq!(bench.files("commitlog"), [0, 1, 2]);
    services.retain(&parts, 3000, bench.at + INTERVAL);
    assert_eq!(bench.files("commitlog"), [2]);
}

#[test]
fn the_oldest_files_go_while_all_are_too_long() {
    let mut bench = Bench::new(by_size);
    bench.fill("a", &[1, 1, 1, 1]);
    assert_eq!(bench.step(1), [3, 4]);
    assert_eq!(bench.step(1), [3, 4]);
    let mut bench = Bench::new(|options| options.retention_bytes = Some(1));
    bench.fill("a", &[1, 1]);
    assert_eq!(bench.step(1), [2], "the last file never goes");
}

#[test]
fn what_is_not_dispatched_stays() {
    let mut bench = Bench::new(by_size);
    for _ in 0..13 {
        bench.send("a", 1);
    }
    assert_eq!(bench.step(1), [0, 1, 2, 3, 4]);
    bench.dispatch();
    assert_eq!(bench.step(1), [3, 4]);
}

#[test]
fn files_that_are_due_wait_for_their_hour_unless_the_disk_is_full() {
    let noon = chrono::Local::now().date_naive().and_hms_opt(12, 30, 0);
    let noon = noon.unwrap().and_local_timezone(chrono::Local).unwrap();
    let noon = noon.timestamp_millis();
    let hours = |options: &mut Options| {
        by_age(options);
        options.retention_bytes = Some(1);
        options.delete_when = Some("04; 13".to_owned());
    };
    let mut bench = Bench::new(hours);
    bench.fill("a", &[1, 1]);
    assert_eq!(bench.step(noon), [0, 1, 2]);
    assert_eq!(bench.step(noon + 1_800_000), [2]);
    let full: [fn(&mut Options); 2] = [
        |options| options.disk_reserve = u64::MAX,
        |options| options.disk_warning_ratio = Some(1e-9),
    ];
    for full in full {
        let mut bench = Bench::new(|options| {
            hours(options);
            full(options);
        });
        bench.fill("a", &[1, 1]);
        assert_eq!(bench.step(noon), [2]);
    }
}

#[test]
fn a_full_disk_takes_files_that_are_not_due_but_none_that_is_not_consumed() {
    let full = |options: &mut Options| {
        options.retention = Some(Duration::from_secs(1 << 40));
        options.disk_reserve = u64::MAX;
    };
    let mut bench = Bench::new(full);
    bench.fill("a", &[1, 1, 1]);
    bench.offsets(r#"{"offsetTable":{"a@group":{0:4}}}"#);
    assert_eq!(bench.step(1), [1, 2, 3]);
    assert_eq!(bench.bounds("a"), (3, 10));
}

/// A group that begins at a message says how many were deleted before it could read them.
#[test]
fn a_cursor_counts_what_was_deleted_since_it_was_asked_for() {
    let mut bench = Bench::new(by_age);
    bench.fill("a", &[1, 1, 1]);
    let topic = bench.parts().topics.get("a").unwrap();
    let cursor = |bench: &Bench| {
        let (none, check) = (Filter::default(), Check::Full);
        view::cursor(bench.parts(), &topic, 0, 0..10, &none, check).unwrap()
    };
    let read = |mut cursor: Box<dyn Cursor>| {
        let mut rows = Rows::default();
        cursor.next(1, &mut rows).unwrap();
        let first = rows.rows.first().and_then(|row| rows.message(row)).unwrap();
        (first.record().queue_offset(), rows.retired)
    };
    assert_eq!(read(cursor(&bench)), (0, 0));
    let before = cursor(&bench);
    assert_eq!(bench.step(10_000), [3]);
    assert_eq!(bench.bounds("a"), (9, 10));
    assert_eq!(read(before), (9, 9));
    assert_eq!(read(cursor(&bench)), (9, 9));
}

#[test]
fn what_a_group_has_not_consumed_stays() {
    let mut bench = Bench::new(by_age);
    bench.fill("a", &[1, 1]);
    bench.fill("b", &[1, 1]);
    let all = bench.files("commitlog");
    // The first file with `b` also has the last `a`, number 6.
    for (text, first) in [
        (r#"{"offsetTable":{"a@g":{0:0},"b@g":{0:1}}}"#, 0),
        (r#"{"offsetTable":{"a@g":{0:-1}}}"#, 0),
        (r#"no json"#, 0),
        (r#"{"offsetTable":{"a@g":{0:2}}}"#, 0),
        (r#"{"offsetTable":{"a@g":{0:3},"a@other":{"0":9}}}"#, 1),
        (
            r#"{"offsetTable":{"a@g":{0:6},"b@g":{0:7},"c@g":{0:0}}}"#,
            2,
        ),
        (r#"{"offsetTable":{"a@g":{0:7,5:0},"b@g":{0:3}}}"#, 3),
        (r#"{"offsetTable":{"a@g":{0:7},"b@g":{0:7}}}"#, 4),
    ] {
        bench.offsets(text);
        assert_eq!(bench.step(i64::MAX), all[first..], "{text}");
    }
    let damage = bench.parts().report.damage();
    assert_eq!(damage.len(), 1);
    assert!(damage[0].path.ends_with("consumerOffset.json"));
}

#[test]
fn the_backup_of_the_offsets_counts_where_they_are_damaged() {
    let mut bench = Bench::new(by_age);
    bench.fill("a", &[1, 1]);
    bench.offsets(r#"{"offsetTable":{"a@g":{0:3}}}"#);
    let config = bench.dir.path().join("config");
    let (table, backup) = (
        config.join("consumerOffset.json"),
        config.join("consumerOffset.json.bak"),
    );
    fs::rename(&table, &backup).unwrap();
    fs::write(&table, "").unwrap();
    assert_eq!(bench.step(i64::MAX), [1, 2]);
    assert!(bench.parts().report.damage().is_empty());
}

#[test]
fn groups_that_are_not_to_be_waited_for_keep_nothing() {
    let mut bench = Bench::new(|options| {
        by_age(options);
        options.keep_unconsumed = false;
    });
    bench.fill("a", &[1, 1]);
    bench.offsets(r#"{"offsetTable":{"a@g":{0:0}}}"#);
    assert_eq!(bench.step(i64::MAX), [2]);
}

#[test]
fn what_is_not_in_every_archive_stays_where_that_is_asked_for() {
    let mut bench = Bench::new(|options| {
        by_age(options);
        options.keep_unarchived = true;
    });
    bench.fill("a", &[1, 1, 1]);
    let note = bench.dir.path().join("forebay.archived");
    assert_eq!(bench.step(i64::MAX), [0, 1, 2, 3]);
    fs::write(&note, r#"{"targets":{"s3://b/a":4095}}"#).unwrap();
    assert_eq!(bench.step(i64::MAX), [0, 1, 2, 3]);
    fs::write(&note, r#"{"targets":{"s3://b/a":4096,"/b":8192}}"#).unwrap();
    assert_eq!(bench.step(i64::MAX), [1, 2, 3]);
    for damaged in ["", "[]", r#"{"targets":[]}"#, r#"{"targets":{"/b":-1}}"#] {
        fs::write(&note, damaged).unwrap();
        assert_eq!(bench.step(i64::MAX), [1, 2, 3], "{damaged}");
    }
    let named = |damage: &crate::engine::Damage| damage.path == note;
    assert!(bench.parts().report.damage().iter().any(named));
    fs::write(&note, r#"{"targets":{"/b":18446744073709551615}}"#).unwrap();
    assert_eq!(bench.step(i64::MAX), [3]);
}

#[test]
fn queue_files_and_index_files_follow_and_the_last_one_stays() {
    let mut bench = Bench::new(by_age);
    // As many messages as its queue file has entries: in the end none of them points anywhere.
    for _ in 0..8 {
        bench.send("full", 1);
    }
    bench.fill("gone", &[1]);
    bench.fill("a", &[1; 10]);
    let indexes = |bench: &Bench| bench.parts().index.as_ref().unwrap().files().len();
    assert!(indexes(&bench) > 2);
    bench.step(i64::MAX);
    let queue = list_files(&RealDisk, &bench.dir.path().join("consumequeue/a/0")).unwrap();
    assert_eq!(queue.len(), 1);
    let queue = list_files(&RealDisk, &bench.dir.path().join("consumequeue/gone/0")).unwrap();
    assert_eq!(queue.len(), 1);
    assert_eq!(indexes(&bench), 1);
    let on_disk = fs::read_dir(bench.dir.path().join("index")).unwrap();
    assert_eq!(on_disk.count(), 1);
    assert_eq!(bench.bounds("gone"), (4, 4));
    let queue = list_files(&RealDisk, &bench.dir.path().join("consumequeue/full/0")).unwrap();
    assert_eq!(queue.len(), 1);
    assert_eq!(bench.bounds("full"), (8, 8));
}

/// If the first file cannot be deleted, the step ends there: nothing is lost, and the next offsets
/// are in the table, which is saved first.
#[test]
fn what_a_step_could_not_end_the_next_one_ends() {
    let mut bench = Bench::new(by_age);
    bench.fill("a", &[1, 1, 1]);
    let path = bench.parts().log.files.path_of(FILE_LEN);
    // The name is blocked, but the file can still be read.
    let file = bench.parts().log.files.find(FILE_LEN).unwrap();
    file.region().unwrap();
    let bytes = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::create_dir_all(path.join("in the way")).unwrap();
    assert_eq!(bench.parts().log.files.all().len(), 4);
    bench.at += INTERVAL;
    let parts = Arc::clone(bench.parts());
    let services = &bench.services;
    let retired = services.retention.retire(&parts, 3 * FILE_LEN);
    assert!(retired.is_err());
    services.retain(&parts, i64::MAX, bench.at);
    assert_eq!(parts.log.files.first().unwrap().start(), FILE_LEN);
    assert_eq!(parts.log.min_position(), 3 * FILE_LEN);
    assert!(parts.health.check().is_ok());
    let inventory = Inventory::load(&RealDisk, bench.dir.path())
        .unwrap()
        .unwrap();
    assert_eq!(inventory.queues[0].3, 10);
    let damage = parts.report.damage();
    assert!(damage[0].reason.contains("retention"), "{damage:?}");
    drop(parts);
    fs::remove_dir_all(&path).unwrap();
    fs::write(&path, bytes).unwrap();
    // By the rules nothing is due any more, but what was begun is completed.
    assert_eq!(bench.step(0), [3]);
    bench.reopen();
    assert_eq!(bench.bounds("a"), (9, 10));
    assert_eq!(bench.send("a", 1), 10);
}

/// The names of files are removed before the files leave the list: a reader that has listed them
/// finds no file, and continues where the log now begins.
#[test]
fn who_has_listed_files_that_go_passes_over_them() {
    let mut bench = Bench::new(by_age);
    bench.fill("a", &[1; 4]);
    let parts = Arc::clone(bench.parts());
    let survey = |start| crate::engine::commit_log::read::survey::survey(&parts, start);
    let verify = |stretch: &Stretch| verify_stretch(&parts, stretch, &[]);
    parts.flush_to(parts.log.published()).unwrap();
    let stretches = stretches(&parts).unwrap();
    let sealed = crate::engine::commit_log::read::survey::sealed(&parts);
    assert_eq!(sealed.len(), 4);
    let end = parts.log.published();
    let mut walker = Walker::new(&parts.log, 0, end);
    let files = parts.log.files.all();
    files.iter().for_each(|file| file.unmap());
    for file in &files[..2] {
        fs::remove_file(file.path()).unwrap();
    }
    assert!(
        walker.step().unwrap_err().is_not_found(),
        "nobody retired it"
    );
    assert!(next_record(&parts.log, 0, end).is_err());
    assert!(survey(0).is_err());
    let log = Stretch::Log(0..3 * FILE_LEN);
    assert!(verify(&log).is_err(), "a file is missing");

    parts.log.state.set(Mark::Minimum, 2 * FILE_LEN);
    assert!(matches!(walker.step(), Ok(Step::Blank)));
    assert_eq!(walker.position(), 2 * FILE_LEN);
    assert_eq!(next_record(&parts.log, 0, end).unwrap(), Some(2 * FILE_LEN));
    assert!(matches!(survey(0), Err(Error::NotFound { .. })));
    assert_eq!(
        crate::engine::commit_log::read::survey::sealed(&parts),
        sealed[2..]
    );
    assert_eq!(verify(&log).unwrap().found.records, 3);
    for stretch in &stretches {
        assert_eq!(verify(stretch).unwrap().found.damage, [], "{stretch:?}");
    }
    let whole = verify_all(&parts, &mut |_, _| true).unwrap();
    assert_eq!((whole.records, whole.damage.len()), (7, 0));
    let done = repair(&parts, &bench.services.retention, &mut |_, _| true).unwrap();
    assert_eq!(done.steps, []);
    drop(parts);
    assert_eq!(bench.step(0), [2, 3, 4], "the step goes on where it was");
}

/// Holds the log from a position on, and refuses all deletions while told to.
#[derive(Debug)]
struct Held {
    from: AtomicU64,
    refuses: AtomicBool,
    asked: Mutex<Vec<u64>>,
}

impl Hold for Held {
    fn keep_from(&self) -> Result<u64> {
        Ok(self.from.load(Ordering::Relaxed))
    }

    fn let_go(&self, until: u64) -> Result<bool> {
        self.asked.lock().push(until);
        Ok(!self.refuses.load(Ordering::Relaxed))
    }
}

#[test]
fn nothing_is_deleted_that_a_hold_still_needs() {
    let mut bench = Bench::new(by_age);
    bench.fill("a", &[1, 1, 1]);
    let hold = Arc::new(Held {
        from: AtomicU64::new(FILE_LEN + 1),
        refuses: AtomicBool::new(false),
        asked: Mutex::default(),
    });
    let own = Arc::<Held>::clone(&hold);
    let services = Services::new(&bench.options, bench.parts(), Drive::Threads, vec![own]);
    bench.services = Arc::new(services.unwrap());
    assert_eq!(bench.step(i64::MAX), [1, 2, 3]);
    hold.from.store(u64::MAX, Ordering::Relaxed);
    hold.refuses.store(true, Ordering::Relaxed);
    assert_eq!(bench.step(i64::MAX), [1, 2, 3]);
    hold.refuses.store(false, Ordering::Relaxed);
    assert_eq!(bench.step(i64::MAX), [3]);
    let asked = hold.asked.lock().clone();
    assert_eq!(asked, [FILE_LEN, 3 * FILE_LEN, 3 * FILE_LEN]);
}

#[test]
fn no_step_begins_while_files_are_worked_on() {
    let mut bench = Bench::new(by_age);
    bench.fill("a", &[1, 1]);
    let services = Arc::clone(&bench.services);
    let pause = services.retention.pause();
    assert_eq!(bench.step(i64::MAX), [0, 1, 2]);
    drop(pause);
    assert_eq!(bench.step(i64::MAX), [2]);
}

#[test]
fn a_store_that_failed_takes_nothing_away() {
    let mut bench = Bench::new(by_age);
    bench.fill("a", &[1, 1]);
    bench.parts().fail(&Error::Closed);
    assert_eq!(bench.step(i64::MAX), [0, 1, 2]);
}

/// A process that dies at any moment of a step leaves some of the files. The next opening finds the
/// same next offsets, and no message below the first remaining file.
#[test]
fn a_death_in_the_middle_leaves_the_next_offsets() {
    for gone in 0..=4 {
        let mut bench = Bench::new(by_age);
        bench.fill("gone", &[1]);
        bench.fill("a", &[1; 3]);
        let flushed = bench.parts().flush_all().unwrap();
        bench.parts().save_inventory(flushed).unwrap();
        for start in 0..gone {
            fs::remove_file(bench.parts().log.files.path_of(start * FILE_LEN)).unwrap();
        }
        bench.reopen();
        assert_eq!(bench.bounds("gone").1, 4, "{gone} files were gone");
        assert_eq!(bench.bounds("a").1, 10);
        assert!(bench.parts().report.damage().is_empty());
        assert_eq!(bench.send("gone", 1), 4);
        assert_eq!(bench.send("a", 1), 10);
        bench.dispatch();
        assert_eq!(bench.bounds("gone").1, 5);
    }
}

/// A full disk has no room for the table: one log file is deleted to make room. Queue files stay as
/// long as the log files that their entries point to, because an opening shows what these hold.
#[test]
fn queue_files_stay_where_a_full_disk_keeps_log_files() {
    let is_full = Arc::new(AtomicBool::new(false));
    let disk = HookedDisk::shared({
        let is_full = Arc::clone(&is_full);
        move |call, path| {
            let is_table = path.ends_with("forebay.offsets.tmp");
            match call == Call::Write && is_table && is_full.swap(false, Ordering::Relaxed) {
                true => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
                false => Ok(()),
            }
        }
    });
    let machine = Machine {
        disk,
        ..Machine::real()
    };
    let mut bench = Bench::on(&machine, |options| {
        by_age(options);
        options.queue_file_entries = Some(2);
    });
    bench.fill("a", &[1; 3]);
    is_full.store(true, Ordering::Relaxed);
    let retire = |bench: &Bench| {
        let retention = &bench.services.retention;
        retention.retire(bench.parts(), 3 * FILE_LEN)
    };
    retire(&bench).unwrap();
    assert!(!is_full.load(Ordering::Relaxed));
    assert_eq!(bench.files("commitlog"), [1, 2, 3]);
    bench.reopen();
    assert_eq!(bench.bounds("a"), (3, 10));
    let found = verify_all(bench.parts(), &mut |_, _| true).unwrap();
    assert!(found.damage.is_empty(), "{:?}", found.damage);
    retire(&bench).unwrap();
    assert_eq!(bench.files("commitlog"), [3]);
    assert_eq!(bench.bounds("a"), (9, 10));
}

/// The sync with which a step begins fails. Messages that were not durable stay visible: after a
/// power loss their file may be back with less in it.
#[test]
fn a_file_that_cannot_be_made_durable_is_not_retired() {
    let disk = HookedDisk::shared(|call, path| {
        let in_log = path.parent().is_some_and(|it| it.ends_with("commitlog"));
        match call == Call::SyncRange && in_log {
            true => Err(io::Error::from_raw_os_error(libc::EIO)),
            false => Ok(()),
        }
    });
    let machine = Machine {
        disk,
        ..Machine::real()
    };
    let mut bench = Bench::on(&machine, by_age);
    bench.fill("a", &[1; 3]);
    assert_eq!(bench.step(9000), [0, 1, 2, 3]);
    assert!(bench.parts().health.check().is_err());
    assert_eq!(bench.parts().log.min_position(), 0);
    assert_eq!(bench.bounds("a"), (0, 10));
}

/// Bytes of a queue file are damaged while the store is open: they become zeros, or entries of
/// deleted messages. The log decides what a step deletes, so no message that it keeps is hidden.
#[test]
fn damaged_entries_do_not_decide_what_is_retired() {
    for copied in [false, true] {
        for first in 3..9 {
            for count in 1..=4 {
                let mut bench = Bench::new(by_age);
                bench.fill("a", &[1, 1, 9000]);
                bench.fill("b", &[9000]);
                let queue = {
                    let topic = bench.parts().topics.get("a").unwrap();
                    bench.parts().queues.get(&topic, 0).unwrap().unwrap()
                };
                let old = queue.entry(0).unwrap().unwrap();
                let zero = QueueEntry {
                    position: 0,
                    size: 0,
                    tags_code: 0,
                };
                for number in first..first + count {
                    let map = queue.map_of(number).unwrap().unwrap();
                    map.store(number, if copied { old } else { zero }).unwrap();
                }
                assert_eq!(bench.step(2000)[0], 2);
                let what = format!("{count} from {first} on, copied {copied}");
                assert_eq!(bench.bounds("a"), (6, 10), "{what}");
            }
        }
    }
}

/// A queue that begins after messages of the log hides them. So a verification also checks the
/// queues for each record.
#[test]
fn a_verification_names_messages_before_the_begin_of_their_queue() {
    let bench = Bench::new(by_age);
    bench.fill("a", &[1, 2]);
    let whole = verify_all(bench.parts(), &mut |_, _| true).unwrap();
    assert_eq!((whole.damage.len(), whole.queue_entries), (0, 7));
    let topic = bench.parts().topics.get("a").unwrap();
    let queue = bench.parts().queues.get(&topic, 0).unwrap().unwrap();
    queue.raise_min_to(3);
    let found = verify_all(bench.parts(), &mut |_, _| true).unwrap();
    let lost: Vec<_> = found.damage.into_iter().flat_map(|it| it.lost).collect();
    let named = |offset| ("a".to_owned(), 0, offset);
    assert_eq!(lost, [named(0), named(1), named(2)]);
}
