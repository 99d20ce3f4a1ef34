use std::sync::Arc;

use motet_fleet::{Change, LaneSignal, Rung, Signals};
use motet_types::Load;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::time::{Instant, MissedTickBehavior};

use super::Overload;
use crate::gateway::{Gateway, Served};

impl Gateway {
    /// Looks at the load for as long as it is polled, and moves the ladder. To be polled by whoever serves, beside that.
    pub async fn watch_load(self: &Arc<Self>) {
        let mut ticks = tokio::time::interval(self.config.overload.sample_every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.look_at_load();
        }
    }

    /// Looks at the load once.
    pub fn look_at_load(&self) {
        let catalogue = self.catalogue();
        for served in catalogue.ready() {
            let load = served.model.backend.load();
            let Some(change) = served.overload.observe(load) else { continue };
            self.metrics.ladder.moved(served, change);
            tell(served, change);
        }
        let highest = catalogue.ready().map(|served| served.overload.rung()).max().unwrap_or(Rung::Normal);
        self.rung.send_if_modified(|rung| std::mem::replace(rung, highest) != highest);
    }
}

/// Carries a change out, and logs it.
fn tell(served: &Served, Change { from, to, pressure }: Change) {
    let (was, is) = (from.measures().pause_background, to.measures().pause_background);
    if was != is {
        served.model.backend.pause_background(is);
    }
    let (from_rung, to_rung, model) = (from.name(), to.name(), &served.model.id);
    if to > from {
        tracing::warn!(
            model,
            from = from_rung,
            to = to_rung,
            pressure,
            "there is too much to do: more is given up"
        );
    } else {
        tracing::info!(
            model,
            from = from_rung,
            to = to_rung,
            pressure,
            "there is less to do: less is given up"
        );
    }
}

impl Overload {
    fn rung(&self) -> Rung {
        self.seen().ladder.rung()
    }

    fn observe(&self, load: Load) -> Option<Change> {
        let lanes = load.lanes.iter().map(|lane| LaneSignal {
            promise: lane.ttft_promise,
            wait: lane.wait,
            waiting: lane.waiting,
            // Where the bound is not known, the line is never full.
            bound: if lane.waiting_limit == 0 { u32::MAX } else { lane.waiting_limit },
        });
        let signals = Signals { lanes: lanes.collect() };
        let mut seen = self.seen();
        (seen.at, seen.lanes) = (Some(Instant::now()), load.lanes);
        // Without a configuration there are no lanes to press it.
        seen.ladder.observe(self.epoch.elapsed(), &signals)
    }
}

/// What the ladder does, for metrics.
#[derive(Default)]
pub(crate) struct LadderMetrics {
    rung: Family<ModelLabels, Gauge>,
    changes: Family<ChangeLabels, Counter>,
    shed: Family<ShedLabels, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelLabels {
    model: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ChangeLabels {
    model: String,
    to: &'static str,
}

/// Lanes are configured and reasons are ours, so there are few.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ShedLabels {
    model: String,
    lane: String,
    reason: &'static str,
}

impl LadderMetrics {
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let Self { rung, changes, shed } = Self::default();
        registry.register(
            "motet_ladder_rung",
            "What is given up: 0 nothing, to 5 free requests",
            rung.clone(),
        );
        registry.register(
            "motet_ladder_changes",
            "Steps of the ladder, by the rung it went to",
            changes.clone(),
        );
        registry.register("motet_shed", "Requests refused because there is too much to do", shed.clone());
        Self { rung, changes, shed }
    }

    fn moved(&self, served: &Served, change: Change) {
        let (model, to) = (served.model.id.clone(), change.to);
        let number = Rung::ALL.iter().position(|rung| *rung == to).unwrap_or(0);
        let rung = self.rung.get_or_create(&ModelLabels { model: model.clone() });
        rung.set(i64::try_from(number).unwrap_or(0));
        self.changes.get_or_create(&ChangeLabels { model, to: to.name() }).inc();
    }

    /// A model's ladder, which stands at the bottom.
    pub(crate) fn begins(&self, model: &str) {
        self.rung.get_or_create(&ModelLabels { model: model.to_owned() }).set(0);
    }

    pub(crate) fn count_shed(&self, served: &Served, lane: usize, reason: &'static str) {
        let (model, lane) = (served.model.id.clone(), served.lane_name(lane).to_owned());
        self.shed.get_or_create(&ShedLabels { model, lane, reason }).inc();
    }
}
