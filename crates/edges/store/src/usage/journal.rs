//! The journal: where an event is between the end of its reply and the database.
//!
//! A folder of segments, `usage-<number>.jsonl`, one event a line. Events are appended to the one with the highest number;
//! the [`Reader`](super::reader::Reader) follows, and removes a segment when the database has all of it.
//!
//! Invariants:
//! - one process has the folder: it holds the lock on `usage.lock` while the journal lives, so that nobody removes a
//!   segment that another still appends to;
//! - a line is whole or the last of its segment: after a write that failed half-way the segment is closed;
//! - `bytes` is the size of all segments that are not removed, and below the limit but for one line.

use std::{
    collections::{BTreeMap, VecDeque},
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;

use crate::usage::UsageEvent;

/// Events kept in memory when the journal can't be written: some minutes of a busy server, 10 MB at most.
const MOST_IN_MEMORY: usize = 10_000;

/// Why an event could not be recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The folder can't be used.
    #[error("the usage journal {} can't be used: {source}; check that the folder may be written", path.display())]
    Folder {
        /// The folder or file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process has the folder.
    #[error("another process uses the usage journal {}; give each server a folder of its own", path.display())]
    Locked {
        /// The folder.
        path: PathBuf,
    },
    /// Neither journal nor memory takes more. The event is lost unless the caller keeps it.
    #[error(
        "the usage journal is full and the database takes nothing: free space on the disk, or bring the database back"
    )]
    Full,
}

/// How safe a recorded event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// In the journal: it survives the end of the process, however it comes.
    InJournal,
    /// In memory, because the journal can't be written or is full: the database gets it unless the process ends first.
    InMemory,
}

/// A segment as the reader sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) number: u64,
    /// Bytes that may be read.
    pub(crate) len: u64,
    /// Whether nothing will be appended.
    pub(crate) is_closed: bool,
}

/// How large segments and journal may be, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) segment: u64,
    pub(crate) journal: u64,
}

#[derive(Debug)]
struct Active {
    file: Arc<File>,
    number: u64,
    len: u64,
}

#[derive(Debug, Default)]
struct State {
    /// Number and size of the segments that nothing is appended to.
    closed: BTreeMap<u64, u64>,
    active: Option<Active>,
    next_number: u64,
    bytes: u64,
    in_memory: VecDeque<UsageEvent>,
    /// Files written since the last sync.
    unsynced: Vec<Arc<File>>,
}

#[derive(Debug)]
pub(crate) struct Journal {
    folder: PathBuf,
    limits: Limits,
    state: Mutex<State>,
    _lock: File,
}

impl Journal {
    /// Takes the folder, with the segments an earlier process left.
    pub(crate) fn open(folder: &Path, limits: Limits) -> Result<Self, JournalError> {
        let failed = |source| JournalError::Folder { path: folder.to_owned(), source };
        fs::create_dir_all(folder).map_err(failed)?;
        let lock = open_private(&folder.join("usage.lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                return Err(JournalError::Locked { path: folder.to_owned() });
            }
            Err(fs::TryLockError::Error(source)) => return Err(failed(source)),
        }
        let mut state = State::default();
        for entry in fs::read_dir(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if let Some(number) = entry.file_name().to_str().and_then(number_of) {
                let len = entry.metadata().map_err(failed)?.len();
                state.closed.insert(number, len);
                state.bytes += len;
            }
        }
        state.next_number = state.closed.last_key_value().map_or(0, |(number, _)| number + 1);
        Ok(Self { folder: folder.to_owned(), limits, state: Mutex::new(state), _lock: lock })
    }

    /// Appends an event. It is one write into the system's cache: microseconds, and no waiting for the disk.
    pub(crate) fn append(&self, event: UsageEvent) -> Result<Recorded, JournalError> {
        let line = serde_json::to_vec(&event).map_err(io::Error::from);
        let mut state = self.state.lock();
        let written = line.and_then(|mut line| {
            line.push(b'\n');
            self.write(&mut state, &line)
        });
        match written {
            Ok(()) => Ok(Recorded::InJournal),
            Err(error) if state.in_memory.len() < MOST_IN_MEMORY => {
                // Once per emptying, not per event: a full disk does not need more to be written.
                if state.in_memory.is_empty() {
                    tracing::error!(%error, "the usage journal can't be written; events are kept in memory");
                }
                state.in_memory.push_back(event);
                Ok(Recorded::InMemory)
            }
            Err(_) => Err(JournalError::Full),
        }
    }

    fn write(&self, state: &mut State, line: &[u8]) -> io::Result<()> {
        let len = line.len() as u64;
        if state.bytes + len > self.limits.journal {
            return Err(io::Error::other("the journal has reached its limit"));
        }
        if state.active.as_ref().is_some_and(|active| active.len >= self.limits.segment) {
            state.close_active();
        }
        if state.active.is_none() {
            let number = state.next_number;
            let file = Arc::new(open_private(&self.path_of(number))?);
            state.next_number += 1;
            state.unsynced.push(Arc::clone(&file));
            state.active = Some(Active { file, number, len: 0 });
        }
        let Some(active) = &mut state.active else { return Err(io::Error::other("no segment")) };
        if let Err(error) = (&*active.file).write_all(line) {
            // What was written of the line stays, unread, at the end of a closed segment.
            state.close_active();
            return Err(error);
        }
        active.len += len;
        state.bytes += len;
        if state.unsynced.is_empty() {
            let file = Arc::clone(&active.file);
            state.unsynced.push(file);
        }
        Ok(())
    }

    /// Puts on the disk what was appended so far. Blocks for as long as the disk takes.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let files = std::mem::take(&mut self.state.lock().unsynced);
        if files.is_empty() {
            return Ok(());
        }
        let synced = files.iter().try_for_each(|file| file.sync_data());
        // The names of new segments are the folder's data. Folders can't be opened everywhere: there is no need there.
        let folder = File::open(&self.folder).map_or(Ok(()), |folder| folder.sync_all());
        if synced.is_err() {
            self.state.lock().unsynced.extend(files);
        }
        synced.and(folder)
    }

    /// The first segment with a number from `from` on.
    pub(crate) fn segment_from(&self, from: u64) -> Option<Segment> {
        let state = self.state.lock();
        let closed = state.closed.range(from..).next();
        let closed = closed.map(|(&number, &len)| Segment { number, len, is_closed: true });
        closed.or_else(|| {
            let active = state.active.as_ref().filter(|active| active.number >= from)?;
            Some(Segment { number: active.number, len: active.len, is_closed: false })
        })
    }

    /// Appends to a new segment from now on, so that the current one can be removed once it is read.
    pub(crate) fn close_segment(&self) {
        self.state.lock().close_active();
    }

    /// Removes segments with numbers below `end`.
    pub(crate) fn remove_below(&self, end: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        while let Some((&number, &len)) = state.closed.first_key_value() {
            if number >= end {
                break;
            }
            match fs::remove_file(self.path_of(number)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            state.closed.remove(&number);
            state.bytes = state.bytes.saturating_sub(len);
        }
        Ok(())
    }

    /// The first events of those in memory.
    pub(crate) fn peek_memory(&self, most: usize) -> Vec<UsageEvent> {
        self.state.lock().in_memory.iter().take(most).cloned().collect()
    }

    /// Drops the first events in memory.
    pub(crate) fn drop_memory(&self, count: usize) {
        let mut state = self.state.lock();
        let count = count.min(state.in_memory.len());
        state.in_memory.drain(..count);
    }

    /// Bytes in segments, and events in memory.
    pub(crate) fn size(&self) -> (u64, usize) {
        let state = self.state.lock();
        (state.bytes, state.in_memory.len())
    }

    pub(crate) fn path_of(&self, number: u64) -> PathBuf {
        self.folder.join(format!("usage-{number:012}.jsonl"))
    }

    /// Keeps lines that are no events, for a person to look at. They are not removed.
    pub(crate) fn keep_rejected(&self, lines: &[u8]) -> io::Result<()> {
        open_private(&self.folder.join("usage.rejected"))?.write_all(lines)
    }
}

impl State {
    fn close_active(&mut self) {
        if let Some(active) = self.active.take() {
            self.closed.insert(active.number, active.len);
        }
    }
}

/// The number in a segment's name.
fn number_of(name: &str) -> Option<u64> {
    name.strip_prefix("usage-")?.strip_suffix(".jsonl")?.parse().ok()
}

/// A file to append to, made readable for its owner only: it says who used what.
fn open_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}
