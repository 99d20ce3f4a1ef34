//! `[[models]]`: what is served, where that is more than the one `model`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use motet_fleet::{AUTO, Role};
use motet_hub::{DEFAULT_MODEL, ModelRef};

use super::{
    ConfigError, EngineSettings,
    raw::{Source, Written},
    tables::{List, RawTable},
    values,
};

/// The keys of a model.
pub(super) static MODELS: List = List {
    name: "models",
    one: "model",
    keys: &["name", "model", "roles", "aliases", "description", "context", "kv_memory", "threads", "smaller"],
    lists: &["roles", "aliases"],
};

/// Most models: each has threads, memory and a set of metrics of its own.
const MAX_MODELS: usize = 64;
/// Most aliases of a model: every request looks through them.
const MAX_ALIASES: usize = 32;
/// Longest name or alias in bytes.
const MAX_NAME: usize = 128;
/// Longest description in bytes: it is part of every list of models.
const MAX_DESCRIPTION: usize = 500;

/// A checked model.
#[derive(Debug, Clone)]
pub(crate) struct ModelSettings {
    /// The name requests use; `None`: it shows when the model is found.
    pub(crate) name: Option<String>,
    /// Whether that was written, and does not come from `model`.
    pub(crate) is_named: bool,
    /// Whether it has a table of its own.
    pub(crate) is_table: bool,
    pub(crate) model: ModelRef,
    pub(crate) roles: Vec<Role>,
    pub(crate) aliases: Vec<String>,
    pub(crate) description: String,
    /// Most tokens of prompt and reply, where that is less than the model's.
    pub(crate) context: Option<u32>,
    /// Name of the model that may stand in for it.
    pub(crate) smaller: Option<String>,
    /// What it may use; its share where it shares.
    pub(crate) engine: EngineSettings,
    /// The key that its KV memory is from.
    pub(crate) memory_key: &'static str,
    pub(crate) source: Source,
}

/// What is served: the tables, or `model` alone where there are none or where a flag or a variable names it.
pub(super) fn resolve(
    raw: &[RawTable],
    (model, written): (&ModelRef, &Written),
    engine: &EngineSettings,
) -> Result<Vec<ModelSettings>, ConfigError> {
    let mut models = raw.iter().map(|raw| table(raw, engine)).collect::<Result<Vec<_>, _>>()?;
    check_together(&models)?;
    link(&mut models)?;
    match &written.source {
        Source::Default if !models.is_empty() => {}
        source @ Source::File { .. } if !models.is_empty() => {
            return Err(ConfigError(format!(
                "{source}: model and [[models]] both say what to serve; write this model as another [[models]], or leave \
                 one of them out"
            )));
        }
        source => return Ok(vec![alone(models, (model, &written.text), engine, source)]),
    }
    share_out(&mut models, engine);
    Ok(models)
}

/// The one model that a flag or a variable names: a table's where it has the name, else one without a table.
fn alone(
    models: Vec<ModelSettings>,
    (model, text): (&ModelRef, &str),
    engine: &EngineSettings,
    source: &Source,
) -> ModelSettings {
    let of_table = models.into_iter().find(|model| model.names().any(|name| name == text));
    let named = ModelSettings {
        name: known_name(model),
        is_named: false,
        is_table: false,
        model: model.clone(),
        roles: Vec::new(),
        aliases: Vec::new(),
        description: String::new(),
        context: None,
        smaller: None,
        engine: engine.clone(),
        memory_key: ENGINE_MEMORY,
        source: source.clone(),
    };
    ModelSettings { smaller: None, ..of_table.unwrap_or(named) }
}

const ENGINE_MEMORY: &str = "engine.kv_memory";

fn table(raw: &RawTable, engine: &EngineSettings) -> Result<ModelSettings, ConfigError> {
    let written = raw.read("name", name)?;
    let model = raw.read("model", values::model)?.ok_or_else(|| {
        ConfigError(format!("{}: a model without a file; add models.model, as --model takes it", raw.source))
    })?;
    let kv_memory = raw.read("kv_memory", values::kv_memory)?.flatten();
    let threads = raw.read("threads", values::threads)?.flatten();
    Ok(ModelSettings {
        is_named: written.is_some(),
        is_table: true,
        name: written.or_else(|| known_name(&model)),
        model,
        roles: raw.read("roles", roles)?.unwrap_or_default(),
        aliases: raw.read("aliases", aliases)?.unwrap_or_default(),
        description: raw.read("description", description)?.unwrap_or_default(),
        context: raw.read("context", |text| values::count(text, 1))?,
        smaller: raw.read("smaller", |text| Ok(text.to_owned()))?,
        engine: EngineSettings {
            threads: threads.unwrap_or(engine.threads),
            kv_memory: kv_memory.unwrap_or(engine.kv_memory),
            ..engine.clone()
        },
        memory_key: if kv_memory.is_some() { "models.kv_memory" } else { ENGINE_MEMORY },
        source: raw.source.clone(),
    })
}

/// What clients call a model, as far as that shows before it is found.
fn known_name(model: &ModelRef) -> Option<String> {
    match model {
        ModelRef::Hub { repo, .. } => Some(repo.clone()),
        ModelRef::Default => Some(DEFAULT_MODEL.name.to_owned()),
        ModelRef::Path(path) => stem_of_file(path),
    }
}

fn stem_of_file(path: &Path) -> Option<String> {
    let is_file = path.extension().is_some_and(|ending| ending == "gguf");
    is_file.then(|| path.file_stem().map(|stem| stem.to_string_lossy().into_owned())).flatten()
}

/// Names, aliases and roles are each of one model.
fn check_together(models: &[ModelSettings]) -> Result<(), ConfigError> {
    if let Some(beyond) = models.get(MAX_MODELS) {
        return Err(ConfigError(format!(
            "{}: there are {} models; at most {MAX_MODELS} can be, so leave some [[models]] out",
            beyond.source,
            models.len()
        )));
    }
    let mut taken = BTreeSet::new();
    for model in models {
        let source = &model.source;
        for name in model.name.iter().chain(&model.aliases) {
            if !taken.insert(name.as_str()) {
                return Err(ConfigError(format!(
                    "{source}: {name:?} names two models; give each its own models.name and models.aliases"
                )));
            }
        }
        for role in &model.roles {
            let role = role.as_str();
            if !taken.insert(role) {
                return Err(ConfigError(format!(
                    "{source}: two models have the role {role:?}; leave it in the models.roles of one"
                )));
            }
        }
    }
    Ok(())
}

/// Makes each `smaller` the name of another model, and sees that it ends.
fn link(models: &mut [ModelSettings]) -> Result<(), ConfigError> {
    let mut names = BTreeMap::new();
    for model in models.iter() {
        if let Some(name) = &model.name {
            names.extend(model.names().map(|other| (other.to_owned(), name.clone())));
        }
    }
    for model in models.iter_mut() {
        let Some(asked) = &model.smaller else { continue };
        let Some(name) = names.get(asked) else {
            return Err(ConfigError(format!(
                "{}: models.smaller = {asked:?} names none of the other models; there are {}",
                model.source,
                names.values().cloned().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ")
            )));
        };
        model.smaller = Some(name.clone());
    }
    let smaller: BTreeMap<_, _> =
        models.iter().filter_map(|model| Some((model.name.as_ref()?, model.smaller.as_ref()?))).collect();
    for model in models.iter() {
        let mut next = model.smaller.as_ref();
        for _ in 0..models.len() {
            next = next.and_then(|name| smaller.get(name).copied());
        }
        if next.is_some() {
            return Err(ConfigError(format!(
                "{}: following models.smaller from here never ends; the smallest model has none",
                model.source
            )));
        }
    }
    Ok(())
}

/// Divides what `engine` has among the models that don't say what they want.
fn share_out(models: &mut [ModelSettings], engine: &EngineSettings) {
    let sharing = models.iter().filter(|model| model.memory_key == ENGINE_MEMORY).count();
    let all = models.len();
    for model in models {
        if model.memory_key == ENGINE_MEMORY {
            model.engine.kv_memory = engine.kv_memory.part(sharing);
        }
        if let Some(spill) = &mut model.engine.spill {
            spill.max_bytes = (spill.max_bytes / all as u64).max(1);
        }
    }
}

/// A name that is a word of requests, of headers and of addresses as it is.
fn name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ':');
    if !(1..=MAX_NAME).contains(&text.len()) || !text.chars().all(is_plain) {
        return Err(format!("not a name; write 1 to {MAX_NAME} of a-z, A-Z, 0-9, -, _, ., / and :"));
    }
    if text == AUTO || Role::named(text).is_some() {
        return Err("a word that requests choose by; write another name".to_owned());
    }
    Ok(text.to_owned())
}

/// The parts of a list, which has commas between them.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}

fn aliases(text: &str) -> Result<Vec<String>, String> {
    let names = parts(text).map(name).collect::<Result<Vec<_>, _>>()?;
    if names.len() > MAX_ALIASES {
        return Err(format!("{} names are too many; write at most {MAX_ALIASES}", names.len()));
    }
    Ok(names)
}

fn roles(text: &str) -> Result<Vec<Role>, String> {
    let role =
        |text| Role::named(text).ok_or_else(|| "not roles; write some of mini, fast, reasoning".to_owned());
    parts(text).map(role).collect()
}

fn description(text: &str) -> Result<String, String> {
    if text.len() > MAX_DESCRIPTION || text.chars().any(char::is_control) {
        return Err(format!("not a description; write one line of at most {MAX_DESCRIPTION} bytes"));
    }
    Ok(text.to_owned())
}

impl ModelSettings {
    /// All that requests may call it.
    fn names(&self) -> impl Iterator<Item = &str> {
        let fixed = self.name.iter().chain(&self.aliases).map(String::as_str);
        fixed.chain(self.roles.iter().map(|role| role.as_str()))
    }

    /// What it is called before it is found.
    pub(crate) fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.model.to_string())
    }

    /// What it is, in words.
    pub(crate) fn shown(&self) -> String {
        let mut text = format!("{}, {} for conversations", self.model, self.engine.kv_memory);
        let roles: Vec<_> = self.roles.iter().map(|role| role.as_str()).collect();
        for (what, names) in [("roles", roles.join(" ")), ("also", self.aliases.join(" "))] {
            if !names.is_empty() {
                text.push_str(&format!(", {what} {names}"));
            }
        }
        if let Some(context) = self.context {
            text.push_str(&format!(", at most {context} tokens a request"));
        }
        if let Some(smaller) = &self.smaller {
            text.push_str(&format!(", under load {smaller}"));
        }
        text
    }
}

/// Replaces aliases and roles among the `names` of models by the models' names.
pub(super) fn by_name(names: &mut [String], models: &[ModelSettings]) {
    for name in names {
        let known = models.iter().find(|model| model.names().any(|other| other == name));
        if let Some(known) = known.and_then(|model| model.name.as_ref()) {
            known.clone_into(name);
        }
    }
}
