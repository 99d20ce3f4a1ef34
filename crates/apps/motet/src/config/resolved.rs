use std::{fmt::Display, net::IpAddr};

use motet_hub::ModelRef;
use motet_types::SamplingParams;

use super::{
    ConfigError, KEYS, RawConfig,
    keys::{self, Key},
    memory,
    raw::Source,
    values,
};

/// A checked configuration.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) model: ModelRef,
    pub(crate) host: IpAddr,
    pub(crate) port: u16,
    pub(crate) engine: EngineSettings,
    pub(crate) sampling: SamplingSettings,
    /// System message of chat and run.
    pub(crate) system: Option<String>,
    pub(crate) log: LogSettings,
    /// Every key in the order of [`KEYS`], for `config check`.
    pub(crate) settings: Vec<Setting>,
}

/// What the engine may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EngineSettings {
    pub(crate) threads: usize,
    pub(crate) kv_bytes: usize,
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
        let model = reader.read("model", values::model)?;
        let host = reader.read("server.host", values::host)?;
        let port = reader.read("server.port", values::port)?;
        let engine = EngineSettings {
            threads: reader.read_or("engine.threads", values::threads, default_threads, usize::to_string)?,
            kv_bytes: reader.read_or(
                "engine.kv_memory",
                values::memory,
                memory::default_kv_bytes,
                |bytes| values::human_bytes(*bytes as u64),
            )?,
        };
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
        Ok(Self { model, host, port, engine, sampling, system, log, settings })
    }
}

fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Reads keys one by one and notes what they were.
struct Reader<'a> {
    raw: &'a RawConfig,
    settings: Vec<Setting>,
}

impl Reader<'_> {
    fn read<T>(&mut self, name: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<T, ConfigError> {
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

fn problem(key: &Key, text: &str, source: &Source, why: impl Display) -> ConfigError {
    ConfigError(format!("{} = {text:?} (from {source}): {why}", key.name))
}
