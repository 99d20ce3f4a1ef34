use std::time::Duration;

use motet_fleet::Rung;
use serde::Serialize;
use tokio::time::Instant;

use super::{Entry, Overload};
use crate::gateway::Served;
use crate::prepare::Job;

/// What a stream's client is told besides the reply. Each is a comment of the stream, which every SSE client skips, such
/// as `: motet {"notice":{"queue":{"position":3,"eta_seconds":12}}}`.
#[derive(Serialize)]
struct Notice {
    notice: Said,
}

#[derive(Serialize)]
struct Said {
    /// Names of what was given up for this reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    degraded: Option<Vec<&'static str>>,
    /// Most tokens it has, where it was shortened.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    /// Where it is in line.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<Place>,
}

/// A place in line, as far as known: users take turns, so others may go first.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Place {
    /// 1 is next.
    position: u64,
    /// Seconds until the first token.
    eta_seconds: u64,
}

/// The notices of a stream, in order.
pub(crate) struct Notices {
    first: Option<String>,
    queue: Option<Line>,
}

/// Where it came into line.
#[derive(Debug, Clone, Copy)]
struct Line {
    lane: usize,
    position: u64,
    /// Sequences that had left the line by then.
    started: u64,
    every: Duration,
    next: Instant,
}

impl Notices {
    /// To be made before the request is submitted.
    pub(crate) fn new(served: &Served, entry: &Entry, job: &Job) -> Self {
        let shortened = job.shortened();
        let is_queued = entry.measures.queue_with_eta;
        let mut degraded = Vec::new();
        degraded.extend(shortened.map(|_| Rung::ShortenOutput.name()));
        degraded.extend(is_queued.then(|| Rung::QueueWithEta.name()));
        let queue = is_queued.then(|| {
            let lanes = served.model.backend.load().lanes;
            let lane = lanes.get(entry.lane).cloned().unwrap_or_default();
            let (position, started) = (u64::from(lane.waiting) + 1, lane.started);
            let every = served.overload.config.notice_every;
            Line { lane: entry.lane, position, started, every, next: Instant::now() }
        });
        let said = Said { degraded: Some(degraded), max_tokens: shortened, queue: None };
        let first = (shortened.is_some() || is_queued).then(|| written(said)).flatten();
        Self { first, queue }
    }

    /// What is to be said before anything else.
    pub(crate) fn take_first(&mut self) -> Option<String> {
        self.first.take()
    }

    /// When there is something to be said next; `None`: never.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.queue.map(|queue| queue.next)
    }

    /// What there is to be said now.
    pub(crate) fn next(&mut self, overload: &Overload) -> Option<String> {
        let line = self.queue.as_mut()?;
        line.next = Instant::now() + line.every;
        let queue = Some(line.place(overload));
        written(Said { degraded: None, max_tokens: None, queue })
    }

    /// The reply has begun: nobody waits any more.
    pub(crate) fn end(&mut self) {
        self.queue = None;
    }
}

impl Line {
    fn place(&self, overload: &Overload) -> Place {
        let seen = overload.seen();
        let Some(lane) = seen.lanes.get(self.lane) else { return place(self.position, 0, Duration::ZERO) };
        // Those who left the line since, and those before it who gave up.
        let position = self.position.saturating_sub(lane.started.saturating_sub(self.started));
        place(position, lane.waiting, lane.wait)
    }
}

/// A place at `position` of `waiting`, where a newcomer would wait for `wait`.
fn place(position: u64, waiting: u32, wait: Duration) -> Place {
    let position = position.clamp(1, u64::from(waiting.max(1)));
    let part = position as f64 / f64::from(waiting.saturating_add(1));
    Place { position, eta_seconds: wait.mul_f64(part.min(1.0)).as_secs_f64().ceil().max(1.0) as u64 }
}

fn written(said: Said) -> Option<String> {
    let json = serde_json::to_string(&Notice { notice: said }).ok()?;
    Some(format!("motet {json}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_within_the_line() {
        let check = |position, waiting, seconds, expected: (u64, u64)| {
            let place = place(position, waiting, Duration::from_secs(seconds));
            assert_eq!((place.position, place.eta_seconds), expected, "{position} of {waiting}");
        };
        check(5, 9, 20, (5, 10));
        check(0, 9, 20, (1, 2));
        check(12, 9, 20, (9, 18));
        check(3, 0, 0, (1, 1));
    }
}
