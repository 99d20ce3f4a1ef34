//! From text to values. Each error says what would have been right.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    time::Duration,
};

use motet_hub::ModelRef;
use motet_model::KvFormat;

use super::memory::KvMemory;
use super::resolved::Auth;

/// `localhost` or an IP address.
pub(crate) fn host(text: &str) -> Result<IpAddr, String> {
    if text.eq_ignore_ascii_case("localhost") {
        return Ok(Ipv4Addr::LOCALHOST.into());
    }
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    bare.parse().map_err(|_| "not an address; write an IP address such as 127.0.0.1, or localhost".to_owned())
}

pub(crate) fn port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| "not a port; write a number from 0 to 65535".to_owned())
}

pub(crate) fn auth(text: &str) -> Result<Auth, String> {
    Ok(match choice(text, &["auto", "on", "off"])? {
        "on" => Auth::On,
        "off" => Auth::Off,
        _ => Auth::Auto,
    })
}

/// `auto` is `None`.
pub(crate) fn store(text: &str) -> Result<Option<String>, String> {
    let is_known = ["sqlite:", "postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme));
    match text {
        "auto" => Ok(None),
        _ if is_known => Ok(Some(text.to_owned())),
        _ => Err("not a database; write sqlite:FILE, postgres://USER:PASSWORD@HOST/NAME, or auto".to_owned()),
    }
}

/// Nothing is `None`.
pub(crate) fn public_url(text: &str) -> Result<Option<http::Uri>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let url = text.parse::<http::Uri>().ok().filter(|url| {
        let is_web = matches!(url.scheme_str(), Some("http" | "https"));
        let has_user = url.authority().is_some_and(|authority| authority.as_str().contains('@'));
        is_web && !has_user && url.path_and_query().is_none_or(|path| path == "/")
    });
    url.map(Some)
        .ok_or_else(|| "not an address; write https://HOST or https://HOST:PORT, or nothing".to_owned())
}

/// Nothing is `None`.
pub(crate) fn redis(text: &str) -> Result<Option<String>, String> {
    match text {
        "" => Ok(None),
        _ if text.starts_with("redis://") => Ok(Some(text.to_owned())),
        _ => Err("not a Redis server; write redis://HOST:PORT, or nothing".to_owned()),
    }
}

pub(crate) fn model(text: &str) -> Result<ModelRef, String> {
    text.parse().map_err(|e: motet_hub::RefError| e.to_string())
}

/// `auto` is `None`.
pub(crate) fn threads(text: &str) -> Result<Option<usize>, String> {
    match text {
        "auto" => Ok(None),
        _ => match text.parse() {
            Ok(threads @ 1..=1024) => Ok(Some(threads)),
            _ => Err("not a number of threads; write 1 to 1024, or auto".to_owned()),
        },
    }
}

/// Most tokens of KV memory: as many as the executor's block tables name.
const MAX_KV_TOKENS: u32 = 1 << 26;

/// `2GiB`, `25%` (of what is free), `60000tok`; `auto` is `None`.
pub(crate) fn kv_memory(text: &str) -> Result<Option<KvMemory>, String> {
    let text = text.trim();
    if text == "auto" {
        return Ok(None);
    }
    if let Some(number) = text.strip_suffix('%') {
        return match number.trim().parse::<f64>() {
            Ok(percent) if (0.1..=95.0).contains(&percent) => Ok(Some(KvMemory::Share(percent / 100.0))),
            _ => Err("not a share of the memory that is free; write 0.1% to 95%".to_owned()),
        };
    }
    let number = ["tokens", "tok"].iter().find_map(|unit| text.strip_suffix(unit));
    if let Some(number) = number {
        let digits: String = number.trim().chars().filter(|c| !matches!(c, ',' | '_')).collect();
        return match digits.parse() {
            Ok(tokens @ 1..=MAX_KV_TOKENS) => Ok(Some(KvMemory::Tokens(tokens))),
            _ => Err(format!("not a number of tokens; write 1tok to {MAX_KV_TOKENS}tok")),
        };
    }
    let bytes = bytes(text).and_then(|bytes| usize::try_from(bytes).ok());
    let problem = || "not an amount of memory; write such as 1GiB, 25%, 60000tok, or auto".to_owned();
    bytes.map(|bytes| Some(KvMemory::Bytes(bytes))).ok_or_else(problem)
}

/// Bytes on disk, such as `8GiB`; `off` is `None`.
pub(crate) fn spill(text: &str) -> Result<Option<u64>, String> {
    if text == "off" {
        return Ok(None);
    }
    bytes(text).map(Some).ok_or_else(|| "not a size; write such as 8GiB, or off".to_owned())
}

/// Bytes, such as `8GiB`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    bytes(text).ok_or_else(|| "not a size; write such as 8GiB".to_owned())
}

/// Bytes with a unit: `1GiB`, `1.5 GiB`, `512MB`, `1g` (1024-based), plain bytes.
fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().ok()?;
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        _ => return None,
    };
    let bytes = number * factor as f64;
    (1.0..=(1u64 << 46) as f64).contains(&bytes).then_some(bytes as u64)
}

/// A time with a unit, such as `200ms`, `1.5s`, `5min`, `1h`, from `low` to `high`.
pub(crate) fn duration(text: &str, low: &str, high: &str) -> Result<Duration, String> {
    let within = |time: &Duration| plain_duration(low) <= Some(*time) && Some(*time) <= plain_duration(high);
    let problem = || format!("not a time from {low} to {high}; write a number and ms, s, min or h");
    plain_duration(text).filter(within).ok_or_else(problem)
}

fn plain_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit.trim() {
        "ms" => 0.001,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()
}

/// How keys and values are kept.
pub(crate) fn kv_format(text: &str) -> Result<KvFormat, String> {
    Ok(match choice(text, &["f16", "int8"])? {
        "int8" => KvFormat::Int8,
        _ => KvFormat::F16,
    })
}

/// `on` or `off`; what TOML calls `true` and `false` means the same.
pub(crate) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" | "true" => Ok(true),
        "off" | "false" => Ok(false),
        _ => Err("not a choice; write on or off".to_owned()),
    }
}

/// An absolute path: a relative one would depend on where the server was started. `auto` is `None`.
pub(crate) fn folder(text: &str) -> Result<Option<PathBuf>, String> {
    let path = PathBuf::from(text);
    match text {
        "auto" => Ok(None),
        _ if path.is_absolute() => Ok(Some(path)),
        _ => Err("not a folder; write an absolute path such as /var/cache/motet, or auto".to_owned()),
    }
}

/// A number between `low` and `high`.
pub(crate) fn number(text: &str, low: f32, high: f32) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(number) if (low..=high).contains(&number) => Ok(number),
        _ => Err(format!("not in range; write a number from {low} to {high}")),
    }
}

pub(crate) fn count(text: &str, low: u32) -> Result<u32, String> {
    match text.parse() {
        Ok(count) if count >= low => Ok(count),
        _ => Err(format!("not in range; write a whole number from {low}")),
    }
}

pub(crate) fn count_in(text: &str, low: u32, high: u32) -> Result<u32, String> {
    match text.parse() {
        Ok(count) if (low..=high).contains(&count) => Ok(count),
        _ => Err(format!("not in range; write a whole number from {low} to {high}")),
    }
}

/// `random` is `None`.
pub(crate) fn seed(text: &str) -> Result<Option<u64>, String> {
    match text {
        "random" => Ok(None),
        _ => text.parse().map(Some).map_err(|_| "not a seed; write a whole number, or random".to_owned()),
    }
}

/// One of `choices`.
pub(crate) fn choice(text: &str, choices: &[&'static str]) -> Result<&'static str, String> {
    let found = choices.iter().find(|choice| **choice == text).copied();
    found.ok_or_else(|| format!("not a choice; write one of {}", choices.join(", ")))
}

/// Bytes as a person reads them, such as `1.5 GiB`.
pub(crate) fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 || value.fract() == 0.0 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// A number with a comma at every thousand.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
