use std::fmt;

use prometheus_client::encoding::{EncodeLabelSet, prometheus_text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use crate::catalogue::Catalogue;
use crate::embed_metrics::EmbedCollector;
use crate::engine_metrics::EngineCollector;
use crate::gateway::EmbeddingSlot;
use crate::overload::LadderMetrics;

/// Upper ends of the buckets of the time to the first token, in seconds.
const FIRST_TOKEN_BUCKETS: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0];
/// Upper ends of the buckets of the time between tokens, in seconds.
const INTER_TOKEN_BUCKETS: [f64; 12] =
    [0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0];

/// What the gateway counts itself, and a view of what the engine counts.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    first_token: ByLane,
    inter_token: ByLane,
    pub(crate) ladder: LadderMetrics,
}

type ByLane = Family<LaneLabels, Histogram, fn() -> Histogram>;

/// Where the tokens of a lane are timed, in seconds.
pub(crate) struct Timings {
    /// From the arrival of a request to its first token.
    pub(crate) first_token: Histogram,
    /// Between two tokens of one choice.
    pub(crate) inter_token: Histogram,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: String,
    method: &'static str,
    status: u16,
}

/// Models and lanes are configured, so there are few.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LaneLabels {
    model: String,
    lane: String,
}

impl Metrics {
    pub(crate) fn new(models: watch::Receiver<Catalogue>, embedding: watch::Receiver<EmbeddingSlot>) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(EngineCollector(models)));
        registry.register_collector(Box::new(EmbedCollector(embedding)));
        let requests = Family::default();
        let first_token = ByLane::new_with_constructor(|| Histogram::new(FIRST_TOKEN_BUCKETS));
        let inter_token = ByLane::new_with_constructor(|| Histogram::new(INTER_TOKEN_BUCKETS));
        registry.register(
            "motet_http_requests",
            "HTTP requests by route, method and status; 499 is a client that left before the response",
            Family::clone(&requests),
        );
        registry.register(
            "motet_time_to_first_token_seconds",
            "From the arrival of a request to the first token of its first choice",
            first_token.clone(),
        );
        registry.register(
            "motet_inter_token_seconds",
            "Between two tokens of one choice",
            inter_token.clone(),
        );
        let ladder = LadderMetrics::new(&mut registry);
        Self { registry, requests, first_token, inter_token, ladder }
    }

    pub(crate) fn count_request(&self, route: &str, method: &'static str, status: u16) {
        self.requests.get_or_create(&RequestLabels { route: route.to_owned(), method, status }).inc();
    }

    /// The histograms of a model's lane.
    pub(crate) fn timings(&self, model: &str, lane: &str) -> Timings {
        let labels = LaneLabels { model: model.to_owned(), lane: lane.to_owned() };
        Timings {
            first_token: self.first_token.get_or_create_owned(&labels),
            inter_token: self.inter_token.get_or_create_owned(&labels),
        }
    }

    /// Everything in the Prometheus text format.
    pub(crate) fn render(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
