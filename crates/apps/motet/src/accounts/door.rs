use std::collections::hash_map::DefaultHasher;
use std::convert::Infallible;
use std::hash::{Hash, Hasher};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Method};
use motet_batch::RunAs;
use motet_gateway::{
    Access, Account, Ask, Caller, Denial, End, Identified, Outcome, Permit, RateLimit, RateLimits, Routes,
    Scopes,
};
use motet_identity::{Identity, IdentityConfig, NotKnown};
use motet_limits::{
    Gauge, Held, Keeper, Kind, MemoryQuota, Policy, QuotaError, QuotaStore, RedisConfig, RedisQuota, Refusal,
    Request, Retry, Scope as QuotaScope, Status,
};
use motet_protocol::{FinishReason, openapi::Document};
use motet_store::{
    DataOwner, KeyId, OrgId, Principal, Role, Scope, Secret, Store, UsageEvent, UsageFinish, UsageId,
    UsageWriter, UsageWriterOptions, UserId,
};

use super::{external, now, open};
use crate::{
    config::{Config, Tier},
    failure::Failure,
};

/// How long who is over the limit on replies at once is asked to wait: one of them ends within seconds as a rule, and
/// at the latest when its reservation does.
const CONCURRENT_RETRY: Duration = Duration::from_secs(5);
/// How long a reservation lives that nobody renews any more, because its gateway died: Redis may be away for less.
const HOLD: Duration = Duration::from_secs(120);
/// How long the end of the server waits for what was used to be written down.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often what is over is removed from the database.
const CLEANING: Duration = Duration::from_secs(3600);

/// Knows accounts by their keys and sessions, keeps them within their tiers, and writes down what they use.
pub(crate) struct Door {
    store: Store,
    identity: Arc<Identity>,
    external: Router,
    keeper: Keeper,
    usage: Arc<UsageWriter>,
    tiers: Vec<Tier>,
}

impl Door {
    /// Opens the database, the quotas and the journal of usage in `folder`.
    pub(crate) async fn open(config: &Config, folder: &Path) -> Result<Self, Failure> {
        let store = open(config).await?;
        let quotas: Arc<dyn QuotaStore> = match &config.accounts.redis {
            None => Arc::new(MemoryQuota::new(HOLD)),
            Some(url) => {
                let config = RedisConfig { hold: HOLD, ..RedisConfig::new(url.as_str()) };
                Arc::new(RedisQuota::open(config).map_err(Failure::usage)?)
            }
        };
        let folder = folder.join("usage");
        let usage = UsageWriter::start(store.clone(), &folder, UsageWriterOptions::default());
        let usage = usage
            .map_err(|e| Failure::usage(format!("the journal of usage in {}: {e}", folder.display())))?;
        let (tiers, providers) = (config.tiers.clone(), external::providers(config)?);
        let accounts = IdentityConfig {
            tiers: tiers.iter().map(|tier| tier.name.clone()).collect(),
            public_url: config.accounts.public_url.clone(),
            providers: external::listed(&providers),
            clock: Arc::new(now),
        };
        let identity = Identity::new(store.clone(), accounts).map_err(Failure::runtime)?;
        let external = external::routes(providers, store.clone(), Arc::clone(&identity));
        let (keeper, usage) = (Keeper::new(quotas), Arc::new(usage));
        Ok(Self { store, identity, external, keeper, usage, tiers })
    }

    /// The routes for accounts.
    pub(crate) fn routes(&self) -> Routes {
        let described_by: Vec<fn(&mut Document)> = vec![motet_identity::describe, motet_oidc::describe];
        Routes {
            open: self.identity.routes().merge(self.external.clone()),
            described_by,
            ..Routes::default()
        }
    }

    /// The one-time token that makes the first account from another machine, while there is none.
    pub(crate) async fn setup_token(&self) -> Result<Option<Secret>, Failure> {
        self.identity.setup_token().await.map_err(Failure::runtime)
    }

    /// Removes from the database what is over, now and every hour; never returns.
    pub(crate) async fn keep_clean(&self) -> Infallible {
        let mut hours = tokio::time::interval(CLEANING);
        loop {
            hours.tick().await;
            match self.store.purge(now()).await {
                Ok(rows) => tracing::debug!(rows, "sessions and keys that are over were removed"),
                Err(error) => tracing::warn!(%error, "sessions and keys that are over were not removed"),
            }
        }
    }

    /// The database.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Writes what is left, as far as the database answers.
    pub(crate) async fn close(self) {
        self.keeper.close(PATIENCE).await;
        if let Some(usage) = Arc::into_inner(self.usage) {
            usage.close(PATIENCE).await;
        }
        self.store.close().await;
    }

    /// An account's tier; the first for one whose tier is not configured any more.
    fn tier(&self, name: &str) -> &Tier {
        self.tiers.iter().find(|tier| tier.name == name).unwrap_or(&self.tiers[0])
    }

    fn caller(&self, principal: &Principal) -> Caller {
        let tier = self.tier(&principal.tier);
        let mut user = DefaultHasher::new();
        principal.user.as_str().hash(&mut user);
        Caller {
            tenant: principal.org.as_str().to_owned(),
            user: user.finish(),
            lane: Some(tier.lane),
            scopes: Scopes {
                inference: principal.scopes.has(Scope::Chat),
                batches: principal.scopes.has(Scope::Batches),
                admin: principal.scopes.has(Scope::Admin) && principal.role != Role::Member,
            },
            max_context: tier.max_context,
            max_output: tier.max_output,
            models: tier.models.clone(),
            account: Account {
                user: principal.user.as_str().to_owned(),
                key: principal.key_id().map(|key| key.as_str().to_owned()),
                tier: tier.name.clone(),
            },
        }
    }
}

impl Access for Door {
    fn identify<'a>(
        &'a self,
        method: &'a Method,
        headers: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<Identified, Denial>> {
        Box::pin(async move {
            match self.identity.identify(method, headers).await {
                Ok(who) => {
                    let caller = Arc::new(self.caller(&who.principal));
                    Ok(Identified { caller, set_cookie: who.set_cookie })
                }
                Err(NotKnown::Nobody { .. }) => Err(Denial::Unknown),
                Err(NotKnown::Forged(why)) => Err(Denial::Forged(why)),
                Err(NotKnown::Unavailable) => {
                    Err(Denial::Unavailable("keys and sessions can't be checked now".to_owned()))
                }
            }
        })
    }

    fn reserve<'a>(
        &'a self,
        caller: &'a Arc<Caller>,
        ask: Ask,
    ) -> BoxFuture<'a, Result<Box<dyn Permit>, Denial>> {
        Box::pin(async move {
            let tier = self.tier(&caller.account.tier);
            let request = Request {
                scope: QuotaScope::new(&caller.tenant, &caller.account.user, &ask.model),
                policy: Policy { user: tier.limits, ..Policy::default() },
                prompt: ask.prompt_tokens,
                output: ask.output_tokens,
                estimate: 0,
                cost: tier.cost(ask.prompt_tokens, ask.output_tokens),
            };
            let held = self.keeper.hold(&request).await.map_err(denial)?;
            let (usage, caller, tier) = (Arc::clone(&self.usage), Arc::clone(caller), tier.clone());
            Ok(Box::new(Ticket { held: Some(held), usage, caller, ask, tier }) as Box<dyn Permit>)
        })
    }
}

/// Of a batch every line asks who its owner is by then.
impl RunAs for Door {
    fn caller<'a>(
        &'a self,
        owner: &'a DataOwner,
        key: Option<&'a KeyId>,
    ) -> BoxFuture<'a, Result<Arc<Caller>, Denial>> {
        Box::pin(async move {
            match self.store.standing(owner, key, now()).await {
                Ok(Some(principal)) => Ok(Arc::new(self.caller(&principal))),
                Ok(None) => Err(Denial::Unknown),
                Err(error) => {
                    tracing::warn!(%error, "the owner of a batch can't be looked up");
                    Err(Denial::Unavailable("accounts can't be looked up now".to_owned()))
                }
            }
        })
    }
}

fn denial(error: QuotaError) -> Denial {
    match error {
        QuotaError::Refused(refusal) => refused(&refusal),
        QuotaError::Unavailable(error) => {
            tracing::warn!(%error, "limits can't be checked");
            Denial::Unavailable("limits can't be checked now".to_owned())
        }
        QuotaError::Full => Denial::Unavailable(QuotaError::Full.to_string()),
    }
}

fn refused(refusal: &Refusal) -> Denial {
    let what = refusal.to_string();
    match (refusal.kind, refusal.retry) {
        (_, Retry::Never) if refusal.limit == 0 => Denial::Forbidden(what),
        (_, Retry::Never) => Denial::TooLarge(what),
        (Kind::Budget, _) => Denial::Budget(what),
        (_, Retry::Within(wait)) => limited(what, wait.min(CONCURRENT_RETRY), &refusal.status),
        (_, Retry::After(wait)) => limited(what, wait, &refusal.status),
    }
}

fn limited(what: String, retry_after: Duration, status: &Status) -> Denial {
    Denial::Limited { what, retry_after, limits: limits(status) }
}

fn limits(status: &Status) -> RateLimits {
    let limit = |gauge: &Gauge| {
        let Gauge { limit, remaining, reset_after: reset, .. } = *gauge;
        RateLimit { limit, remaining, reset }
    };
    RateLimits { requests: status.requests().map(limit), tokens: status.tokens().map(limit) }
}

/// A reservation, and what is needed to write its use down.
struct Ticket {
    /// Until it is settled.
    held: Option<Held>,
    usage: Arc<UsageWriter>,
    caller: Arc<Caller>,
    ask: Ask,
    tier: Tier,
}

impl Permit for Ticket {
    fn limits(&self) -> RateLimits {
        self.held.as_ref().map_or(RateLimits::default(), |held| limits(&held.reservation().status))
    }

    fn settle(mut self: Box<Self>, outcome: Outcome) {
        let cost = self.tier.cost(outcome.prompt_tokens, outcome.output_tokens);
        if let Err(error) = self.event(&outcome, cost).map(|event| self.usage.record(&event)) {
            tracing::error!(%error, id = self.ask.request_id, "what a request used is not written down");
        }
        if let Some(mut held) = self.held.take() {
            // Settled by the keeper's task when it is dropped here.
            held.report(outcome.prompt_tokens + outcome.output_tokens, cost);
        }
    }
}

impl Ticket {
    fn event(&self, outcome: &Outcome, cost: u64) -> Result<UsageEvent, motet_store::StoreError> {
        let at = now();
        let count = |tokens: u64| u32::try_from(tokens).unwrap_or(u32::MAX);
        let millis = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        Ok(UsageEvent {
            id: UsageId::new(at)?,
            at,
            org: OrgId::new(self.caller.tenant.as_str()),
            user: UserId::new(self.caller.account.user.as_str()),
            key: self.caller.account.key.as_deref().map(KeyId::new),
            request_id: self.ask.request_id.clone(),
            model: self.ask.model.clone(),
            tier: self.tier.name.clone(),
            finish: match outcome.end {
                End::Finished(FinishReason::Stop) => UsageFinish::Stop,
                End::Finished(FinishReason::Length) => UsageFinish::Length,
                End::Cancelled => UsageFinish::Cancelled,
                End::Failed => UsageFinish::Failed,
            },
            prompt_tokens: count(outcome.prompt_tokens),
            cached_tokens: count(outcome.cached_tokens),
            output_tokens: count(outcome.output_tokens),
            reasoning_tokens: 0,
            queue_ms: millis(outcome.queued),
            ttft_ms: outcome.ttft.map(millis),
            duration_ms: millis(outcome.took),
            cost_micros: i64::try_from(cost).unwrap_or(i64::MAX),
        })
    }
}

/// One that was never computed gives back the request itself, too.
impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            held.give_back();
        }
    }
}
