use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use motet_quota::Millis;

/// Tells the time.
pub type Clock = Arc<dyn Fn() -> Millis + Send + Sync>;

/// The machine's time.
pub fn system_clock() -> Clock {
    Arc::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}
