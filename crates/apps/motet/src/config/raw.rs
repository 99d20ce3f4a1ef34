use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    ConfigError, KEYS,
    keys::{self, Key},
    lanes::LANES,
    models::MODELS,
    oidc::{self, OIDC},
    tables::{self, RawTable},
    tiers::TIERS,
};

/// Largest configuration file: a bound on what a wrong path can cost.
const FILE_BYTES: u64 = 1 << 20;

/// Where a value was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// Nowhere.
    Default,
    /// In the file, on this line.
    File { path: PathBuf, line: usize },
    /// In this variable.
    Variable(String),
    /// By this flag.
    Flag(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

/// A value as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) text: String,
    pub(crate) source: Source,
}

/// Where to look for values.
pub(crate) struct Sources {
    /// `--config`.
    pub(crate) file: Option<PathBuf>,
    /// The whole environment, as text.
    pub(crate) variables: BTreeMap<String, String>,
    /// Key names and what their flags say.
    pub(crate) flags: Vec<(&'static str, String)>,
}

/// What was written for each key, the strongest source winning.
#[derive(Debug, Default)]
pub(crate) struct RawConfig {
    values: BTreeMap<&'static str, Written>,
    /// The `[[models]]` of the file.
    pub(crate) models: Vec<RawTable>,
    /// The `[[lanes]]` of the file.
    pub(crate) lanes: Vec<RawTable>,
    /// The `[[tiers]]` of the file.
    pub(crate) tiers: Vec<RawTable>,
    /// The `[[oidc]]` of the file.
    pub(crate) oidc: Vec<RawTable>,
    /// The file that was read.
    pub(crate) file: Option<PathBuf>,
    /// `MOTET_…` variables that are no keys, in words.
    pub(crate) warnings: Vec<String>,
}

impl RawConfig {
    /// Reads all `sources`: file, then variables, then flags.
    pub(crate) fn read(sources: Sources) -> Result<Self, ConfigError> {
        let mut raw = Self::default();
        raw.read_file(&sources)?;
        raw.read_variables(&sources.variables);
        for (name, text) in sources.flags {
            if let Some(key) = keys::find(name) {
                raw.set(key, text, Source::Flag(key.flag));
            }
        }
        Ok(raw)
    }

    /// What was written for `key`, or its default.
    pub(crate) fn get(&self, key: &Key) -> Written {
        let default = || Written { text: key.default.to_owned(), source: Source::Default };
        self.values.get(key.name).cloned().unwrap_or_else(default)
    }

    fn set(&mut self, key: &'static Key, text: String, source: Source) {
        self.values.insert(key.name, Written { text, source });
    }

    fn read_variables(&mut self, variables: &BTreeMap<String, String>) {
        if let Some(text) = variables.get("RUST_LOG")
            && let Some(key) = keys::find("log.filter")
        {
            self.set(key, text.clone(), Source::Variable("RUST_LOG".to_owned()));
        }
        for key in &KEYS {
            let name = key.variable();
            if let Some(text) = variables.get(&name) {
                self.set(key, text.clone(), Source::Variable(name));
            }
        }
        let secrets: Vec<String> = self.oidc.iter().filter_map(oidc::secret_variable).collect();
        let is_ours = |name: &&String| name.starts_with("MOTET_") && !secrets.contains(name);
        for name in variables.keys().filter(is_ours) {
            // A warning only: an orchestrator may set variables with this prefix for its own reasons.
            if let Err(similar) = keys::check_variable(name) {
                let hint = similar.map_or_else(String::new, |similar| format!("; did you mean {similar}?"));
                self.warnings.push(format!("the variable {name} is no setting and is ignored{hint}"));
            }
        }
    }

    fn read_file(&mut self, sources: &Sources) -> Result<(), ConfigError> {
        let variable = |name: &str| sources.variables.get(name).filter(|text| !text.is_empty());
        let named = sources.file.clone().or_else(|| variable("MOTET_CONFIG").map(PathBuf::from));
        let path = named.clone().or_else(|| {
            let home = variable("XDG_CONFIG_HOME").map(PathBuf::from);
            home.or_else(|| Some(Path::new(variable("HOME")?).join(".config")))
                .map(|home| home.join("motet/config.toml"))
        });
        let Some(path) = path.filter(|path| named.is_some() || path.exists()) else { return Ok(()) };
        let problem =
            |why: &dyn fmt::Display| ConfigError(format!("configuration {}: {why}", path.display()));
        let size = fs::metadata(&path).map_err(|e| problem(&e))?.len();
        if size > FILE_BYTES {
            return Err(problem(&format!("{size} bytes are more than a configuration has ({FILE_BYTES})")));
        }
        let text = fs::read_to_string(&path).map_err(|e| problem(&e))?;
        self.parse(&text, &path)?;
        self.file = Some(path);
        Ok(())
    }

    fn parse(&mut self, text: &str, path: &Path) -> Result<(), ConfigError> {
        let at = |offset: usize| Source::File { path: path.to_owned(), line: line_of(text, offset) };
        let table = DeTable::parse(text).map_err(|e| {
            let at = at(e.span().map_or(0, |span| span.start));
            ConfigError(format!("{at}: not TOML: {}", e.message()))
        })?;
        let lists = [
            (&MODELS, &mut self.models),
            (&LANES, &mut self.lanes),
            (&TIERS, &mut self.tiers),
            (&OIDC, &mut self.oidc),
        ];
        for (list, read) in lists {
            if let Some(value) = table.get_ref().get(list.name) {
                *read = tables::read(list, value, &at)?;
            }
        }
        let lists = [MODELS.name, LANES.name, TIERS.name, OIDC.name];
        let is_list = |entry: &Entry| lists.contains(&entry.name.as_str());
        for entry in flatten("", table.get_ref()).into_iter().filter(|entry| !is_list(entry)) {
            let source = at(entry.offset);
            let Some(key) = keys::find(&entry.name) else {
                let hint = keys::similar_key(&entry.name).map_or_else(
                    || "`motet config check` lists all".to_owned(),
                    |key| format!("did you mean {key}?"),
                );
                return Err(ConfigError(format!("{source}: unknown key {}; {hint}", entry.name)));
            };
            let Some(text) = entry.text else {
                return Err(ConfigError(format!(
                    "{source}: {} takes one value, not a list or a table",
                    key.name
                )));
            };
            self.set(key, text, source);
        }
        Ok(())
    }
}

/// A key of the file in dotted form; `text` is `None` for a value that no key takes.
struct Entry {
    name: String,
    text: Option<String>,
    offset: usize,
}

fn flatten(prefix: &str, table: &DeTable<'_>) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (key, value) in table {
        let name = format!("{prefix}{}", key.get_ref());
        match value.get_ref() {
            DeValue::Table(inner) if keys::find(&name).is_none() => {
                let is_known = KEYS.iter().any(|key| key.name.starts_with(&format!("{name}.")));
                if is_known {
                    entries.extend(flatten(&format!("{name}."), inner));
                } else {
                    entries.push(Entry { name, text: None, offset: key.span().start });
                }
            }
            _ => entries.push(Entry { name, text: text_of(value), offset: key.span().start }),
        }
    }
    entries
}

/// A value that a key may take, as text.
pub(super) fn text_of(value: &Spanned<DeValue<'_>>) -> Option<String> {
    Some(match value.get_ref() {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(truth) => truth.to_string(),
        _ => return None,
    })
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.as_bytes().iter().take(offset).filter(|b| **b == b'\n').count()
}
