use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use motet_protocol::ServiceTier;

use crate::access::{Access, Caller};
use crate::host::Hosts;
use crate::idempotency::IdempotencyConfig;
use crate::overload::OverloadConfig;

/// Where the wall clock is read.
pub type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// Where ids and the seeds of requests without one come from: 64 unpredictable bits per call.
pub type Entropy = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Bounds and sources of a [`Gateway`](crate::Gateway).
#[derive(Clone)]
pub struct GatewayConfig {
    /// Longest request body in bytes; longer ones get 413. 4 MiB holds some 800,000 words, more than
    /// any context here.
    pub max_body_bytes: usize,
    /// How long a client may take to send its body; then 408.
    pub body_timeout: Duration,
    /// Silence after which a stream gets a comment line. Proxies cut connections that are silent for
    /// 10 to 60 s.
    pub keep_alive: Duration,
    /// Requests that are parsed and tokenized at once. Half the processors by default, at least one:
    /// the engine's threads need the others, and a long prompt keeps one busy for its whole length.
    pub prepare_workers: usize,
    /// Requests that wait for a worker; more get 503. Short ones take milliseconds, so the default of
    /// 256 is no wait, and a burst as long as the engine's own line passes.
    pub prepare_waiting: usize,
    /// Bytes of the bodies of requests that wait for a worker or have one; more get 503. The default
    /// of 64 MiB bounds the memory of the line, and its length where prompts take seconds.
    pub prepare_bytes: usize,
    /// A step that takes longer makes `/readyz` fail, so that traffic goes elsewhere.
    pub stall_unready: Duration,
    /// A step that takes longer makes `/healthz` fail, so that a supervisor restarts the process.
    pub stall_dead: Duration,
    /// Where requests wait for their turn.
    pub lanes: Lanes,
    /// Who may use the server, and how much; `None`: everybody who reaches it, all of it.
    pub access: Option<Arc<dyn Access>>,
    /// What is given up when there is too much to do.
    pub overload: OverloadConfig,
    /// How answers are kept for requests that are sent again.
    pub idempotency: IdempotencyConfig,
    /// Names by which requests may call this server.
    pub hosts: Hosts,
    /// The wall clock, for `created` and for templates that print the date.
    pub clock: Clock,
    /// Randomness for ids and seeds.
    pub entropy: Entropy,
}

/// The backend's lanes, by index, that requests go to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lanes {
    /// For requests that ask for nothing else.
    pub default: usize,
    /// For `service_tier: "flex"`. Without one such requests go to the default lane, and the reply says so.
    pub background: Option<usize>,
}

impl Lanes {
    /// The tier that a request gets, and its lane.
    pub(crate) fn choose(self, asked: Option<ServiceTier>, caller: &Caller) -> (ServiceTier, usize) {
        match (asked, self.background) {
            (Some(ServiceTier::Flex), Some(lane)) => (ServiceTier::Flex, lane),
            _ => (ServiceTier::Default, caller.lane.unwrap_or(self.default)),
        }
    }
}

impl Default for GatewayConfig {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            max_body_bytes: 4 << 20,
            body_timeout: Duration::from_secs(30),
            keep_alive: Duration::from_secs(5),
            prepare_workers: (processors / 2).max(1),
            prepare_waiting: 256,
            prepare_bytes: 64 << 20,
            stall_unready: Duration::from_secs(10),
            stall_dead: Duration::from_secs(60),
            lanes: Lanes::default(),
            access: None,
            overload: OverloadConfig::default(),
            idempotency: IdempotencyConfig::default(),
            hosts: Hosts::default(),
            clock: Arc::new(SystemTime::now),
            entropy: Arc::new(random_bits),
        }
    }
}

/// The standard library keys each `RandomState` apart, from the operating system's randomness.
fn random_bits() -> u64 {
    RandomState::new().build_hasher().finish()
}
