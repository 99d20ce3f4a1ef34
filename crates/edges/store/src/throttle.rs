//! How often a password may be tried.
//!
//! Invariants:
//! - a try counts before its password is checked, so that many at once do not each find the door open;
//! - a refused try does not count: whoever waits as told gets in;
//! - there are never more than the given number of entries, accounts and addresses together.

use std::{collections::HashMap, net::IpAddr};

use parking_lot::Mutex;

/// How waits grow for an account or an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Tries before the first wait.
    pub free: u32,
    /// The first wait; each further try doubles it.
    pub first_ms: i64,
    /// The longest wait. For an account it also bounds how long a stranger can keep its owner out.
    pub longest_ms: i64,
    /// After so long without a try all is forgotten.
    pub forget_ms: i64,
}

impl Backoff {
    /// For an account: five tries, then one second up to five minutes.
    pub const ACCOUNT: Self = Self { free: 5, first_ms: 1_000, longest_ms: 300_000, forget_ms: 3_600_000 };
    /// For an address, which several people may share: twenty tries, then one second up to fifteen minutes.
    pub const ADDRESS: Self = Self { free: 20, first_ms: 1_000, longest_ms: 900_000, forget_ms: 3_600_000 };

    fn wait(&self, tries: u32) -> i64 {
        let Some(over) = tries.checked_sub(self.free.max(1)) else { return 0 };
        self.first_ms.saturating_mul(1_i64 << over.min(40)).min(self.longest_ms)
    }
}

/// The try is refused; the same one may be made after this many milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many tries to sign in; try again in {} s", after_ms.div_euclid(1000) + 1)]
pub struct TryLater {
    /// Milliseconds to wait.
    pub after_ms: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tries {
    count: u32,
    last_at: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Who {
    Account(String),
    Address(IpAddr),
}

/// Counts tries per account and per address.
#[derive(Debug)]
pub struct LoginThrottle {
    account: Backoff,
    address: Backoff,
    most_entries: usize,
    entries: Mutex<HashMap<Who, Tries>>,
}

impl Default for LoginThrottle {
    /// 20,000 entries: about 2 MB, and more than a network of attackers keeps in their waits.
    fn default() -> Self {
        Self::new(Backoff::ACCOUNT, Backoff::ADDRESS, 20_000)
    }
}

impl LoginThrottle {
    /// A throttle that remembers at most `most_entries` accounts and addresses (at least two).
    #[must_use]
    pub fn new(account: Backoff, address: Backoff, most_entries: usize) -> Self {
        Self { account, address, most_entries: most_entries.max(2), entries: Mutex::default() }
    }

    /// Counts a try to sign in, or refuses it.
    ///
    /// # Errors
    /// The account or the address has to wait.
    pub fn attempt(&self, account: &str, address: IpAddr, now: i64) -> Result<(), TryLater> {
        let whos = [account_of(account), Who::Address(network(address))];
        let mut entries = self.entries.lock();
        let after_ms = whos.iter().map(|who| self.wait(who, entries.get(who), now)).max().unwrap_or(0);
        if after_ms > 0 {
            return Err(TryLater { after_ms });
        }
        for who in whos {
            if !entries.contains_key(&who) && entries.len() >= self.most_entries {
                self.make_room(&mut entries, now);
            }
            let forget_ms = self.backoff(&who).forget_ms;
            let tries = entries.entry(who).or_insert(Tries { count: 0, last_at: now });
            if now - tries.last_at >= forget_ms {
                tries.count = 0;
            }
            *tries = Tries { count: tries.count.saturating_add(1), last_at: now };
        }
        Ok(())
    }

    /// The password was right: the account starts afresh. The address gives back this one try only; otherwise whoever
    /// has one account could try all others without end.
    pub fn succeeded(&self, account: &str, address: IpAddr) {
        let mut entries = self.entries.lock();
        entries.remove(&account_of(account));
        if let Some(tries) = entries.get_mut(&Who::Address(network(address))) {
            tries.count = tries.count.saturating_sub(1);
        }
    }

    fn backoff(&self, who: &Who) -> &Backoff {
        match who {
            Who::Account(_) => &self.account,
            Who::Address(_) => &self.address,
        }
    }

    fn wait(&self, who: &Who, tries: Option<&Tries>, now: i64) -> i64 {
        let Some(tries) = tries else { return 0 };
        let wait = self.backoff(who).wait(tries.count);
        // A clock set back must not lock anybody out for longer than the wait.
        (tries.last_at + wait - now).clamp(0, wait)
    }

    /// Drops what would be forgotten anyway; where that is nothing, the entry with the shortest wait left, so that a
    /// flood of made-up names does not free the one that is being attacked.
    fn make_room(&self, entries: &mut HashMap<Who, Tries>, now: i64) {
        let before = entries.len();
        entries.retain(|who, tries| now - tries.last_at < self.backoff(who).forget_ms);
        if entries.len() < before {
            return;
        }
        let least = entries.iter().min_by_key(|(who, tries)| (self.wait(who, Some(tries), now), tries.count));
        if let Some(who) = least.map(|(who, _)| who.clone()) {
            entries.remove(&who);
        }
    }
}

/// The same account in whatever case it is written, and a name of any length in little space.
fn account_of(login: &str) -> Who {
    Who::Account(crate::users::fold_login(login).chars().take(256).collect())
}

/// One customer of a provider has a whole /64 of IPv6: its addresses count as one.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() & !u128::from(u64::MAX)).into()),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn away(n: u8) -> IpAddr {
        IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, n))
    }

    #[test]
    fn waits_double_up_to_the_longest() {
        let waits: Vec<i64> = (0..9).map(|tries| Backoff::ACCOUNT.wait(tries)).collect();
        assert_eq!(waits, [0, 0, 0, 0, 0, 1_000, 2_000, 4_000, 8_000]);
        assert_eq!(Backoff::ACCOUNT.wait(u32::MAX), 300_000);
    }

    #[test]
    fn an_account_waits_from_any_address_and_obeying_helps() {
        let throttle = LoginThrottle::default();
        for n in 0..5 {
            assert_eq!(throttle.attempt("Ada", away(n), 0), Ok(()));
        }
        assert_eq!(throttle.attempt("ada ", HOME, 0), Err(TryLater { after_ms: 1_000 }));
        assert_eq!(throttle.attempt("ada", HOME, 400), Err(TryLater { after_ms: 600 }));
        assert_eq!(throttle.attempt("ada", HOME, 1_000), Ok(()));
        assert_eq!(throttle.attempt("ada", HOME, 1_000), Err(TryLater { after_ms: 2_000 }));
        throttle.succeeded("ada", HOME);
        assert_eq!(throttle.attempt("ada", HOME, 1_000), Ok(()));
    }

    #[test]
    fn an_address_waits_whatever_the_account_and_one_login_does_not_reset_it() {
        let throttle = LoginThrottle::default();
        for n in 0..20 {
            assert_eq!(throttle.attempt(&format!("user{n}"), HOME, 0), Ok(()));
        }
        assert!(throttle.attempt("other", HOME, 0).is_err());
        throttle.succeeded("user3", HOME);
        assert_eq!(throttle.attempt("other", HOME, 0), Ok(()));
        assert!(throttle.attempt("another", HOME, 0).is_err());
        assert_eq!(throttle.attempt("other", HOME, 3_600_000), Ok(()));
    }

    #[test]
    fn the_map_is_bounded_and_keeps_who_waits() {
        let throttle = LoginThrottle::new(Backoff::ACCOUNT, Backoff::ADDRESS, 50);
        for _ in 0..5 {
            throttle.attempt("victim", HOME, 0).unwrap();
        }
        for n in 0..2_000_u32 {
            let address = IpAddr::V4((0x0a00_0000 + n).into());
            throttle.attempt(&format!("made-up-{n}"), address, 1).unwrap();
            assert!(throttle.entries.lock().len() <= 50);
        }
        assert!(throttle.attempt("victim", away(1), 1).is_err());
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::5"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::5"), of("2001:db8:1:3::5"));
        assert_eq!(of("::ffff:192.0.2.1"), HOME);
    }
}
