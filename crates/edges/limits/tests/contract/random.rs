//! Random histories: two stores must give the same answers, to the last integer.

use motet_limits::{Actual, Limits, Policy, QuotaStore, Request, ReservationId, Scope, Ticket};

use crate::suite::Hands;

/// A generator of Lehmer's kind; its upper bits are good enough to choose by.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn limit(&mut self, most: u64) -> Option<u64> {
        match self.below(60) {
            0 => Some(0),
            1..=20 => Some(self.below(most + 1)),
            _ => None,
        }
    }

    /// Small ones that are reached, or such that strain the integers.
    fn limits(&mut self, scale: u64) -> Limits {
        Limits {
            requests_per_minute: self.limit(6),
            tokens_per_minute: self.limit(400 * scale),
            tokens_per_day: self.limit(3000 * scale),
            concurrent: self.limit(5),
            budget_per_month: self.limit(900 * scale),
        }
    }

    fn wait(&mut self) -> u64 {
        let bound =
            [1, 20_000, 20_000, 60_000, 120_000, 700_000, 90_000_000, 2_700_000_000][self.below(8) as usize];
        self.below(bound)
    }

    fn request(&mut self, seed: u64, policies: &[Policy], scale: u64) -> Request {
        let scope = Scope::new(
            &format!("t{seed}-{}", self.below(2)),
            ["u", "v"][self.below(2) as usize],
            ["m", "n"][self.below(2) as usize],
        );
        let policy = policies[self.below(policies.len() as u64) as usize];
        let mut amount = |most| self.below(most * scale);
        Request {
            scope,
            policy,
            prompt: amount(50),
            output: amount(50),
            estimate: amount(70),
            cost: amount(60),
        }
    }
}

/// How many reservations were made.
pub(crate) async fn compare(seed: u64, [one, other]: [&dyn QuotaStore; 2], hands: &Hands) -> usize {
    let mut dice = Dice(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let scale = [1, 1, 1_000, 20_000_000][seed as usize % 4];
    let policies: Vec<Policy> = (0..2)
        .map(|_| Policy { tenant: dice.limits(scale), user: dice.limits(scale), model: dice.limits(scale) })
        .collect();
    // So that some reservations live through the end of a month.
    hands.pass(12 * 3_600_000 - 300_000);
    let mut tickets: Vec<Ticket> = Vec::new();
    for step in 0..150 {
        hands.pass(dice.wait());
        let what = format!("seed {seed}, step {step}");
        let request = dice.request(seed, &policies, scale);
        let ticket =
            (!tickets.is_empty()).then(|| tickets[dice.below(tickets.len() as u64) as usize].clone());
        match (dice.below(8), ticket) {
            (0..=2, Some(ticket)) => {
                let tokens = dice.below(150 * scale);
                let used = Actual::Used { tokens, cost: dice.below(100 * scale) };
                let actual = if dice.below(5) == 0 { Actual::NeverRan } else { used };
                assert_eq!(one.settle(&ticket, actual).await, other.settle(&ticket, actual).await, "{what}");
            }
            (3, Some(ticket)) => assert_eq!(one.renew(&ticket).await, other.renew(&ticket).await, "{what}"),
            _ => {
                let id = ReservationId(step);
                let (answer, same) = (one.reserve(id, &request).await, other.reserve(id, &request).await);
                assert_eq!(answer, same, "{what}");
                if answer.is_ok() {
                    tickets.push(Ticket::new(id, &request));
                }
            }
        }
        for policy in &policies {
            let (a, b) =
                (one.status(&request.scope, policy).await, other.status(&request.scope, policy).await);
            assert_eq!(a, b, "{what}");
        }
    }
    tickets.len()
}
