//! Blocks of a file, where the file system cannot reserve or release them by one call.

use super::syscall;
use crate::num::index;
use crate::region::PAGE;
use std::fs::File;
use std::io;
use std::ops::Range;

/// Bytes written at a time where one call cannot reserve blocks.
const COPY_LEN: usize = 1 << 20;

/// Writes zeros over data only, and skips holes: it allocates no blocks.
pub fn write_zeros(file: &File, start: u64, len: u64) -> io::Result<()> {
    write_zeros_where(file, start..start + len, |at| syscall::next_data(file, at))
}

/// [`write_zeros`] with a function that finds the data from a position on. It is called once for
/// each run of data, since some file systems examine every page of a run to find its end.
fn write_zeros_where(
    file: &File,
    bytes: Range<u64>,
    mut next_data: impl FnMut(u64) -> io::Result<Option<Range<u64>>>,
) -> io::Result<()> {
    let zeros = [0; PAGE];
    let mut at = bytes.start;
    while let Some(data) = next_data(at)?.filter(|data| data.start < bytes.end) {
        at = data.start.max(at);
        let end = data.end.min(bytes.end);
        while at < end {
            let step = (PAGE as u64 - at % PAGE as u64).min(end - at);
            let part = zeros.get(..index(step)).unwrap_or_default();
            syscall::write_all_at(file, part, at)?;
            at += step;
        }
    }
    Ok(())
}

/// Allocates the blocks of all pages that a range of an open file touches.
///
/// A store needs all blocks of its page, and a block may be smaller than a page.
pub fn reserve(file: &File, start: u64, len: u64) -> io::Result<()> {
    let end = (start + len).next_multiple_of(PAGE as u64);
    let start = start / PAGE as u64 * PAGE as u64;
    let len = end - start;
    match syscall::reserve(file, start, len) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => fill(file, start, len),
        done => done,
    }
}

/// Sets the length of an open file and allocates its blocks, so that a store to its map cannot
/// fail.
pub fn reserve_open(file: &File, len: u64) -> io::Result<()> {
    file.set_len(len)?;
    reserve(file, 0, len)
}

/// Allocates blocks by writing zeros to pages that are zero, for file systems that cannot reserve.
/// A page with a nonzero byte already has its block and is not written.
///
/// Nobody may store to a page between the read and the write: see
/// [`FileSystem::reserve`](super::FileSystem::reserve).
fn fill(file: &File, start: u64, len: u64) -> io::Result<()> {
    fill_pausing(file, start, len, || {})
}

/// [`fill`], with a pause between each read and the write.
pub fn fill_pausing(file: &File, start: u64, len: u64, mut pause: impl FnMut()) -> io::Result<()> {
    let end = (start + len).min(file.metadata()?.len());
    let zeros = vec![0; COPY_LEN];
    let mut buffer = vec![0; COPY_LEN];
    let mut at = start;
    while at < end {
        // Stop at a multiple of COPY_LEN, so that no page is split.
        let step = (COPY_LEN as u64 - at % COPY_LEN as u64).min(end - at);
        let have = match buffer.get_mut(..index(step)) {
            Some(part) => syscall::read_at(file, part, at)?,
            None => 0,
        };
        if have == 0 {
            break;
        }
        let bytes = buffer.get(..have).unwrap_or_default();
        pause();
        for run in zero_runs(bytes, index(at % PAGE as u64)) {
            let part = zeros.get(..run.len()).unwrap_or_default();
            syscall::write_all_at(file, part, at + run.start as u64)?;
        }
        at += have as u64;
    }
    Ok(())
}

/// Runs of pages that are all zero. The first byte is byte `offset` of its page.
fn zero_runs(bytes: &[u8], offset: usize) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let to = (at + PAGE - (at + offset) % PAGE).min(bytes.len());
        let page = bytes.get(at..to).unwrap_or_default();
        if page.iter().fold(0, |any, byte| any | byte) == 0 {
            match runs.last_mut() {
                Some(run) if run.end == at => run.end = to,
                _ => runs.push(at..to),
            }
        }
        at = to;
    }
    runs
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod test {
    use super::*;
    use crate::disk::opening::options;
    use std::fs;
    use std::path::Path;

    fn create(path: &Path, len: u64) -> File {
        let file = options(true, true).create_new(true).open(path).unwrap();
        file.set_len(len).unwrap();
        file
    }

    #[test]
    fn zeros_replace_data_and_fill_no_hole() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let page = PAGE as u64;
        let file = create(&path, 400 * page);
        for at in [0, 200 * page] {
            syscall::write_all_at(&file, &[7; 100 * PAGE], at).unwrap();
        }
        let blocks = file.metadata().unwrap().blocks();
        let mut asked = 0;
        let next_data = |at| {
            asked += 1;
            syscall::next_data(&file, at)
        };
        write_zeros_where(&file, 10..300 * page - 10, next_data).unwrap();
        assert!(asked <= 3, "{asked}");
        let bytes = fs::read(&path).unwrap();
        let left: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
        let expected = (0..10).chain(300 * PAGE - 10..300 * PAGE);
        assert!(left.into_iter().eq(expected));
        assert_eq!(file.metadata().unwrap().blocks(), blocks);
    }

    /// Without a reserve call, a range is allocated by writing to it; its data must not change.
    #[test]
    fn filling_a_range_gives_it_blocks_and_changes_no_byte() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let len = 3 * COPY_LEN as u64 + 100;
        let file = create(&path, len);
        let stored = [0, 5_000, COPY_LEN as u64 - 1, 2 * COPY_LEN as u64 + 77];
        for at in stored {
            syscall::write_all_at(&file, &[7; 3], at).unwrap();
        }
        let before = fs::read(&path).unwrap();
        for (start, part) in [(0, 10), (10, PAGE as u64), (4_106, len), (len, 1 << 20)] {
            fill(&file, start, part).unwrap();
        }
        assert!(fs::read(&path).unwrap() == before);
        assert!(file.metadata().unwrap().blocks() * 512 >= len);
        assert_eq!(file.metadata().unwrap().len(), len);
    }

    #[test]
    fn only_pages_that_are_all_zero_are_written() {
        let mut bytes = vec![0; 5 * PAGE];
        assert_eq!(zero_runs(&bytes, 0), std::slice::from_ref(&(0..5 * PAGE)));
        bytes[2 * PAGE] = 1;
        assert_eq!(zero_runs(&bytes, 0), [0..2 * PAGE, 3 * PAGE..5 * PAGE]);
        // The nonzero byte's page begins 100 bytes earlier.
        let runs = [0..2 * PAGE - 100, 3 * PAGE - 100..5 * PAGE];
        assert_eq!(zero_runs(&bytes, 100), runs);
        assert!(zero_runs(&[], 7).is_empty());
    }
}
