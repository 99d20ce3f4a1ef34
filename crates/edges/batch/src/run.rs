//! One batch, from where it stands to its end or to the end of the process.
//!
//! A run keeps nothing that is not in the store or in the answers' files, so that it can be dropped at any point and
//! begun again.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use motet_store::{Batch, BatchCounts, BatchEnd, BatchStatus, FileId, FileInfo, Store, StoreError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::answers::{Answers, Kind};
use crate::config::BatchConfig;
use crate::disk::{Disk, read_at};
use crate::input::{self, Entry, Names, Problem, Rules};
use crate::line::{self, Answer, Sender};

/// What stops a run; it is begun again later.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("its files: {0}")]
    Disk(#[from] io::Error),
    #[error("a task ended early: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// What a run uses, and its batch.
pub(crate) struct Run<'a> {
    pub(crate) config: &'a BatchConfig,
    pub(crate) store: &'a Store,
    pub(crate) disk: &'a Disk,
    pub(crate) sender: Arc<Sender>,
    pub(crate) batch: &'a Batch,
    /// One permit for each line that is sent, shared with the other runs, who take turns.
    pub(crate) permits: &'a Arc<Semaphore>,
    /// The right to write the answers. What goes on writing when the run is dropped holds it, too.
    pub(crate) lock: &'a Arc<File>,
    /// Changes when a batch was made or cancelled.
    pub(crate) changed: watch::Receiver<u64>,
    /// Whether no more lines are to be sent.
    pub(crate) stopping: watch::Receiver<bool>,
}

/// Why a run sends no more lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Answered,
    Expired,
    Cancelled,
    /// The process ends.
    Stopped,
}

/// Lines and their answers.
struct Work {
    entries: Vec<Entry>,
    /// Lines to send, by their place in `entries`; the next one is last.
    to_send: Vec<usize>,
    /// Lines in flight.
    sent: Vec<usize>,
    answers: Answers,
    input: PathBuf,
}

/// When to send again after a refusal.
struct Pause {
    until: Option<Instant>,
    refusals: u32,
}

/// Lines in flight: tasks, so that they go on while the run waits for the database, whose connections they may hold. They
/// end when this is dropped.
type InFlight = JoinSet<(usize, Result<Answer, RunError>)>;

impl Run<'_> {
    /// Takes the batch to its end, or as far as it comes before the process ends.
    pub(crate) async fn go(mut self) -> Result<(), RunError> {
        let Some(mut work) = self.prepare().await? else { return Ok(()) };
        let is_cancelled = self.batch.status == BatchStatus::Cancelling
            || self.store.batch_status(&self.batch.id).await? == Some(BatchStatus::Cancelling);
        let over = if is_cancelled { Over::Cancelled } else { self.send_all(&mut work).await? };
        match over {
            Over::Answered => self.end(work, BatchStatus::Completed).await,
            Over::Expired => self.end(work, BatchStatus::Expired).await,
            Over::Cancelled => self.end(work, BatchStatus::Cancelled).await,
            Over::Stopped => {
                work.answers.sync().await?;
                Ok(())
            }
        }
    }

    /// Checks the input and opens the answers; `None`: the batch has ended with that.
    async fn prepare(&self) -> Result<Option<Work>, RunError> {
        let Batch { id, owner, input, .. } = self.batch;
        let path = self.disk.path(owner, input);
        let names = Names::default();
        let (rules_path, rules_names) = (path.clone(), names.clone());
        let endpoint = self.batch.endpoint.clone();
        let (max_lines, max_line_bytes) = (self.config.max_lines, self.config.max_line_bytes);
        let checked = tokio::task::spawn_blocking(move || {
            let rules = Rules { endpoint: &endpoint, max_lines, max_line_bytes };
            input::read(&rules_path, &rules, &rules_names)
        })
        .await?;
        let entries = match checked {
            Ok(Ok(entries)) => entries,
            Ok(Err(problems)) => return self.fail(&problems).await,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let message = "what the input file holds is not there any more";
                return self.fail(&[Problem::of_file("input_file_missing", message)]).await;
            }
            Err(error) => return Err(error.into()),
        };
        if self.batch.status == BatchStatus::Validating {
            self.store.begin_batch(id, entries.len() as u64, self.config.now()).await?;
        }
        let (succeeded, failed) =
            (self.disk.place(owner, &id.output_file())?, self.disk.place(owner, &id.error_file())?);
        let held = Arc::clone(self.lock);
        let opened = move || {
            let _held = held;
            let mut answered = HashSet::new();
            let answers = Answers::open(&succeeded, &failed, &names, &mut answered)?;
            Ok::<_, io::Error>((answers, answered))
        };
        let (answers, answered) = tokio::task::spawn_blocking(opened).await??;
        let to_send = (0..entries.len()).rev().filter(|&at| !answered.contains(&entries[at].name)).collect();
        Ok(Some(Work { entries, to_send, sent: Vec::new(), answers, input: path }))
    }

    async fn fail(&self, problems: &[Problem]) -> Result<Option<Work>, RunError> {
        let id = &self.batch.id;
        let problems = serde_json::to_string(problems).unwrap_or_default();
        if !self.store.fail_batch(id, &problems, self.config.now()).await? {
            // It was cancelled meanwhile, which ends it as well.
            let counts = BatchCounts::default();
            let end = BatchEnd { status: BatchStatus::Cancelled, counts, output: None, errors: None };
            self.store.end_batch(id, &end, self.config.now()).await?;
        }
        Ok(None)
    }

    /// Sends what is not answered, until there is a reason to stop.
    async fn send_all(&mut self, work: &mut Work) -> Result<Over, RunError> {
        let permits = Arc::clone(self.permits);
        let mut in_flight = InFlight::new();
        let mut turn: Option<BoxFuture<'_, Option<OwnedSemaphorePermit>>> = None;
        let mut pause = Pause { until: None, refusals: 0 };
        let mut progress = interval(self.config.progress);
        progress.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut noted = None;
        loop {
            let is_stopping = *self.stopping.borrow_and_update();
            if in_flight.is_empty() && (is_stopping || work.to_send.is_empty()) {
                return Ok(if work.to_send.is_empty() { Over::Answered } else { Over::Stopped });
            }
            let may_send = !is_stopping
                && pause.until.is_none()
                && !work.to_send.is_empty()
                && in_flight.len() < self.config.lines_at_once;
            if !may_send {
                turn = None;
            } else if turn.is_none() {
                // Kept while it waits, so that the run keeps its place among the others.
                let permits = Arc::clone(&permits);
                turn = Some(Box::pin(async move { permits.acquire_owned().await.ok() }));
            }
            tokio::select! {
                Some(ended) = in_flight.join_next(), if !in_flight.is_empty() => {
                    let (at, answer) = ended?;
                    work.take(at, answer?, &mut pause, self.config)?;
                    if work.answers.is_due() {
                        work.answers.sync().await?;
                    }
                }
                permit = ready(&mut turn), if turn.is_some() => {
                    turn = None;
                    if let Some(at) = work.to_send.pop() {
                        work.sent.push(at);
                        in_flight.spawn(send(work.entry(at), at, Arc::clone(&self.sender), permit));
                    }
                }
                () = sleep_until(pause.until.unwrap_or_else(Instant::now)), if pause.until.is_some() => {
                    pause.until = None;
                }
                _ = progress.tick() => {
                    if self.config.now() >= self.batch.times.expires {
                        return Ok(Over::Expired);
                    }
                    if self.is_cancelled(work, &mut noted).await? {
                        return Ok(Over::Cancelled);
                    }
                }
                // Both senders live as long as the runner, which owns this.
                _ = self.changed.changed() => {
                    noted = None;
                    if self.is_cancelled(work, &mut noted).await? {
                        return Ok(Over::Cancelled);
                    }
                }
                _ = self.stopping.changed() => {}
            }
        }
    }

    /// Writes down how far the batch is, when that has changed, and looks whether it is to end. A database that does
    /// not answer stops nothing: the answers are in their files.
    async fn is_cancelled(&self, work: &mut Work, noted: &mut Option<BatchCounts>) -> Result<bool, RunError> {
        work.answers.sync().await?;
        let counts = work.counts();
        let id = &self.batch.id;
        let status = if *noted == Some(counts) {
            self.store.batch_status(id).await
        } else {
            self.store.note_progress(id, counts).await
        };
        match status {
            Ok(status) => {
                *noted = Some(counts);
                Ok(status.is_none_or(|status| status == BatchStatus::Cancelling))
            }
            Err(error) => {
                tracing::warn!(%error, batch = %id, "how far the batch is can't be written down");
                Ok(false)
            }
        }
    }

    /// Makes the answers files of the owner's.
    async fn end(&self, mut work: Work, status: BatchStatus) -> Result<(), RunError> {
        let Batch { id, owner, .. } = self.batch;
        if status == BatchStatus::Expired {
            work = tokio::task::spawn_blocking({
                let (endpoint, held) = (self.batch.endpoint.clone(), Arc::clone(self.lock));
                move || {
                    let _held = held;
                    work.expire(&endpoint)
                }
            })
            .await??;
        }
        work.answers.sync().await?;
        let (counts, bytes) = (work.counts(), work.answers.bytes());
        let now = self.config.now();
        if status == BatchStatus::Completed && self.batch.status != BatchStatus::Finalizing {
            self.store.finalize_batch(id, now).await?;
        }
        let file = |id: FileId, kind: &str, bytes| FileInfo {
            name: format!("{}_{kind}.jsonl", self.batch.id),
            owner: owner.clone(),
            purpose: "batch_output".to_owned(),
            created_at: now,
            expires_at: Some(self.config.after(self.config.keep_output)),
            id,
            bytes,
        };
        let output = (bytes.0 > 0).then(|| file(id.output_file(), "output", bytes.0));
        let errors = (bytes.1 > 0).then(|| file(id.error_file(), "error", bytes.1));
        work.answers.close()?;
        let mut end = BatchEnd { status, counts, output: output.as_ref(), errors: errors.as_ref() };
        if !self.store.end_batch(id, &end, now).await? {
            // A client was faster.
            end.status = BatchStatus::Cancelled;
            self.store.end_batch(id, &end, now).await?;
        }
        let (completed, failed) = (counts.completed, counts.failed);
        tracing::info!(batch = %id, status = end.status.as_str(), completed, failed, "a batch has ended");
        Ok(())
    }
}

impl Work {
    fn entry(&self, at: usize) -> (PathBuf, Entry) {
        (self.input.clone(), self.entries[at])
    }

    fn counts(&self) -> BatchCounts {
        let (completed, failed) = self.answers.counts();
        BatchCounts { total: self.entries.len() as u64, completed, failed }
    }

    /// Keeps an answer, or the line for later.
    fn take(
        &mut self,
        at: usize,
        answer: Answer,
        pause: &mut Pause,
        config: &BatchConfig,
    ) -> Result<(), RunError> {
        self.sent.retain(|&sent| sent != at);
        match answer {
            Answer::Given(kind, line) => {
                pause.refusals = 0;
                self.answers.add(kind, line)?;
            }
            Answer::Later(wait) => {
                self.to_send.push(at);
                pause.extend(wait, config);
            }
        }
        Ok(())
    }

    /// Answers what was not answered in time.
    fn expire(mut self, endpoint: &str) -> io::Result<Self> {
        self.to_send.append(&mut self.sent);
        while let Some(at) = self.to_send.pop() {
            let ask = read_ask(&self.input, self.entries[at], endpoint)?;
            let message = "This request could not be executed before the completion window expired.";
            let line = line::unsent(&ask.custom_id, "batch_expired", message);
            self.answers.add(Kind::Failure, line)?;
        }
        Ok(self)
    }
}

impl Pause {
    fn extend(&mut self, named: Option<Duration>, config: &BatchConfig) {
        let doubled = config.first_wait.saturating_mul(1 << self.refusals.min(16));
        self.refusals = self.refusals.saturating_add(1);
        let wait = named.unwrap_or_default().max(doubled.min(config.longest_wait));
        let until = Instant::now() + wait;
        self.until = Some(self.until.map_or(until, |earlier| earlier.max(until)));
    }
}

async fn ready<T>(future: &mut Option<BoxFuture<'_, Option<T>>>) -> Option<T> {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// Reads a line and sends it. The permit is held to the end, so that as many lines are in memory as may be sent.
async fn send(
    (input, entry): (PathBuf, Entry),
    at: usize,
    sender: Arc<Sender>,
    _permit: Option<OwnedSemaphorePermit>,
) -> (usize, Result<Answer, RunError>) {
    let endpoint = sender.endpoint.clone();
    let read = tokio::task::spawn_blocking(move || read_ask(&input, entry, &endpoint)).await;
    let answer = match read {
        Ok(Ok(ask)) => Ok(sender.send(ask).await),
        Ok(Err(error)) => Err(error.into()),
        Err(error) => Err(error.into()),
    };
    (at, answer)
}

fn read_ask(input: &std::path::Path, entry: Entry, endpoint: &str) -> io::Result<input::Ask> {
    let line = read_at(input, entry.offset, entry.length)?;
    let changed = |_| io::Error::new(io::ErrorKind::InvalidData, "the input changed while it was read");
    input::parse(&line, endpoint).map_err(changed)
}
