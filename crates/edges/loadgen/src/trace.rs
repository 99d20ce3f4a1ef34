//! Recorded loads: when requests came and how long they were.
//!
//! Two formats are told apart by the first character. The CSV of the Azure LLM inference traces (Patel et al.,
//! "Splitwise", 2024) has `TIMESTAMP,ContextTokens,GeneratedTokens`. The JSON lines of the Mooncake traces (Qin et
//! al., "Mooncake", 2024) have `timestamp` in ms, `input_length`, `output_length` and `hash_ids`: one id for each
//! block of 512 prompt tokens, equal where the prompts are equal up to there.

use serde::Deserialize;

use crate::LoadError;

/// Prompt tokens that one hash id of a Mooncake trace stands for.
pub(crate) const HASH_BLOCK_TOKENS: u32 = 512;
/// Largest file: the published traces have at most some tens of MiB.
pub const MAX_TRACE_BYTES: u64 = 256 << 20;

/// One recorded request.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct TraceRow {
    /// Seconds; only differences matter.
    #[serde(rename = "timestamp", deserialize_with = "from_ms")]
    pub at_s: f64,
    /// Prompt tokens.
    #[serde(rename = "input_length")]
    pub input: u32,
    /// Reply tokens.
    #[serde(rename = "output_length")]
    pub output: u32,
    /// Ids of the prompt's blocks of 512 tokens; empty when the trace has none.
    #[serde(rename = "hash_ids", default)]
    pub blocks: Vec<u64>,
}

fn from_ms<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    f64::deserialize(deserializer).map(|ms| ms / 1000.0)
}

/// The first `limit` requests of a trace; `file` is its name for messages.
///
/// # Errors
/// [`LoadError::File`] with the line that can't be read.
pub fn read_trace(text: &str, file: &str, limit: usize) -> Result<Vec<TraceRow>, LoadError> {
    let is_json = text.trim_start().starts_with('{');
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let failed = |line: usize, why: String| LoadError::File {
        file: file.to_owned(),
        why: format!("line {line}: {why}"),
    };
    if !is_json {
        let header = lines.next().map_or("", |(_, line)| line.trim_start_matches('\u{feff}').trim());
        if header != "TIMESTAMP,ContextTokens,GeneratedTokens" {
            let why = "neither the header TIMESTAMP,ContextTokens,GeneratedTokens nor JSON lines";
            return Err(failed(1, why.to_owned()));
        }
    }
    let rows = lines.take(limit).map(|(index, line)| {
        let row = if is_json { json_row(line) } else { csv_row(line) };
        row.map_err(|why| failed(index + 1, why))
    });
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    if rows.is_empty() { Err(failed(1, "no requests in it".to_owned())) } else { Ok(rows) }
}

fn json_row(line: &str) -> Result<TraceRow, String> {
    let row: TraceRow = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let is_finite = row.at_s.is_finite();
    is_finite.then_some(row).ok_or_else(|| "timestamp is no number".to_owned())
}

fn csv_row(line: &str) -> Result<TraceRow, String> {
    let fields: Vec<&str> = line.trim().split(',').collect();
    let [time, input, output] = fields[..] else {
        return Err(format!("{} fields where 3 are expected", fields.len()));
    };
    let number = |text: &str| text.trim().parse().map_err(|_| format!("{text:?} is no number of tokens"));
    let at_s = seconds(time).ok_or_else(|| format!("{time:?} is no time such as 2023-11-16 18:15:46.68"))?;
    Ok(TraceRow { at_s, input: number(input)?, output: number(output)?, blocks: Vec::new() })
}

/// Seconds since 1970 of `2023-11-16 18:15:46.6805900`, whose zone does not matter.
fn seconds(text: &str) -> Option<f64> {
    let (date, time) = text.trim().split_once([' ', 'T'])?;
    let mut date = date.splitn(3, '-').map(str::parse::<i64>);
    let (year, month, day) = (date.next()?.ok()?, date.next()?.ok()?, date.next()?.ok()?);
    let time = time.split(['+', 'Z']).next()?;
    let mut parts = time.splitn(3, ':');
    let (hour, minute): (f64, f64) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let second: f64 = parts.next()?.parse().ok()?;
    let is_valid = (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    (is_valid && second.is_finite())
        .then(|| days_from_civil(year, month, day) as f64 * 86_400.0 + hour * 3600.0 + minute * 60.0 + second)
}

/// Days since 1970-01-01 of a Gregorian date (Hinnant, "chrono-compatible low-level date algorithms").
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_are_read() {
        let azure = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 23:59:59.5000000,374,44\r\n\
                     2023-11-17 00:00:01.2500000,396,109\r\n";
        let rows = read_trace(azure, "a.csv", 10).unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].input, rows[0].output), (374, 44));
        assert!((rows[1].at_s - rows[0].at_s - 1.75).abs() < 1e-6);
        let mooncake =
            "{\"timestamp\": 1500, \"input_length\": 1030, \"output_length\": 5, \"hash_ids\": [0, 1, 2]}\n";
        let rows = read_trace(mooncake, "m.jsonl", 10).unwrap();
        assert_eq!(rows, [TraceRow { at_s: 1.5, input: 1030, output: 5, blocks: vec![0, 1, 2] }]);
        assert_eq!(read_trace(azure, "a.csv", 1).unwrap().len(), 1);
    }

    #[test]
    fn mistakes_name_their_line() {
        let check = |text: &str, part: &str| {
            let error = read_trace(text, "t", 10).unwrap_err().to_string();
            assert!(error.starts_with("t: ") && error.contains(part), "{text:?}: {error}");
        };
        check("", "line 1: neither the header");
        check("TIMESTAMP,ContextTokens,GeneratedTokens\n", "no requests");
        check("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,1\n", "line 2: 2 fields");
        check("TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,1,2\n", "is no time");
        check(
            "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,-1,2\n",
            "is no number of tokens",
        );
        check("{\"timestamp\": 0}\n", "line 1: missing field");
    }

    #[test]
    fn days_are_counted() {
        let check =
            |date: (i64, i64, i64), days: i64| assert_eq!(days_from_civil(date.0, date.1, date.2), days);
        check((1970, 1, 1), 0);
        check((2000, 3, 1), 11_017);
        check((2024, 2, 29), 19_782);
        check((2023, 11, 16), 19_677);
    }
}
