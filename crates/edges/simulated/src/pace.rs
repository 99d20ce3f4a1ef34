use std::str::FromStr;
use std::time::Duration;

/// How fast a simulated replica answers; written `ttft=20ms,prefill=2000,itl=5ms,places=64,waiting=1024`, each part
/// optional.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// From getting a place to the first token of an empty prompt.
    pub ttft: Duration,
    /// Prompt tokens a second; infinite without a limit.
    pub prefill: f64,
    /// Between two tokens of a reply.
    pub itl: Duration,
    /// Replies that are written at once.
    pub places: u32,
    /// Requests that wait for a place at most; more are refused.
    pub waiting: u32,
}

impl Default for Pace {
    /// At once, for as many as come: what is measured is all in front.
    fn default() -> Self {
        Self {
            ttft: Duration::ZERO,
            prefill: f64::INFINITY,
            itl: Duration::ZERO,
            places: 1 << 20,
            waiting: 1 << 20,
        }
    }
}

impl Pace {
    /// When a prompt's first token comes, once it has a place.
    pub fn ttft(&self, prompt_tokens: u32) -> Duration {
        self.ttft + Duration::from_secs_f64(f64::from(prompt_tokens) / self.prefill)
    }
}

/// A pace that can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{part}' is no part of a pace; write such as ttft=20ms,prefill=2000,itl=5ms,places=64,waiting=1024")]
pub struct PaceError {
    part: String,
}

impl FromStr for Pace {
    type Err = PaceError;

    fn from_str(text: &str) -> Result<Self, PaceError> {
        let mut pace = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let bad = || PaceError { part: part.to_owned() };
            let (name, value) = part.split_once('=').ok_or_else(bad)?;
            let count = || value.parse().ok().filter(|&count: &u32| count > 0 && count <= 1 << 20);
            match name.trim() {
                "ttft" => pace.ttft = milliseconds(value).ok_or_else(bad)?,
                "itl" => pace.itl = milliseconds(value).ok_or_else(bad)?,
                "prefill" => pace.prefill = value.parse().ok().filter(|&rate| rate >= 1.0).ok_or_else(bad)?,
                "places" => pace.places = count().ok_or_else(bad)?,
                "waiting" => pace.waiting = count().ok_or_else(bad)?,
                _ => return Err(bad()),
            }
        }
        Ok(pace)
    }
}

/// `20ms`, `0.5ms` or `2s`; at most an hour.
fn milliseconds(text: &str) -> Option<Duration> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s')?, 1.0),
    };
    let seconds = number.parse::<f64>().ok()? * unit;
    (0.0..=3600.0).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paces_are_read() {
        let pace: Pace = "ttft=20ms,prefill=2000,itl=0.5ms,places=64,waiting=8".parse().unwrap();
        assert_eq!((pace.places, pace.waiting, pace.itl), (64, 8, Duration::from_micros(500)));
        assert_eq!(pace.ttft(1000), Duration::from_millis(520));
        assert_eq!("".parse::<Pace>().unwrap(), Pace::default());
        assert_eq!(Pace::default().ttft(9), Duration::ZERO);
        for bad in
            ["ttft", "ttft=20", "itl=-1ms", "prefill=0", "places=0", "places=1e9", "speed=2", "itl=9000s"]
        {
            assert!(bad.parse::<Pace>().unwrap_err().to_string().contains(bad), "{bad}");
        }
    }
}
