//! Which files a step deletes: what is due, and what must stay.

use super::{Bench, HOUR, by_age, by_size};
use crate::clock::{Clock, ManualClock, RealClock};
use crate::engine::commit_log::verify::verify as verify_all;
use crate::engine::service::retention::{INTERVAL, Now};
use crate::machine::Machine;
use crate::options::Options;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn nothing_goes_where_nobody_asked_for_it() {
    let mut bench = Bench::new(|options| options.disk_reserve = Some(u64::MAX));
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
fn a_file_is_sealed_at_its_age_although_the_clock_was_set_back() {
    let clock = ManualClock::at(10_000);
    let machine = Machine {
        clock: Arc::<ManualClock>::clone(&clock),
        ..Machine::real()
    };
    let bench = Bench::on(&machine, |options| options.roll_after = Some(HOUR));
    bench.send("a", 10_000);
    let due = || bench.services.rolling.due(bench.parts(), clock.now_ms());
    assert_eq!(due(), None);
    clock.set(1);
    clock.advance(3_599_999);
    assert_eq!(due(), None);
    clock.advance(1);
    assert_eq!(due(), Some(0));
}

#[test]
fn the_last_record_of_a_file_is_found_after_long_and_damaged_ones() {
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

/// The clock of a store was compared with a steady clock that no test moves.
#[test]
fn a_clock_that_a_test_moves_is_trusted_however_far_it_moves() {
    let (now, hour) = (RealClock.now_ms(), DAY_MS / 24);
    let clock = ManualClock::at(now);
    let machine = Machine {
        clock: Arc::<ManualClock>::clone(&clock),
        ..Machine::real()
    };
    let mut bench = Bench::on(&machine, by_a_day);
    bench.fill("a", &[now, now + 20 * hour]);
    let mut step = || {
        bench.at += INTERVAL;
        let moment = bench.services.retention.now(bench.parts());
        let at = bench.at;
        bench.services.retain(bench.parts(), Now { at, ..moment });
        bench.files("commitlog")
    };
    assert_eq!(step(), [0, 1, 2]);
    clock.advance(23 * hour.cast_unsigned());
    assert_eq!(step(), [0, 1, 2]);
    clock.advance(2 * hour.cast_unsigned());
    assert_eq!(step(), [1, 2]);
    assert_eq!(bench.parts().report.damage(), []);
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
    services.retain(&parts, Now::stepped(3000, soon));
    assert_eq!(bench.files("commitlog"), [0, 1, 2]);
    services.retain(&parts, Now::stepped(3000, bench.at + INTERVAL));
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
        |options| options.disk_reserve = Some(u64::MAX),
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
        options.disk_reserve = Some(u64::MAX);
    };
    let mut bench = Bench::new(full);
    bench.fill("a", &[1, 1, 1]);
    bench.offsets(r#"{"offsetTable":{"a@group":{0:4}}}"#);
    assert_eq!(bench.step(1), [1, 2, 3]);
    assert_eq!(bench.bounds("a"), (3, 10));
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
