//! Sign-ins that are under way.

use std::collections::HashMap;

use parking_lot::Mutex;
use ring::digest::{SHA256, digest};

use crate::{Secret, encoding::base64url};

/// How long a user may take at the provider.
pub const FLOW_LIFETIME_MS: i64 = 10 * 60_000;

/// Most sign-ins under way at once, about 1 KiB each. Beyond that the oldest is dropped: whoever begins many can push
/// others out, but not keep anybody from beginning.
pub const MAX_FLOWS: usize = 4096;

/// Random bytes that a flow is made of: 256 bits for each of its four secrets.
pub const ENTROPY_BYTES: usize = 4 * 32;

/// A sign-in that is under way.
#[derive(Debug, Clone)]
pub struct Flow {
    /// Name of the provider.
    pub provider: String,
    /// What the provider's answer has to bring back; the flow's key.
    pub state: String,
    /// What the ID token has to contain.
    pub(crate) nonce: String,
    /// The secret whose hash the provider has, and which the code is no use without.
    pub(crate) verifier: Secret,
    /// What the browser that began it keeps in a cookie.
    pub browser: Secret,
    /// When it began.
    pub began: i64,
    /// The path on this server where the user goes afterwards.
    pub return_to: String,
}

impl Flow {
    pub(crate) fn new(provider: &str, return_to: &str, now: i64, entropy: &[u8; ENTROPY_BYTES]) -> Self {
        let word = |index: usize| base64url(&entropy[index * 32..][..32]);
        Self {
            provider: provider.to_owned(),
            state: word(0),
            nonce: word(1),
            verifier: Secret::new(word(2)),
            browser: Secret::new(word(3)),
            began: now,
            return_to: return_to.to_owned(),
        }
    }

    /// What the provider gets in place of the verifier (PKCE, method S256).
    pub(crate) fn challenge(&self) -> String {
        base64url(digest(&SHA256, self.verifier.expose().as_bytes()).as_ref())
    }

    /// Whether it may still be finished. A clock that was set back ends it too.
    fn is_alive(&self, now: i64) -> bool {
        (0..FLOW_LIFETIME_MS).contains(&now.saturating_sub(self.began))
    }

    /// Whether this is the browser that began it. Hashes are compared, so that the time tells nothing.
    fn is_of(&self, browser: &str) -> bool {
        let hash = |text: &str| digest(&SHA256, text.as_bytes());
        hash(self.browser.expose()).as_ref() == hash(browser).as_ref()
    }
}

/// All sign-ins under way in this process.
#[derive(Debug)]
pub struct Flows {
    flows: Mutex<HashMap<String, Flow>>,
    most: usize,
}

impl Default for Flows {
    fn default() -> Self {
        Self::new(MAX_FLOWS)
    }
}

impl Flows {
    /// Keeps at most so many.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { flows: Mutex::default(), most: most.max(1) }
    }

    /// Keeps a flow until it is taken, expires, or is the oldest of too many.
    pub fn keep(&self, flow: Flow, now: i64) {
        let mut flows = self.flows.lock();
        if flows.len() >= self.most {
            flows.retain(|_, flow| flow.is_alive(now));
        }
        if flows.len() >= self.most {
            let oldest = flows.values().min_by_key(|flow| flow.began).map(|flow| flow.state.clone());
            oldest.and_then(|state| flows.remove(&state));
        }
        flows.insert(flow.state.clone(), flow);
    }

    /// Takes the flow of a state, for its own provider and browser. It is gone then: an answer counts once. With
    /// another browser's cookie it stays, so that nobody can end somebody else's.
    #[must_use]
    pub fn take(&self, provider: &str, state: &str, browser: &str, now: i64) -> Option<Flow> {
        let mut flows = self.flows.lock();
        let flow = flows.get(state)?;
        if flow.provider != provider || !flow.is_of(browser) {
            return None;
        }
        flows.remove(state).filter(|flow| flow.is_alive(now))
    }

    /// How many are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.flows.lock().len()
    }

    /// Whether none is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn flow(number: u8, now: i64) -> Flow {
        let mut entropy = [number; ENTROPY_BYTES];
        entropy[96] ^= 0xff;
        Flow::new(if number.is_multiple_of(2) { "even" } else { "odd" }, "/", now, &entropy)
    }

    #[test]
    fn secrets_differ_and_the_challenge_is_the_standards() {
        let mut entropy = [0; ENTROPY_BYTES];
        entropy.iter_mut().enumerate().for_each(|(i, byte)| *byte = i as u8);
        let flow = Flow::new("p", "/", 0, &entropy);
        let words = [&flow.state, &flow.nonce, flow.verifier.expose(), flow.browser.expose()];
        assert!(words.iter().all(|word| word.len() == 43));
        assert!((1..4).all(|i| !words[..i].contains(&words[i])));
        assert!(!format!("{flow:?}").contains(flow.verifier.expose()));
        // The example of RFC 7636, appendix B.
        let verifier = Secret::new("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk");
        let example = Flow { verifier, ..flow };
        assert_eq!(example.challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[derive(Debug, Clone)]
    enum Step {
        Wait(i64),
        Keep(u8),
        Take { number: u8, by: u8, is_right_provider: bool },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            prop_oneof![1..100_i64, 1..FLOW_LIFETIME_MS].prop_map(Step::Wait),
            (0..16_u8).prop_map(Step::Keep),
            (0..16_u8, 0..16_u8, any::<bool>(), any::<bool>()).prop_map(|(number, other, is_own, right)| {
                Step::Take { number, by: if is_own { number } else { other }, is_right_provider: right }
            }),
        ]
    }

    proptest! {
        #[test]
        fn flows_are_those_of_a_list(steps in prop::collection::vec(step(), 1..300)) {
            const MOST: usize = 4;
            let flows = Flows::new(MOST);
            // States, oldest first, with the time they began.
            let mut model: Vec<(u8, i64)> = Vec::new();
            let mut now = 0;
            for step in steps {
                // Times differ, so that one is the oldest.
                now += 1;
                match step {
                    Step::Wait(time) => now += time,
                    Step::Keep(number) => {
                        if model.iter().any(|(other, _)| *other == number) { continue; }
                        flows.keep(flow(number, now), now);
                        if model.len() >= MOST { model.retain(|(_, began)| now - began < FLOW_LIFETIME_MS); }
                        if model.len() >= MOST { model.remove(0); }
                        model.push((number, now));
                    }
                    Step::Take { number, by, is_right_provider } => {
                        let (own, browser) = (flow(number, 0), flow(by, 0));
                        let provider = if is_right_provider { own.provider.as_str() } else { "none" };
                        let taken = flows.take(provider, &own.state, browser.browser.expose(), now);
                        let place = model.iter().position(|(other, _)| *other == number);
                        let place = place.filter(|_| by == number && is_right_provider);
                        let began = place.map(|place| model.remove(place).1);
                        let expected = began.filter(|began| now - began < FLOW_LIFETIME_MS);
                        prop_assert_eq!(taken.map(|flow| flow.began), expected);
                    }
                }
                prop_assert_eq!(flows.len(), model.len());
            }
        }
    }
}
