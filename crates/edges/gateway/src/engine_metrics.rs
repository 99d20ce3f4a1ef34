//! The [`Load`] of each model's backend as metrics, read at each scrape.

use std::fmt;

use motet_types::{LaneLoad, Load};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::sync::watch;

use crate::catalogue::{Catalogue, State};

/// Reads the backends' loads at each scrape.
pub(crate) struct EngineCollector(pub(crate) watch::Receiver<Catalogue>);

impl fmt::Debug for EngineCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EngineCollector")
    }
}

/// A metric's name, its help, and how it is read.
pub(crate) type Reading<T = Load> = (&'static str, &'static str, fn(&T) -> f64);

/// Gauges of a load.
const GAUGES: &[Reading] = &[
    ("motet_sequences_running", "Sequences in the batch", |load| load.running.into()),
    ("motet_sequences_waiting", "Sequences that wait for room", |load| load.waiting.into()),
    ("motet_sequences_preempted", "Sequences that gave up their blocks and wait to come back", |load| {
        load.preempted.into()
    }),
    ("motet_kv_blocks_used", "KV blocks of live sequences", |load| load.kv_blocks_used.into()),
    ("motet_kv_blocks_cached", "KV blocks of no live sequence that can be hit or reused", |load| {
        load.kv_blocks_cached.into()
    }),
    ("motet_kv_blocks_free", "KV blocks that hold nothing", |load| free_blocks(load).into()),
    ("motet_kv_blocks_capacity", "KV blocks of the arena: used, cached and free", |load| {
        load.kv_blocks_total.into()
    }),
    ("motet_kv_blocks_spilled", "KV blocks in the second tier", |load| load.kv_blocks_spilled.into()),
    ("motet_kv_block_tokens", "Tokens in a KV block", |load| load.kv_block_tokens.into()),
    ("motet_engine_budget_used", "Part of its time that the last step was expected to use", |load| {
        load.budget_used
    }),
    ("motet_engine_stalled_seconds", "Since the last step began while there is work", |load| {
        load.stalled_seconds
    }),
];

/// Counters of a load; the encoder adds `_total`.
const COUNTERS: &[Reading] = &[
    ("motet_engine_steps", "Steps run", |load| load.steps as f64),
    ("motet_engine_step_seconds", "Seconds spent in steps", |load| load.step_seconds),
    ("motet_prompt_tokens", "Prompt tokens computed", |load| load.prompt_tokens as f64),
    ("motet_cached_tokens", "Prompt tokens found in the prefix cache", |load| load.cached_tokens as f64),
    ("motet_output_tokens", "Tokens generated", |load| load.output_tokens as f64),
    ("motet_sequences_finished", "Sequences that ended as asked", |load| load.finished as f64),
    ("motet_sequences_cancelled", "Sequences whose reader left", |load| load.cancelled as f64),
    ("motet_sequences_failed", "Sequences that failed", |load| load.failed as f64),
    ("motet_preemptions", "Times a sequence gave up its blocks", |load| load.preemptions as f64),
];

/// Gauges under the names that routers and dashboards made for vLLM read, labelled and counted as
/// there: what is preempted waits.
const VLLM_GAUGES: &[Reading] = &[
    ("vllm:num_requests_running", "Alias of motet_sequences_running", |load| load.running.into()),
    ("vllm:num_requests_waiting", "motet_sequences_waiting and _preempted together", |load| {
        f64::from(load.waiting) + f64::from(load.preempted)
    }),
    ("vllm:kv_cache_usage_perc", "Used share of the KV blocks, 0 to 1", used_share),
];

/// Counters under such names.
const VLLM_COUNTERS: &[Reading] = &[
    ("vllm:prefix_cache_queries", "Prompt tokens, cached and computed", |load| {
        (load.cached_tokens + load.prompt_tokens) as f64
    }),
    ("vllm:prefix_cache_hits", "Alias of motet_cached_tokens", |load| load.cached_tokens as f64),
    ("vllm:num_preemptions", "Alias of motet_preemptions", |load| load.preemptions as f64),
];

/// Gauges of a lane.
const LANE_GAUGES: &[Reading<LaneLoad>] = &[
    ("motet_lane_sequences_running", "Sequences of a lane in the batch", |lane| lane.running.into()),
    ("motet_lane_sequences_waiting", "Sequences of a lane that wait for room", |lane| lane.waiting.into()),
    ("motet_lane_sequences_preempted", "Sequences of a lane that wait to come back", |lane| {
        lane.preempted.into()
    }),
];

/// Counters of a lane.
const LANE_COUNTERS: &[Reading<LaneLoad>] = &[
    ("motet_lane_prompt_tokens", "Prompt tokens of a lane computed", |lane| lane.prompt_tokens as f64),
    ("motet_lane_output_tokens", "Tokens of a lane generated", |lane| lane.output_tokens as f64),
];

fn free_blocks(load: &Load) -> u32 {
    load.kv_blocks_total.saturating_sub(load.kv_blocks_used).saturating_sub(load.kv_blocks_cached)
}

fn used_share(load: &Load) -> f64 {
    f64::from(load.kv_blocks_used) / f64::from(load.kv_blocks_total.max(1))
}

impl Collector for EngineCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let models = self.0.borrow().clone();
        let mut page = Page(encoder);
        page.write(MetricType::Gauge, &[READY], &[(vec![], models.default_state())])?;
        let states: Vec<_> = models.states().map(|(id, state)| (vec![("model", id)], state)).collect();
        page.write(MetricType::Gauge, &[MODEL_READY], &states)?;
        let loads: Vec<_> =
            models.ready().map(|served| (served.model.id.as_str(), served.model.backend.load())).collect();
        let labelled = |label: &'static str| -> Vec<_> {
            loads.iter().map(|(id, load)| (vec![(label, *id)], load)).collect()
        };
        page.write(MetricType::Gauge, GAUGES, &labelled("model"))?;
        page.write(MetricType::Counter, COUNTERS, &labelled("model"))?;
        let lanes: Vec<_> = loads.iter().flat_map(lanes_of).collect();
        page.write(MetricType::Gauge, LANE_GAUGES, &lanes)?;
        page.write(MetricType::Counter, LANE_COUNTERS, &lanes)?;
        page.write(MetricType::Gauge, VLLM_GAUGES, &labelled("model_name"))?;
        page.write(MetricType::Counter, VLLM_COUNTERS, &labelled("model_name"))
    }
}

/// The lanes of a model.
fn lanes_of<'a>((id, load): &'a (&'a str, Load)) -> impl Iterator<Item = Source<'a, LaneLoad>> {
    load.lanes.iter().map(|lane| (vec![("model", *id), ("lane", lane.name.as_str())], lane))
}

/// Whether the default model can be used.
const READY: Reading<State> = ("motet_ready", "1 when the default model can be used", is_ready);
/// Whether each model can be.
const MODEL_READY: Reading<State> = ("motet_model_ready", "1 when the model can be used", is_ready);

fn is_ready(state: &State) -> f64 {
    f64::from(u8::from(matches!(state, State::Ready(_))))
}

/// What a value is read from, and its labels.
type Source<'a, T> = (Vec<Label<'a>>, &'a T);

/// A label's name and value.
type Label<'a> = (&'a str, &'a str);

/// What a scrape gets.
pub(crate) struct Page<'a>(pub(crate) DescriptorEncoder<'a>);

impl Page<'_> {
    /// Writes metrics of one kind, each with a value per source, under the source's labels.
    pub(crate) fn write<T>(
        &mut self,
        kind: MetricType,
        readings: &[Reading<T>],
        sources: &[Source<'_, T>],
    ) -> Result<(), fmt::Error> {
        // A name without values would be noise.
        let readings = if sources.is_empty() { &[] } else { readings };
        for (name, help, read) in readings {
            let mut metric = self.0.encode_descriptor(name, help, None, kind)?;
            for (labels, source) in sources {
                let labels = labels.as_slice();
                let value = metric.encode_family(&labels)?;
                match kind {
                    MetricType::Counter => ConstCounter::new(read(source)).encode(value)?,
                    _ => ConstGauge::new(read(source)).encode(value)?,
                }
            }
        }
        Ok(())
    }
}
