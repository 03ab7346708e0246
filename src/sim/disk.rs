//! A disk in memory that loses what was not synced.
//!
//! For each file there are three images: the *cache*, which maps share and reads see; what of it
//! the kernel takes for *clean*; and what the *platter* holds. A sector is dirty where cache and
//! clean differ. A sync copies the dirty sectors of its range to the platter and calls them clean;
//! one that fails calls them clean too and stores only some. At any call some dirty sectors may go
//! to the platter by themselves. Names are kept twice as well: as they are, and as of the last sync
//! of their directory.
//!
//! When the power goes each dirty sector and each name that was not synced is tossed for. When the
//! process dies nothing is lost.

use super::random::Random;
use crate::disk::{Disk, Entry, FileLock, Holder, Kind, LockState};
use crate::mapped::{Access, Region};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SECTOR: usize = 512;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Directory,
    File(usize),
}

type Names = BTreeMap<PathBuf, Node>;

#[derive(Debug)]
struct Inode {
    cache: Region,
    len: usize,
    clean: Vec<u8>,
    platter: Vec<u8>,
    platter_len: usize,
}

impl Inode {
    fn new(len: usize) -> Inode {
        Inode {
            cache: Region::anonymous(len, Path::new("simulated")).unwrap(),
            len,
            clean: vec![0; len],
            platter: vec![0; len],
            platter_len: 0,
        }
    }

    /// A file that the platter holds as it is.
    fn holding(bytes: Vec<u8>) -> Inode {
        let inode = Inode::new(bytes.len());
        inode.cache.overwrite(0, &bytes);
        Inode {
            clean: bytes.clone(),
            platter_len: bytes.len(),
            platter: bytes,
            ..inode
        }
    }

    /// The file with a cache of its own, that no map of this one reaches.
    fn apart(&self) -> Inode {
        let inode = Inode::new(self.len);
        inode.cache.overwrite(0, &self.cache.contents()[..self.len]);
        Inode {
            clean: self.clean.clone(),
            platter: self.platter.clone(),
            platter_len: self.platter_len,
            ..inode
        }
    }

    /// Dirty sectors that begin in the range.
    fn dirty(&self, start: usize, end: usize) -> Vec<usize> {
        let cache = &self.cache.contents()[..self.len];
        if cache[start.min(self.len)..end.min(self.len)]
            == self.clean[start.min(self.len)..end.min(self.len)]
        {
            return Vec::new();
        }
        let first = start / SECTOR * SECTOR;
        let differs = |at: &usize| {
            let to = (at + SECTOR).min(self.len);
            cache[*at..to] != self.clean[*at..to]
        };
        (first..end.min(self.len))
            .step_by(SECTOR)
            .filter(differs)
            .collect()
    }

    /// Sends a sector to the platter.
    fn write_back(&mut self, at: usize) {
        let to = (at + SECTOR).min(self.len);
        let sector = &self.cache.contents()[at..to];
        self.platter[at..to].copy_from_slice(sector);
        self.clean[at..to].copy_from_slice(sector);
    }

    /// Calls a sector clean without storing it.
    fn forget(&mut self, at: usize) {
        let to = (at + SECTOR).min(self.len);
        self.clean[at..to].copy_from_slice(&self.cache.contents()[at..to]);
    }

    fn sync(&mut self, start: usize, end: usize) {
        for at in self.dirty(start, end) {
            self.write_back(at);
        }
        self.platter_len = self.len;
    }
}

/// What a disk does badly, and how its machine stops.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// How the machine stops.
    pub stop: Stop,
    /// The power goes at this call from here on, or never.
    pub dies_at: Option<u64>,
    /// Syncs that fail, of 1,000.
    pub failing_syncs: u64,
    /// Calls that find no room, of 1,000.
    pub full: u64,
    /// Calls on a file or a name that fail and do nothing, of 1,000: for want of descriptors or of
    /// memory, or because the device fails.
    pub failing_calls: u64,
    /// One map of a file that fails likewise, counted from here on.
    pub failing_map: Option<u64>,
    /// Sectors that may go to the platter by themselves at a call.
    pub written_back: u64,
}

impl Faults {
    /// Whether calls fail that do nothing then.
    fn fail_calls(&self) -> bool {
        self.failing_calls > 0 || self.failing_map.is_some()
    }
}

/// How a machine stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The process dies: the page cache stays.
    Process,
    /// The power goes: what was not synced is tossed for.
    Power,
}

#[derive(Debug)]
struct State {
    random: Random,
    faults: Faults,
    inodes: Vec<Inode>,
    names: Names,
    synced_names: Names,
    calls: u64,
    maps: u64,
    /// What is left, once the machine has stopped.
    left: Option<Box<State>>,
    boot: u8,
    /// Whether only the last process died.
    kept: bool,
    /// Files that were synced, and up to where.
    syncs: Vec<(PathBuf, usize)>,
}

/// The bytes of every file, `None` for a directory.
pub type Image = BTreeMap<PathBuf, Option<Vec<u8>>>;

/// What other senders do while a sync is on its way.
type DuringSync = Box<dyn FnMut() + Send>;

/// The disk.
pub struct SimDisk {
    state: Mutex<State>,
    during_sync: Mutex<Option<DuringSync>>,
}

impl std::fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SimDisk")
    }
}

fn dead() -> io::Error {
    io::Error::other("the machine has stopped")
}

impl SimDisk {
    /// An empty disk.
    pub fn new(random: Random, faults: Faults) -> SimDisk {
        SimDisk::holding(State::of_image(Image::new(), random, faults, 1))
    }

    fn holding(state: State) -> SimDisk {
        SimDisk {
            state: Mutex::new(state),
            during_sync: Mutex::new(None),
        }
    }

    /// What to do in the middle of the next sync of a range.
    pub fn during_sync(&self, act: DuringSync) {
        *self.during_sync.lock() = Some(act);
    }

    /// Stops the machine here, unless it has stopped already, and starts it again: the disk as the
    /// next process finds it, with other faults. What still uses this one gets errors.
    pub fn restart(&self, faults: Faults) -> SimDisk {
        // It holds the engine that holds this disk.
        let unheard = self.during_sync.lock().take();
        drop(unheard);
        let mut state = self.state.lock();
        state.die();
        let Some(mut left) = state.left.replace(Box::new(State::empty(faults))) else {
            unreachable!("it has just stopped")
        };
        left.faults = faults;
        SimDisk::holding(*left)
    }

    /// Whether the machine has stopped.
    pub fn is_dead(&self) -> bool {
        self.state.lock().left.is_some()
    }

    /// Whether all that the last process wrote is in the page cache.
    pub fn was_kept(&self) -> bool {
        self.state.lock().kept
    }

    /// What it does badly.
    pub fn faults(&self) -> Faults {
        self.state.lock().faults
    }

    /// Whether calls may fail before the machine stops.
    pub fn has_faults(&self) -> bool {
        let faults = self.state.lock().faults;
        faults.failing_syncs > 0 || faults.full > 0 || faults.fail_calls()
    }

    /// Has so many of 1,000 syncs fail from here on.
    pub fn fail_syncs(&self, of_1000: u64) {
        self.state.lock().faults.failing_syncs = of_1000;
    }

    /// Does what `act` does while no call fails that would do nothing then.
    pub fn without_failing_calls<T>(&self, act: impl FnOnce() -> T) -> T {
        let faults = self.state.lock().faults;
        self.set_failing_calls(0, None);
        let done = act();
        self.set_failing_calls(faults.failing_calls, None);
        done
    }

    /// Has so many of 1,000 calls fail from here on, and one map.
    pub fn set_failing_calls(&self, of_1000: u64, map: Option<u64>) {
        let mut state = self.state.lock();
        state.faults.failing_calls = of_1000;
        state.faults.failing_map = map;
        state.maps = 0;
    }

    /// Maps of files since the last call of [`SimDisk::set_failing_calls`].
    pub fn maps(&self) -> u64 {
        self.state.lock().maps
    }

    /// Files that were synced since the last call, and up to where.
    pub fn take_syncs(&self) -> Vec<(PathBuf, usize)> {
        std::mem::take(&mut self.state.lock().syncs)
    }

    /// Bytes of every file as they are seen.
    pub fn contents(&self) -> Image {
        self.state.lock().cached()
    }

    fn call<T>(&self, act: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.state.lock();
        state.tick()?;
        state.fails()?;
        act(&mut state)
    }

    fn look_at<T>(&self, act: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.state.lock();
        if state.left.is_some() {
            return Err(dead());
        }
        state.fails()?;
        act(&mut state)
    }
}

impl State {
    fn tick(&mut self) -> io::Result<()> {
        if self.left.is_some() {
            return Err(dead());
        }
        self.calls += 1;
        if self.faults.dies_at == Some(self.calls) {
            self.die();
            return Err(dead());
        }
        if !self.inodes.is_empty() && self.faults.written_back > 0 {
            let number = self.random.below(self.inodes.len() as u64) as usize;
            let inode = &mut self.inodes[number];
            let dirty = inode.dirty(0, inode.len);
            for _ in 0..self.faults.written_back.min(dirty.len() as u64) {
                inode.write_back(self.random.pick(&dirty));
            }
        }
        Ok(())
    }

    fn fails(&mut self) -> io::Result<()> {
        if self.faults.failing_calls == 0 || self.random.below(1000) >= self.faults.failing_calls {
            return Ok(());
        }
        Err(self.refusal())
    }

    /// The error of a call that fails for no fault of the caller's.
    fn refusal(&mut self) -> io::Error {
        let number = self.random.pick(&[libc::EMFILE, libc::ENOMEM, libc::EIO]);
        io::Error::from_raw_os_error(number)
    }

    fn fails_to_map(&mut self) -> io::Result<()> {
        self.maps += 1;
        match self.faults.failing_map == Some(self.maps) {
            true => Err(self.refusal()),
            false => Ok(()),
        }
    }

    fn has_room(&mut self) -> io::Result<()> {
        match self.random.below(1000) < self.faults.full {
            true => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            false => Ok(()),
        }
    }

    fn file(&self, path: &Path) -> io::Result<usize> {
        match self.names.get(path) {
            Some(Node::File(number)) => Ok(*number),
            Some(Node::Directory) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn parent_is_there(&self, path: &Path) -> io::Result<()> {
        match path.parent().and_then(|parent| self.names.get(parent)) {
            Some(Node::Directory) => Ok(()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Syncs a range of a file, or fails at it.
    fn sync(&mut self, number: usize, start: usize, end: usize) -> io::Result<()> {
        let fails = self.random.below(1000) < self.faults.failing_syncs;
        let inode = &mut self.inodes[number];
        if !fails {
            inode.sync(start, end);
            return Ok(());
        }
        for at in inode.dirty(start, end) {
            match self.random.chance(50) {
                true => inode.write_back(at),
                false => inode.forget(at),
            }
        }
        Err(io::Error::from_raw_os_error(libc::EIO))
    }

    fn cached(&self) -> Image {
        let bytes = |node: &Node| match node {
            Node::Directory => None,
            Node::File(number) => {
                let inode = &self.inodes[*number];
                Some(inode.cache.contents()[..inode.len].to_vec())
            }
        };
        let names = self.names.iter();
        names
            .map(|(path, node)| (path.clone(), bytes(node)))
            .collect()
    }

    fn empty(faults: Faults) -> State {
        State::of_image(Image::new(), Random::new(0), faults, 0)
    }

    /// A disk whose platter holds an image, at the machine's `boot`th start.
    fn of_image(image: Image, random: Random, faults: Faults, boot: u8) -> State {
        let mut inodes = Vec::new();
        let mut names = Names::new();
        names.insert(PathBuf::from("/"), Node::Directory);
        for (path, contents) in image {
            let node = match contents {
                None => Node::Directory,
                Some(bytes) => {
                    inodes.push(Inode::holding(bytes));
                    Node::File(inodes.len() - 1)
                }
            };
            names.insert(path, node);
        }
        State {
            random,
            faults,
            inodes,
            synced_names: names.clone(),
            names,
            calls: 0,
            maps: 0,
            left: None,
            boot,
            kept: false,
            syncs: Vec::new(),
        }
    }

    /// Stops the machine and keeps what is left of its disk.
    fn die(&mut self) {
        if self.left.is_some() {
            return;
        }
        let random = Random::new(self.random.next());
        let left = match self.faults.stop {
            Stop::Power => State::of_image(self.survivors(), random, self.faults, self.boot + 1),
            Stop::Process => State {
                random,
                inodes: self.inodes.iter().map(Inode::apart).collect(),
                names: self.names.clone(),
                synced_names: self.synced_names.clone(),
                kept: true,
                ..State::of_image(Image::new(), Random::new(0), self.faults, self.boot)
            },
        };
        self.left = Some(Box::new(left));
    }

    fn survivors(&mut self) -> Image {
        // How much of what is dirty survives differs from crash to crash, from nothing to all.
        let kept = self.random.pick(&[0, 10, 50, 90, 100]);
        let mut paths: BTreeSet<&PathBuf> = self.names.keys().collect();
        paths.extend(self.synced_names.keys());
        let mut image = Image::new();
        for path in paths {
            let (now, synced) = (self.names.get(path), self.synced_names.get(path));
            let node = match now == synced || self.random.chance(50) {
                true => now,
                false => synced,
            };
            let Some(node) = node else { continue };
            if path
                .parent()
                .is_some_and(|parent| !image.contains_key(parent))
            {
                continue;
            }
            let contents = match node {
                Node::Directory => None,
                Node::File(number) => Some(survivor(&self.inodes[*number], kept, &mut self.random)),
            };
            image.insert(path.clone(), contents);
        }
        image
    }
}

fn survivor(inode: &Inode, kept: u64, random: &mut Random) -> Vec<u8> {
    let mut bytes = inode.platter.clone();
    let cache = inode.cache.contents();
    for at in inode.dirty(0, inode.len) {
        if random.chance(kept) {
            let to = (at + SECTOR).min(inode.len);
            bytes[at..to].copy_from_slice(&cache[at..to]);
        }
    }
    let len = match inode.platter_len == inode.len || random.chance(50) {
        true => inode.len,
        false => inode.platter_len,
    };
    bytes.truncate(len);
    bytes
}

impl Disk for SimDisk {
    fn create(&self, path: &Path, len: u64) -> io::Result<()> {
        self.call(|state| {
            if state.names.contains_key(path) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            state.parent_is_there(path)?;
            state.has_room()?;
            state.inodes.push(Inode::new(len as usize));
            let node = Node::File(state.inodes.len() - 1);
            state.names.insert(path.to_path_buf(), node);
            Ok(())
        })
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.call(|state| {
            let missing: Vec<_> = path
                .ancestors()
                .take_while(|path| !state.names.contains_key(*path))
                .collect();
            for path in missing {
                state.names.insert(path.to_path_buf(), Node::Directory);
            }
            Ok(())
        })
    }

    fn reserve(&self, path: &Path, _: u64, _: u64) -> io::Result<()> {
        self.call(|state| {
            state.file(path)?;
            state.has_room()
        })
    }

    fn map(&self, path: &Path, len: usize, access: Access) -> io::Result<Region> {
        self.look_at(|state| {
            state.fails_to_map()?;
            let inode = &state.inodes[state.file(path)?];
            match inode.len < len {
                true => Err(io::ErrorKind::UnexpectedEof.into()),
                false => Ok(inode.cache.share(path, access)),
            }
        })
    }

    fn sync_range(&self, region: &Region, start: usize, len: usize) -> io::Result<()> {
        // What was dirty when the sync began is written; what others store meanwhile is not.
        let act = self.during_sync.lock().take();
        self.call(|state| {
            let same = |inode: &Inode| inode.cache.address() == region.address();
            let Some(number) = state.inodes.iter().position(same) else {
                return Ok(());
            };
            let path = region.path().to_path_buf();
            state.syncs.push((path, start + len));
            state.sync(number, start, start + len)
        })?;
        if let Some(mut act) = act {
            act();
        }
        Ok(())
    }

    fn dirty_range(&self, region: &Region, start: usize, len: usize) {
        let mut state = self.state.lock();
        let same = |inode: &&mut Inode| inode.cache.address() == region.address();
        if let Some(inode) = state.inodes.iter_mut().find(same) {
            let end = (start + len).next_multiple_of(4096).min(inode.len);
            let start = start / 4096 * 4096;
            let platter = inode.platter[start..end].to_vec();
            inode.clean[start..end].copy_from_slice(&platter);
        }
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.call(|state| {
            let number = state.file(path)?;
            let len = state.inodes[number].len;
            state.sync(number, 0, len)
        })
    }

    fn sync_file_system(&self, _: &Path) -> io::Result<()> {
        self.call(|state| {
            for number in 0..state.inodes.len() {
                let len = state.inodes[number].len;
                state.sync(number, 0, len)?;
            }
            state.synced_names = state.names.clone();
            Ok(())
        })
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.call(|state| {
            if state.random.below(1000) < state.faults.failing_syncs {
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            let inside = |name: &Path| name.parent() == Some(path);
            state.synced_names.retain(|name, _| !inside(name));
            let now = state.names.iter().filter(|(name, _)| inside(name));
            let now: Vec<_> = now.map(|(name, node)| (name.clone(), *node)).collect();
            state.synced_names.extend(now);
            Ok(())
        })
    }

    fn read_at(&self, path: &Path, start: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.look_at(|state| {
            let inode = &state.inodes[state.file(path)?];
            let start = (start as usize).min(inode.len);
            let len = buffer.len().min(inode.len - start);
            buffer[..len].copy_from_slice(&inode.cache.contents()[start..start + len]);
            Ok(len)
        })
    }

    fn write_at(&self, path: &Path, start: u64, bytes: &[u8]) -> io::Result<()> {
        self.call(|state| {
            state.has_room()?;
            let number = match state.file(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    state.parent_is_there(path)?;
                    state.inodes.push(Inode::new(0));
                    let number = state.inodes.len() - 1;
                    state.names.insert(path.to_path_buf(), Node::File(number));
                    number
                }
                found => found?,
            };
            let inode = &mut state.inodes[number];
            let end = start as usize + bytes.len();
            if end > inode.len {
                let cache = Region::anonymous(end, path)?;
                cache.overwrite(0, &inode.cache.contents()[..inode.len]);
                inode.cache = cache;
                inode.clean.resize(end, 0);
                inode.platter.resize(end, 0);
                inode.len = end;
            }
            inode.cache.overwrite(start as usize, bytes);
            Ok(())
        })
    }

    fn erase(&self, path: &Path, start: u64, len: u64) -> io::Result<()> {
        self.call(|state| {
            let inode = &state.inodes[state.file(path)?];
            let end = ((start + len) as usize).min(inode.len);
            let start = (start as usize).min(end);
            inode.cache.overwrite(start, &vec![0; end - start]);
            Ok(())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(|state| {
            let node = state.names.remove(from);
            let node = node.ok_or(io::ErrorKind::NotFound)?;
            state.names.insert(to.to_path_buf(), node);
            Ok(())
        })
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(|state| {
            state.parent_is_there(to)?;
            let number = state.file(from)?;
            if state.names.contains_key(to) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            state.names.remove(from);
            state.names.insert(to.to_owned(), Node::File(number));
            Ok(())
        })
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.call(|state| {
            state.file(path)?;
            state.names.remove(path);
            Ok(())
        })
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.call(|state| {
            state.names.remove(path);
            Ok(())
        })
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        self.look_at(|state| {
            match state.names.get(path) {
                Some(Node::Directory) => {}
                Some(Node::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
                None => return Err(io::ErrorKind::NotFound.into()),
            }
            let inside = state.names.range(path.to_path_buf()..);
            let inside = inside.take_while(|(name, _)| name.starts_with(path));
            let children = inside.filter(|(name, _)| name.parent() == Some(path));
            Ok(children
                .map(|(name, node)| state.entry(name, node))
                .collect())
        })
    }

    fn look(&self, path: &Path) -> io::Result<Option<Entry>> {
        self.look_at(|state| {
            let node = state.names.get(path);
            Ok(node.map(|node| state.entry(path, node)))
        })
    }

    fn next_data(&self, path: &Path, start: u64) -> io::Result<Option<Range<u64>>> {
        self.look_at(|state| {
            let inode = &state.inodes[state.file(path)?];
            let start = (start as usize).min(inode.len);
            let rest = &inode.cache.contents()[start..inode.len];
            let found = rest.iter().position(|byte| *byte != 0);
            Ok(found.map(|at| {
                let data = start + at / 4096 * 4096;
                let pages = inode.cache.contents()[data..inode.len].chunks(4096);
                let full = pages.take_while(|page| page.iter().any(|byte| *byte != 0));
                data as u64..inode.len.min(data + 4096 * full.count()) as u64
            }))
        })
    }

    fn free_space(&self, _: &Path) -> io::Result<u64> {
        self.look_at(|_| Ok(1 << 40))
    }

    fn lock(&self, _: &Path) -> io::Result<LockState> {
        self.look_at(|_| Ok(LockState::Held(FileLock::simulated())))
    }

    fn probe(&self, _: &Path) -> io::Result<Holder> {
        self.look_at(|_| Ok(Holder::Nobody))
    }

    fn boot_id(&self) -> [u8; 16] {
        [self.state.lock().boot; 16]
    }
}

impl State {
    fn entry(&self, path: &Path, node: &Node) -> Entry {
        let name = path.file_name().and_then(|name| name.to_str());
        let (kind, len) = match node {
            Node::Directory => (Kind::Directory, 0),
            Node::File(number) => (Kind::File, self.inodes[*number].len as u64),
        };
        Entry {
            name: name.map(str::to_owned),
            kind,
            len,
        }
    }
}

/// Another handle of a disk that is shared with an engine.
pub fn shared(disk: &Arc<SimDisk>) -> Arc<dyn Disk> {
    Arc::clone(disk) as Arc<dyn Disk>
}
