//! What a request must keep to count as good.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{LoadError, client::Record};

/// Upper limits in seconds; what has none is free. A request inside all of them is good.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Slo {
    /// Time to the first token.
    pub ttft_s: Option<f64>,
    /// Mean time between a request's tokens.
    pub itl_s: Option<f64>,
    /// From sending to the end.
    pub e2e_s: Option<f64>,
}

impl Slo {
    /// Reads `ttft<1s,itl<50ms,e2e<10s`; also `ttft:1000 tpot:50 e2el:10000`, which other tools write.
    /// A number without a unit is in milliseconds.
    ///
    /// # Errors
    /// [`LoadError::Option`] with what is allowed.
    pub fn parse(text: &str) -> Result<Self, LoadError> {
        let bad = |part: &str| {
            let how = "write limits for ttft, itl and e2e such as \"ttft<1s,itl<50ms\"";
            LoadError::Option(format!("--goodput {part:?}: {how}"))
        };
        let mut slo = Self::default();
        for part in text.split([',', ' ']).map(str::trim).filter(|part| !part.is_empty()) {
            let (name, limit) = part.split_once(['<', ':']).ok_or_else(|| bad(part))?;
            let limit = duration(limit.trim_start_matches('=')).ok_or_else(|| bad(part))?;
            let place = match name.trim().to_ascii_lowercase().as_str() {
                "ttft" => &mut slo.ttft_s,
                "itl" | "tpot" => &mut slo.itl_s,
                "e2e" | "e2el" => &mut slo.e2e_s,
                _ => return Err(bad(part)),
            };
            *place = Some(limit.as_secs_f64());
        }
        if slo == Self::default() { Err(bad(text)) } else { Ok(slo) }
    }

    /// Whether a request is inside the limits; a failed one is not.
    pub(crate) fn is_met(&self, record: &Record) -> bool {
        let inside = |limit: Option<f64>, value: Option<f64>| {
            limit.is_none_or(|limit| value.is_none_or(|v| v < limit))
        };
        // A reply without a single token has no first one, and a reply of one token has no gap to be late.
        let has_first = self.ttft_s.is_none() || record.ttft_s.is_some();
        record.failure.is_none()
            && has_first
            && inside(self.ttft_s, record.ttft_s)
            && inside(self.itl_s, record.tpot_s())
            && inside(self.e2e_s, Some(record.e2e_s))
    }

    /// As a person writes it.
    pub fn text(&self) -> String {
        let parts = [("TTFT", self.ttft_s), ("mean ITL", self.itl_s), ("E2E", self.e2e_s)];
        let parts =
            parts.iter().filter_map(|(name, limit)| Some(format!("{name} < {}", readable((*limit)?))));
        parts.collect::<Vec<_>>().join(", ")
    }
}

fn readable(seconds: f64) -> String {
    if seconds >= 1.0 { format!("{seconds} s") } else { format!("{} ms", (seconds * 1e6).round() / 1e3) }
}

/// `50ms`, `1.5s`, `2min`; a number alone is in milliseconds. At most a day.
pub fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let units = [("ms", 1e-3), ("us", 1e-6), ("min", 60.0), ("s", 1.0), ("h", 3600.0)];
    let (number, unit) =
        units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit))).unwrap_or((text, 1e-3));
    let seconds = number.trim().parse::<f64>().ok()? * unit;
    (0.0..=86_400.0).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read() {
        let check = |text: &str, expected: Option<(Option<f64>, Option<f64>, Option<f64>)>| {
            let read = Slo::parse(text).ok().map(|slo| (slo.ttft_s, slo.itl_s, slo.e2e_s));
            assert_eq!(read, expected, "{text}");
        };
        check("ttft<1s,itl<50ms", Some((Some(1.0), Some(0.05), None)));
        check("ttft:1000 tpot:50 e2el:10000", Some((Some(1.0), Some(0.05), Some(10.0))));
        check("TTFT<=0.2s", Some((Some(0.2), None, None)));
        check("", None);
        check("ttft", None);
        check("ttft<fast", None);
        check("cost<1s", None);
        let slo = Slo::parse("ttft<1s,itl<50ms").unwrap();
        assert_eq!(slo.text(), "TTFT < 1 s, mean ITL < 50 ms");
    }

    #[test]
    fn requests_are_judged() {
        let slo = Slo::parse("ttft<1s,itl<50ms").unwrap();
        let check = |ttft: Option<f64>, decode: f64, is_failed: bool, expected: bool| {
            let record = Record {
                ttft_s: ttft,
                last_s: ttft.unwrap_or(0.0) + decode,
                output_tokens: 11,
                failure: is_failed.then(|| crate::client::Failure::new("timeout", "late")),
                ..Record::default()
            };
            assert_eq!(slo.is_met(&record), expected, "{ttft:?} {decode} {is_failed}");
        };
        check(Some(0.9), 0.4, false, true);
        check(Some(1.0), 0.4, false, false);
        check(Some(0.9), 0.51, false, false);
        check(None, 0.0, false, false);
        check(Some(0.9), 0.4, true, false);
    }
}
