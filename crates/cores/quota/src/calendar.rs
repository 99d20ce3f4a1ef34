//! Days and months in UTC. Months count from January of the year 0; the conversions are those of Howard
//! Hinnant's "chrono-compatible low-level date algorithms".

use crate::Millis;

pub(crate) const DAY: u64 = 86_400_000;
/// From 1 March of the year 0 to the Unix epoch.
const EPOCH_DAYS: u64 = 719_468;

/// Days since the Unix epoch.
pub(crate) fn day(now: Millis) -> u64 {
    now / DAY
}

pub(crate) fn month(now: Millis) -> u64 {
    let days = day(now) + EPOCH_DAYS;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    // Years begin in March here, so that the leap day is the last.
    let from_march = (5 * of_year + 2) / 153;
    (era * 400 + year) * 12 + from_march + 2
}

/// When the month ends, which is when the next begins.
pub(crate) fn month_end(month: u64) -> Millis {
    let from_march = month + 1 - 2;
    let (year, of_year) = (from_march / 12, from_march % 12);
    let (era, of_era) = (year / 400, year % 400);
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + (153 * of_year + 2) / 5;
    (days - EPOCH_DAYS) * DAY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_follow_each_other() {
        let mut start = 0;
        for index in 0..12 * 500 {
            let (year, of_year) = (1970 + index / 12, index % 12);
            let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let days =
                [31, 28 + u64::from(is_leap), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][of_year as usize];
            let end = start + days * DAY;
            for now in [start, start + DAY, end - 1] {
                assert_eq!(month(now), year * 12 + of_year, "{now}");
            }
            assert_eq!(month_end(month(start)), end);
            start = end;
        }
    }
}
