//! Files and batches: where they are, and as whom the lines of a batch are sent.

use std::{path::PathBuf, sync::Arc};

use futures_util::future::BoxFuture;
use motet_batch::{BatchConfig, Batches, OpenStore, RunAs};
use motet_gateway::{Caller, Denial};
use motet_store::{DataOwner, KeyId, Whose};

use crate::{
    accounts::{Door, data_folder, open_at},
    config::Config,
};

/// Files and batches of accounts, or of nobody where there are none. The database of accounts is open; without them it
/// is opened when the first file comes, and one that can't be is no reason not to serve the rest.
pub(crate) fn of(config: &Config, door: Option<&Door>) -> Batches {
    let whose = if door.is_some() { Whose::Accounts } else { Whose::Nobody };
    // Without a data folder the database can't be opened either, which says why; nothing is kept then.
    let folder = data_folder().map_or_else(|_| PathBuf::new(), |folder| folder.join("files"));
    let mut settings = BatchConfig::new(folder, whose);
    settings.per_tenant.bytes = config.files.max_bytes;
    settings.lines_at_once = config.files.batch_lines;
    settings.keep_output = config.files.keep_output;
    let (store, url) = (door.map(|door| door.store().clone()), config.accounts.store.clone());
    let open: OpenStore = Box::new(move || {
        let (store, url) = (store.clone(), url.clone());
        Box::pin(async move {
            let opened = async {
                data_folder()?;
                match store {
                    Some(store) => Ok(store),
                    None => open_at(url.as_deref()).await,
                }
            };
            opened.await.map_err(|failure| failure.line().unwrap_or_default())
        })
    });
    Batches::new(settings, open)
}

/// As whom lines are sent.
pub(crate) fn run_as(door: Option<&Arc<Door>>) -> Arc<dyn RunAs> {
    match door {
        Some(door) => Arc::clone(door) as Arc<dyn RunAs>,
        None => Arc::new(Nobody),
    }
}

/// Without accounts everybody is the same caller.
struct Nobody;

impl RunAs for Nobody {
    fn caller<'a>(
        &'a self,
        _: &'a DataOwner,
        _: Option<&'a KeyId>,
    ) -> BoxFuture<'a, Result<Arc<Caller>, Denial>> {
        Box::pin(async { Ok(Arc::new(Caller::default())) })
    }
}
