//! `[[tiers]]`: what accounts are entitled to.

use std::collections::BTreeSet;

use motet_limits::Limits;

use super::{
    ConfigError,
    lanes::Lane,
    raw::Source,
    tables::{List, RawTable},
    values,
};

/// The keys of a tier.
pub(super) static TIERS: List = List {
    name: "tiers",
    one: "tier",
    keys: &[
        "name",
        "lane",
        "requests_per_minute",
        "tokens_per_minute",
        "tokens_per_day",
        "concurrent",
        "budget_per_month",
        "max_context",
        "max_output",
        "models",
        "input_price",
        "output_price",
    ],
    lists: &["models"],
};

/// Millionths of the currency in one of it.
const MICROS: f64 = 1e6;
/// Most of the currency in a budget or a price: sums of it stay whole numbers.
const MOST_MONEY: f64 = 1e6;

/// A checked tier and where it was written.
#[derive(Debug, Clone)]
pub(crate) struct Tier {
    pub(crate) name: String,
    /// Index of the lane its requests wait in.
    pub(crate) lane: usize,
    /// What its accounts may use.
    pub(crate) limits: Limits,
    pub(crate) max_context: Option<u32>,
    pub(crate) max_output: Option<u32>,
    /// `None`: all.
    pub(crate) models: Option<Vec<String>>,
    /// Currency per million tokens, which is millionths of it per token: of the prompt, of the reply.
    pub(crate) prices: (f64, f64),
    pub(crate) source: Source,
}

/// The tiers that hold: those written, or one without limits.
pub(super) fn resolve(raw: &[RawTable], lanes: &[Lane]) -> Result<Vec<Tier>, ConfigError> {
    if raw.is_empty() {
        return Ok(vec![Tier {
            name: "default".to_owned(),
            lane: 0,
            limits: Limits::default(),
            max_context: None,
            max_output: None,
            models: None,
            prices: (0.0, 0.0),
            source: Source::Default,
        }]);
    }
    let tiers = raw.iter().map(|raw| tier(raw, lanes)).collect::<Result<Vec<_>, _>>()?;
    let mut names = BTreeSet::new();
    match tiers.iter().find(|tier| !names.insert(&tier.name)) {
        Some(Tier { name, source, .. }) => Err(ConfigError(format!(
            "{source}: there are two tiers of the name {name:?}; give each its own tiers.name"
        ))),
        None => Ok(tiers),
    }
}

fn tier(raw: &RawTable, lanes: &[Lane]) -> Result<Tier, ConfigError> {
    let lane = |text: &str| {
        let found = lanes.iter().position(|lane| lane.config.name == text);
        let names = || lanes.iter().map(|lane| lane.config.name.as_str()).collect::<Vec<_>>().join(", ");
        found.ok_or_else(|| format!("no such lane; there are {}", names()))
    };
    let count = |key| raw.read(key, |text| values::count(text, 1));
    let large = |key| raw.read(key, whole);
    let money = |key| raw.read(key, money);
    let models = |text: &str| {
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        if names.iter().any(String::is_empty) {
            return Err("not a list of models; write their names with commas between them".to_owned());
        }
        Ok(names)
    };
    Ok(Tier {
        name: raw.name()?,
        lane: raw.read("lane", lane)?.unwrap_or(0),
        limits: Limits {
            requests_per_minute: large("requests_per_minute")?,
            tokens_per_minute: large("tokens_per_minute")?,
            tokens_per_day: large("tokens_per_day")?,
            concurrent: large("concurrent")?,
            budget_per_month: money("budget_per_month")?.map(|money| (money * MICROS).round() as u64),
        },
        max_context: count("max_context")?,
        max_output: count("max_output")?,
        models: raw.read("models", models)?,
        prices: (money("input_price")?.unwrap_or(0.0), money("output_price")?.unwrap_or(0.0)),
        source: raw.source.clone(),
    })
}

fn money(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(money) if (0.0..=MOST_MONEY).contains(&money) => Ok(money),
        _ => Err(format!("not in range; write a number from 0 to {MOST_MONEY}")),
    }
}

fn whole(text: &str) -> Result<u64, String> {
    let digits: String = text.chars().filter(|c| *c != '_').collect();
    digits.parse().map_err(|_| "not a number; write a whole number, such as 60 or 100_000".to_owned())
}

impl Tier {
    /// What it is, in words.
    pub(crate) fn shown(&self, lanes: &[Lane]) -> String {
        let lane = lanes.get(self.lane).map_or("", |lane| lane.config.name.as_str());
        let mut text = format!("lane {lane}");
        let limits = &self.limits;
        let numbers = [
            (limits.requests_per_minute, "requests/min"),
            (limits.tokens_per_minute, "tokens/min"),
            (limits.tokens_per_day, "tokens/day"),
            (limits.concurrent, "at once"),
            (self.max_context.map(u64::from), "tokens of context"),
            (self.max_output.map(u64::from), "tokens a reply"),
        ];
        for (number, unit) in numbers {
            if let Some(number) = number {
                text.push_str(&format!(", {number} {unit}"));
            }
        }
        if let Some(budget) = limits.budget_per_month {
            text.push_str(&format!(", {:.2} a month", budget as f64 / MICROS));
        }
        if let Some(models) = &self.models {
            text.push_str(&format!(", models {}", models.join(" ")));
        }
        text
    }

    /// What so many tokens cost, in millionths of the currency.
    pub(crate) fn cost(&self, prompt: u64, output: u64) -> u64 {
        let cost = prompt as f64 * self.prices.0 + output as f64 * self.prices.1;
        // Rounded to what a price can mean before it is rounded up: 0.1 is not a number that floats have.
        ((cost * MICROS).round() / MICROS).ceil() as u64
    }
}
