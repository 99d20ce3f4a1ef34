//! From the end of a reply to the database, without the reply waiting for it.
//!
//! What is promised for an event that [`UsageWriter::record`] has taken as [`Recorded::InJournal`]:
//! - the process may end in any way, `kill -9` too: the next one that opens the folder writes it;
//! - the machine may lose power: events older than [`UsageWriterOptions::linger`] and the time the disk takes are on the
//!   disk, and a segment is removed only after the database has put its part on the disk;
//! - the database may be away for as long as the journal has room;
//! - it counts once, however often it is written.
//!
//! One that is taken as [`Recorded::InMemory`] waits for the database alone. `record` never waits for the database.
//!
//! The journal is the queue: there is no second way for events that makes order and bounds a question of load.

use std::{io, path::Path, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, mpsc, oneshot},
    task::JoinHandle,
};

use crate::{
    Store, StoreError,
    usage::{
        JournalError, Recorded, UsageEvent,
        journal::{Journal, Limits},
        reader::{Batch, Reader},
    },
};

/// Events per transaction: short enough that other writers of SQLite hardly wait.
const BATCH: usize = 500;

/// How long the database is left alone after it did not answer: from the first to the last.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Callers that wait for a flush at once; more wait for a place.
const MOST_FLUSHES: usize = 16;

/// How a writer works.
#[derive(Debug, Clone, Copy)]
pub struct UsageWriterOptions {
    /// How long an event waits for others, so that they go together.
    pub linger: Duration,
    /// The size at which a segment of the journal is closed, in bytes.
    pub segment_bytes: u64,
    /// The size at which the journal takes no more, in bytes.
    pub journal_bytes: u64,
}

impl Default for UsageWriterOptions {
    /// A quarter of a second, 1 MiB, and 1 GiB: about two and a half million events.
    fn default() -> Self {
        Self { linger: Duration::from_millis(250), segment_bytes: 1 << 20, journal_bytes: 1 << 30 }
    }
}

/// How it stands with a writer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageWriterStatus {
    /// The size of the journal; a part of it may be in the database already.
    pub journal_bytes: u64,
    /// Events that are in memory alone.
    pub in_memory: usize,
    /// Why the last try to write failed; none when it succeeded.
    pub problem: Option<String>,
}

/// Takes usage events and writes them to the database.
///
/// It owns the task that writes, and ends it when it is dropped; what is not written by then stays in the journal.
#[derive(Debug)]
pub struct UsageWriter {
    journal: Arc<Journal>,
    wake: Arc<Notify>,
    flushes: mpsc::Sender<oneshot::Sender<bool>>,
    problem: Arc<Mutex<Option<String>>>,
    task: JoinHandle<()>,
}

impl UsageWriter {
    /// Starts writing to a database, first what is in the journal's folder. Needs a tokio runtime.
    ///
    /// # Errors
    /// The folder can't be used, or another process has it.
    pub fn start(store: Store, folder: &Path, options: UsageWriterOptions) -> Result<Self, JournalError> {
        let limits = Limits { segment: options.segment_bytes, journal: options.journal_bytes };
        let journal = Arc::new(Journal::open(folder, limits)?);
        let wake = Arc::new(Notify::new());
        // What an earlier process left.
        wake.notify_one();
        let (flushes, asks) = mpsc::channel(MOST_FLUSHES);
        let problem = Arc::default();
        let task = Task {
            store,
            reader: Some(Reader::new(Arc::clone(&journal))),
            journal: Arc::clone(&journal),
            wake: Arc::clone(&wake),
            asks,
            problem: Arc::clone(&problem),
            linger: options.linger,
        };
        Ok(Self { journal, wake, flushes, problem, task: tokio::spawn(task.run()) })
    }

    /// Takes an event. It costs one write into the system's cache, microseconds, so it is for the end of a reply and not
    /// for each token.
    ///
    /// # Errors
    /// [`JournalError::Full`]: neither the journal nor memory takes more.
    pub fn record(&self, event: &UsageEvent) -> Result<Recorded, JournalError> {
        let recorded = self.journal.append(event.bounded())?;
        self.wake.notify_one();
        Ok(recorded)
    }

    /// Tries to write all that was recorded before the call, and says whether the database has it.
    pub async fn flush(&self) -> bool {
        let (reply, answer) = oneshot::channel();
        self.flushes.send(reply).await.is_ok() && answer.await.unwrap_or(false)
    }

    /// How it stands, for metrics and health checks.
    #[must_use]
    pub fn status(&self) -> UsageWriterStatus {
        let (journal_bytes, in_memory) = self.journal.size();
        UsageWriterStatus { journal_bytes, in_memory, problem: self.problem.lock().clone() }
    }

    /// Writes what there is, as far as the database answers within `patience`, and ends. `true`: the database has
    /// all. The folder is free for another writer then.
    pub async fn close(mut self, patience: Duration) -> bool {
        self.journal.close_segment();
        let is_done = tokio::time::timeout(patience, self.flush()).await.unwrap_or(false);
        self.task.abort();
        // Aborted is what it is; until then it may hold the journal, and with it the folder.
        let _ = (&mut self.task).await;
        is_done
    }
}

impl Drop for UsageWriter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What runs in the background.
struct Task {
    store: Store,
    journal: Arc<Journal>,
    /// Away while a thread for blocking work has it.
    reader: Option<Reader>,
    wake: Arc<Notify>,
    asks: mpsc::Receiver<oneshot::Sender<bool>>,
    problem: Arc<Mutex<Option<String>>>,
    linger: Duration,
}

#[derive(Debug, thiserror::Error)]
enum PassError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the usage journal can't be read: {0}")]
    Journal(#[from] io::Error),
    #[error("a thread for blocking work ended early: {0}")]
    Thread(#[from] tokio::task::JoinError),
}

impl Task {
    async fn run(mut self) {
        let mut pause = None;
        loop {
            let ask = tokio::select! {
                ask = self.asks.recv() => match ask {
                    Some(ask) => Some(ask),
                    None => return,
                },
                () = rest(&self.wake, self.linger, pause) => None,
            };
            let done = self.pass().await;
            pause = match &done {
                Ok(()) => None,
                Err(_) => Some(pause.map_or(PAUSES.0, |pause: Duration| (pause * 2).min(PAUSES.1))),
            };
            self.report(&done);
            if let Some(ask) = ask {
                // Whoever asked may have left.
                let _ = ask.send(done.is_ok());
            }
        }
    }

    /// Writes all there is, and removes what is done with.
    async fn pass(&mut self) -> Result<(), PassError> {
        let journal = Arc::clone(&self.journal);
        // Before the database: a commit of SQLite may be lost with the power, and then these are what is left.
        tokio::task::spawn_blocking(move || journal.sync()).await??;
        while let Some(batch) = self.with_reader(|reader| reader.read(BATCH)).await? {
            self.store.insert_usage(&batch.events).await?;
            self.take(batch).await?;
        }
        if self.with_reader(|reader| Ok(reader.has_finished())).await? && self.store.is_on_disk().await? {
            self.with_reader(|reader| reader.remove_finished()).await?;
        }
        Ok(())
    }

    async fn take(&mut self, batch: Batch) -> Result<(), PassError> {
        self.with_reader(move |reader| reader.take(&batch)).await
    }

    /// Lets a thread for blocking work use the reader.
    async fn with_reader<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Reader) -> io::Result<T> + Send + 'static,
    ) -> Result<T, PassError> {
        // Without one the last thread has panicked; what is in the database already counts once all the same.
        let mut reader = self.reader.take().unwrap_or_else(|| Reader::new(Arc::clone(&self.journal)));
        let worked = tokio::task::spawn_blocking(move || {
            let done = work(&mut reader);
            (reader, done)
        });
        let (reader, done) = worked.await?;
        self.reader = Some(reader);
        Ok(done?)
    }

    fn report(&self, done: &Result<(), PassError>) {
        let now = done.as_ref().err().map(ToString::to_string);
        let before = std::mem::replace(&mut *self.problem.lock(), now.clone());
        match (before, now) {
            (None, Some(problem)) => tracing::error!(problem, "usage is not written; the journal keeps it"),
            (Some(_), None) => tracing::info!("usage is written again"),
            _ => {}
        }
    }
}

/// Waits for something to do: after a success for the next event and those that come close behind, after a failure for
/// the pause to end.
async fn rest(wake: &Notify, linger: Duration, pause: Option<Duration>) {
    if pause.is_none() {
        wake.notified().await;
    }
    tokio::time::sleep(pause.unwrap_or(linger)).await;
}
