//! Steps by hand, in a store without threads: nothing happens between two lines of a test.

mod readers;
mod rules;
mod steps;

use crate::disk::RealDisk;
use crate::engine::Appended;
use crate::engine::commit_log::log::append::Appender;
use crate::engine::commit_log::parts::Parts;
use crate::engine::commit_log::recovery::assemble::Opened;
use crate::engine::commit_log::recovery::open::open;
use crate::engine::commit_log::services::Services;
use crate::engine::service::retention::{INTERVAL, Now};
use crate::machine::Machine;
use crate::mapped::queue::list_files;
use crate::options::Options;
use crate::record::{Draft, Form, HostBytes, RecordStyle};
use std::fs;
use std::sync::Arc;
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
            disk_reserve: Some(0),
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
        self.die();
        self.revive();
    }

    fn die(&mut self) {
        // A thread that is still creating a file ends with its process.
        self.parts().allocator.stop();
        self.opened = None;
    }

    fn revive(&mut self) {
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
        let mut batch = Form::RocketMq(style).batch();
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

    /// Runs a step. The time since the last step follows from `clock_ms`. Returns the starts of the
    /// log files on the disk.
    fn step(&mut self, clock_ms: i64) -> Vec<u64> {
        let passed = clock_ms.saturating_sub(self.clock_ms.unwrap_or(clock_ms));
        let passed = Duration::from_millis(passed.max(0).cast_unsigned());
        self.step_after(passed.max(INTERVAL), clock_ms)
    }

    /// Runs a step with this time since the last one, whatever the clock says.
    fn step_after(&mut self, passed: Duration, clock_ms: i64) -> Vec<u64> {
        self.at += passed;
        self.clock_ms = Some(clock_ms);
        self.services
            .retain(self.parts(), Now::stepped(clock_ms, self.at));
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
