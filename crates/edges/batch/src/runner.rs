use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Router;
use futures_util::future::BoxFuture;
use motet_store::{Batch, BatchId, DataOwner};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::error::ApiError;
use crate::line::{RunAs, Sender};
use crate::run::{Run, RunError};
use crate::service::{Batches, Service};

/// How often files whose time has come are dropped.
const SWEEP: Duration = Duration::from_secs(3600);
/// How long a batch rests whose run failed, for want of the database or of room on the disk as a rule.
const REST: Duration = Duration::from_secs(10);

/// Runs batches until it is closed or dropped.
#[derive(Debug)]
pub struct Runner {
    stopping: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// What runs are begun with.
struct Place {
    service: Arc<Service>,
    inner: Router,
    run_as: Arc<dyn RunAs>,
    stopping: watch::Receiver<bool>,
    /// One permit for each line that is sent.
    permits: Arc<Semaphore>,
}

/// What the task has.
struct Work {
    place: Place,
    stopping: watch::Receiver<bool>,
    /// The right to run the folder's batches.
    lock: Option<Arc<File>>,
    runs: Runs,
    running: HashMap<BatchId, DataOwner>,
    /// Batches whose run failed, and until when they rest.
    resting: HashMap<BatchId, Instant>,
    swept: Option<Instant>,
}

/// Tasks, so that they go on while this one waits for the database. They end when this is dropped.
type Runs = JoinSet<(BatchId, Result<(), RunError>)>;

impl Batches {
    /// Starts to run batches: those that were not finished when the process ended, too. `inner` are the routes of
    /// models, which find the caller among the extensions of a request.
    pub fn start(&self, inner: Router, run_as: Arc<dyn RunAs>) -> Runner {
        let stopping = watch::Sender::new(false);
        let service = Arc::clone(&self.service);
        let permits = Arc::new(Semaphore::new(service.config.lines_at_once));
        let place = Place { service, inner, run_as, stopping: stopping.subscribe(), permits };
        let work = Work {
            place,
            stopping: stopping.subscribe(),
            lock: None,
            runs: Runs::new(),
            running: HashMap::new(),
            resting: HashMap::new(),
            swept: None,
        };
        Runner { task: tokio::spawn(work.run()), stopping }
    }
}

impl Runner {
    /// Sends no more lines; those in flight may end.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// [`stop`](Runner::stop)s and waits, so long at most, for what is in flight. What is cut is asked again at the
    /// next start.
    pub async fn close(mut self, patience: Duration) {
        self.stop();
        if tokio::time::timeout(patience, &mut self.task).await.is_err() {
            self.task.abort();
            let _ = (&mut self.task).await;
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Work {
    async fn run(mut self) {
        let mut changed = self.place.service.changed.subscribe();
        let mut look = interval(self.place.service.config.look);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !*self.stopping.borrow() {
            tokio::select! {
                Some(ended) = self.runs.join_next(), if !self.runs.is_empty() => match ended {
                    Ok((id, outcome)) => self.note_end(id, outcome),
                    // It would panic again: its batch waits for another program.
                    Err(error) => tracing::error!(%error, "a batch's run ended early"),
                },
                _ = look.tick() => {}
                // Both senders live as long as this does: one is the service's, one the runner's.
                _ = changed.changed() => {}
                _ = self.stopping.changed() => break,
            }
            if let Some(lock) = self.lock() {
                self.fill(&lock).await;
                self.sweep_when_due().await;
            }
        }
        // Runs end by themselves when they see that nothing more is to be sent.
        while self.runs.join_next().await.is_some() {}
    }

    fn note_end(&mut self, id: BatchId, outcome: Result<(), RunError>) {
        self.running.remove(&id);
        if let Err(error) = outcome {
            tracing::warn!(%error, batch = %id, "a batch can't go on now; it is tried again");
            self.resting.insert(id, Instant::now() + REST);
        }
    }

    /// The right to run, when no other process has it. A folder that is not there has no batches.
    fn lock(&mut self) -> Option<Arc<File>> {
        if self.lock.is_none() && self.place.service.disk.exists() {
            self.lock =
                self.place.service.disk.try_lock().map(|lock| lock.map(Arc::new)).unwrap_or_else(|error| {
                    tracing::warn!(%error, "the folder of files can't be locked");
                    None
                });
        }
        self.lock.clone()
    }

    /// Begins as many batches as may run.
    async fn fill(&mut self, lock: &Arc<File>) {
        self.resting.retain(|_, until| *until > Instant::now());
        let waiting = match self.place.waiting().await {
            Ok(waiting) => waiting,
            Err(error) => {
                tracing::warn!(%error, "batches can't be looked for");
                return;
            }
        };
        let free = self.place.service.config.batches_at_once.saturating_sub(self.running.len());
        for batch in choose(waiting, &self.running, &self.resting, free) {
            self.running.insert(batch.id.clone(), batch.owner.clone());
            self.runs.spawn(self.place.begin(batch, lock));
        }
    }

    async fn sweep_when_due(&mut self) {
        if self.swept.is_some_and(|then| then.elapsed() < SWEEP) {
            return;
        }
        self.swept = Some(Instant::now());
        if let Err(error) = self.place.sweep().await {
            tracing::warn!(%error, "files whose time has come can't be dropped");
        }
    }
}

impl Place {
    /// Batches that have not ended.
    async fn waiting(&self) -> Result<Vec<Batch>, ApiError> {
        let config = &self.service.config;
        let (store, home) = (self.service.store().await?, self.service.home().await?);
        Ok(store.unfinished_batches(home, config.whose, config.batches.of_all).await?)
    }

    fn begin(&self, batch: Batch, lock: &Arc<File>) -> BoxFuture<'static, (BatchId, Result<(), RunError>)> {
        let (service, permits, lock) =
            (Arc::clone(&self.service), Arc::clone(&self.permits), Arc::clone(lock));
        let (inner, run_as) = (self.inner.clone(), Arc::clone(&self.run_as));
        let (changed, stopping) = (service.changed.subscribe(), self.stopping.clone());
        Box::pin(async move {
            let Ok(store) = service.store().await else { return (batch.id, Ok(())) };
            let sender = Arc::new(Sender {
                inner,
                run_as,
                owner: batch.owner.clone(),
                key: batch.key.clone(),
                endpoint: batch.endpoint.clone(),
            });
            let (config, disk) = (&service.config, &service.disk);
            let (batch, permits, lock) = (&batch, &permits, &lock);
            let run = Run { config, store, disk, sender, batch, permits, lock, changed, stopping };
            let outcome = run.go().await;
            (batch.id.clone(), outcome)
        })
    }

    /// Drops what nobody needs any more.
    async fn sweep(&self) -> Result<(), ApiError> {
        let Service { config, disk, .. } = &*self.service;
        let store = self.service.store().await?;
        for file in store.files_to_drop(config.now()).await? {
            store.delete_file(&file.owner, &file.id).await?;
            disk.remove(&file.owner, &file.id)?;
        }
        let kept = i64::try_from(config.keep_output.as_millis()).unwrap_or(i64::MAX);
        store.forget_batches(config.now().saturating_sub(kept)).await?;
        let listed = tokio::task::spawn_blocking({
            let disk = disk.clone();
            move || disk.old(SystemTime::now())
        });
        for (path, id) in listed.await.map_err(|_| ApiError::Internal)?? {
            let is_known = match &id {
                None => false,
                Some(id) if store.has_file(id).await? => true,
                Some(id) => match BatchId::of_file(id.as_str()) {
                    Some(batch) => {
                        store.batch_status(&batch).await?.is_some_and(|status| !status.has_ended())
                    }
                    None => false,
                },
            };
            if !is_known {
                tracing::info!(file = %path.display(), "a file that nobody knows is dropped");
                std::fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

/// At most `free` of the batches that are waiting: those of owners with the fewest running first, and of these the
/// oldest, so that nobody's many batches keep another's one waiting.
fn choose(
    waiting: Vec<Batch>,
    running: &HashMap<BatchId, DataOwner>,
    resting: &HashMap<BatchId, Instant>,
    free: usize,
) -> Vec<Batch> {
    let mut of_owner: HashMap<DataOwner, usize> = HashMap::new();
    for owner in running.values() {
        *of_owner.entry(owner.clone()).or_default() += 1;
    }
    let is_free = |batch: &Batch| !running.contains_key(&batch.id) && !resting.contains_key(&batch.id);
    let mut ranked: Vec<(usize, Batch)> = Vec::new();
    for batch in waiting.into_iter().filter(is_free) {
        let rank = of_owner.entry(batch.owner.clone()).or_default();
        ranked.push((*rank, batch));
        *rank += 1;
    }
    // Stable: equals stay in the order of their time.
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().take(free).map(|(_, batch)| batch).collect()
}

#[cfg(test)]
mod tests {
    use motet_store::{BatchCounts, BatchStatus, BatchTimes, FileId, OrgId, UserId};

    use super::*;

    fn batch(owner: &str, name: &str) -> Batch {
        Batch {
            id: BatchId::new(name),
            owner: DataOwner { org: OrgId::new("org"), user: UserId::new(owner) },
            key: None,
            endpoint: String::new(),
            input: FileId::new(""),
            output: None,
            errors: None,
            status: BatchStatus::Validating,
            metadata: None,
            problems: None,
            counts: BatchCounts::default(),
            times: BatchTimes::default(),
        }
    }

    #[test]
    fn owners_take_turns() {
        let check = |running: &[&str], resting: &[&str], free: usize, expected: &str| {
            let batches: Vec<Batch> =
                ["a1", "a2", "a3", "b1", "c1", "b2"].iter().map(|name| batch(&name[..1], name)).collect();
            let is_named = |names: &[&str], batch: &&Batch| names.contains(&batch.id.as_str());
            let of =
                |names: &[&str]| batches.iter().filter(|batch| is_named(names, batch)).collect::<Vec<_>>();
            let running =
                of(running).into_iter().map(|batch| (batch.id.clone(), batch.owner.clone())).collect();
            let resting = of(resting).into_iter().map(|batch| (batch.id.clone(), Instant::now())).collect();
            let chosen = choose(batches.clone(), &running, &resting, free);
            let chosen: Vec<_> = chosen.iter().map(|batch| batch.id.as_str()).collect();
            assert_eq!(chosen.join(" "), expected);
        };
        check(&[], &[], 9, "a1 b1 c1 a2 b2 a3");
        check(&[], &[], 2, "a1 b1");
        check(&["a1", "a2"], &[], 9, "b1 c1 b2 a3");
        check(&[], &["b1"], 3, "a1 c1 b2");
        check(&[], &[], 0, "");
    }
}
