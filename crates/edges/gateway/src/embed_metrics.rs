//! The embedder's [`EmbedLoad`] as metrics, read at each scrape.

use std::fmt;

use motet_types::EmbedLoad;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use tokio::sync::watch;

use crate::engine_metrics::{Page, Reading};
use crate::gateway::EmbeddingSlot;

/// Reads the load at each scrape; nothing while there is no embedding model.
pub(crate) struct EmbedCollector(pub(crate) watch::Receiver<EmbeddingSlot>);

impl fmt::Debug for EmbedCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EmbedCollector")
    }
}

const GAUGES: &[Reading<EmbedLoad>] = &[
    ("motet_embedding_requests", "Requests for embeddings that are not answered yet", |l| l.requests.into()),
    ("motet_embedding_tokens_waiting", "Their tokens that are in no batch yet", |l| l.waiting_tokens as f64),
];

/// The encoder adds `_total`.
const COUNTERS: &[Reading<EmbedLoad>] = &[
    ("motet_embedding_batches", "Batches of embeddings computed", |l| l.batches as f64),
    ("motet_embedding_batch_seconds", "Seconds spent in them", |l| l.batch_seconds),
    ("motet_embedding_inputs", "Inputs embedded", |l| l.inputs as f64),
    ("motet_embedding_tokens", "Tokens embedded", |l| l.tokens as f64),
];

impl Collector for EmbedCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(model) = self.0.borrow().clone() else { return Ok(()) };
        let (load, labels) = (model.embedder.load(), vec![("model", model.id.as_str())]);
        let mut page = Page(encoder);
        page.write(MetricType::Gauge, GAUGES, &[(labels.clone(), &load)])?;
        page.write(MetricType::Counter, COUNTERS, &[(labels, &load)])
    }
}
