//! `[[lanes]]`: the one setting that is a list of tables, and therefore neither a flag nor a variable.

use std::{collections::BTreeSet, fmt::Display};

use motet_engine::{LaneConfig, LaneKind};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    ConfigError, keys,
    raw::{Source, Written, text_of},
    values,
};

/// The keys of a lane.
const LANE_KEYS: [&str; 6] = ["name", "weight", "kind", "waiting", "kv_tokens_per_request", "ttft_promise"];

/// Most lanes: each is a set of metrics, and every step looks at each of them.
const MAX_LANES: usize = 32;
/// Most requests that a lane lets wait. Each keeps its prompt in memory.
const MAX_WAITING: u32 = 100_000;

/// A checked lane and where it was written.
#[derive(Debug, Clone)]
pub(crate) struct Lane {
    pub(crate) config: LaneConfig,
    pub(crate) source: Source,
}

/// One `[[lanes]]` as written.
#[derive(Debug)]
pub(crate) struct RawLane {
    source: Source,
    values: Vec<(&'static str, Written)>,
}

/// Reads the value of `lanes`; `at` says where an offset of the file is.
pub(crate) fn read(
    value: &Spanned<DeValue<'_>>,
    at: &dyn Fn(usize) -> Source,
) -> Result<Vec<RawLane>, ConfigError> {
    let DeValue::Array(tables) = value.get_ref() else { return Err(no_list(&at(value.span().start))) };
    let mut lanes = Vec::new();
    for table in tables {
        let source = at(table.span().start);
        let DeValue::Table(entries) = table.get_ref() else { return Err(no_list(&source)) };
        lanes.push(RawLane { values: read_lane(entries, at)?, source });
    }
    if lanes.is_empty() {
        let source = at(value.span().start);
        return Err(ConfigError(format!(
            "{source}: lanes is empty; write at least one [[lanes]], or leave it out for the default lanes"
        )));
    }
    Ok(lanes)
}

fn no_list(source: &Source) -> ConfigError {
    ConfigError(format!("{source}: lanes takes tables; write [[lanes]] and the keys of a lane below it"))
}

fn read_lane(
    table: &DeTable<'_>,
    at: &dyn Fn(usize) -> Source,
) -> Result<Vec<(&'static str, Written)>, ConfigError> {
    let mut values = Vec::new();
    for (key, value) in table {
        let source = at(key.span().start);
        let name: &str = key.get_ref();
        let Some(known) = LANE_KEYS.iter().find(|known| **known == name) else {
            let similar = keys::most_similar(name, LANE_KEYS.iter().map(|key| ((*key).to_owned(), *key)));
            let hint = match similar {
                Some(key) => format!("did you mean lanes.{key}?"),
                None => format!("a lane has {}", LANE_KEYS.join(", ")),
            };
            return Err(ConfigError(format!("{source}: unknown key lanes.{name}; {hint}")));
        };
        let Some(text) = text_of(value) else {
            return Err(ConfigError(format!(
                "{source}: lanes.{name} takes one value, not a list or a table"
            )));
        };
        values.push((*known, Written { text, source }));
    }
    Ok(values)
}

/// The lanes that hold: those written, or one for people and one for what can wait.
pub(crate) fn resolve(raw: &[RawLane]) -> Result<Vec<Lane>, ConfigError> {
    if raw.is_empty() {
        let default = |config| Lane { config, source: Source::Default };
        return Ok(vec![
            default(LaneConfig::interactive("default", 1)),
            default(LaneConfig::background("background")),
        ]);
    }
    let lanes = raw.iter().map(RawLane::resolve).collect::<Result<Vec<_>, _>>()?;
    let mut names = BTreeSet::new();
    for lane in &lanes {
        let (name, source) = (&lane.config.name, &lane.source);
        if !names.insert(name) {
            return Err(ConfigError(format!(
                "{source}: there are two lanes of the name {name:?}; give each its own lanes.name"
            )));
        }
    }
    let first = &lanes[0];
    if first.config.kind == LaneKind::Background {
        return Err(ConfigError(format!(
            "{}: the first lane is for requests that are not for the background, but {:?} is of that kind; \
             put a lane with lanes.kind = \"interactive\" first",
            first.source, first.config.name
        )));
    }
    if let Some(beyond) = lanes.get(MAX_LANES) {
        return Err(ConfigError(format!(
            "{}: there are {} lanes; at most {MAX_LANES} can be, so leave some [[lanes]] out",
            beyond.source,
            lanes.len()
        )));
    }
    Ok(lanes)
}

impl RawLane {
    fn resolve(&self) -> Result<Lane, ConfigError> {
        let Some(name) = self.read("name", lane_name)? else {
            return Err(ConfigError(format!("{}: a lane without a name; add lanes.name", self.source)));
        };
        let usual = LaneConfig::interactive(&name, 1);
        let kind = self.read("kind", |text| values::choice(text, &["interactive", "background"]))?;
        let config = LaneConfig {
            weight: self.read("weight", |text| values::count(text, 1))?.unwrap_or(usual.weight),
            kind: match kind {
                Some("background") => LaneKind::Background,
                _ => LaneKind::Interactive,
            },
            kv_tokens_per_request: self.read("kv_tokens_per_request", |text| values::count(text, 1))?,
            waiting: self
                .read("waiting", |text| values::count_in(text, 1, MAX_WAITING))?
                .map_or(usual.waiting, |waiting| waiting as usize),
            ttft_promise: self.read("ttft_promise", |text| values::duration(text, "1ms", "1h"))?,
            name,
        };
        Ok(Lane { config, source: self.source.clone() })
    }

    fn read<T>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ConfigError> {
        let Some((_, written)) = self.values.iter().find(|(key, _)| *key == name) else { return Ok(None) };
        let problem = |why: &dyn Display| {
            ConfigError(format!("lanes.{name} = {:?} (from {}): {why}", written.text, written.source))
        };
        parse(&written.text).map(Some).map_err(|why| problem(&why))
    }
}

/// A name that can be a label of metrics and a word of a header as it is.
fn lane_name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    if (1..=64).contains(&text.len()) && text.chars().all(is_plain) {
        return Ok(text.to_owned());
    }
    Err("not a name; write 1 to 64 of a-z, 0-9, - and _".to_owned())
}

impl Lane {
    /// What it is, in words.
    pub(crate) fn shown(&self) -> String {
        let LaneConfig { weight, kind, kv_tokens_per_request, waiting, ttft_promise, .. } = &self.config;
        let kind = match kind {
            LaneKind::Interactive => "interactive",
            LaneKind::Background => "background",
        };
        let mut text = format!("{kind}, weight {weight}, {waiting} may wait");
        if let Some(tokens) = kv_tokens_per_request {
            text.push_str(&format!(", {tokens} tokens per request"));
        }
        if let Some(promise) = ttft_promise {
            text.push_str(&format!(", first token within {promise:?}"));
        }
        text
    }
}
