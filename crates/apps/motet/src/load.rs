//! From a model file to something that answers: the one place that knows how engine, model and
//! tokenizer fit together.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, UNIX_EPOCH},
};

use motet_engine::{Engine, EngineConfig, Limits};
use motet_hub::{Hub, HubConfig, ModelRef};
use motet_model::{
    CpuExecutor, CpuOptions, Gguf, Isa, KvFormat, Precision,
    gguf::{chat_template, tokenizer_spec},
};
use motet_text::{ChatTemplate, Tokenizer};
use motet_types::Backend;

use crate::{
    config::{Config, EngineSettings},
    failure::Failure,
    progress::DownloadProgress,
};

/// A model that is ready to continue tokens.
pub(crate) struct Loaded {
    /// The name clients ask for.
    pub(crate) id: String,
    /// When its file was written, in Unix seconds.
    pub(crate) created: u64,
    pub(crate) tokenizer: Arc<Tokenizer>,
    /// How it takes conversations, or why it can't, in words.
    pub(crate) template: Result<Arc<ChatTemplate>, String>,
    pub(crate) backend: Arc<dyn Backend>,
    /// How long loading took.
    pub(crate) took: Duration,
}

impl Loaded {
    /// Tokens that all conversations together may hold.
    pub(crate) fn kv_tokens(&self) -> u64 {
        let load = self.backend.load();
        u64::from(load.kv_blocks_total) * u64::from(load.kv_block_tokens)
    }
}

/// The file of the configured model, fetched when it is a hub's and not here yet.
pub(crate) async fn find(model: &ModelRef) -> Result<PathBuf, Failure> {
    let hub = Hub::new(HubConfig::from_env());
    hub.resolve(model, &DownloadProgress::default()).await.map_err(Failure::usage)
}

/// Finds and loads the configured model. Loading keeps a thread busy, so it gets one of its own.
pub(crate) async fn find_and_load(config: &Config) -> Result<Loaded, Failure> {
    let path = find(&config.model).await?;
    let (id, engine) = (model_id(&config.model, &path), config.engine);
    tokio::task::spawn_blocking(move || load(&path, id, engine)).await.map_err(Failure::runtime)?
}

fn load(path: &Path, id: String, settings: EngineSettings) -> Result<Loaded, Failure> {
    let begun = Instant::now();
    let gguf = Gguf::open(path).map_err(Failure::usage)?;
    let spec = tokenizer_spec(&gguf).map_err(Failure::usage)?;
    let tokenizer =
        Arc::new(Tokenizer::new(spec).map_err(|e| Failure::usage(format!("{}: {e}", path.display())))?);
    let options = CpuOptions {
        threads: settings.threads,
        kv_bytes: settings.kv_bytes,
        precision: Precision::Fast,
        kv: KvFormat::F16,
        isa: Isa::detect(),
    };
    let executor = CpuExecutor::load(&gguf, options).map_err(Failure::usage)?;
    let config = EngineConfig {
        id: id.clone(),
        vocab_size: u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX),
        eos_tokens: tokenizer.eog_tokens().to_vec(),
        limits: Limits::default(),
    };
    let backend = Engine::start(Box::new(executor), config).map_err(Failure::runtime)?;
    let template = compile_template(&gguf, &tokenizer);
    Ok(Loaded { id, created: modified(path), tokenizer, template, backend, took: begun.elapsed() })
}

fn compile_template(gguf: &Gguf, tokenizer: &Tokenizer) -> Result<Arc<ChatTemplate>, String> {
    let source = chat_template(gguf).ok_or("the model has no chat template")?;
    let text = |id: Option<u32>| id.map_or_else(String::new, |id| lossy(tokenizer.token_bytes(id)));
    ChatTemplate::new(source, &text(tokenizer.bos()), &text(tokenizer.eos()))
        .map(Arc::new)
        .map_err(|e| format!("the model's chat template can't be used: {e}"))
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What clients call the model: the default's name, the repository, or the file's name without its ending.
fn model_id(model: &ModelRef, path: &Path) -> String {
    match model {
        ModelRef::Hub { repo, .. } => repo.clone(),
        ModelRef::Default => model.to_string(),
        ModelRef::Path(_) => {
            path.file_stem().map_or_else(|| "model".to_owned(), |stem| lossy(stem.as_encoded_bytes()))
        }
    }
}

/// 0 where the file system does not say.
fn modified(path: &Path) -> u64 {
    let time = std::fs::metadata(path).and_then(|meta| meta.modified()).ok();
    time.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).map_or(0, |age| age.as_secs())
}
