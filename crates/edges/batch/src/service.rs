use std::sync::Arc;

use futures_util::future::BoxFuture;
use motet_store::{FileId, Store};
use tokio::sync::{OnceCell, Semaphore, watch};

use crate::config::BatchConfig;
use crate::disk::Disk;
use crate::error::ApiError;

/// Opens the database when files or batches are first asked for; an error says why it can't be.
pub type OpenStore = Box<dyn Fn() -> BoxFuture<'static, Result<Store, String>> + Send + Sync>;

/// Files and batches: [`routes`](Batches::routes) to serve, and a runner to [`start`](Batches::start).
#[derive(Clone)]
pub struct Batches {
    pub(crate) service: Arc<Service>,
}

/// What routes and runner share.
pub(crate) struct Service {
    pub(crate) config: BatchConfig,
    pub(crate) disk: Disk,
    pub(crate) uploads: Semaphore,
    /// Counts batches that were made or cancelled.
    pub(crate) changed: watch::Sender<u64>,
    open: OpenStore,
    store: OnceCell<Store>,
    home: OnceCell<String>,
}

impl Batches {
    /// Nothing is opened or made before it is needed.
    pub fn new(config: BatchConfig, open: OpenStore) -> Self {
        let service = Service {
            disk: Disk::new(config.folder.clone()),
            uploads: Semaphore::new(config.uploads),
            changed: watch::Sender::new(0),
            config,
            open,
            store: OnceCell::new(),
            home: OnceCell::new(),
        };
        Self { service: Arc::new(service) }
    }
}

impl Service {
    /// The database. One that can't be opened is tried again with the next request.
    pub(crate) async fn store(&self) -> Result<&Store, ApiError> {
        self.store.get_or_try_init(|| (self.open)()).await.map_err(ApiError::Unavailable)
    }

    /// The name of the folder of files.
    pub(crate) async fn home(&self) -> Result<&str, ApiError> {
        let make = || async {
            let (disk, fresh) = (self.disk.clone(), FileId::fresh()?);
            let home = tokio::task::spawn_blocking(move || disk.home(&fresh)).await;
            Ok::<_, ApiError>(home.map_err(|_| ApiError::Internal)??)
        };
        self.home.get_or_try_init(make).await.map(String::as_str)
    }

    /// Lets the runner look again.
    pub(crate) fn tell(&self) {
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }
}
