//! From a model file to something that answers: the one place that knows how engine, model and
//! tokenizer fit together.

use std::{
    cell::Cell,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, UNIX_EPOCH},
};

use motet_engine::{CacheConfig, CacheKey, Engine, EngineConfig, StartError, TierConfig};
use motet_hub::{Hub, HubConfig, ModelRef};
use motet_model::{
    BLOCK_TOKENS, CpuExecutor, CpuOptions, Gguf, Isa, KvFormat, LoadProgress, ModelConfig, ModelError,
    Precision,
    gguf::{chat_template, tokenizer_spec},
};
use motet_text::{ChatTemplate, Tokenizer};

use crate::{
    config::{Config, ModelSettings, SpillSettings, human_bytes},
    failure::Failure,
    output::say,
    progress::DownloadProgress,
};

/// Tokens of the median request, prompt and reply together, of the conversation trace that Azure
/// published for its language model service in 2023: 1,020 + 129.
pub(crate) const MEDIAN_CONVERSATION: usize = 1149;

/// Between two lines that say how much is loaded: models that are there sooner have none.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// A model that is ready to continue tokens.
pub(crate) struct Loaded {
    /// The name clients ask for.
    pub(crate) id: String,
    /// When its file was written, in Unix seconds.
    pub(crate) created: u64,
    pub(crate) tokenizer: Arc<Tokenizer>,
    /// How it takes conversations, or why it can't, in words.
    pub(crate) template: Result<Arc<ChatTemplate>, String>,
    pub(crate) engine: Arc<Engine>,
    /// How the engine keeps keys and values.
    pub(crate) kv_format: KvFormat,
    /// Tokens that all conversations together may hold, where they have the median length.
    pub(crate) kv_tokens: u64,
    /// Bytes that they may take.
    pub(crate) kv_bytes: u64,
    /// Bytes of the weights.
    pub(crate) weight_bytes: u64,
    /// Threads that compute for it.
    pub(crate) threads: usize,
    /// How long loading took.
    pub(crate) took: Duration,
}

/// The file of the configured model, fetched when it is a hub's and not here yet.
pub(crate) async fn find(model: &ModelRef) -> Result<PathBuf, Failure> {
    let hub = Hub::new(HubConfig::from_env());
    hub.resolve(model, &DownloadProgress::default()).await.map_err(Failure::usage)
}

/// Finds and loads the default model.
pub(crate) async fn find_and_load(config: &Config) -> Result<Loaded, Failure> {
    let Some(model) = config.models.first() else { return Err(Failure::usage("there is no model")) };
    find_and_load_one(model).await
}

/// Finds and loads a model. Loading keeps a thread busy, so it gets one of its own.
pub(crate) async fn find_and_load_one(model: &ModelSettings) -> Result<Loaded, Failure> {
    let (path, model) = (find(&model.model).await?, model.clone());
    tokio::task::spawn_blocking(move || load(&path, model)).await.map_err(Failure::runtime)?
}

fn load(path: &Path, model: ModelSettings) -> Result<Loaded, Failure> {
    let id = model_id(&model, path);
    let (settings, memory_key) = (model.engine, model.memory_key);
    let begun = Instant::now();
    let gguf = Gguf::open(path).map_err(Failure::usage)?;
    let spec = tokenizer_spec(&gguf).map_err(Failure::usage)?;
    let tokenizer =
        Arc::new(Tokenizer::new(spec).map_err(|e| Failure::usage(format!("{}: {e}", path.display())))?);
    let model = ModelConfig::read(&gguf).map_err(Failure::usage)?;
    let kv_block_bytes = model.kv_block_bytes(settings.kv_format);
    let options = CpuOptions {
        threads: settings.threads,
        kv_bytes: settings.kv_memory.bytes(gguf.file_size(), kv_block_bytes, BLOCK_TOKENS),
        precision: Precision::Fast,
        kv: settings.kv_format,
        isa: Isa::detect(),
    };
    let told = Cell::new(begun);
    let progress = |LoadProgress { bytes, total }: LoadProgress| {
        if told.get().elapsed() >= PROGRESS_EVERY {
            told.set(Instant::now());
            say(&format!("Loading: {} of {}", human_bytes(bytes), human_bytes(total)));
        }
    };
    let executor = CpuExecutor::load_with(&gguf, options, &progress).map_err(|error| match error {
        ModelError::File(error) => Failure::usage(error),
        error => Failure::usage(format!("{memory_key}: {error}")),
    })?;
    let (kv_tokens, kv_bytes) = (executor.kv_tokens(MEDIAN_CONVERSATION) as u64, executor.kv_bytes() as u64);
    let config = EngineConfig {
        id: id.clone(),
        vocab_size: u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX),
        eos_tokens: tokenizer.eog_tokens().to_vec(),
        cache: cache(settings.is_caching, settings.spill)?,
        sched: settings.sched,
    };
    let engine = Engine::start(Box::new(executor), config).map_err(start_failure)?;
    Ok(Loaded {
        id,
        created: modified(path),
        template: compile_template(&gguf, &tokenizer),
        tokenizer,
        engine,
        kv_format: settings.kv_format,
        kv_tokens,
        kv_bytes,
        weight_bytes: gguf.file_size(),
        threads: settings.threads,
        took: begun.elapsed(),
    })
}

/// The prefix cache, with a key and a name for the weights that hold for this load alone.
fn cache(is_on: bool, spill: Option<SpillSettings>) -> Result<CacheConfig, Failure> {
    let random = |bytes: &mut [u8]| {
        getrandom::fill(bytes).map_err(|e| Failure::runtime(format!("the system has no randomness: {e}")))
    };
    let (mut key, mut load) = ([0; 32], [0; 16]);
    random(&mut key)?;
    random(&mut load)?;
    Ok(CacheConfig {
        is_on,
        key: CacheKey::new(key),
        model: format!("{:032x}", u128::from_ne_bytes(load)),
        second_tier: spill.map(second_tier).transpose()?,
    })
}

/// Makes the folder where it isn't there yet.
fn second_tier(spill: SpillSettings) -> Result<TierConfig, Failure> {
    let folder = spill.folder.unwrap_or_else(usual_spill_folder);
    std::fs::create_dir_all(&folder).map_err(|e| {
        Failure::usage(format!(
            "engine.cache_spill_folder: {} can't be made: {e}; name a folder that can be written",
            folder.display()
        ))
    })?;
    Ok(TierConfig { folder, max_bytes: spill.max_bytes, max_age: spill.max_age })
}

/// `motet/spill` in the user's cache, or the system's folder for temporary files where there is none.
fn usual_spill_folder() -> PathBuf {
    let models = motet_hub::models_dir();
    let cache = models.parent().filter(|folder| folder.is_absolute());
    cache.map_or_else(std::env::temp_dir, |folder| folder.join("spill"))
}

fn start_failure(error: StartError) -> Failure {
    match &error {
        StartError::UnknownToken { .. } => Failure::usage(error),
        StartError::SecondTier { .. } => Failure::usage(format!(
            "engine.cache_spill: {error}; name another engine.cache_spill_folder or size, or turn it off"
        )),
        StartError::Thread(_) => Failure::runtime(error),
    }
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

/// What clients call the model: its configured name, the default's name, the repository, or the file's name without its
/// ending.
fn model_id(settings: &ModelSettings, path: &Path) -> String {
    match &settings.model {
        _ if settings.is_named => settings.label(),
        ModelRef::Hub { repo, .. } => repo.clone(),
        model @ ModelRef::Default => model.to_string(),
        ModelRef::Path(_) => {
            path.file_stem().map_or_else(|| "model".to_owned(), |stem| lossy(stem.as_encoded_bytes()))
        }
    }
}

/// 0 where the file system does not say.
pub(crate) fn modified(path: &Path) -> u64 {
    let time = std::fs::metadata(path).and_then(|meta| meta.modified()).ok();
    time.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).map_or(0, |age| age.as_secs())
}
