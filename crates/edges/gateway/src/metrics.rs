use std::fmt;
use std::time::Duration;

use motet_types::Load;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use crate::gateway::State;

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
    first_token: Histogram,
    inter_token: Histogram,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: String,
    method: &'static str,
    status: u16,
}

impl Metrics {
    pub(crate) fn new(state: watch::Receiver<State>) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(EngineCollector(state)));
        let requests = Family::default();
        let first_token = Histogram::new(FIRST_TOKEN_BUCKETS);
        let inter_token = Histogram::new(INTER_TOKEN_BUCKETS);
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
        Self { registry, requests, first_token, inter_token }
    }

    pub(crate) fn count_request(&self, route: &str, method: &'static str, status: u16) {
        self.requests.get_or_create(&RequestLabels { route: route.to_owned(), method, status }).inc();
    }

    pub(crate) fn observe_first_token(&self, wait: Duration) {
        self.first_token.observe(wait.as_secs_f64());
    }

    pub(crate) fn observe_inter_token(&self, gap: Duration) {
        self.inter_token.observe(gap.as_secs_f64());
    }

    /// Everything in the Prometheus text format.
    pub(crate) fn render(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// Reads the backend's load at each scrape.
struct EngineCollector(watch::Receiver<State>);

impl fmt::Debug for EngineCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EngineCollector")
    }
}

/// A metric's name, its help, and how it is read.
type Reading = (&'static str, &'static str, fn(&Load) -> f64);

/// Gauges of a load.
const GAUGES: &[Reading] = &[
    ("motet_sequences_running", "Sequences in the batch", |load| load.running.into()),
    ("motet_sequences_waiting", "Sequences that wait for room", |load| load.waiting.into()),
    ("motet_kv_blocks_used", "KV blocks of live sequences", |load| load.kv_blocks_used.into()),
    ("motet_kv_blocks_capacity", "KV blocks of the arena", |load| load.kv_blocks_total.into()),
    ("motet_kv_block_tokens", "Tokens in a KV block", |load| load.kv_block_tokens.into()),
    ("motet_engine_stalled_seconds", "Since the last step began while there is work", |load| {
        load.stalled_seconds
    }),
];

/// Gauges under the names that routers and dashboards made for vLLM read, labelled as there.
const VLLM_GAUGES: &[Reading] = &[
    ("vllm:num_requests_running", "Alias of motet_sequences_running", |load| load.running.into()),
    ("vllm:num_requests_waiting", "Alias of motet_sequences_waiting", |load| load.waiting.into()),
    ("vllm:kv_cache_usage_perc", "Used share of the KV blocks, 0 to 1", used_share),
];

/// Counters of a load; the encoder adds `_total`.
const COUNTERS: &[Reading] = &[
    ("motet_engine_steps", "Steps run", |load| load.steps as f64),
    ("motet_engine_step_seconds", "Seconds spent in steps", |load| load.step_seconds),
    ("motet_prompt_tokens", "Prompt tokens computed", |load| load.prompt_tokens as f64),
    ("motet_output_tokens", "Tokens generated", |load| load.output_tokens as f64),
    ("motet_sequences_finished", "Sequences that ended as asked", |load| load.finished as f64),
    ("motet_sequences_cancelled", "Sequences whose reader left", |load| load.cancelled as f64),
    ("motet_sequences_failed", "Sequences that failed", |load| load.failed as f64),
];

fn used_share(load: &Load) -> f64 {
    f64::from(load.kv_blocks_used) / f64::from(load.kv_blocks_total.max(1))
}

impl Collector for EngineCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let state = self.0.borrow().clone();
        let is_ready = f64::from(u8::from(matches!(state, State::Ready(_))));
        gauge(&mut encoder, ("motet_ready", "1 when the model can be used"), None, is_ready)?;
        let State::Ready(served) = state else { return Ok(()) };
        let load = served.model.backend.load();
        for (name, help, read) in GAUGES {
            gauge(&mut encoder, (name, help), None, read(&load))?;
        }
        for (name, help, read) in VLLM_GAUGES {
            gauge(&mut encoder, (name, help), Some(&served.model.id), read(&load))?;
        }
        for (name, help, read) in COUNTERS {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(read(&load)).encode(metric)?;
        }
        Ok(())
    }
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    model: Option<&str>,
    value: f64,
) -> Result<(), fmt::Error> {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    match model {
        None => ConstGauge::new(value).encode(metric),
        Some(model) => ConstGauge::new(value).encode(metric.encode_family(&[("model_name", model)])?),
    }
}
