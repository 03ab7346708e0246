//! Tests on files that are truncated while they are mapped: each access after the end faults.

#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

use super::*;
use crate::region::{Access, PAGE, Region};
use std::fs::{File, OpenOptions};
use std::path::PathBuf;

/// A mapped, readable file of eight pages of `7`s that is then truncated to two.
fn truncated() -> (tempfile::TempDir, Region) {
    install();
    let dir = tempfile::tempdir().unwrap();
    let path: PathBuf = dir.path().join("file");
    std::fs::write(&path, vec![7; 8 * PAGE]).unwrap();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let region = Region::map(&file, &path, 8 * PAGE, Access::ReadWrite).unwrap();
    file.set_len(2 * PAGE as u64).unwrap();
    (dir, region)
}

fn position<T: fmt::Debug>(done: io::Result<T>) -> u64 {
    Fault::of(&done.unwrap_err()).unwrap().position
}

#[test]
fn a_load_that_faults_is_an_error_with_its_position() {
    let (_dir, region) = truncated();
    region.publish(region.len());
    let (page, end) = (PAGE as u64, 2 * PAGE);
    assert_eq!(position(region.slice(PAGE, 3 * PAGE)), 2 * page);
    assert_eq!(position(region.run(3 * PAGE + 5, 10)), 3 * page + 5);
    assert_eq!(position(region.words::<20>(end - 8)), 2 * page);
    assert_eq!(position(region.load_u32(end + 4)), 2 * page + 4);
    assert_eq!(position(region.load_u64(end + 8)), 2 * page + 8);
    for len in [1, 7, 8, 15, 16, 100, 5000] {
        assert_eq!(position(region.copy_out(end, &mut vec![0; len])) / page, 2);
    }
    let mut bytes = [0; 100];
    assert!(region.copy_out(end - 100, &mut bytes).unwrap());
    assert_eq!(bytes, [7; 100]);
    assert_eq!(region.slice(0, end).unwrap().unwrap().len(), end);
}

#[test]
fn a_store_that_faults_is_an_error_with_its_position() {
    let (_dir, region) = truncated();
    let (page, end) = (PAGE as u64, 2 * PAGE);
    for len in [1, 7, 8, 15, 16, 64, 100, 2047, 5000] {
        let at = position(region.write(end + 32, &vec![1; len]));
        assert_eq!(at / page, 2, "{len}");
    }
    assert_eq!(position(region.write(end - 100, &[1; 300])) / page, 2);
    assert_eq!(position(region.set_words(end - 4, &[1; 8])), 2 * page);
    assert_eq!(position(region.store_u64(end, 1)), 2 * page);
    let changed = region.update_u64(end, |_| unreachable!("the load fails"));
    assert_eq!(position(changed), 2 * page);
    assert_eq!(position(region.rewrite(0, 8 * PAGE)), 2 * page);
    region.notify(end);
    region.write(0, &[1; 100]).unwrap();
}

#[test]
fn every_length_is_copied_exactly() {
    let source: Vec<u8> = (0..3 * PAGE).map(|n| (n % 251) as u8).collect();
    let lens = (0..=300).chain([511, 1024, 2047, 2048, 2049, 4096, 2 * PAGE + 3]);
    for len in lens {
        for shift in [0, 1, 13] {
            let mut to = vec![0xEE; len + 64];
            // SAFETY: the ranges lie within two different vectors.
            unsafe { copy(source[shift..].as_ptr(), to[16..].as_mut_ptr(), len) }.unwrap();
            assert_eq!(to[16..16 + len], source[shift..shift + len], "{len}");
            let beside = to[..16].iter().chain(&to[16 + len..]);
            assert!(beside.copied().all(|byte| byte == 0xEE), "{len}");
        }
    }
}

#[test]
fn words_are_loaded_as_stored() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let file = File::create_new(&path).unwrap();
    file.set_len(PAGE as u64).unwrap();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let region = Region::map(&file, &path, PAGE, Access::ReadWrite).unwrap();
    let bytes: [u8; 20] = std::array::from_fn(|n| n as u8 + 1);
    region.set_words(4, &bytes).unwrap();
    assert_eq!(region.words::<20>(4).unwrap(), bytes);
    assert_eq!(region.words::<4>(0).unwrap(), [0; 4]);
    assert_eq!(region.words::<4>(24).unwrap(), [0; 4]);
    region.store_u64(40, u64::MAX - 1).unwrap();
    assert_eq!(region.load_u64(40).unwrap(), u64::MAX - 1);
    assert_eq!(region.load_u32(44).unwrap(), u32::MAX);
    region.update_u64(40, |old| (old > 5).then_some(5)).unwrap();
    region
        .update_u64(40, |old| (old > 5).then_some(old + 1))
        .unwrap();
    assert_eq!(region.load_u64(40).unwrap(), 5);
    region.notify(48);
    assert_eq!(region.load_u32(48).unwrap(), 1);
    // Outside the map or unaligned: nothing happens.
    region.set_words(PAGE - 4, &bytes).unwrap();
    region.store_u64(41, 9).unwrap();
    assert_eq!(region.words::<4>(PAGE - 4).unwrap(), [0; 4]);
    assert_eq!(region.load_u64(41).unwrap(), 0);
}

#[test]
fn many_threads_fault_at_once() {
    let (_dir, region) = truncated();
    region.publish(region.len());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    assert_eq!(position(region.slice(0, 3 * PAGE)), 2 * PAGE as u64);
                }
            });
        }
    });
}
