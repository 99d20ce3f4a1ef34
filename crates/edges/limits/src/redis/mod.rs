//! Balances in Redis.
//!
//! An operation is one script, so it is atomic, and its time is the server's: gateways whose clocks differ
//! agree. The scripts do what [`motet_quota::Quota`] does, with the same integers, and return the balances;
//! what is refused and when to come back is told from those by the same code.
//!
//! All keys of an organisation have one hash tag, so they are in one slot of a cluster, and all expire: a
//! balance when it is full again, a reservation with its hold.

mod keys;
mod scripts;

use std::time::Duration;

use futures_core::future::BoxFuture;
use motet_quota::{
    Actual, Balance, Balances, Caps, Kind, Level, Millis, Need, Policy, Request, Reservation, ReservationId,
    Scope, Settlement, Status, refusal, status,
};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{ErrorKind, RedisError, ScriptInvocation};
use tokio::time::timeout;

use self::keys::Keys;
use self::scripts::Scripts;
use crate::{Clock, QuotaError, QuotaStore, Ticket, Unavailable};

/// Where Redis is and how long to wait for it.
#[derive(Clone)]
pub struct RedisConfig {
    /// Such as `redis://:password@host:6379/0`.
    pub url: String,
    /// How long a reservation lives without being renewed.
    pub hold: Duration,
    /// Most time for an operation, connecting included.
    pub patience: Duration,
    /// Instead of the server's time. Gateways that share balances need one time, so this is for tests and simulations.
    pub clock: Option<Clock>,
}

impl RedisConfig {
    /// With the default hold, and patience short enough that a dead Redis is told rather than waited for.
    pub fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            hold: motet_quota::Quota::HOLD,
            patience: Duration::from_millis(500),
            clock: None,
        }
    }
}

/// Balances in Redis: for several gateways.
pub struct RedisQuota {
    connection: ConnectionManager,
    scripts: Scripts,
    config: RedisConfig,
}

impl RedisQuota {
    /// Connects with the first operation and again after a loss, so a gateway starts without Redis. Needs a runtime around it.
    pub fn open(config: RedisConfig) -> Result<Self, Unavailable> {
        let client = redis::Client::open(config.url.as_str()).map_err(unavailable)?;
        // Whoever asks next tries again; waiting between tries would only make this one wait.
        let manager = ConnectionManagerConfig::new()
            .set_number_of_retries(0)
            .set_connection_timeout(Some(config.patience))
            .set_response_timeout(Some(config.patience));
        let connection = ConnectionManager::new_lazy_with_config(client, manager).map_err(unavailable)?;
        Ok(Self { connection, scripts: Scripts::new(), config })
    }

    /// Runs a script; once more if the connection turns out to be gone, since every script may run twice.
    async fn run(&self, invocation: ScriptInvocation<'_>) -> Result<Vec<i64>, Unavailable> {
        let attempts = async {
            match invocation.invoke_async(&mut self.connection.clone()).await {
                Err(error) if is_connection_lost(&error) => {
                    invocation.invoke_async(&mut self.connection.clone()).await
                }
                answer => answer,
            }
        };
        match timeout(self.config.patience, attempts).await {
            Ok(answer) => answer.map_err(unavailable),
            Err(_) => Err(Unavailable::new(format!("Redis did not answer in {:?}", self.config.patience))),
        }
    }

    fn arguments<'a>(&self, id: Option<ReservationId>, scope: &'a Scope, caps: &'a Caps) -> Arguments<'a> {
        let now = self.config.clock.as_ref().map(|clock| clock());
        // Keys expire by the server's time; while that is not the time of the balances they are kept longer.
        let slack = if now.is_some() { 600_000 } else { 1_000 };
        let hold = u64::try_from(self.config.hold.as_millis()).unwrap_or(u64::MAX);
        Arguments { now, slack, hold, id, scope, caps, need: Need::new(0, 0) }
    }
}

/// What every script is given, in the order of `lua/common.lua`.
struct Arguments<'a> {
    now: Option<Millis>,
    slack: u64,
    hold: u64,
    id: Option<ReservationId>,
    scope: &'a Scope,
    caps: &'a Caps,
    need: Need,
}

impl Arguments<'_> {
    fn invoke<'s>(&self, script: &'s redis::Script) -> ScriptInvocation<'s> {
        let mut invocation = script.prepare_invoke();
        for key in Keys::new(self.scope, self.id).all() {
            invocation.key(key);
        }
        invocation.arg(self.now.map_or_else(String::new, |now| now.to_string()));
        invocation.arg(self.slack).arg(self.hold).arg(self.id.map_or_else(String::new, |id| id.to_string()));
        invocation.arg(self.need.tokens()).arg(self.need.cost());
        for level in Level::ALL {
            for kind in Kind::ALL {
                invocation
                    .arg(self.caps.get(level, kind).map_or_else(String::new, |limit| limit.to_string()));
            }
        }
        invocation
    }
}

/// What `reserve` and `status` answer: whether it passed, the time, when the reservation expires, and the
/// balances by level: what is used by kind, when there is room for one more reply, and the rates of the buckets.
fn parse(answer: &[i64]) -> Result<(bool, Millis, Balances), Unavailable> {
    let [passed, now, expires_at, levels @ ..] = answer else { return Err(misunderstood()) };
    if levels.len() != 24 {
        return Err(misunderstood());
    }
    let number = |value: &i64| u64::try_from(*value).unwrap_or(0);
    let mut balances = Balances { now: number(now), levels: [Balance::default(); 3] };
    for (balance, row) in balances.levels.iter_mut().zip(levels.chunks_exact(8)) {
        for (used, value) in balance.used.iter_mut().zip(row) {
            *used = number(value);
        }
        balance.frees_at = number(&row[5]);
        balance.rates = [number(&row[6]), number(&row[7])];
    }
    Ok((*passed == 1, number(expires_at), balances))
}

impl QuotaStore for RedisQuota {
    fn reserve<'a>(
        &'a self,
        id: ReservationId,
        request: &'a Request,
    ) -> BoxFuture<'a, Result<Reservation, QuotaError>> {
        Box::pin(async move {
            let (caps, need) = (request.policy.caps(), request.need());
            let arguments = Arguments { need, ..self.arguments(Some(id), &request.scope, &caps) };
            let answer = self.run(arguments.invoke(&self.scripts.reserve)).await?;
            let (has_passed, expires_at, balances) = parse(&answer)?;
            if has_passed {
                return Ok(Reservation { id, expires_at, status: status(&caps, &balances) });
            }
            Err(refusal(&caps, &balances, need).map_or_else(|| misunderstood().into(), QuotaError::from))
        })
    }

    fn renew<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Option<Millis>, Unavailable>> {
        Box::pin(async move {
            let arguments = self.arguments(Some(ticket.id), &ticket.scope, &ticket.caps);
            let answer = self.run(arguments.invoke(&self.scripts.renew)).await?;
            let expires_at = answer.first().ok_or_else(misunderstood)?;
            Ok(u64::try_from(*expires_at).ok().filter(|at| *at > 0))
        })
    }

    fn settle<'a>(
        &'a self,
        ticket: &'a Ticket,
        actual: Actual,
    ) -> BoxFuture<'a, Result<Settlement, Unavailable>> {
        Box::pin(async move {
            let common = self.arguments(Some(ticket.id), &ticket.scope, &ticket.caps);
            let mut invocation = Arguments { need: actual.need(), ..common }.invoke(&self.scripts.settle);
            invocation.arg(u64::from(actual == Actual::NeverRan));
            match self.run(invocation).await?.first() {
                Some(1) => Ok(Settlement::Settled),
                Some(_) => Ok(Settlement::Unknown),
                None => Err(misunderstood()),
            }
        })
    }

    fn status<'a>(
        &'a self,
        scope: &'a Scope,
        policy: &'a Policy,
    ) -> BoxFuture<'a, Result<Status, Unavailable>> {
        Box::pin(async move {
            let caps = policy.caps();
            let answer = self.run(self.arguments(None, scope, &caps).invoke(&self.scripts.status)).await?;
            Ok(status(&caps, &parse(&answer)?.2))
        })
    }

    fn hold(&self) -> Duration {
        self.config.hold
    }
}

fn is_connection_lost(error: &RedisError) -> bool {
    error.is_connection_dropped() || error.is_io_error() && !error.is_timeout()
}

fn unavailable(error: RedisError) -> Unavailable {
    match error.kind() {
        ErrorKind::InvalidClientConfig => Unavailable::new("the address of Redis is not understood"),
        _ => Unavailable::new(format!("Redis: {error}")),
    }
}

fn misunderstood() -> Unavailable {
    Unavailable::new("the scripts in Redis and this program disagree")
}
