//! When something that a provider publishes is fetched again: what is asked, and what is done, without the fetching.

use std::sync::Arc;

use crate::SignInError;

/// What is older is fetched again before it is used; so a key that the provider takes back is good for an hour at most.
pub(crate) const MAX_AGE_MS: i64 = 3_600_000;

/// What was fetched so recently isn't fetched again because something is not in it: else tokens with keys that nobody
/// has would make this server a burden to the provider.
pub(crate) const REFETCH_MS: i64 = 30_000;

/// After a failure nobody asks again for so long: those who wait meanwhile get the same failure at once.
pub(crate) const RETRY_MS: i64 = 5_000;

/// A document of the provider.
#[derive(Debug)]
pub(crate) struct Cached<T> {
    /// What was fetched last, and when.
    value: Option<(Arc<T>, i64)>,
    /// How the last try failed, and when, if it did.
    failure: Option<(SignInError, i64)>,
}

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Self { value: None, failure: None }
    }
}

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// The document.
    Any,
    /// A newer one than that at hand, which lacks something.
    Newer,
}

/// What to do.
#[derive(Debug)]
pub(crate) enum Plan<T> {
    /// Use it.
    Use(Arc<T>),
    /// Fetch it, and tell [`Cached::fetched`].
    Fetch,
    /// It failed a moment ago.
    Fail(SignInError),
}

impl<T> Cached<T> {
    pub(crate) fn plan(&self, want: Want, now: i64) -> Plan<T> {
        if let Some((value, at)) = &self.value {
            let good_for = if want == Want::Any { MAX_AGE_MS } else { REFETCH_MS };
            if is_within(now, *at, good_for) {
                return Plan::Use(Arc::clone(value));
            }
        }
        match &self.failure {
            Some((error, at)) if is_within(now, *at, RETRY_MS) => Plan::Fail(error.clone()),
            _ => Plan::Fetch,
        }
    }

    /// A failure leaves what is at hand: it is good until it is too old.
    pub(crate) fn fetched(
        &mut self,
        result: Result<T, SignInError>,
        now: i64,
    ) -> Result<Arc<T>, SignInError> {
        match result {
            Ok(value) => {
                let value = Arc::new(value);
                self.value = Some((Arc::clone(&value), now));
                self.failure = None;
                Ok(value)
            }
            Err(error) => {
                self.failure = Some((error.clone(), now));
                Err(error)
            }
        }
    }
}

/// Whether two moments are less than a span apart. Those who waited for a fetch read the clock before it began; and a
/// clock that was set back must not keep anything for longer.
fn is_within(now: i64, at: i64, span: i64) -> bool {
    now.saturating_sub(at).saturating_abs() < span
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What happens: time passes, the provider publishes something else, breaks or recovers, someone asks.
    #[derive(Debug, Clone)]
    enum Step {
        Wait(i64),
        Publish(u8),
        Break(bool),
        Ask(u8),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            prop_oneof![0..10_000_i64, 0..40_000_i64, 0..4_000_000_i64].prop_map(Step::Wait),
            (0..4_u8).prop_map(Step::Publish),
            any::<bool>().prop_map(Step::Break),
            (0..4_u8).prop_map(Step::Ask),
        ]
    }

    proptest! {
        /// A user of the cache who looks for one letter in what is published, as tokens look for keys.
        #[test]
        fn what_is_used_is_recent_and_fetches_are_rare(steps in prop::collection::vec(step(), 1..200)) {
            let (mut cached, mut now, mut published, mut is_broken) = (Cached::default(), 0, 0, false);
            // When each document was published; when fetches were made and how they ended.
            let mut changed_at = 0;
            let mut fetches: Vec<(i64, bool)> = Vec::new();
            for step in steps {
                let wanted = match step {
                    Step::Wait(time) => { now += time; continue; }
                    Step::Publish(letter) => {
                        if letter != published { changed_at = now; }
                        published = letter;
                        continue;
                    }
                    Step::Break(truth) => { is_broken = truth; continue; }
                    Step::Ask(letter) => letter,
                };
                let mut ask = |want, fetches: &mut Vec<(i64, bool)>| match cached.plan(want, now) {
                    Plan::Use(value) => Ok(value),
                    Plan::Fail(error) => Err(error),
                    Plan::Fetch => {
                        fetches.push((now, !is_broken));
                        let broken = SignInError::bad("x", "y");
                        cached.fetched(if is_broken { Err(broken) } else { Ok(published) }, now)
                    }
                };
                let mut got = ask(Want::Any, &mut fetches);
                if got.as_ref().is_ok_and(|got| **got != wanted) {
                    got = ask(Want::Newer, &mut fetches);
                }
                match got {
                    Ok(found) if *found == wanted && wanted != published => {
                        prop_assert!(now - changed_at < MAX_AGE_MS, "taken back an hour ago, and good still");
                    }
                    Ok(found) if *found != wanted && wanted == published => {
                        let last = fetches.iter().rev().find(|(_, is_good)| *is_good).map(|(at, _)| *at);
                        prop_assert!(last.is_some_and(|at| now - at < REFETCH_MS), "published, and not found");
                    }
                    _ => {}
                }
            }
            for pair in fetches.windows(2) {
                let (gap, pause) = (pair[1].0 - pair[0].0, if pair[0].1 { REFETCH_MS } else { RETRY_MS });
                prop_assert!(gap >= pause, "asked again after {gap} ms");
            }
        }
    }
}
