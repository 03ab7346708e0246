//! Reading while a writer in another process runs or dies.

use crate::world::{Place, World, options, read, write};
use forebay::{Error, Filter, Mode, Store};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Far longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// A process that writes on command, by [`World`].
struct Writer {
    child: Child,
    answers: Lines<BufReader<ChildStdout>>,
}

/// The other process: executes the lines of its input, and answers each when it is done.
#[test]
fn child_that_writes_what_it_is_told() {
    let Some(root) = std::env::var_os("FOREBAY_TEST_WRITER") else {
        return;
    };
    let store = write(Path::new(&root));
    let mut world = World::after(&store);
    println!("answer ready");
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["send", count] => world.send(&store, count.parse().unwrap()),
            ["topic", topic, queue] => world.send_to(&store, topic, queue.parse().unwrap()),
            ["batch", count] => drop(world.send_batch(&store, count.parse().unwrap())),
            ["flush"] => drop(store.flush().unwrap()),
            ["close"] => store.close().unwrap(),
            other => panic!("{other:?}"),
        }
        println!(
            "answer {}",
            store
                .engine()
                .map_or(0, |engine| engine.readable_position())
        );
    }
}

impl Writer {
    fn start(root: &Path) -> Writer {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "processes::child_that_writes_what_it_is_told"])
            .args(["--nocapture", "--test-threads=1"])
            .env("FOREBAY_TEST_WRITER", root)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut writer = Writer { child, answers };
        writer.answer();
        writer
    }

    /// Sends a command without waiting.
    fn tell(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().unwrap();
        writeln!(input, "{line}").unwrap();
    }

    fn answer(&mut self) -> String {
        let found = self.answers.find_map(|line| {
            let line = line.unwrap();
            line.split_once("answer ").map(|(_, rest)| rest.to_owned())
        });
        found.expect("the writer has died")
    }

    /// Executes a command, and returns the end of the log.
    fn ask(&mut self, line: &str) -> u64 {
        self.tell(line);
        self.answer().parse().unwrap()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a reader has everything below `end`.
fn catch_up(reader: &Store, end: u64) {
    let deadline = Instant::now() + LONG;
    let engine = reader.engine().unwrap();
    let mut seen = engine.readable_position();
    while seen < end {
        assert!(Instant::now() < deadline, "{seen} of {end}");
        seen = engine.wait_readable(seen, LONG);
    }
}

/// Repeats the writer's commands on a store of this process, and compares: the messages are equal
/// except for positions and times.
fn same_as(reader: &Store, model: &Store) {
    let (engine, other) = (reader.engine().unwrap(), model.engine().unwrap());
    engine.refresh(None).unwrap();
    let names = |store: &Store| {
        let topics = store.engine().unwrap().topics().all();
        let mut names: Vec<String> = topics.iter().map(|topic| topic.name.to_string()).collect();
        names.sort();
        names
    };
    assert_eq!(names(reader), names(model));
    let own = |topic: &Arc<forebay::Topic>| !topic.name.starts_with("rmq_sys_");
    for topic in other.topics().all().into_iter().filter(own) {
        let found = reader.topic(&topic.name).unwrap();
        for queue in other.queues(&topic) {
            let bounds = other.bounds(&topic, queue).unwrap().unwrap();
            let have = engine.bounds(&found, queue).unwrap().unwrap_or(0..0);
            assert_eq!(have, bounds, "{} {queue}", topic.name);
            for offset in bounds {
                let message = reader.get(&topic.name, queue, offset as i64).unwrap();
                let expected = model.get(&topic.name, queue, offset as i64).unwrap();
                assert_eq!(message.body().unwrap(), expected.body().unwrap());
                assert_eq!(message.keys(), expected.keys());
            }
        }
    }
    for key in ["key-3", "key-33", "key-333", "eleven"] {
        for topic in ["orders", "bills"] {
            let query = |store: &Store| {
                let found = match store.query(topic, key, i64::MIN, i64::MAX, 1000) {
                    Err(Error::UnknownTopic { .. }) => Vec::new(),
                    found => found.unwrap(),
                };
                let place =
                    |m: &forebay::Message| (m.record().queue_id(), m.record().queue_offset());
                found.iter().map(place).collect::<Vec<_>>()
            };
            assert_eq!(query(reader), query(model), "{topic} {key}");
        }
    }
}

#[test]
fn a_second_writer_in_another_process_is_rejected_with_the_pid_of_the_first() {
    let place = Place::new();
    let mut writer = Writer::start(&place.root());
    let refused = Store::open(place.root(), options(Mode::Append)).err();
    let pid = writer.child.id();
    assert!(matches!(refused, Some(Error::Locked { pid: Some(found), .. }) if found == pid));
    writer.ask("send 10");
    writer.ask("close");
    write(&place.root()).close().unwrap();
}

#[test]
fn a_reader_follows_a_writer_in_another_process() {
    let (place, model_place) = (Place::new(), Place::new());
    let mut writer = Writer::start(&place.root());
    let (model, mut world) = (write(&model_place.root()), World::default());
    let reader = read(&place.root());
    assert_eq!(reader.engine().unwrap().topics().len(), 0);
    for round in 0..12 {
        let count = [1, 7, 150, 400][round % 4];
        world.send(&model, count);
        let mut end = writer.ask(&format!("send {count}"));
        if round == 3 {
            world.send_batch(&model, 30);
            end = writer.ask("batch 30");
        }
        if round == 5 {
            world.send_to(&model, "late", 2);
            end = writer.ask("topic late 2");
        }
        catch_up(&reader, end);
        same_as(&reader, &model);
    }
    // A reader opened late sees the same.
    same_as(&read(&place.root()), &model);
    assert_eq!(reader.damage(), []);
    writer.ask("close");
    same_as(&reader, &model);
}

#[test]
fn a_waiting_reader_is_woken_by_messages_of_another_process() {
    let place = Place::new();
    let mut writer = Writer::start(&place.root());
    let reader = read(&place.root());
    let engine = reader.engine().unwrap();
    let mut end = engine.readable_position();
    for _ in 0..20 {
        writer.tell("send 1");
        let next = engine.wait_readable(end, LONG);
        assert!(next > end);
        end = writer.answer().parse().unwrap();
        catch_up(&reader, end);
    }
    assert_eq!(engine.wait_readable(end, Duration::from_millis(20)), end);
}

#[test]
fn a_reader_that_was_opened_while_nobody_wrote_follows_the_writers_that_come() {
    let (place, model_place) = (Place::new(), Place::new());
    let model = write(&model_place.root());
    let store = write(&place.root());
    for store in [&store, &model] {
        World::default().send(store, 300);
    }
    store.close().unwrap();
    let reader = read(&place.root());
    same_as(&reader, &model);
    let before = reader.topic("orders").unwrap();
    let first = reader.engine().unwrap().readable_position();
    std::thread::scope(|scope| {
        // One thread sleeps since before the first writer came.
        let waiter = scope.spawn(|| {
            let engine = reader.engine().unwrap();
            assert!(engine.wait_readable(first, LONG) > first);
        });
        for _ in 0..3 {
            let mut writer = Writer::start(&place.root());
            let mut world = World::after(&model);
            for count in [1, 400] {
                world.send(&model, count);
                let end = writer.ask(&format!("send {count}"));
                catch_up(&reader, end);
                same_as(&reader, &model);
            }
            world.send_to(&model, "late", 3);
            let end = writer.ask("topic late 3");
            writer.ask("close");
            catch_up(&reader, end);
            same_as(&reader, &model);
        }
        waiter.join().unwrap();
    });
    assert_eq!(reader.topic("orders").unwrap().id, before.id);
    assert_eq!(reader.damage(), []);
    let verified = reader.verify(&mut |_, _| true).unwrap();
    assert_eq!(verified.damage, []);
    let last = crate::folder::listing(&place.root());
    reader.close().unwrap();
    assert_eq!(crate::folder::listing(&place.root()), last);
}

#[test]
fn a_reader_of_what_a_killed_writer_left_follows_the_next_one() {
    let (place, model_place) = (Place::new(), Place::new());
    let (model, mut world) = (write(&model_place.root()), World::default());
    let mut writer = Writer::start(&place.root());
    world.send(&model, 500);
    writer.ask("send 500");
    writer.child.kill().unwrap();
    writer.child.wait().unwrap();
    let reader = read(&place.root());
    same_as(&reader, &model);
    let mut writer = Writer::start(&place.root());
    World::after(&model).send(&model, 500);
    let end = writer.ask("send 500");
    catch_up(&reader, end);
    same_as(&reader, &model);
    // Even if that process is killed.
    writer.child.kill().unwrap();
    writer.child.wait().unwrap();
    let mut writer = Writer::start(&place.root());
    World::after(&model).send_to(&model, "after", 0);
    let end = writer.ask("topic after 0");
    catch_up(&reader, end);
    same_as(&reader, &model);
}

#[test]
fn a_closed_reader_wakes_who_waits_for_a_writer() {
    let (place, mut world) = (Place::new(), World::default());
    let store = write(&place.root());
    world.send(&store, 3);
    // One reader beside a writer, and one that waits for the next writer.
    let beside = read(&place.root());
    store.close().unwrap();
    for reader in [beside, read(&place.root())] {
        let end = reader.engine().unwrap().readable_position();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let Ok(engine) = reader.engine() else { return };
                    assert_eq!(engine.wait_readable(end, Duration::MAX), end);
                });
            }
            reader.close().unwrap();
        });
    }
}

#[test]
fn a_reader_sees_messages_in_order_while_they_are_sent() {
    let place = Place::new();
    let mut writer = Writer::start(&place.root());
    writer.ask("topic orders 0");
    let reader = read(&place.root());
    for _ in 0..3000 {
        writer.tell("topic orders 0");
    }
    let (mut next, deadline) = (0, Instant::now() + LONG);
    while next < 3001 {
        assert!(Instant::now() < deadline, "{next}");
        let all = Filter::default();
        let batch = reader.read("orders", 0, next, 100, None, &all).unwrap();
        for message in &batch.messages {
            assert_eq!(message.record().queue_offset(), next);
            next += 1;
        }
        assert_eq!(batch.next_offset as i64, next);
    }
    assert_eq!(reader.damage(), []);
}

#[test]
fn several_threads_of_a_reader_may_follow_a_writer() {
    let place = Place::new();
    let mut writer = Writer::start(&place.root());
    writer.ask("topic orders 0");
    let reader = read(&place.root());
    for _ in 0..20 {
        writer.tell("send 100");
    }
    let mut end = 0;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let (mut next, deadline) = (0, Instant::now() + LONG);
                // Two of seven messages go to each of the first queues of the first topic.
                while next < 300 {
                    assert!(Instant::now() < deadline, "{next}");
                    let all = Filter::default();
                    let batch = reader.read("orders", 0, next, 100, None, &all).unwrap();
                    for message in &batch.messages {
                        assert_eq!(message.record().queue_offset(), next);
                        next += 1;
                    }
                    assert!(batch.max_offset as i64 >= next);
                }
            });
        }
        for _ in 0..20 {
            end = writer.answer().parse().unwrap();
        }
    });
    catch_up(&reader, end);
    let files = std::fs::read_dir(place.root().join("commitlog"))
        .unwrap()
        .count();
    assert!(files > 5);
    assert_eq!(reader.verify(&mut |_, _| true).unwrap().damage, []);
}

#[test]
fn a_reader_outlives_a_writer_that_is_killed() {
    let (place, model_place) = (Place::new(), Place::new());
    let (model, mut world) = (write(&model_place.root()), World::default());
    let mut writer = Writer::start(&place.root());
    world.send(&model, 500);
    let end = writer.ask("send 500");
    let reader = read(&place.root());
    catch_up(&reader, end);
    writer.child.kill().unwrap();
    writer.child.wait().unwrap();
    same_as(&reader, &model);
    // A reader opened after that recovers in memory, and writes nothing.
    let before = crate::folder::listing(&place.root());
    let late = read(&place.root());
    assert!(!late.recovery().clean);
    same_as(&late, &model);
    late.close().unwrap();
    assert_eq!(crate::folder::listing(&place.root()), before);
    // The next writer continues, and the first reader follows it.
    let store = write(&place.root());
    same_as(&store, &model);
    let before = reader.engine().unwrap().readable_position();
    World::default().send_to(&store, "after", 0);
    catch_up(&reader, before + 1);
    assert_eq!(reader.offset_at("after", 0, i64::MAX).unwrap(), 1);
    store.close().unwrap();
}
