//! The calls of the simulated disk.

use super::disk::{SimDisk, State};
use super::inode::Inode;
use super::names::{Name, Node, below, move_names};
use super::sites;
use crate::disk::{
    ByteLocks, Entry, FileLock, FileSystem, Holder, Identity, Kind, LockState, OpenFile, ReadAt,
    Synced, Volume,
};
use crate::region::{Access, Region};
use crate::sync::Mutex;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

impl FileSystem for SimDisk {
    fn volume(&self, path: &Path) -> io::Result<Option<Volume>> {
        Ok(Some(Volume::simulated(path)))
    }

    fn create(&self, path: &Path, len: u64) -> io::Result<()> {
        self.call(|state| {
            let name = Name::of(path);
            if state.names.contains_key(&name) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            state.parent_is_there(&name)?;
            state.has_room()?;
            state.inodes.push(Inode::new(len as usize));
            let node = Node::File(state.inodes.len() - 1);
            state.names.insert(name, node);
            Ok(())
        })
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.call(|state| {
            let above = path.ancestors().map(Name::of);
            let missing: Vec<_> = above
                .take_while(|name| !state.names.contains_key(name))
                .collect();
            let missing = missing.into_iter().map(|name| (name, Node::Directory));
            state.names.extend(missing);
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
        self.peek(|state| {
            state.fails_to_map()?;
            let inode = &state.inodes[state.file(path)?];
            match inode.len < len {
                true => Err(io::ErrorKind::UnexpectedEof.into()),
                false => Ok(inode.cache.share(path, access)),
            }
        })
    }

    fn sync(&self, what: Synced<'_>) -> io::Result<()> {
        let lies = sites::lies(&what);
        // The sync writes the sectors that were dirty when it began, but nothing that others store
        // meanwhile.
        let act = self.meanwhile.take(&what);
        self.call(|state| match (lies, what) {
            (true, _) => {
                if sites::is_hasty() {
                    state.end_soon();
                }
                Ok(())
            }
            (false, Synced::Range { region, start, len }) => state.sync_range(region, start, len),
            (false, Synced::File(path)) => {
                let number = state.file(path)?;
                let len = state.inodes[number].len;
                state.sync(number, 0, len)
            }
            (false, Synced::FileSystem(_) | Synced::Volume(_)) => state.sync_all(),
            (false, Synced::Directory(path)) => state.sync_directory(path),
        })?;
        if let Some(act) = act {
            self.meanwhile.act(act);
        }
        Ok(())
    }

    fn dirty_range(&self, region: &Region, start: usize, len: usize) -> io::Result<()> {
        let mut state = self.state.lock();
        let same = |inode: &&mut Inode| inode.cache.address() == region.address();
        if let Some(inode) = state.inodes.iter_mut().find(same) {
            inode.dirty_pages(start, start + len);
        }
        Ok(())
    }

    fn read_at(&self, path: &Path, start: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.peek(|state| {
            let number = state.file(path)?;
            Ok(state.inodes[number].read(start, buffer))
        })
    }

    fn open(&self, path: &Path) -> io::Result<OpenFile> {
        let number = self.peek(|state| state.file(path))?;
        let state = Arc::clone(&self.state);
        Ok(OpenFile::new(Opened { state, number }, path))
    }

    fn write_at(&self, path: &Path, start: u64, bytes: &[u8]) -> io::Result<()> {
        self.call(|state| {
            state.has_room()?;
            let number = match state.file(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let name = Name::of(path);
                    state.parent_is_there(&name)?;
                    state.inodes.push(Inode::new(0));
                    let number = state.inodes.len() - 1;
                    state.names.insert(name, Node::File(number));
                    number
                }
                found => found?,
            };
            let inode = &mut state.inodes[number];
            let end = start as usize + bytes.len();
            if end > inode.len {
                inode.grow(end);
            }
            inode.write(start as usize, bytes);
            Ok(())
        })
    }

    fn set_len(&self, path: &Path, len: u64) -> io::Result<()> {
        self.call(|state| {
            let number = state.file(path)?;
            let inode = &mut state.inodes[number];
            match len as usize > inode.len {
                true => inode.grow(len as usize),
                false => inode.shorten(len as usize),
            }
            Ok(())
        })
    }

    fn erase(&self, path: &Path, start: u64, len: u64) -> io::Result<()> {
        self.call(|state| {
            let number = state.file(path)?;
            let inode = &mut state.inodes[number];
            let end = ((start + len) as usize).min(inode.len);
            let start = (start as usize).min(end);
            inode.write(start, &vec![0; end - start]);
            Ok(())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(|state| {
            let (from, to) = (Name::of(from), Name::of(to));
            let node = state.names.get(&from).copied();
            let node = node.ok_or(io::ErrorKind::NotFound)?;
            move_names(&mut state.names, &from, &to);
            match node {
                Node::Directory => state.moved.push((from, to)),
                Node::File(number) => drop(state.renamed.insert(number)),
            }
            Ok(())
        })
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(|state| {
            let to = Name::of(to);
            state.parent_is_there(&to)?;
            let number = state.file(from)?;
            if state.names.contains_key(&to) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            state.names.remove(&Name::of(from));
            state.names.insert(to, Node::File(number));
            Ok(())
        })
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.call(|state| {
            state.file(path)?;
            state.names.remove(&Name::of(path));
            Ok(())
        })
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.call(|state| {
            state.names.remove(&Name::of(path));
            Ok(())
        })
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        self.peek(|state| {
            let directory = Name::of(path);
            match state.names.get(&directory) {
                Some(Node::Directory) => {}
                Some(Node::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
                None => return Err(io::ErrorKind::NotFound.into()),
            }
            let inside = below(&state.names, &directory);
            let children = inside.filter(|(name, _)| name.is_in(&directory));
            Ok(children
                .map(|(name, node)| state.entry(&name.path(), node))
                .collect())
        })
    }

    fn stat(&self, path: &Path) -> io::Result<Option<Entry>> {
        self.peek(|state| {
            let node = state.names.get(&Name::of(path));
            Ok(node.map(|node| state.entry(path, node)))
        })
    }

    fn next_data(&self, path: &Path, start: u64) -> io::Result<Option<Range<u64>>> {
        self.peek(|state| {
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
        self.peek(|_| Ok(1 << 40))
    }

    fn lock(&self, _: &Path) -> io::Result<LockState> {
        self.peek(|_| Ok(LockState::Held(FileLock::simulated())))
    }

    fn byte_locks(&self, _: &Path) -> io::Result<ByteLocks> {
        self.peek(|_| Ok(self.locks.open(self.process)))
    }

    fn is_byte_locked(&self, _: &Path, _: u32) -> io::Result<bool> {
        self.peek(|_| Ok(false))
    }

    fn probe(&self, _: &Path) -> io::Result<Holder> {
        self.peek(|_| Ok(Holder::Nobody))
    }

    fn boot_id(&self) -> [u8; 16] {
        [self.state.lock().boot; 16]
    }

    fn identity(&self, path: &Path) -> Option<Identity> {
        let state = self.state.lock();
        let inode = match state.names.get(&Name::of(path))? {
            Node::Directory => u64::MAX,
            Node::File(number) => *number as u64,
        };
        Some(Identity {
            mount: state.mount,
            device: 1,
            subvolume: 0,
            inode,
            born_ns: 1,
        })
    }
}

/// A file that is open for reading.
#[derive(Debug)]
struct Opened {
    state: Arc<Mutex<State>>,
    number: usize,
}

impl Opened {
    fn peek<T>(&self, act: impl FnOnce(&Inode) -> T) -> io::Result<T> {
        let mut state = self.state.lock();
        state.opened(self.number).map(act)
    }
}

impl ReadAt for Opened {
    fn len(&self) -> io::Result<u64> {
        self.peek(|inode| inode.len as u64)
    }

    fn read_at(&self, start: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.peek(|inode| inode.read(start, buffer))
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
