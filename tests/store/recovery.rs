//! Opening after a clean close or a crash: the same messages, offsets and keys as before.

use crate::draw::Draw;
use crate::folder;
use crate::world::{Place, World, change_mount, open_each_way, read, write};
use forebay::{Draft, Durability};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Marks of the state page, by their first bytes.
const PUBLISHED: u64 = 128;
const DISPATCHED: u64 = 192;
const DURABLE: u64 = 256;
const SETTLED: u64 = 384;

fn set_mark(root: &Path, mark: u64, position: u64) {
    edit(&root.join("forebay.state"), mark, &position.to_ne_bytes());
}

/// Overwrites bytes of a file.
pub fn edit(path: &Path, at: u64, bytes: &[u8]) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

/// Makes the marks those of another boot, as after a power loss that lost nothing else.
pub fn change_boot(root: &Path) {
    edit(&root.join("forebay.state"), 16, b"another boot of it");
    edit(&root.join("forebay.state"), 32, &1u64.to_ne_bytes());
}

/// A cleanly closed store.
pub fn closed(count: usize) -> (Place, World) {
    let (place, mut world) = (Place::new(), World::default());
    let store = write(&place.root());
    world.send(&store, count);
    store.close().unwrap();
    (place, world)
}

/// The store of a process that died: queues and index built, nothing closed.
pub fn crashed(count: usize) -> (Place, World) {
    let (place, mut world) = (Place::nth(1), World::default());
    let store = write(&place.root());
    world.send(&store, count);
    world.check_messages(&store);
    (Place::copy_of(&place.root()), world)
}

/// Runs a test after a clean close and after a crash.
fn both(count: usize, test: impl Fn(&Path, &World)) {
    for (place, world) in [closed(count), crashed(count)] {
        test(&place.root(), &world);
    }
}

/// A kind of damage with its name.
type NamedDamage<'a> = (&'a str, &'a dyn Fn(&Path));

/// Runs a test on copies of both stores, each damaged in one of several ways.
fn each_damage(count: usize, damages: &[NamedDamage<'_>]) {
    both(count, |root, world| {
        for (name, damage) in damages {
            println!("{name}");
            let copy = Place::copy_of(root);
            damage(&copy.root());
            open_each_way(&copy.root(), |store| world.check(store));
        }
    });
}

fn queue(root: &Path, topic: &str, queue: u32) -> PathBuf {
    root.join("consumequeue")
        .join(topic)
        .join(queue.to_string())
}

/// The files of a folder in order.
fn row(folder: &Path) -> Vec<PathBuf> {
    let mut files = folder::files(folder);
    files.sort();
    files
}

#[test]
fn a_closed_store_is_complete_and_needs_no_walk() {
    let (place, world) = closed(500);
    open_each_way(&place.root(), |store| {
        world.check(store);
        assert!(store.recovery().clean);
        assert_eq!(store.recovery().records_checked, 0);
        assert_eq!(store.damage(), []);
    });
}

#[test]
fn a_process_may_die_after_any_message() {
    let (place, mut world) = (Place::new(), World::default());
    let store = write(&place.root());
    for round in 0..24 {
        world.send(&store, 1 + 11 * (round % 5));
        if round % 6 == 3 {
            world.send_batch(&store, 20);
        }
        let copy = Place::copy_of(&place.root());
        open_each_way(&copy.root(), |store| {
            world.check(store);
            assert_eq!(store.damage(), []);
        });
    }
    world.check(&store);
}

#[test]
fn a_store_continues_after_each_crash() {
    let (mut place, mut world) = (Place::new(), World::default());
    for round in 0..8 {
        let store = write(&place.root());
        world.check(&store);
        world.send(&store, 40 + round);
        world.send_batch(&store, 7);
        place = Place::copy_of(&place.root());
        drop(store);
    }
    open_each_way(&place.root(), |store| world.check(store));
}

#[test]
fn small_files_may_be_missing_empty_or_garbage() {
    type Change = fn(&Path);
    let changes: [(&str, Change); 4] = [
        ("missing", |path| drop(fs::remove_file(path))),
        ("empty", |path| fs::write(path, b"").unwrap()),
        ("short", |path| {
            fs::write(path, b"forebay.offsets 1\npos").unwrap()
        }),
        ("garbage", |path| fs::write(path, [0xA5; 4096]).unwrap()),
    ];
    let names = ["forebay.state", "forebay.offsets", "checkpoint", "abort"];
    let sets = (1..16u32).flat_map(|set| changes.map(|change| (set, change)));
    let points: Vec<_> = sets.collect();
    both(300, |root, world| {
        Draw::new().each(12, points.clone(), |(set, (_, change))| {
            let copy = Place::copy_of(root);
            for (bit, name) in names.iter().enumerate() {
                if set >> bit & 1 == 1 {
                    change(&copy.root().join(name));
                }
            }
            open_each_way(&copy.root(), |store| {
                world.check(store);
                assert_eq!(store.damage(), []);
            });
        });
    });
}

#[test]
fn wrong_marks_are_not_trusted() {
    both(300, |root, world| {
        let end = u64::from_ne_bytes(
            fs::read(root.join("forebay.state")).unwrap()[128..136]
                .try_into()
                .unwrap(),
        );
        let mut points = Vec::new();
        for mark in [PUBLISHED, DISPATCHED, DURABLE, SETTLED] {
            for value in [0, 1, end / 2, end - 1, end - 50, u64::MAX, 1 << 40] {
                let changes = [|_: &Path| {}, change_mount, change_boot];
                points.extend(changes.map(|change| (mark, value, change)));
            }
        }
        Draw::new().each(16, points, |(mark, value, change)| {
            let copy = Place::copy_of(root);
            set_mark(&copy.root(), *mark, *value);
            change(&copy.root());
            open_each_way(&copy.root(), |store| world.check(store));
        });
    });
}

#[test]
fn a_reboot_that_lost_nothing_costs_nothing() {
    for count in [1, 50, 400] {
        for change in [change_boot, change_mount] {
            let (place, world) = crashed(count);
            change(&place.root());
            open_each_way(&place.root(), |store| world.check(store));
        }
    }
}

#[test]
fn missing_queues_are_rebuilt() {
    let orders = |root: &Path| row(&queue(root, "orders", 1));
    each_damage(
        900,
        &[
            ("all", &|root| {
                fs::remove_dir_all(root.join("consumequeue")).unwrap()
            }),
            ("topic", &|root| {
                fs::remove_dir_all(root.join("consumequeue/bills")).unwrap();
            }),
            ("queue", &|root| {
                fs::remove_dir_all(queue(root, "orders", 0)).unwrap()
            }),
            ("files of a queue", &|root| {
                orders(root)
                    .iter()
                    .for_each(|file| fs::remove_file(file).unwrap());
            }),
            ("first file", &|root| {
                fs::remove_file(&orders(root)[0]).unwrap()
            }),
            ("middle file", &|root| {
                fs::remove_file(&orders(root)[1]).unwrap()
            }),
            ("last file", &|root| {
                fs::remove_file(orders(root).last().unwrap()).unwrap();
            }),
        ],
    );
}

#[test]
fn damaged_queues_lose_no_message() {
    let orders = |root: &Path| row(&queue(root, "orders", 1));
    let rewrite = |path: &Path, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = fs::read(path).unwrap();
        change(&mut bytes);
        fs::write(path, bytes).unwrap();
    };
    each_damage(
        900,
        &[
            ("short last file", &|root| {
                rewrite(orders(root).last().unwrap(), &|bytes| bytes.truncate(100));
            }),
            ("empty first file", &|root| {
                rewrite(&orders(root)[0], &Vec::clear)
            }),
            ("long file", &|root| {
                rewrite(&orders(root)[1], &|b| b.resize(4000, 0))
            }),
            ("zeroed file", &|root| {
                rewrite(&orders(root)[1], &|bytes| bytes.fill(0))
            }),
            ("zeroed part", &|root| {
                rewrite(&orders(root)[1], &|bytes| bytes[200..600].fill(0));
            }),
            ("zeroed begin", &|root| {
                rewrite(&orders(root)[0], &|b| b[..200].fill(0))
            }),
            ("zeroed end", &|root| {
                rewrite(orders(root).last().unwrap(), &|b| b.fill(0))
            }),
            ("garbage", &|root| {
                rewrite(&orders(root)[1], &|bytes| bytes.fill(0x77))
            }),
            ("negative", &|root| {
                rewrite(orders(root).last().unwrap(), &|b| b.fill(0xFF))
            }),
            ("swapped entries", &|root| {
                rewrite(&orders(root)[1], &|bytes| bytes.rotate_left(20));
            }),
            ("swapped files", &|root| {
                let (a, b) = (orders(root)[0].clone(), orders(root)[1].clone());
                fs::rename(&a, root.join("x")).unwrap();
                fs::rename(&b, &a).unwrap();
                fs::rename(root.join("x"), &b).unwrap();
            }),
            ("another queue's file", &|root| {
                let others = row(&queue(root, "orders", 0));
                fs::copy(&others[1], &orders(root)[1]).unwrap();
            }),
            ("ahead of the log", &|root| {
                rewrite(orders(root).last().unwrap(), &|bytes| {
                    for entry in bytes.chunks_exact_mut(20).filter(|e| **e == [0; 20]) {
                        entry[..8].copy_from_slice(&(1u64 << 33).to_be_bytes());
                        entry[8..12].copy_from_slice(&200u32.to_be_bytes());
                    }
                });
            }),
            ("a file far ahead", &|root| {
                let far = queue(root, "orders", 1).join(format!("{:020}", 1280u64 << 40));
                fs::copy(&orders(root)[0], far).unwrap();
            }),
            ("a file beside", &|root| {
                let odd = queue(root, "orders", 1).join(format!("{:020}", 20));
                fs::copy(&orders(root)[0], odd).unwrap();
            }),
        ],
    );
}

#[test]
fn a_missing_or_damaged_index_loses_no_key() {
    let index = |root: &Path| row(&root.join("index"));
    let entries = 40 + 16 * 4;
    each_damage(
        900,
        &[
            ("all", &|root| {
                fs::remove_dir_all(root.join("index")).unwrap()
            }),
            ("first", &|root| fs::remove_file(&index(root)[0]).unwrap()),
            ("middle", &|root| fs::remove_file(&index(root)[2]).unwrap()),
            ("last", &|root| {
                fs::remove_file(index(root).last().unwrap()).unwrap()
            }),
            ("header", &|root| edit(&index(root)[1], 0, &[0x55; 40])),
            ("no header", &|root| edit(&index(root)[1], 0, &[0; 40])),
            ("count", &|root| edit(&index(root)[1], 36, &[0x7F; 4])),
            ("truncated", &|root| {
                let bytes = fs::read(&index(root)[1]).unwrap();
                fs::write(&index(root)[1], &bytes[..300]).unwrap();
            }),
            ("empty", &|root| {
                fs::write(index(root).last().unwrap(), b"").unwrap()
            }),
            ("cycles", &|root| {
                for number in 2..100u32 {
                    let at = u64::from(entries + 20 * number + 16);
                    edit(&index(root)[0], at, &number.to_be_bytes());
                }
            }),
            ("upwards", &|root| {
                for number in 2..100u32 {
                    let at = u64::from(entries + 20 * number + 16);
                    edit(&index(root)[0], at, &(number + 1).to_be_bytes());
                }
            }),
            ("chains into others", &|root| {
                for number in 2..100u32 {
                    let at = u64::from(entries + 20 * number + 16);
                    edit(&index(root)[0], at, &(number - 1).to_be_bytes());
                }
            }),
            ("ahead of the log", &|root| {
                edit(index(root).last().unwrap(), 24, &(1u64 << 40).to_be_bytes());
            }),
            ("swapped", &|root| {
                let (a, b) = (index(root)[0].clone(), index(root)[1].clone());
                fs::rename(&a, root.join("x")).unwrap();
                fs::rename(&b, &a).unwrap();
                fs::rename(root.join("x"), &b).unwrap();
            }),
            ("another's name", &|root| {
                fs::write(root.join("index/notes"), b"x").unwrap()
            }),
        ],
    );
}

#[test]
fn a_lost_end_of_the_log_is_reported() {
    both(900, |root, _| {
        let end = published(root);
        let (last, at) = log_file(root, end - 1);
        fs::remove_file(last).unwrap();
        for open in [read, write] {
            let store = open(root);
            let damage = store.damage();
            let [found] = damage.as_slice() else {
                panic!("{damage:?}");
            };
            assert_eq!((found.position, found.length), (end - 1 - at, at + 1));
        }
    });
}

/// A clean close records the next offsets of all queues.
#[test]
fn offsets_in_a_lost_end_are_not_assigned_again() {
    let (place, world) = closed(900);
    let (last, _) = log_file(&place.root(), published(&place.root()) - 1);
    fs::remove_file(last).unwrap();
    let store = write(&place.root());
    for ((topic, queue), next) in &world.next {
        let producer = store.producer(topic, Some(*queue)).unwrap();
        let sent = producer.send(&Draft::default(), 0, Durability::Default);
        assert_eq!(sent.unwrap().place.offset, *next, "{topic} {queue}");
    }
}

/// A broker was started on a cleanly closed store, and lost its power. Pages that it had written
/// have their old contents.
#[test]
fn an_index_torn_by_a_broker_after_a_close_loses_no_key() {
    let (place, world) = closed(900);
    let last = row(&place.root().join("index")).pop().unwrap();
    edit(&last, 40, &[0; 16]);
    fs::write(place.root().join("abort"), "4711").unwrap();
    open_each_way(&place.root(), |store| world.check(store));
}

#[test]
fn queues_and_index_that_lag_catch_up() {
    let (place, mut world) = (Place::new(), World::default());
    let store = write(&place.root());
    world.send(&store, 200);
    world.check_messages(&store);
    let before = Place::copy_of(&place.root());
    world.send(&store, 300);
    world.check_messages(&store);
    let after = Place::copy_of(&place.root());
    for caches in [
        ["consumequeue"].as_slice(),
        &["index"],
        &["consumequeue", "index"],
    ] {
        let copy = Place::copy_of(&after.root());
        for cache in caches {
            fs::remove_dir_all(copy.root().join(cache)).unwrap();
            folder::copy(&before.root().join(cache), &copy.root().join(cache));
        }
        let state = fs::read(before.root().join("forebay.state")).unwrap();
        for mark in [DISPATCHED, DURABLE] {
            let at = usize::try_from(mark).unwrap();
            edit(&copy.root().join("forebay.state"), mark, &state[at..at + 8]);
        }
        open_each_way(&copy.root(), |store| world.check(store));
    }
}

/// End of the log according to the state page.
fn published(root: &Path) -> u64 {
    let page = fs::read(root.join("forebay.state")).unwrap();
    u64::from_ne_bytes(page[128..136].try_into().unwrap())
}

pub fn log_file(root: &Path, position: u64) -> (PathBuf, u64) {
    let start = position - position % (64 << 10);
    (
        root.join(format!("commitlog/{start:020}")),
        position - start,
    )
}

#[test]
fn garbage_and_stale_records_after_the_end_are_not_messages() {
    let (place, world) = crashed(330);
    let end = published(&place.root());
    let stale = world.sent.values().find(|m| m.body.len() > 100).unwrap();
    let (path, at) = log_file(&place.root(), stale.position);
    let record = fs::read(path).unwrap()[usize::try_from(at).unwrap()..][..400].to_vec();
    let mut moved = record.clone();
    moved[28..36].copy_from_slice(&end.to_be_bytes());
    for garbage in [vec![0x5A; 500], vec![0xDA; 4000], record, moved] {
        for reboot in [false, true] {
            let copy = Place::copy_of(&place.root());
            let (path, at) = log_file(&copy.root(), end);
            edit(&path, at, &garbage);
            if reboot {
                change_boot(&copy.root());
            }
            open_each_way(&copy.root(), |store| {
                world.check(store);
                assert_eq!(store.damage(), []);
            });
            let bytes = fs::read(&path).unwrap();
            assert!(
                bytes[usize::try_from(at).unwrap()..]
                    .iter()
                    .all(|byte| *byte == 0)
            );
        }
    }
}

/// Numbers of bytes left in a file, where an empty record takes `empty` bytes: the values around
/// the limits for a BLANK and for a record with a BLANK, and some others.
fn bytes_left(empty: u64) -> Vec<u64> {
    let edges = [8, 9, empty - 1, empty, empty + 7, empty + 8, empty + 9];
    let between = (10..=empty + 20).filter(|left| !edges.contains(left));
    let mut all: Vec<u64> = edges.into_iter().chain([500, 4000]).collect();
    all.extend(Draw::new().some(16, between.collect()));
    all
}

#[test]
fn a_file_may_end_with_any_number_of_bytes_left() {
    // The length of a record with an empty body, from the distance between two of them.
    let probe = Place::new();
    let store = write(&probe.root());
    let producer = store.producer("t", Some(0)).unwrap();
    let send = |body: &[u8]| {
        let draft = forebay::Draft {
            body,
            ..forebay::Draft::default()
        };
        producer
            .send(&draft, 0, forebay::Durability::Default)
            .unwrap()
            .place
            .position
    };
    let empty = (send(b""), send(b"")).1;
    drop(store);
    for (number, left) in bytes_left(empty).into_iter().enumerate() {
        println!("{left} left");
        let place = Place::nth(number);
        let store = write(&place.root());
        let producer = store.producer("t", Some(0)).unwrap();
        let mut room = (64 << 10) - left;
        let mut sent = Vec::new();
        while room > 0 {
            let len = if room > 16_000 { 12_000 } else { room - empty };
            let body = vec![7; usize::try_from(len).unwrap()];
            let draft = forebay::Draft {
                body: &body,
                ..forebay::Draft::default()
            };
            let place = producer
                .send(&draft, 0, forebay::Durability::Default)
                .unwrap()
                .place;
            sent.push((place.position, body));
            room -= len + empty;
        }
        let bodies = |store: &forebay::Store| -> Vec<(u64, Vec<u8>)> {
            let all = forebay::Filter::default();
            let batch = store.read("t", 0, 0, 100, None, &all).unwrap();
            let place = |m: &forebay::Message| m.record().position() as u64;
            let found = batch.messages.iter();
            found
                .map(|m| (place(m), m.body().unwrap().into_owned()))
                .collect()
        };
        let full = Place::copy_of(&place.root());
        open_each_way(&full.root(), |store| assert_eq!(bodies(store), sent));
        let draft = forebay::Draft {
            body: &[9; 100],
            ..forebay::Draft::default()
        };
        let rolled = producer
            .send(&draft, 0, forebay::Durability::Default)
            .unwrap()
            .place;
        sent.push((rolled.position, vec![9; 100]));
        let fits = left >= empty + 100 + 8;
        assert_eq!(rolled.position < 64 << 10, fits, "{left} left");
        let full = Place::copy_of(&place.root());
        open_each_way(&full.root(), |store| assert_eq!(bodies(store), sent));
        // Also if the writer starts when the first file is just full.
        let store = write(&full.root());
        let producer = store.producer("t", Some(0)).unwrap();
        producer.send(&draft, 0, Durability::Default).unwrap();
        assert_eq!(bodies(&store).len(), sent.len() + 1);
    }
}

#[test]
fn files_created_ahead_are_removed_by_the_next_opening() {
    let (place, world) = crashed(900);
    let files = row(&place.root().join("commitlog"));
    let last = fs::read(files.last().unwrap()).unwrap();
    let next = files.len() as u64 * (64 << 10);
    for count in 1..3u64 {
        let copy = Place::copy_of(&place.root());
        for number in 0..count {
            let name = format!("commitlog/{:020}", next + number * (64 << 10));
            fs::write(copy.root().join(name), vec![0; last.len()]).unwrap();
        }
        open_each_way(&copy.root(), |store| {
            world.check(store);
            assert_eq!(store.damage(), []);
        });
        assert!(row(&copy.root().join("commitlog")).len() <= files.len());
    }
}

#[test]
fn an_unfinished_atomic_batch_is_discarded() {
    // Within a file, and across its end.
    for (number, (count, rows)) in [(100, 30), (100, 400)].into_iter().enumerate() {
        let (place, mut world) = (Place::nth(number), World::default());
        let store = write(&place.root());
        world.send(&store, count);
        world.check_messages(&store);
        let before = Place::copy_of(&place.root());
        let mut whole = world.clone();
        let positions = whole.send_batch(&store, rows);
        whole.check_messages(&store);
        let after = Place::copy_of(&place.root());
        let end = published(&after.root());
        let begin = published(&before.root());
        let mut cuts: Vec<u64> = positions.iter().copied().step_by(rows / 10).collect();
        cuts.extend([
            begin + 4,
            begin + 60,
            *positions.last().unwrap(),
            end - 1,
            end - 30,
        ]);
        let ways = [(false, false), (true, false), (false, true)];
        let points = cuts
            .into_iter()
            .flat_map(|cut| ways.map(|(queues, reboot)| (cut, queues, reboot)));
        for (cut, queues, reboot) in Draw::new().some(8, points.collect()) {
            println!("cut at {cut}, queues {queues}, reboot {reboot}");
            let copy = Place::copy_of(&before.root());
            fs::remove_dir_all(copy.root().join("commitlog")).unwrap();
            folder::copy(
                &after.root().join("commitlog"),
                &copy.root().join("commitlog"),
            );
            for file in row(&copy.root().join("commitlog")) {
                let name = file.file_name().unwrap().to_str().unwrap().to_owned();
                let start: u64 = name.parse().unwrap();
                let mut bytes = fs::read(&file).unwrap();
                let from = cut.saturating_sub(start).min(64 << 10);
                bytes[usize::try_from(from).unwrap()..].fill(0);
                fs::write(&file, bytes).unwrap();
            }
            if queues {
                fs::remove_dir_all(copy.root().join("consumequeue")).unwrap();
                let queues = after.root().join("consumequeue");
                folder::copy(&queues, &copy.root().join("consumequeue"));
            }
            if reboot {
                change_boot(&copy.root());
            }
            open_each_way(&copy.root(), |store| {
                world.check(store);
                assert_eq!(store.damage(), []);
            });
            // Its offsets are assigned again.
            let store = write(&copy.root());
            let mut again = world.clone();
            again.send(&store, 30);
            again.check(&store);
        }
        open_each_way(&after.root(), |store| whole.check(store));
    }
}

#[test]
fn messages_of_retired_log_files_are_gone() {
    both(900, |root, world| {
        let files = row(&root.join("commitlog"));
        for retired in [1, 2, files.len() - 1] {
            for lost in [None, Some("consumequeue"), Some("index")] {
                // Without queues and their bounds nothing shows which messages are missing.
                let known = root.join("forebay.offsets").exists();
                if lost == Some("consumequeue") && retired > 2 && !known {
                    continue;
                }
                let copy = Place::copy_of(root);
                for file in row(&copy.root().join("commitlog")).iter().take(retired) {
                    fs::remove_file(file).unwrap();
                }
                if let Some(lost) = lost {
                    fs::remove_dir_all(copy.root().join(lost)).unwrap();
                }
                let mut left = world.clone();
                left.retire(retired as u64 * (64 << 10));
                println!("{retired} {lost:?}");
                open_each_way(&copy.root(), |store| {
                    left.check(store);
                    for ((topic, queue), next) in &left.next {
                        let all = forebay::Filter::default();
                        let found = store.read(topic, *queue, 0, 1, None, &all).unwrap();
                        let mut own = left.sent.keys();
                        let first = own.find(|(t, q, _)| t == topic && q == queue);
                        let min = first.map_or(*next, |(.., offset)| *offset);
                        assert_eq!(found.min_offset, min, "{topic} {queue}");
                    }
                });
            }
        }
    });
}

#[test]
fn the_next_offset_of_a_queue_outlives_its_messages_and_its_files() {
    let (place, mut world) = (Place::new(), World::default());
    let store = write(&place.root());
    for _ in 0..70 {
        world.send_to(&store, "early", 0);
    }
    world.send(&store, 900);
    store.close().unwrap();
    for lost in [false, true] {
        let copy = Place::copy_of(&place.root());
        let files = row(&copy.root().join("commitlog"));
        let mut left = world.clone();
        for file in &files[..3] {
            fs::remove_file(file).unwrap();
        }
        left.retire(3 * (64 << 10));
        assert!(!left.sent.keys().any(|(topic, ..)| topic == "early"));
        if lost {
            fs::remove_dir_all(copy.root().join("consumequeue")).unwrap();
        }
        open_each_way(&copy.root(), |store| left.check(store));
        let store = write(&copy.root());
        left.send_to(&store, "early", 0);
        left.check(&store);
        store.close().unwrap();
        open_each_way(&copy.root(), |store| left.check(store));
    }
}

/// The other process of the test below: sends and prints what was acknowledged, until it is killed.
#[test]
fn child_that_sends_until_it_is_killed() {
    let Some(root) = std::env::var_os("FOREBAY_TEST_KILLED") else {
        return;
    };
    let store = write(Path::new(&root));
    let producer = store.producer("orders", Some(0)).unwrap();
    for number in 0u64.. {
        let text = number.to_string();
        let draft = forebay::Draft {
            body: &vec![b'x'; usize::try_from(number % 700).unwrap()],
            keys: &[&text],
            ..forebay::Draft::default()
        };
        let durability = match number % 50 {
            0 => forebay::Durability::Flushed,
            _ => forebay::Durability::Default,
        };
        let sent = producer.send(&draft, 0, durability).unwrap();
        println!("sent {}", sent.place.offset);
    }
}

#[test]
fn messages_acknowledged_to_a_killed_process_survive() {
    let place = Place::new();
    let mut next = 0;
    for round in 0..8 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "recovery::child_that_sends_until_it_is_killed"])
            .args(["--nocapture", "--test-threads=1"])
            .env("FOREBAY_TEST_KILLED", place.root())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = None;
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for line in lines.map_while(Result::ok) {
            if let Some((_, offset)) = line.split_once("sent ") {
                told = offset.parse::<u64>().ok().or(told);
                if told >= Some(next + 100 + 37 * round) {
                    // The kill hits any of the following sends.
                    child.kill().unwrap();
                }
            }
        }
        child.wait().unwrap();
        let told = told.unwrap();
        let reader = crate::world::read(&place.root());
        let store = match round % 2 {
            0 => write(&place.root()),
            _ => reader.clone(),
        };
        let end = store.offset_at("orders", 0, i64::MAX).unwrap();
        assert!(end > told, "{end} {told}");
        for offset in 0..end {
            let message = store.get("orders", 0, offset as i64).unwrap();
            let key = message.keys()[0].to_string();
            if offset % 97 == 3 {
                let found = store
                    .query("orders", &key, i64::MIN, i64::MAX, 100)
                    .unwrap();
                assert!(
                    found
                        .iter()
                        .any(|m| m.record().queue_offset() as u64 == offset)
                );
            }
        }
        assert_eq!(store.damage(), []);
        assert_eq!(store.verify(&mut |_, _| true).unwrap().damage, []);
        next = end;
        store.close().unwrap();
        reader.close().unwrap();
    }
}
