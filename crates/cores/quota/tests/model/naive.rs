//! The log, and what it says.

use std::time::Duration;

use motet_quota::{Actual, Gauge, Kind, Level, Request, Scope};

enum Entry {
    Reserved { now: u64, id: u128, request: Box<Request> },
    Settled { now: u64, id: u128, actual: Actual },
    Renewed { now: u64, id: u128 },
}

pub(crate) struct Naive {
    hold: u64,
    log: Vec<Entry>,
}

/// What the log says of one reservation at a time.
struct Life {
    /// Where in the log it was made.
    from: usize,
    made: u64,
    request: Box<Request>,
    expires: u64,
    settled: Option<(usize, Actual)>,
}

fn is_shared(level: Level, a: &Scope, b: &Scope) -> bool {
    a.tenant == b.tenant
        && (level == Level::Tenant || a.user == b.user)
        && (level != Level::Model || a.model == b.model)
}

/// Days since the epoch, or (year, month), by counting.
fn period(kind: Kind, now: u64) -> (u64, u64) {
    let mut days = now / 86_400_000;
    if kind != Kind::Budget {
        return (days, 0);
    }
    let mut year = 1970;
    loop {
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        for (month, length) in
            [31, 28 + u64::from(is_leap), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31].iter().enumerate()
        {
            if days < *length {
                return (year, month as u64);
            }
            days -= length;
        }
        year += 1;
    }
}

impl Naive {
    pub(crate) fn new(hold: Duration) -> Self {
        Self { hold: hold.as_millis() as u64, log: Vec::new() }
    }

    pub(crate) fn reserve(&mut self, now: u64, id: u128, request: &Request) -> Option<u64> {
        if let Some(life) = self.alive(now, id) {
            return Some(life.expires);
        }
        let fits = |(level, kind, limit): (Level, Kind, u64)| {
            let used = self.used(now, &request.scope, level, kind);
            used + u128::from(request.need().of(kind)) * u128::from(kind.unit())
                <= u128::from(limit) * u128::from(kind.unit())
        };
        if !request.policy.caps().all().all(fits) {
            return None;
        }
        self.log.push(Entry::Reserved { now, id, request: Box::new(request.clone()) });
        Some(now + self.hold)
    }

    pub(crate) fn settle(&mut self, now: u64, id: u128, actual: Actual) -> bool {
        let is_alive = self.alive(now, id).is_some();
        if is_alive {
            self.log.push(Entry::Settled { now, id, actual });
        }
        is_alive
    }

    pub(crate) fn renew(&mut self, now: u64, id: u128) -> Option<u64> {
        self.alive(now, id)?;
        self.log.push(Entry::Renewed { now, id });
        Some(now + self.hold)
    }

    pub(crate) fn remaining(&self, now: u64, scope: &Scope, gauge: &Gauge) -> u64 {
        let Gauge { level, kind, limit, .. } = *gauge;
        let all = u128::from(limit) * u128::from(kind.unit());
        (all.saturating_sub(self.used(now, scope, level, kind)) / u128::from(kind.unit())) as u64
    }

    fn alive(&self, now: u64, id: u128) -> Option<Life> {
        self.lives(now)
            .into_iter()
            .find(|(at, life)| *at == id && life.settled.is_none() && life.expires > now)
            .map(|(_, life)| life)
    }

    fn lives(&self, now: u64) -> Vec<(u128, Life)> {
        let mut lives: Vec<(u128, Life)> = Vec::new();
        for (index, entry) in self.log.iter().enumerate() {
            match entry {
                Entry::Reserved { now, id, request } => {
                    let expires = now + self.hold;
                    let request = request.clone();
                    lives.push((*id, Life { from: index, made: *now, request, expires, settled: None }));
                }
                Entry::Settled { id, actual, .. } => find(&mut lives, *id).settled = Some((index, *actual)),
                Entry::Renewed { now, id } => find(&mut lives, *id).expires = now + self.hold,
            }
        }
        lives.retain(|(_, life)| life.made <= now);
        lives
    }

    /// In units of the kind.
    fn used(&self, now: u64, scope: &Scope, level: Level, kind: Kind) -> u128 {
        let lives = self.lives(now);
        let has = |life: &Life| life.request.policy.caps().get(level, kind).is_some();
        let mine: Vec<_> = lives
            .into_iter()
            .map(|(_, life)| life)
            .filter(|life| is_shared(level, &life.request.scope, scope) && has(life))
            .collect();
        match kind {
            Kind::Concurrent => {
                mine.iter().filter(|life| life.settled.is_none() && life.expires > now).count() as u128
            }
            Kind::DayTokens | Kind::Budget => self.in_period(now, kind, &mine),
            Kind::Requests | Kind::Tokens => self.in_bucket(now, level, kind, &mine),
        }
    }

    /// Changes that were made in the period of their reservation, in order.
    fn in_period(&self, now: u64, kind: Kind, lives: &[Life]) -> u128 {
        let mut used = 0_i128;
        for (at, life, change) in self.changes(kind, lives) {
            if period(kind, at) == period(kind, now) && period(kind, life.made) == period(kind, at) {
                used = (used + change).max(0);
            }
        }
        used as u128
    }

    /// Changes in order, and what comes back between them.
    fn in_bucket(&self, now: u64, level: Level, kind: Kind, lives: &[Life]) -> u128 {
        let (mut used, mut rate, mut last) = (0_i128, 0, 0);
        for (at, life, change) in self.changes(kind, lives) {
            used = (used - i128::from(rate) * i128::from(at - last)).max(0);
            used = (used + change * i128::from(kind.unit())).max(0);
            (rate, last) = (life.request.policy.caps().get(level, kind).unwrap_or(0).max(1), at);
        }
        (used - i128::from(rate) * i128::from(now - last)).max(0) as u128
    }

    /// When, of which reservation, by how much; in the order of the log.
    fn changes<'a>(&self, kind: Kind, lives: &'a [Life]) -> Vec<(u64, &'a Life, i128)> {
        let mut changes = Vec::new();
        for life in lives {
            let reserved = i128::from(life.request.need().of(kind));
            changes.push((life.from, life.made, life, reserved));
            if let Some((index, actual)) = life.settled {
                let Entry::Settled { now, .. } = &self.log[index] else { unreachable!("settled elsewhere") };
                let used = match actual {
                    Actual::Used { .. } => i128::from(actual.need().of(kind)),
                    Actual::NeverRan => 0,
                };
                changes.push((index, *now, life, used - reserved));
            }
        }
        changes.sort_by_key(|(index, ..)| *index);
        changes.into_iter().map(|(_, at, life, change)| (at, life, change)).collect()
    }
}

fn find(lives: &mut [(u128, Life)], id: u128) -> &mut Life {
    &mut lives.iter_mut().rev().find(|(at, _)| *at == id).expect("it was made").1
}
