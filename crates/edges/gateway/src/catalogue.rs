//! The models of a server, each with a state of its own: one that fails leaves the others as they are.

use std::sync::Arc;

use motet_fleet::{Asked, Candidate, Choice, Facts, Pressure, Readiness, Role, Why, choose};
use motet_protocol::{ModelDetails, ModelObject};
use tokio::sync::watch;

use crate::access::Caller;
use crate::error::ApiError;
use crate::gateway::Served;

/// What is known of a model before it is loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelCard {
    /// The name requests use, exactly; `None`: it shows when the model is found.
    pub id: Option<String>,
    /// Other names for it.
    pub aliases: Vec<String>,
    /// What it is for.
    pub roles: Vec<Role>,
    /// What it is good for, for people who choose.
    pub description: String,
    /// Most tokens of prompt and reply, where that is less than the model can read.
    pub context: Option<u32>,
    /// The model that may stand in for it when there is too much to do, by its id.
    pub smaller: Option<String>,
}

/// Whether a model can be used.
#[derive(Clone)]
pub(crate) enum State {
    /// It is being loaded.
    Loading,
    /// It has generated and can be used.
    Ready(Arc<Served>),
    /// It could not be loaded or stopped working, and why.
    Failed(String),
}

/// A model's place.
#[derive(Clone)]
struct Slot {
    card: Arc<ModelCard>,
    state: State,
}

/// All models as they are now; the first is the default one. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Catalogue(Arc<Vec<Slot>>);

/// Where the models' states change.
pub(crate) type CatalogueSender = watch::Sender<Catalogue>;

impl Catalogue {
    /// Models that are all loading; without any card, one that is known when it is ready.
    pub(crate) fn new(cards: Vec<ModelCard>) -> Self {
        let cards = if cards.is_empty() { vec![ModelCard::default()] } else { cards };
        let slot = |card| Slot { card: Arc::new(card), state: State::Loading };
        Self(Arc::new(cards.into_iter().map(slot).collect()))
    }

    /// The same with another state for model `index`.
    pub(crate) fn set(&mut self, index: usize, state: State) {
        match Arc::make_mut(&mut self.0).get_mut(index) {
            Some(slot) => slot.state = state,
            None => tracing::error!(index, "there is no such model"),
        }
    }

    pub(crate) fn card(&self, index: usize) -> Arc<ModelCard> {
        self.0.get(index).map_or_else(Arc::default, |slot| Arc::clone(&slot.card))
    }

    /// Whether the default model can be used.
    pub(crate) fn default_state(&self) -> &State {
        // There is always one: `new` sees to that.
        self.0.first().map_or(&State::Loading, |slot| &slot.state)
    }

    /// Models that can be used.
    pub(crate) fn ready(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.0.iter().filter_map(|slot| match &slot.state {
            State::Ready(served) => Some(served),
            _ => None,
        })
    }

    /// Names of the models that have one, and whether they can be used.
    pub(crate) fn states(&self) -> impl Iterator<Item = (&str, &State)> {
        self.0.iter().filter_map(|slot| Some((slot.name()?, &slot.state)))
    }

    /// What to answer whatever the request, while no model can be used.
    pub(crate) fn check_any_ready(&self) -> Result<(), ApiError> {
        if self.ready().next().is_some() {
            return Ok(());
        }
        if self.0.iter().any(|slot| matches!(slot.state, State::Loading)) {
            return Err(ApiError::Loading);
        }
        self.default_state().served().map(drop)
    }

    /// The model that answers a request, where that is plain without reading the request: there is one, or `name` is an
    /// id or an alias.
    pub(crate) fn plainly(&self, name: impl FnOnce() -> Option<String>) -> Option<Arc<Served>> {
        let slot = match &self.0[..] {
            [only] => only,
            several => {
                let name = name()?;
                let is_named =
                    |slot: &&Slot| slot.name() == Some(name.as_str()) || slot.card.aliases.contains(&name);
                several.iter().find(is_named)?
            }
        };
        slot.state.served().ok()
    }

    /// The model that answers a request for `name`.
    ///
    /// A model that the caller may not use is one that doesn't exist for it.
    pub(crate) fn choose(
        &self,
        name: &str,
        caller: &Caller,
        pressure: Pressure,
        facts: impl FnOnce() -> Facts,
    ) -> Result<(Arc<Served>, Why), ApiError> {
        let named: Vec<_> = self.0.iter().filter_map(|slot| Some((slot, slot.candidate()?))).collect();
        let candidates: Vec<_> = named.iter().map(|(_, candidate)| *candidate).collect();
        let asked = Asked { name, allowed: caller.models.as_deref(), pressure };
        let chosen = choose(&asked, &candidates, facts);
        let chosen = chosen.and_then(|Choice { model, why }| Some((named.get(model)?.0, why)));
        match chosen {
            Some((slot, why)) => Ok((slot.state.served()?, why)),
            // It may be the name of a model that is not known yet.
            None if self
                .0
                .iter()
                .any(|slot| slot.name().is_none() && matches!(slot.state, State::Loading)) =>
            {
                Err(ApiError::Loading)
            }
            None => Err(ApiError::UnknownModel(name.chars().take(SHOWN_CHARS).collect())),
        }
    }
}

/// Longest part of an unknown name that an error repeats.
const SHOWN_CHARS: usize = 100;

impl State {
    /// The model, or what to answer while it can't be used.
    pub(crate) fn served(&self) -> Result<Arc<Served>, ApiError> {
        match self {
            Self::Ready(served) => Ok(Arc::clone(served)),
            Self::Loading => Err(ApiError::Loading),
            Self::Failed(why) => Err(ApiError::Down(why.clone())),
        }
    }
}

impl Slot {
    fn name(&self) -> Option<&str> {
        match &self.state {
            State::Ready(served) => Some(&served.model.id),
            _ => self.card.id.as_deref(),
        }
    }

    /// What is chosen from; `None` while it has no name.
    fn candidate(&self) -> Option<Candidate<'_>> {
        let (readiness, context, size) = match &self.state {
            State::Ready(served) => (Readiness::Ready, Some(served.context()), served.model.weight_bytes),
            State::Loading => (Readiness::Loading, self.card.context, 0),
            State::Failed(_) => (Readiness::Failed, self.card.context, 0),
        };
        let ModelCard { aliases, roles, smaller, .. } = &*self.card;
        let smaller = smaller.as_deref();
        Some(Candidate { id: self.name()?, aliases, roles, readiness, context, size, smaller })
    }
}

impl Served {
    /// How `/v1/models` shows it.
    pub(crate) fn object(&self) -> ModelObject {
        let context_length = self.context();
        let ModelCard { aliases, roles, description, .. } = &*self.card;
        let details = ModelDetails {
            roles: roles.iter().map(|role| role.as_str()).collect(),
            aliases: aliases.clone(),
            context_length,
            description: description.clone(),
            is_default: self.index == 0,
        };
        ModelObject::new(&self.model.id, self.model.created, context_length).with_details(details)
    }

    /// Most tokens of prompt and reply.
    pub(crate) fn context(&self) -> u32 {
        let model = self.model.backend.model().context_length;
        self.card.context.map_or(model, |most| model.min(most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a request for `name` is answered while nothing is ready: a model's state, or that there is none.
    #[test]
    fn names_before_models_are_there() {
        let card = |id: Option<&str>| ModelCard { id: id.map(str::to_owned), ..ModelCard::default() };
        let check = |cards: &[Option<&str>], failed: &[usize], name: &str, want: &str| {
            let mut catalogue = Catalogue::new(cards.iter().map(|id| card(*id)).collect());
            failed.iter().for_each(|index| catalogue.set(*index, State::Failed("no file".to_owned())));
            let chosen = catalogue.choose(name, &Caller::default(), Pressure::default(), Facts::default);
            let got = chosen.map(|_| "ready".to_owned()).unwrap_or_else(|error| error.to_string());
            assert!(got.contains(want), "{name} of {cards:?}: {got}");
        };
        check(&[None], &[], "a", "is loading");
        check(&[None], &[0], "a", "does not exist");
        check(&[Some("a"), Some("b")], &[], "b", "is loading");
        check(&[Some("a"), Some("b")], &[], "c", "does not exist");
        check(&[Some("a"), Some("b")], &[1], "b", "no file");
        check(&[Some("a"), None], &[], "c", "is loading");
        check(&[Some("a"), Some("b")], &[0], "auto", "is loading");
    }

    #[test]
    fn there_is_always_a_default() {
        let mut catalogue = Catalogue::new(Vec::new());
        assert!(matches!(catalogue.default_state(), State::Loading));
        catalogue.set(7, State::Failed(String::new()));
        assert!(matches!(catalogue.check_any_ready(), Err(ApiError::Loading)));
        catalogue.set(0, State::Failed("no file".to_owned()));
        assert!(matches!(catalogue.check_any_ready(), Err(ApiError::Down(_))));
    }
}
