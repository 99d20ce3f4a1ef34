use std::collections::HashMap;

use crate::meter::MOST_USED;
use crate::quota::{MeterKey, limited};
use crate::{Policy, Quota};

impl Quota {
    /// States the invariants. Takes time in proportion to all there is.
    pub fn check(&self) -> Result<(), String> {
        self.check_expiries()?;
        self.check_live()?;
        for (key, meter) in &self.meters {
            // At the time of the last change nothing has come back yet: that is the greatest it can be.
            let used = [meter.requests.used(0), meter.tokens.used(0)];
            if used.into_iter().any(|used| used > MOST_USED) {
                return Err(format!("{key:?} holds {used:?}"));
            }
            if meter.live.len() as u64 > Policy::MAX_CONCURRENT {
                return Err(format!("{key:?} has {} concurrent replies", meter.live.len()));
            }
        }
        Ok(())
    }

    fn check_expiries(&self) -> Result<(), String> {
        if self.expiries.len() != self.reservations.len() {
            return Err(format!("{} of {} will expire", self.expiries.len(), self.reservations.len()));
        }
        for (due, id) in &self.expiries {
            match self.reservations.get(id) {
                Some(held) if held.expires_at != *due => return Err(format!("{id} expires at two times")),
                None => return Err(format!("{id} has ended and will expire")),
                Some(_) if *due <= self.now => return Err(format!("{id} is overdue")),
                Some(_) => {}
            }
        }
        Ok(())
    }

    fn check_live(&self) -> Result<(), String> {
        let mut live: HashMap<MeterKey, usize> = HashMap::new();
        for (id, held) in &self.reservations {
            for level in limited(&held.caps) {
                let key = MeterKey::new(&held.scope, level);
                let is_counted =
                    self.meters.get(&key).is_some_and(|meter| meter.live.contains(&(held.expires_at, *id)));
                if !is_counted {
                    return Err(format!("{id} does not count in {key:?}"));
                }
                *live.entry(key).or_default() += 1;
            }
        }
        for (key, meter) in &self.meters {
            let counted = live.get(key).copied().unwrap_or(0);
            if counted != meter.live.len() {
                return Err(format!("{key:?} counts {} concurrent replies, not {counted}", meter.live.len()));
            }
        }
        Ok(())
    }
}
