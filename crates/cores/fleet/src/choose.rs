//! Which model answers.
//!
//! A request names a model, an alias or a role, or leaves the choice to the server with [`AUTO`]. The rules, in order:
//!
//! 1. Models that the caller may not use do not exist: whatever they would change is as if they weren't there.
//! 2. An exact name is that model, whatever its state and however much there is to do. So is an alias.
//! 3. A role is the model that has it.
//! 4. `auto` takes a model whose context has room for the request, rather ready than loading and rather loading than
//!    failed: for an easy request the one with the role `mini`, else `fast`, else the smallest; for a medium one `fast`,
//!    else the default; for a hard one `reasoning`, else the largest.
//! 5. Under pressure a role or `auto` may be answered by the model that the chosen one names as its `smaller`, where
//!    that is ready and has room. The [`Choice`] says so.

use std::cmp::Reverse;
use std::fmt;

use crate::facts::{Effort, Facts, Level};

/// The name by which a request leaves the choice to the server.
pub const AUTO: &str = "auto";

/// Room that a reply needs where the request does not say how long it may be, in tokens.
const USUAL_REPLY: u64 = 256;

/// What a model is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Costs the least.
    Mini,
    /// Answers soon.
    Fast,
    /// Answers well.
    Reasoning,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Mini, Self::Fast, Self::Reasoning];

    /// The name that requests use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mini => "mini",
            Self::Fast => "fast",
            Self::Reasoning => "reasoning",
        }
    }

    /// The role of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }
}

/// Whether a model can answer. In the order of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Readiness {
    /// It can.
    Ready,
    /// Soon.
    Loading,
    /// It can't.
    Failed,
}

/// A model to choose from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// Its name.
    pub id: &'a str,
    /// Other names for it.
    pub aliases: &'a [String],
    /// What it is for.
    pub roles: &'a [Role],
    /// Whether it can answer.
    pub readiness: Readiness,
    /// Most tokens of prompt and reply; `None` while that is not known.
    pub context: Option<u32>,
    /// Bytes of its weights, 0 while that is not known.
    pub size: u64,
    /// Name of the model that may stand in for it when there is too much to do.
    pub smaller: Option<&'a str>,
}

/// What has to be given up when there is too much to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pressure {
    /// A smaller model answers where the caller left the choice open.
    pub smaller_model: bool,
}

/// What was asked for, and by whom.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The name in the request.
    pub name: &'a str,
    /// Names of the models that the caller may use; `None` is all.
    pub allowed: Option<&'a [String]>,
    /// What has to be given up.
    pub pressure: Pressure,
}

/// The model that answers, and why it is that one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Its index among the candidates.
    pub model: usize,
    /// Why.
    pub why: Why,
}

/// Why a model was chosen. The text is for a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// The request names it.
    Exact,
    /// The request names it otherwise.
    Alias(String),
    /// It has the role that was asked for.
    Role(Role),
    /// The choice was left to the server.
    Auto(Auto),
    /// It stands in for the model of this name, because there is too much to do.
    Degraded(String),
}

/// Why the server chose a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auto {
    /// There is no other, or no other in a state as good.
    Only,
    /// The others have no room for the request.
    Context,
    /// It is for requests of this effort.
    Effort(Effort),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact => f.write_str("exact"),
            Self::Alias(name) => write!(f, "alias:{name}"),
            Self::Role(role) => write!(f, "role:{}", role.as_str()),
            Self::Auto(Auto::Only) => f.write_str("auto:only"),
            Self::Auto(Auto::Context) => f.write_str("auto:context"),
            Self::Auto(Auto::Effort(effort)) => write!(f, "auto:{effort}"),
            Self::Degraded(id) => write!(f, "degraded:overload, instead of {id}"),
        }
    }
}

/// Chooses among `models`, the first of which is the default one. `facts` is asked only where the choice depends on them.
///
/// `None` where there is no such model, which is the same as that there is none for this caller.
pub fn choose(asked: &Asked<'_>, models: &[Candidate<'_>], facts: impl FnOnce() -> Facts) -> Option<Choice> {
    let known = |(_, model): &(usize, &Candidate<'_>)| {
        asked.allowed.is_none_or(|names| names.iter().any(|name| name == model.id))
    };
    let models: Vec<_> = models.iter().enumerate().filter(known).collect();
    if let Some((model, why)) = fixed(asked.name, &models) {
        return Some(Choice { model, why });
    }
    let with_role = Role::named(asked.name).and_then(|role| holder(role, &models).map(|model| (model, role)));
    let (facts, (model, why)) = match with_role {
        // The common case needs no facts.
        Some((model, role)) if !asked.pressure.smaller_model => {
            return Some(Choice { model, why: Why::Role(role) });
        }
        Some((model, role)) => (facts(), (model, Why::Role(role))),
        None if asked.name == AUTO => {
            let facts = facts();
            (facts, auto(&facts, &models)?)
        }
        None => return None,
    };
    let stand_in = if asked.pressure.smaller_model { stand_in(model, &facts, &models) } else { None };
    Some(stand_in.unwrap_or(Choice { model, why }))
}

/// A model and its index.
type Entry<'a, 'b> = (usize, &'a Candidate<'b>);

/// The model that a name or an alias leaves no choice about.
fn fixed(name: &str, models: &[Entry<'_, '_>]) -> Option<(usize, Why)> {
    let exact = models.iter().find(|(_, model)| model.id == name).map(|(i, _)| (*i, Why::Exact));
    exact.or_else(|| {
        let (i, _) = models.iter().find(|(_, model)| model.aliases.iter().any(|alias| alias == name))?;
        Some((*i, Why::Alias(name.to_owned())))
    })
}

fn holder(role: Role, models: &[Entry<'_, '_>]) -> Option<usize> {
    models.iter().find(|(_, model)| model.roles.contains(&role)).map(|(i, _)| *i)
}

fn auto(facts: &Facts, models: &[Entry<'_, '_>]) -> Option<(usize, Why)> {
    let best = models.iter().map(|(_, model)| model.readiness).min()?;
    let able: Vec<_> = models.iter().copied().filter(|(_, model)| model.readiness == best).collect();
    if let [(only, _)] = able[..] {
        return Some((only, Why::Auto(Auto::Only)));
    }
    let roomy: Vec<_> = able.iter().copied().filter(|(_, model)| has_room(model, facts)).collect();
    let effort = facts.effort();
    match roomy[..] {
        // It has the best chance: tokens are only estimated here.
        [] => {
            let widest = able.iter().max_by_key(|(i, model)| (model.context, Reverse(*i)))?;
            Some((widest.0, Why::Auto(Auto::Context)))
        }
        [(only, _)] => Some((only, Why::Auto(Auto::Context))),
        _ => Some((for_level(effort.level, &roomy)?, Why::Auto(Auto::Effort(effort)))),
    }
}

/// The model for a level, by role, else by size; among equals the earlier one.
fn for_level(level: Level, models: &[Entry<'_, '_>]) -> Option<usize> {
    let role = |role| holder(role, models);
    let smallest = || models.iter().min_by_key(|(i, model)| (model.size, *i)).map(|(i, _)| *i);
    let largest = || models.iter().max_by_key(|(i, model)| (model.size, Reverse(*i))).map(|(i, _)| *i);
    match level {
        Level::Easy => role(Role::Mini).or_else(|| role(Role::Fast)).or_else(smallest),
        Level::Medium => role(Role::Fast).or_else(|| models.first().map(|(i, _)| *i)),
        Level::Hard => role(Role::Reasoning).or_else(largest),
    }
}

fn has_room(model: &Candidate<'_>, facts: &Facts) -> bool {
    let reply = facts.max_tokens.map_or(USUAL_REPLY, u64::from);
    model.context.is_none_or(|context| facts.prompt_tokens.saturating_add(reply) <= u64::from(context))
}

/// The model that stands in for `model`, if it can.
fn stand_in(model: usize, facts: &Facts, models: &[Entry<'_, '_>]) -> Option<Choice> {
    let (_, meant) = models.iter().find(|(i, _)| *i == model)?;
    let (i, smaller) = models.iter().find(|(_, other)| Some(other.id) == meant.smaller)?;
    let can = smaller.readiness == Readiness::Ready && has_room(smaller, facts) && *i != model;
    can.then(|| Choice { model: *i, why: Why::Degraded(meant.id.to_owned()) })
}
