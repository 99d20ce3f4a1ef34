use std::time::Duration;

/// How often a request is tried again and how long to wait before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Tries in a row that gain less than [`RetryPolicy::GAIN`] bytes before giving up.
    pub attempts: u32,
    /// Wait before the second try; doubles each time.
    pub first_wait: Duration,
    /// No wait is longer than this, whatever the server asks for.
    pub longest_wait: Duration,
}

impl RetryPolicy {
    /// A try that brings this many bytes was worth it and does not count against the limit.
    pub const GAIN: u64 = 1 << 20;

    /// How long to wait after try number `tried` (1 is the first). `asked` is the server's wish.
    pub(crate) fn wait(&self, tried: u32, asked: Option<Duration>) -> Duration {
        let doubled = self.first_wait.saturating_mul(1 << tried.saturating_sub(1).min(16));
        asked.unwrap_or(doubled).min(self.longest_wait)
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { attempts: 5, first_wait: Duration::from_millis(500), longest_wait: Duration::from_secs(30) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let policy = RetryPolicy::default();
        let check = |tried, asked: Option<u64>, expected| {
            assert_eq!(policy.wait(tried, asked.map(Duration::from_secs)), Duration::from_millis(expected));
        };
        check(1, None, 500);
        check(2, None, 1000);
        check(40, None, 30_000);
        check(1, Some(7), 7_000);
        check(1, Some(86_400), 30_000);
    }
}
