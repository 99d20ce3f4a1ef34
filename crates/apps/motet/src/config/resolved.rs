use std::{fmt::Display, net::IpAddr, path::PathBuf, time::Duration};

use motet_engine::SchedConfig;
use motet_gateway::OverloadConfig;
use motet_hub::ModelRef;
use motet_model::KvFormat;
use motet_types::SamplingParams;

use super::{
    ConfigError, KEYS, RawConfig,
    keys::{self, Key},
    ladder,
    lanes::{self, Lane},
    memory::{self, KvMemory},
    models::{self, ModelSettings},
    oidc::{self, SignInProvider},
    raw::Source,
    tiers::{self, Tier},
    values,
};

/// A checked configuration.
#[derive(Debug)]
pub(crate) struct Config {
    /// The default model.
    pub(crate) model: ModelRef,
    /// What a server serves: at least one, the first is the default model.
    pub(crate) models: Vec<ModelSettings>,
    /// Folder of the model for embeddings.
    pub(crate) embedding_model: Option<PathBuf>,
    pub(crate) host: IpAddr,
    pub(crate) port: u16,
    pub(crate) engine: EngineSettings,
    /// What is given up when there is too much to do.
    pub(crate) overload: OverloadConfig,
    pub(crate) sampling: SamplingSettings,
    /// System message of chat and run.
    pub(crate) system: Option<String>,
    pub(crate) log: LogSettings,
    pub(crate) accounts: AccountSettings,
    pub(crate) files: FileSettings,
    /// File with a list of phrases for checks of texts.
    pub(crate) safety_rules: Option<PathBuf>,
    /// At least one; the first is interactive.
    pub(crate) lanes: Vec<Lane>,
    /// At least one; the first is for accounts whose tier is none of them.
    pub(crate) tiers: Vec<Tier>,
    /// Providers that people can sign in with.
    pub(crate) oidc: Vec<SignInProvider>,
    /// Every key in the order of [`KEYS`], for `config check`.
    pub(crate) settings: Vec<Setting>,
}

/// Whether requests need a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Auth {
    On,
    Off,
    /// Where other machines can reach the server.
    Auto,
}

/// Who may use the server, and where that is written down.
#[derive(Clone)]
pub(crate) struct AccountSettings {
    pub(crate) auth: Auth,
    /// Scheme and authority of the proxy before the server, where there is one.
    pub(crate) public_url: Option<http::Uri>,
    /// `None`: a file in the data folder.
    pub(crate) store: Option<String>,
    /// `None`: limits are kept in this process.
    pub(crate) redis: Option<String>,
}

/// Addresses may have passwords in them.
impl std::fmt::Debug for AccountSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccountSettings").field("auth", &self.auth).finish_non_exhaustive()
    }
}

/// What files and batches may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileSettings {
    /// Bytes that an organisation may keep.
    pub(crate) max_bytes: u64,
    /// Lines of batches at once.
    pub(crate) batch_lines: usize,
    /// How long answers are kept.
    pub(crate) keep_output: Duration,
}

/// What the engine may use, and how it shares it.
#[derive(Debug, Clone)]
pub(crate) struct EngineSettings {
    pub(crate) threads: usize,
    pub(crate) kv_memory: KvMemory,
    pub(crate) kv_format: KvFormat,
    /// Whether computed prefixes are kept.
    pub(crate) is_caching: bool,
    /// The prefix cache's second tier.
    pub(crate) spill: Option<SpillSettings>,
    pub(crate) sched: SchedConfig,
}

/// Where blocks of the prefix cache go that memory has no room for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SpillSettings {
    /// `None`: the usual one.
    pub(crate) folder: Option<PathBuf>,
    pub(crate) max_bytes: u64,
    pub(crate) max_age: Duration,
}

/// How chat and run draw tokens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SamplingSettings {
    /// The seed in it is unused.
    pub(crate) params: SamplingParams,
    /// `None`: another one for each reply.
    pub(crate) seed: Option<u64>,
    pub(crate) max_tokens: u32,
}

/// How logs look.
#[derive(Debug)]
pub(crate) struct LogSettings {
    /// `None`: what the command wants.
    pub(crate) filter: Option<String>,
    pub(crate) is_json: bool,
}

/// A key, what it resolved to, and where that came from.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) key: &'static Key,
    /// What was written, and what it means where that differs.
    pub(crate) shown: String,
    pub(crate) source: Source,
}

impl Config {
    /// Checks every value of `raw`; the first that is wrong is the error.
    pub(crate) fn resolve(raw: &RawConfig) -> Result<Self, ConfigError> {
        let mut reader = Reader { raw, settings: Vec::new() };
        let named = reader.read("model", values::model)?;
        let embedding_model = reader.read("embedding_model", |text| {
            Ok(Some(PathBuf::from(text)).filter(|path| !path.as_os_str().is_empty()))
        })?;
        let host = reader.read("server.host", values::host)?;
        let port = reader.read("server.port", values::port)?;
        let accounts = AccountSettings {
            auth: reader.read("server.auth", values::auth)?,
            public_url: reader.read("server.public_url", values::public_url)?,
            store: reader.read("accounts.store", values::store)?,
            redis: reader.read("accounts.redis", values::redis)?,
        };
        let files = FileSettings {
            max_bytes: reader.read("files.max_bytes", values::size)?,
            batch_lines: reader
                .read("files.batch_lines", |text| values::count_in(text, 1, MAX_BATCH_LINES))?
                as usize,
            keep_output: reader.read("files.keep_output", |text| values::duration(text, "1h", "8760h"))?,
        };
        let safety_rules = reader.read("safety.rules", |text| {
            Ok(Some(PathBuf::from(text)).filter(|path| !path.as_os_str().is_empty()))
        })?;
        let lanes = lanes::resolve(&raw.lanes)?;
        let mut tiers = tiers::resolve(&raw.tiers, &lanes)?;
        let oidc = oidc::resolve(&raw.oidc, &tiers)?;
        let engine = engine(&mut reader, &lanes)?;
        let models = reader.models(&named, &engine)?;
        tiers
            .iter_mut()
            .filter_map(|tier| tier.models.as_mut())
            .for_each(|names| models::by_name(names, &models));
        let overload = ladder::resolve(&mut reader, &lanes)?;
        let params = SamplingParams {
            temperature: reader.read("sampling.temperature", |text| values::number(text, 0.0, 2.0))?,
            top_p: reader.read("sampling.top_p", |text| values::number(text, 0.01, 1.0))?,
            top_k: reader.read("sampling.top_k", |text| values::count(text, 0))?,
            min_p: reader.read("sampling.min_p", |text| values::number(text, 0.0, 1.0))?,
            seed: 0,
        };
        let sampling = SamplingSettings {
            params,
            seed: reader.read("sampling.seed", values::seed)?,
            max_tokens: reader.read("sampling.max_tokens", |text| values::count(text, 1))?,
        };
        let system =
            reader.read("chat.system", |text| Ok(Some(text.to_owned()).filter(|t| !t.trim().is_empty())))?;
        let log = LogSettings {
            filter: reader.read("log.filter", |text| Ok((text != "auto").then(|| text.to_owned())))?,
            is_json: reader
                .read("log.format", |text| Ok(values::choice(text, &["text", "json"])? == "json"))?,
        };
        let settings = reader.settings;
        debug_assert_eq!(settings.len(), KEYS.len(), "every key is resolved");
        // There is at least one.
        let (model, engine) = models.first().map_or((named, engine), |m| (m.model.clone(), m.engine.clone()));
        Ok(Self {
            model,
            models,
            embedding_model,
            host,
            port,
            engine,
            overload,
            sampling,
            system,
            log,
            accounts,
            files,
            safety_rules,
            lanes,
            tiers,
            oidc,
            settings,
        })
    }
}

fn engine(reader: &mut Reader<'_>, lanes: &[Lane]) -> Result<EngineSettings, ConfigError> {
    let threads = reader.read_or(
        "engine.threads",
        values::threads,
        motet_kernels::available_threads,
        usize::to_string,
    )?;
    let kv_memory = reader.read_or(
        "engine.kv_memory",
        values::kv_memory,
        memory::default_kv_memory,
        KvMemory::to_string,
    )?;
    let kv_format = reader.read("engine.kv_format", values::kv_format)?;
    let is_caching = reader.read("engine.prefix_cache", values::switch)?;
    let spilled = reader.read("engine.cache_spill", |text| match values::spill(text)? {
        Some(_) if !is_caching => {
            Err("there is nothing to spill with engine.prefix_cache = off; turn that on, or this off"
                .to_owned())
        }
        bytes => Ok(bytes),
    })?;
    let folder = reader.read("engine.cache_spill_folder", values::folder)?;
    let max_age = reader.read("engine.cache_spill_age", |text| values::duration(text, "1s", "8760h"))?;
    let max_running = reader.read("engine.max_running", |text| values::count_in(text, 1, MAX_RUNNING))?;
    let sched = SchedConfig {
        lanes: lanes.iter().map(|lane| lane.config.clone()).collect(),
        max_running: max_running as usize,
        max_step_tokens: reader
            .read("engine.max_step_tokens", |text| values::count_in(text, 1, MAX_STEP_TOKENS))?,
        itl_target: reader.read("engine.itl_target", |text| values::duration(text, "1ms", "1min"))?,
        ..SchedConfig::default()
    };
    let spill = spilled.map(|max_bytes| SpillSettings { folder, max_bytes, max_age });
    Ok(EngineSettings { threads, kv_memory, kv_format, is_caching, spill, sched })
}

/// Most lines of batches at once: each is a body of up to 4 MiB in memory.
const MAX_BATCH_LINES: u32 = 256;
/// Most sequences of a batch: each needs a row of logits, some hundred kilobytes.
const MAX_RUNNING: u32 = 4096;
/// Most tokens of a step: each needs a row of every activation.
const MAX_STEP_TOKENS: u32 = 1 << 16;

/// Reads keys one by one and notes what they were.
pub(super) struct Reader<'a> {
    raw: &'a RawConfig,
    settings: Vec<Setting>,
}

impl Reader<'_> {
    pub(super) fn read<T>(
        &mut self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, ConfigError> {
        let key = keys::find(name).ok_or_else(|| ConfigError(format!("{name} is not declared")))?;
        let written = self.raw.get(key);
        let value = parse(&written.text).map_err(|why| problem(key, &written.text, &written.source, why))?;
        self.settings.push(Setting { key, shown: written.text, source: written.source });
        Ok(value)
    }

    /// A key that may leave the choice to `default`; `show` says what that chose.
    fn read_or<T>(
        &mut self,
        name: &str,
        parse: impl Fn(&str) -> Result<Option<T>, String>,
        default: impl Fn() -> T,
        show: impl Fn(&T) -> String,
    ) -> Result<T, ConfigError> {
        if let Some(value) = self.read(name, parse)? {
            return Ok(value);
        }
        let value = default();
        if let Some(setting) = self.settings.last_mut() {
            setting.shown = format!("{} ({})", setting.shown, show(&value));
        }
        Ok(value)
    }
}

impl Reader<'_> {
    /// The models, once `model` is read: where that says nothing, the setting shows the first table's.
    fn models(
        &mut self,
        named: &ModelRef,
        engine: &EngineSettings,
    ) -> Result<Vec<ModelSettings>, ConfigError> {
        let key = keys::find("model").ok_or_else(|| ConfigError("model is not declared".to_owned()))?;
        let written = self.raw.get(key);
        let models = models::resolve(&self.raw.models, (named, &written), engine)?;
        let setting = self.settings.iter_mut().find(|setting| setting.key == key);
        if let (Some(setting), Some(first)) = (setting, models.first())
            && !self.raw.models.is_empty()
        {
            setting.shown = first.model.to_string();
            setting.source = first.source.clone();
        }
        Ok(models)
    }
}

fn problem(key: &Key, text: &str, source: &Source, why: impl Display) -> ConfigError {
    if text.contains('@') {
        // It may have a password in it.
        return ConfigError(format!("{} (from {source}): {why}", key.name));
    }
    ConfigError(format!("{} = {text:?} (from {source}): {why}", key.name))
}
