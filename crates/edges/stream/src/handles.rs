use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::state::{Found, Full, LogLimits, Named, Serial, State};

/// The logs of replies, each with something of its owner's beside it.
///
/// One lock is around all of them; nobody waits while holding it.
pub struct ReplyLogs<M> {
    state: Arc<Mutex<State<M>>>,
}

impl<M> Clone for ReplyLogs<M> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state) }
    }
}

/// What [`ReplyLogs::begin`] found.
pub enum Begun<M> {
    /// Nothing; here is a new log, and its first reader.
    New(Writer<M>, Reader<M>),
    /// A log of that name: a reader from its beginning on, and what belongs to it.
    Known(Reader<M>, M),
}

/// Why a reader gets no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The log has given up what comes next.
    #[error("the log has given up what comes next")]
    Trimmed,
    /// The reply will never be whole.
    #[error("the reply broke off")]
    Broken,
}

impl<M: Clone> ReplyLogs<M> {
    /// No logs yet.
    pub fn new(limits: LogLimits) -> Self {
        Self { state: Arc::new(Mutex::new(State::new(limits))) }
    }

    /// The log called `name`, or a new one with `meta` beside it. Of those who ask at the same time one gets the writer.
    ///
    /// # Errors
    /// When there is no such log and no room for another.
    pub fn begin(&self, name: &str, meta: M, now: Instant) -> Result<Begun<M>, Full> {
        let mut state = self.state.lock();
        let begun = state.begin(name, meta, now)?;
        let (Named::New(serial) | Named::Known(serial)) = begun;
        state.attach(serial);
        let known = match begun {
            Named::New(_) => None,
            Named::Known(_) => state.log(serial).map(|log| log.meta.clone()),
        };
        drop(state);
        let reader = Reader { state: Arc::clone(&self.state), serial, cursor: 0 };
        Ok(match known {
            Some(meta) => Begun::Known(reader, meta),
            None => Begun::New(Writer { state: Arc::clone(&self.state), serial, has_ended: false }, reader),
        })
    }
}

impl<M> ReplyLogs<M> {
    /// How many logs there are.
    pub fn len(&self) -> usize {
        self.state.lock().size().0
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that all logs take, with what is reserved for those being written.
    pub fn bytes(&self) -> usize {
        self.state.lock().size().1
    }

    /// What is wrong inside, for tests; `None` if nothing is.
    pub fn check_integrity(&self) -> Option<String> {
        self.state.lock().check()
    }
}

/// Appends to a log. Dropped without [`end`](Writer::end) it leaves a broken reply: whoever reads it is told so, and its
/// name is free.
pub struct Writer<M> {
    state: Arc<Mutex<State<M>>>,
    serial: Serial,
    has_ended: bool,
}

impl<M> Writer<M> {
    /// Appends a chunk, at the cost of older ones when there is no room.
    pub fn append(&mut self, chunk: Bytes) {
        self.state.lock().append(self.serial, chunk);
    }

    /// The reply is whole; the log stays for its life.
    pub fn end(mut self, now: Instant) {
        self.has_ended = true;
        self.state.lock().end(self.serial, now);
    }

    /// Frees the log's name. Those who read it go on, and nobody finds it any more.
    pub fn forget(&mut self) {
        self.state.lock().forget(self.serial);
    }

    /// Who reads the log.
    pub fn audience(&self) -> Audience<M> {
        Audience { state: Arc::clone(&self.state), serial: self.serial }
    }
}

impl<M> Drop for Writer<M> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.state.lock().break_off(self.serial);
        }
    }
}

/// Who reads a log, for whoever decides that it is written for nobody.
pub struct Audience<M> {
    state: Arc<Mutex<State<M>>>,
    serial: Serial,
}

impl<M> Audience<M> {
    /// How many read the log, now and later; `None` if it is gone.
    pub fn readers(&self) -> Option<watch::Receiver<usize>> {
        self.state.lock().log(self.serial).map(|log| log.readers.subscribe())
    }

    /// Breaks the reply off unless somebody reads it, and says whether it did. Its name is free then, so nobody can come
    /// in between.
    pub fn abandon(&self) -> bool {
        let mut state = self.state.lock();
        let is_read = state.log(self.serial).is_some_and(|log| *log.readers.borrow() > 0);
        if !is_read {
            state.break_off(self.serial);
        }
        !is_read
    }
}

/// Reads a log from a cursor on.
pub struct Reader<M> {
    state: Arc<Mutex<State<M>>>,
    serial: Serial,
    cursor: u64,
}

impl<M> Reader<M> {
    /// The next chunk; `None` at the end of a whole reply. It can be dropped at any time and loses nothing.
    ///
    /// # Errors
    /// When what comes next is not there any more, or never will be.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ReadError> {
        loop {
            let grown = {
                let state = self.state.lock();
                match state.read(self.serial, self.cursor) {
                    Found::Chunk(chunk) => {
                        self.cursor += 1;
                        return Ok(Some(chunk));
                    }
                    Found::End => return Ok(None),
                    Found::Trimmed => return Err(ReadError::Trimmed),
                    Found::Broken => return Err(ReadError::Broken),
                    Found::NotYet => {
                        state.log(self.serial).map(|log| Arc::clone(&log.grown).notified_owned())
                    }
                }
                // What is appended from here on wakes it: a `Notified` counts from when it is made.
            };
            match grown {
                Some(grown) => grown.await,
                None => return Err(ReadError::Trimmed),
            }
        }
    }

    /// Whether the log still has all chunks from its first on.
    pub fn is_whole(&self) -> bool {
        self.state.lock().is_whole(self.serial)
    }
}

impl<M> Drop for Reader<M> {
    fn drop(&mut self) {
        self.state.lock().detach(self.serial);
    }
}
