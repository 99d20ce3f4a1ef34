//! From text to values. Each error says what would have been right.

use std::net::{IpAddr, Ipv4Addr};

use motet_hub::ModelRef;

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

/// Bytes with a unit: `1GiB`, `1.5 GiB`, `512MB`, `1g` (1024-based), plain bytes. `auto` is `None`.
pub(crate) fn memory(text: &str) -> Result<Option<usize>, String> {
    if text == "auto" {
        return Ok(None);
    }
    let problem = || "not an amount of memory; write such as 1GiB, 512MiB, or auto".to_owned();
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| problem())?;
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        _ => return Err(problem()),
    };
    let bytes = number * factor as f64;
    if !(1.0..=(1u64 << 46) as f64).contains(&bytes) {
        return Err(problem());
    }
    Ok(Some(bytes as usize))
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
