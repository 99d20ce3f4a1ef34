use std::collections::{BTreeSet, HashMap};

use crate::UserKey;
use crate::sequence::Order;

/// Turns among the users of a lane, by tokens served.
///
/// Start-time fair queueing (Goyal, Vin, Cheng 1996): each user has an account of the tokens it was served;
/// the user with the lowest is next. `clock` is the account of the one served last: who comes back starts
/// there, so nobody saves up credit by being away. Accounts are compared in whole turns, so that short
/// prompts are computed one after the other.
///
/// # Invariants ([`Turns::check`])
/// - `line` holds each user with waiting sequences once, at its turn and its first sequence.
/// - A user without sequences is known only while its account is ahead of the clock, and is in `away`.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    turn_tokens: u64,
    clock: u64,
    users: HashMap<UserKey, User>,
    line: BTreeSet<(u64, Order, UserKey)>,
    away: BTreeSet<(u64, UserKey)>,
    waiting: usize,
}

#[derive(Debug, Default)]
struct User {
    /// Tokens served.
    account: u64,
    /// Sequences in any state.
    sequences: usize,
    waiting: BTreeSet<Order>,
}

impl Turns {
    pub(crate) fn new(turn_tokens: u32) -> Self {
        Self { turn_tokens: u64::from(turn_tokens.max(1)), ..Self::default() }
    }

    /// Sequences that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// A sequence of `user` came into being.
    pub(crate) fn enter(&mut self, user: UserKey) {
        let clock = self.clock;
        let entry = self.users.entry(user).or_default();
        if entry.sequences == 0 {
            self.away.remove(&(entry.account, user));
            entry.account = entry.account.max(clock);
        }
        entry.sequences += 1;
    }

    /// A sequence of `user` that does not wait any more ended.
    pub(crate) fn leave(&mut self, user: UserKey) {
        let Some(entry) = self.users.get_mut(&user) else { return };
        entry.sequences -= 1;
        if entry.sequences == 0 {
            self.away.insert((entry.account, user));
            self.forget();
        }
    }

    pub(crate) fn push(&mut self, user: UserKey, order: Order) {
        self.waiting += 1;
        self.change(user, |entry| {
            entry.waiting.insert(order);
        });
    }

    pub(crate) fn remove(&mut self, user: UserKey, order: Order) {
        self.waiting -= 1;
        self.change(user, |entry| {
            entry.waiting.remove(&order);
        });
    }

    /// Moves the account by tokens served (or, negative, paid for and not used).
    pub(crate) fn charge(&mut self, user: UserKey, tokens: i64) {
        let Some(entry) = self.users.get_mut(&user) else { return };
        let account = entry.account.saturating_add_signed(tokens);
        if entry.waiting.is_empty() || account / self.turn_tokens == entry.account / self.turn_tokens {
            entry.account = account;
        } else {
            self.change(user, |entry| entry.account = account);
        }
    }

    /// It is `user`'s turn now. What is prepaid is not served yet.
    pub(crate) fn serve(&mut self, user: UserKey, prepaid: u32) {
        let account = self.users.get(&user).map_or(0, |entry| entry.account);
        self.clock = self.clock.max(account.saturating_sub(u64::from(prepaid)));
        self.forget();
    }

    /// Number of the user's turn; the lowest is next.
    pub(crate) fn turn(&self, user: UserKey) -> u64 {
        self.users.get(&user).map_or(0, |entry| entry.account / self.turn_tokens)
    }

    /// Whose turn it is among those with waiting sequences, and the first of them.
    pub(crate) fn next(&self) -> Option<(u64, Order)> {
        self.line.first().map(|&(turn, order, _)| (turn, order))
    }

    /// Changes a user and keeps its place in line right.
    fn change(&mut self, user: UserKey, change: impl FnOnce(&mut User)) {
        let Some(entry) = self.users.get_mut(&user) else { return };
        if let Some(&first) = entry.waiting.first() {
            self.line.remove(&(entry.account / self.turn_tokens, first, user));
        }
        change(entry);
        if let Some(&first) = entry.waiting.first() {
            self.line.insert((entry.account / self.turn_tokens, first, user));
        }
    }

    /// Forgets those who are away and would come back at the clock: bounds the memory.
    fn forget(&mut self) {
        if self.away.len() == self.users.len() {
            // Nobody is left whom their debts could matter to.
            self.away.clear();
            self.users.clear();
        }
        while let Some(&(account, user)) = self.away.first() {
            if account > self.clock {
                break;
            }
            self.away.pop_first();
            self.users.remove(&user);
        }
    }

    /// States the invariants; `sequences` counts a user's sequences in any state.
    pub(crate) fn check(&self, sequences: impl Fn(UserKey) -> usize) -> Result<(), String> {
        let mut line = BTreeSet::new();
        for (&user, entry) in &self.users {
            if sequences(user) != entry.sequences {
                return Err(format!("{user:?} has {} sequences, not {}", sequences(user), entry.sequences));
            }
            let is_away = self.away.contains(&(entry.account, user));
            if is_away != (entry.sequences == 0) {
                return Err(format!("{user:?} with {} sequences: away is {is_away}", entry.sequences));
            }
            line.extend(entry.waiting.first().map(|&first| (entry.account / self.turn_tokens, first, user)));
        }
        let waiting: usize = self.users.values().map(|entry| entry.waiting.len()).sum();
        match () {
            () if line != self.line => Err("a user is not where its turn is".to_owned()),
            () if waiting != self.waiting => Err(format!("{waiting} wait, not {}", self.waiting)),
            () if self.away.len() > self.users.len() => Err("someone away is unknown".to_owned()),
            () => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: UserKey = UserKey(1);
    const B: UserKey = UserKey(2);

    fn order(arrival: u64) -> Order {
        Order { rank: 0, arrival, branch: 0 }
    }

    fn arrive(turns: &mut Turns, user: UserKey, arrival: u64) {
        turns.enter(user);
        turns.push(user, order(arrival));
    }

    /// Admits the next one, charges its user and returns its arrival.
    fn serve(turns: &mut Turns, tokens: i64) -> Option<u64> {
        let (_, next) = turns.next()?;
        let user = *turns.users.iter().find(|(_, user)| user.waiting.contains(&next))?.0;
        turns.serve(user, 0);
        turns.charge(user, tokens);
        turns.remove(user, next);
        Some(next.arrival)
    }

    #[test]
    fn users_alternate_however_many_requests_one_sends() {
        let mut turns = Turns::new(100);
        (0..4).for_each(|arrival| arrive(&mut turns, A, arrival));
        (4..6).for_each(|arrival| arrive(&mut turns, B, arrival));
        let served: Vec<_> = std::iter::from_fn(|| serve(&mut turns, 150)).collect();
        assert_eq!(served, [0, 4, 1, 5, 2, 3]);
        for _ in 0..4 {
            turns.leave(A);
        }
        assert_eq!(turns.check(|user| if user == B { 2 } else { 0 }), Ok(()));
    }

    #[test]
    fn leaving_neither_saves_credit_nor_clears_debts() {
        let mut turns = Turns::new(1);
        arrive(&mut turns, A, 0);
        arrive(&mut turns, B, 1);
        serve(&mut turns, 1000);
        turns.leave(A);
        arrive(&mut turns, A, 2);
        assert_eq!(turns.next(), Some((0, order(1))), "A's debt outlives its request");
        for _ in 0..20 {
            turns.charge(B, 100);
        }
        assert_eq!(turns.next(), Some((1000, order(2))));
        serve(&mut turns, 5000);
        arrive(&mut turns, UserKey(3), 3);
        assert_eq!(turns.next(), Some((1000, order(3))), "a newcomer starts where the last turn began");
    }

    #[test]
    fn users_that_are_gone_are_forgotten() {
        let mut turns = Turns::new(1);
        for user in 0..1000 {
            arrive(&mut turns, UserKey(user), user);
            serve(&mut turns, 1);
            turns.leave(UserKey(user));
        }
        assert_eq!(turns.users.len(), 0);
    }
}
