use std::sync::Arc;

use motet_fleet::Rung;
use motet_protocol::ModelObject;
use motet_text::{ChatTemplate, Tokenizer};
use motet_types::Backend;
use tokio::sync::watch;

use crate::config::GatewayConfig;
use crate::error::ApiError;
use crate::ids;
use crate::metrics::Metrics;
use crate::null_content;
use crate::overload::Overload;
use crate::prepare::Workers;

/// A model that can be served, and everything that serving it needs.
#[derive(Clone)]
pub struct ServedModel {
    /// The name requests use, exactly.
    pub id: String,
    /// When the model was made or fetched, in Unix seconds.
    pub created: u64,
    /// Its vocabulary.
    pub tokenizer: Arc<Tokenizer>,
    /// How it takes conversations; without one only completions work.
    pub template: Option<Arc<ChatTemplate>>,
    /// What continues its token sequences.
    pub backend: Arc<dyn Backend>,
}

/// A served model and what is derived from it once.
pub(crate) struct Served {
    pub(crate) model: ServedModel,
    /// `system_fingerprint`.
    pub(crate) fingerprint: String,
    /// Names of the backend's lanes.
    pub(crate) lanes: Vec<String>,
    /// Whether the template takes messages without content.
    pub(crate) takes_null_content: bool,
    /// What is given up when there is too much to do.
    pub(crate) overload: Overload,
}

/// Whether there is a model to serve.
#[derive(Clone)]
pub(crate) enum State {
    /// It is being loaded.
    Loading,
    /// It has generated and can be used.
    Ready(Arc<Served>),
    /// It could not be loaded or stopped working, and why.
    Failed(String),
}

/// The HTTP server's state. Make a [`router`](Gateway::router) of it and serve that at once; requests
/// for a model get 503 until [`set_ready`](Gateway::set_ready).
pub struct Gateway {
    pub(crate) config: GatewayConfig,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) workers: Workers,
    pub(crate) rung: watch::Sender<Rung>,
    state: watch::Sender<State>,
}

impl Gateway {
    /// A gateway that has no model yet.
    pub fn new(config: GatewayConfig) -> Arc<Self> {
        let state = watch::Sender::new(State::Loading);
        let metrics = Metrics::new(state.subscribe());
        let workers = Workers::new(&config);
        let rung = watch::Sender::new(Rung::Normal);
        Arc::new(Self { config, metrics: Arc::new(metrics), workers, rung, state })
    }

    /// Serves `model` from now on. Call it after one real generation has run.
    pub fn set_ready(&self, model: ServedModel) {
        let info = model.backend.model();
        let shape = format!("{} {}", info.context_length, info.vocab_size);
        let fingerprint =
            ids::fingerprint(&[env!("CARGO_PKG_VERSION"), &model.id, &model.created.to_string(), &shape]);
        let takes_null_content = model.template.as_deref().is_none_or(null_content::is_taken_by);
        let lanes: Vec<_> = model.backend.load().lanes.into_iter().map(|lane| lane.name).collect();
        let overload = Overload::new(self.config.overload.clone(), lanes.len());
        let served = Served { model, fingerprint, lanes, takes_null_content, overload };
        self.state.send_replace(State::Ready(Arc::new(served)));
    }

    /// There is no model, or none that works: `why` is for the operator and is shown to clients.
    pub fn set_failed(&self, why: String) {
        self.state.send_replace(State::Failed(why));
    }

    /// Where the ladder stands; see [`watch_load`](Self::watch_load).
    pub fn rung(&self) -> watch::Receiver<Rung> {
        self.rung.subscribe()
    }

    pub(crate) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// The model, or what to answer while there is none.
    pub(crate) fn served(&self) -> Result<Arc<Served>, ApiError> {
        match self.state() {
            State::Ready(served) => Ok(served),
            State::Loading => Err(ApiError::Loading),
            State::Failed(why) => Err(ApiError::Down(why)),
        }
    }

    /// Seconds since 1970 by the configured clock.
    pub(crate) fn unix_seconds(&self) -> u64 {
        let since = (self.config.clock)().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |duration| duration.as_secs())
    }
}

impl Served {
    /// A lane's name; empty where there is no such lane.
    pub(crate) fn lane_name(&self, lane: usize) -> &str {
        self.lanes.get(lane).map_or("", String::as_str)
    }

    pub(crate) fn object(&self) -> ModelObject {
        let context = self.model.backend.model().context_length;
        ModelObject::new(&self.model.id, self.model.created, context)
    }
}
