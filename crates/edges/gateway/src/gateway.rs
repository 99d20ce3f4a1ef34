use std::hash::RandomState;
use std::sync::Arc;

use motet_fleet::Rung;
use motet_text::{ChatTemplate, Tokenizer};
use motet_types::Backend;
use tokio::sync::watch;

use crate::catalogue::{Catalogue, CatalogueSender, ModelCard, State};
use crate::config::GatewayConfig;
use crate::embeddings::EmbeddingModel;
use crate::idempotency::Idempotency;
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
    /// Bytes of its weights: where nothing else tells which model is for hard requests, the largest is.
    pub weight_bytes: u64,
}

/// A served model and what is derived from it once.
pub(crate) struct Served {
    pub(crate) model: ServedModel,
    /// What was known of it before it was loaded.
    pub(crate) card: Arc<ModelCard>,
    /// Its place among the server's models.
    pub(crate) index: usize,
    /// `system_fingerprint`.
    pub(crate) fingerprint: String,
    /// Names of the backend's lanes.
    pub(crate) lanes: Vec<String>,
    /// Whether the template takes messages without content.
    pub(crate) takes_null_content: bool,
    /// What is given up when there is too much to do.
    pub(crate) overload: Overload,
}

/// The embedding model, where one is served.
pub(crate) type EmbeddingSlot = Option<Arc<EmbeddingModel>>;

/// The HTTP server's state. Make a [`router`](Gateway::router) of it and serve that at once; requests
/// for a model get 503 until it [is ready](Gateway::set_ready).
pub struct Gateway {
    pub(crate) config: GatewayConfig,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) workers: Workers,
    pub(crate) idempotency: Idempotency,
    pub(crate) rung: watch::Sender<Rung>,
    /// What bodies are known by when they come again.
    pub(crate) marks: RandomState,
    models: CatalogueSender,
    embedding: watch::Sender<EmbeddingSlot>,
}

impl Gateway {
    /// A gateway for one model, which is not there yet.
    pub fn new(config: GatewayConfig) -> Arc<Self> {
        Self::with_models(config, Vec::new())
    }

    /// A gateway for these models, none of which is there yet. The first is the default one: whether it is
    /// ready is whether the server is.
    pub fn with_models(config: GatewayConfig, cards: Vec<ModelCard>) -> Arc<Self> {
        let models = CatalogueSender::new(Catalogue::new(cards));
        let embedding = watch::Sender::new(None);
        let metrics = Metrics::new(models.subscribe(), embedding.subscribe());
        let workers = Workers::new(&config);
        let idempotency = Idempotency::new(config.idempotency);
        let (rung, marks) = (watch::Sender::new(Rung::Normal), RandomState::new());
        Arc::new(Self {
            config,
            metrics: Arc::new(metrics),
            workers,
            idempotency,
            rung,
            marks,
            models,
            embedding,
        })
    }

    /// Serves `model` as the default one from now on. Call it after one real generation has run.
    pub fn set_ready(&self, model: ServedModel) {
        self.set_model_ready(0, model);
    }

    /// Serves `model` from now on in the place of card `index`. Call it after one real generation has run.
    pub fn set_model_ready(&self, index: usize, model: ServedModel) {
        let info = model.backend.model();
        let shape = format!("{} {}", info.context_length, info.vocab_size);
        let fingerprint =
            ids::fingerprint(&[env!("CARGO_PKG_VERSION"), &model.id, &model.created.to_string(), &shape]);
        let takes_null_content = model.template.as_deref().is_none_or(null_content::is_taken_by);
        let lanes: Vec<_> = model.backend.load().lanes.into_iter().map(|lane| lane.name).collect();
        let overload = Overload::new(self.config.overload.clone(), lanes.len());
        let card = self.models.borrow().card(index);
        self.metrics.ladder.begins(&model.id);
        let served = Served { model, card, index, fingerprint, lanes, takes_null_content, overload };
        self.models.send_modify(|models| models.set(index, State::Ready(Arc::new(served))));
    }

    /// Serves embeddings of `model` from now on.
    pub fn set_embedding_model(&self, model: EmbeddingModel) {
        self.embedding.send_replace(Some(Arc::new(model)));
    }

    pub(crate) fn embedding_model(&self) -> EmbeddingSlot {
        self.embedding.borrow().clone()
    }

    /// There is no default model, or none that works: `why` is for the operator and is shown to clients.
    pub fn set_failed(&self, why: String) {
        self.set_model_failed(0, why);
    }

    /// Model `index` can't be loaded or stopped working; the others are not touched.
    pub fn set_model_failed(&self, index: usize, why: String) {
        self.models.send_modify(|models| models.set(index, State::Failed(why)));
    }

    /// The highest rung that a model's ladder stands on; see [`watch_load`](Self::watch_load).
    pub fn rung(&self) -> watch::Receiver<Rung> {
        self.rung.subscribe()
    }

    /// All models as they are now.
    pub(crate) fn catalogue(&self) -> Catalogue {
        self.models.borrow().clone()
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
}
