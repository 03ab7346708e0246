//! A disk that is read by copying: for a directory whose live owner may truncate its files, which a
//! map would answer with a signal.

use crate::disk::{Disk, Entry, RealDisk, Synced};
use crate::num::index;
use crate::region::{Access, Region};
use std::io;
use std::ops::Range;
use std::path::Path;

/// Reads like [`RealDisk`], but a map is a copy of what the file held when it was made. It refuses
/// to change anything.
#[derive(Clone, Copy, Debug)]
pub struct CopyingDisk;

const CHUNK: usize = 1 << 20;

fn refuse<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl Disk for CopyingDisk {
    fn map(&self, path: &Path, len: usize, _: Access) -> io::Result<Region> {
        let region = Region::anonymous(len, path)?;
        let mut buffer = vec![0; CHUNK];
        let mut at = 0;
        while let Some(data) = RealDisk.next_data(path, at)?
            && data.start < len as u64
        {
            let start = data.start;
            let part = index(data.end.min(len as u64) - start).min(CHUNK);
            let have = RealDisk.read_at(path, start, buffer.get_mut(..part).unwrap_or_default())?;
            if have == 0 {
                break;
            }
            region.write(index(start), buffer.get(..have).unwrap_or_default())?;
            at = start + have as u64;
        }
        Ok(region)
    }

    fn copies(&self) -> bool {
        true
    }

    fn read_at(&self, path: &Path, start: u64, buffer: &mut [u8]) -> io::Result<usize> {
        RealDisk.read_at(path, start, buffer)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        RealDisk.list(path)
    }

    fn look(&self, path: &Path) -> io::Result<Option<Entry>> {
        RealDisk.look(path)
    }

    fn next_data(&self, path: &Path, start: u64) -> io::Result<Option<Range<u64>>> {
        RealDisk.next_data(path, start)
    }

    fn free_space(&self, path: &Path) -> io::Result<u64> {
        RealDisk.free_space(path)
    }

    fn create(&self, _: &Path, _: u64) -> io::Result<()> {
        refuse()
    }

    fn create_directory(&self, _: &Path) -> io::Result<()> {
        refuse()
    }

    fn reserve(&self, _: &Path, _: u64, _: u64) -> io::Result<()> {
        refuse()
    }

    fn sync(&self, _: Synced<'_>) -> io::Result<()> {
        refuse()
    }

    fn write_at(&self, _: &Path, _: u64, _: &[u8]) -> io::Result<()> {
        refuse()
    }

    fn erase(&self, _: &Path, _: u64, _: u64) -> io::Result<()> {
        refuse()
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        refuse()
    }

    fn rename_new(&self, _: &Path, _: &Path) -> io::Result<()> {
        refuse()
    }

    fn unlink(&self, _: &Path) -> io::Result<()> {
        refuse()
    }

    fn remove_directory(&self, _: &Path) -> io::Result<()> {
        refuse()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod test {
    use super::*;
    use crate::engine::commit_log::log::Log;
    use crate::engine::commit_log::log::walker::{Step, Walker};
    use crate::mapped::queue::{file_name, list_files};
    use crate::mapped::{Extent, MappedFileQueue};
    use crate::{Draft, Durability, Options, Store};
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;

    #[test]
    fn a_walk_over_many_files_keeps_few_copies_and_finds_those_that_are_used() {
        const LEN: u64 = 1 << 30;
        let dir = tempfile::tempdir().unwrap();
        for number in 0..6 {
            let file = File::create(dir.path().join(file_name(number * LEN))).unwrap();
            file.set_len(LEN).unwrap();
            file.write_all_at(&number.to_ne_bytes(), 9).unwrap();
        }
        let disk: Arc<dyn Disk> = Arc::new(CopyingDisk);
        let files = MappedFileQueue::new(&disk, dir.path().to_owned(), LEN);
        let found = list_files(&*disk, dir.path()).unwrap();
        files.load(&found, Access::Read, |_| Extent::Full);
        let first = files.map(&files.first().unwrap()).unwrap();
        for (number, file) in (0u64..).zip(files.all()) {
            let region = files.map(&file).unwrap();
            let read = region.slice(9, 8).unwrap().unwrap();
            assert_eq!(read, number.to_ne_bytes());
            let kept = files.all().iter().filter(|file| file.is_mapped()).count();
            assert!(kept <= 2, "{kept} copies");
        }
        let again = files.map(&files.first().unwrap()).unwrap();
        assert!(
            Arc::ptr_eq(&first, &again),
            "what is in use is copied twice"
        );
    }

    #[test]
    fn a_record_is_read_alone() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("store");
        let options = Options {
            commitlog_file_size: Some(1 << 20),
            ..Options::default()
        };
        let store = Store::open(&root, options).unwrap();
        let producer = store.producer("orders", Some(0)).unwrap();
        for number in 0..300 {
            let body = vec![7; number * 31];
            let draft = Draft {
                body: &body,
                ..Draft::default()
            };
            producer.send(&draft, 0, Durability::Default).unwrap();
        }
        store.close().unwrap();
        let log_on = |disk: Arc<dyn Disk>| {
            let found = list_files(&*disk, &root.join("commitlog")).unwrap();
            Arc::new(Log::of_files(&disk, &root, &found, 1 << 20).unwrap())
        };
        let (copied, mapped) = (log_on(Arc::new(CopyingDisk)), log_on(Arc::new(RealDisk)));
        let mut walker = Walker::new(&mapped, 0, u64::MAX);
        let mut records = 0;
        loop {
            let position = walker.position();
            match walker.step().unwrap() {
                Step::Record(..) => {}
                Step::Blank => continue,
                Step::Flawed(_) | Step::End => break,
            }
            let (own, meant) = (
                copied.require(position).unwrap(),
                mapped.require(position).unwrap(),
            );
            assert_eq!(own.record().bytes(), meant.record().bytes());
            let inside = copied.record_at(position + 4).unwrap().record();
            assert!(inside.is_none(), "no record begins at {}", position + 4);
            records += 1;
        }
        assert_eq!(records, 300);
        assert!(copied.files.all().iter().all(|file| !file.is_mapped()));
    }
}
