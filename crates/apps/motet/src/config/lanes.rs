//! `[[lanes]]`: where requests wait.

use std::collections::BTreeSet;

use motet_engine::{LaneConfig, LaneKind};

use super::{
    ConfigError,
    raw::Source,
    tables::{List, RawTable},
    values,
};

/// The keys of a lane.
pub(super) static LANES: List = List {
    name: "lanes",
    one: "lane",
    keys: &["name", "weight", "kind", "waiting", "kv_tokens_per_request", "ttft_promise", "free"],
    lists: &[],
};

/// Most lanes: each is a set of metrics, and every step looks at each of them.
const MAX_LANES: usize = 32;
/// Most requests that a lane lets wait. Each keeps its prompt in memory.
const MAX_WAITING: u32 = 100_000;

/// A checked lane and where it was written.
#[derive(Debug, Clone)]
pub(crate) struct Lane {
    pub(crate) config: LaneConfig,
    /// Whether it is degraded before the others when there is too much to do.
    pub(crate) is_free: bool,
    pub(crate) source: Source,
}

/// The lanes that hold: those written, or one for people and one for what can wait.
pub(super) fn resolve(raw: &[RawTable]) -> Result<Vec<Lane>, ConfigError> {
    if raw.is_empty() {
        let default = |config| Lane { config, is_free: false, source: Source::Default };
        return Ok(vec![
            default(LaneConfig::interactive("default", 1)),
            default(LaneConfig::background("background")),
        ]);
    }
    let lanes = raw.iter().map(lane).collect::<Result<Vec<_>, _>>()?;
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

fn lane(raw: &RawTable) -> Result<Lane, ConfigError> {
    let name = raw.name()?;
    let usual = LaneConfig::interactive(&name, 1);
    let kind = raw.read("kind", |text| values::choice(text, &["interactive", "background"]))?;
    let config = LaneConfig {
        weight: raw.read("weight", |text| values::count(text, 1))?.unwrap_or(usual.weight),
        kind: match kind {
            Some("background") => LaneKind::Background,
            _ => LaneKind::Interactive,
        },
        kv_tokens_per_request: raw.read("kv_tokens_per_request", |text| values::count(text, 1))?,
        waiting: raw
            .read("waiting", |text| values::count_in(text, 1, MAX_WAITING))?
            .map_or(usual.waiting, |waiting| waiting as usize),
        ttft_promise: raw.read("ttft_promise", |text| values::duration(text, "1ms", "1h"))?,
        name,
    };
    let is_background = config.kind == LaneKind::Background;
    let is_free = raw.read("free", |text| match values::switch(text)? {
        true if is_background => {
            Err("a background lane is paused before free ones are degraded; leave this out".to_owned())
        }
        is_free => Ok(is_free),
    })?;
    Ok(Lane { config, is_free: is_free.unwrap_or(false), source: raw.source.clone() })
}

impl Lane {
    /// What it is, in words.
    pub(crate) fn shown(&self) -> String {
        let LaneConfig { weight, kind, kv_tokens_per_request, waiting, ttft_promise, .. } = &self.config;
        let kind = match kind {
            LaneKind::Interactive if self.is_free => "interactive, free",
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
