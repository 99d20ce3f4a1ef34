//! Days and months in UTC, by the algorithms of H. Hinnant, "chrono-compatible low-level date algorithms".

use std::ops::Range;

const DAY_MS: i64 = 86_400_000;

/// The day of a time: days since 1970-01-01 in UTC.
#[must_use]
pub fn day_of(at: i64) -> i64 {
    at.div_euclid(DAY_MS)
}

/// The days of the month that a time is in: from its first to the next month's first.
#[must_use]
pub fn month_of(at: i64) -> Range<i64> {
    let (year, month, _) = civil(day_of(at));
    let (next_year, next_month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    day_number(year, month, 1)..day_number(next_year, next_month, 1)
}

/// A day as of [`day_of`] in the form of RFC 3339: `2026-11-30`.
#[must_use]
pub fn date_of(day: i64) -> String {
    let (year, month, day) = civil(day);
    format!("{year:04}-{month:02}-{day:02}")
}

/// The day that [`date_of`] writes like this; `None` for what is no date of the years 1970 to 9999.
#[must_use]
pub fn day_of_date(date: &str) -> Option<i64> {
    let mut parts = date.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let is_near = (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    let number = is_near.then(|| day_number(year, month, day))?;
    // Written back it is the same, or it was no date.
    (date_of(number) == date).then_some(number)
}

/// A time in the form of RFC 3339, with milliseconds.
pub(crate) fn text_of(at: i64) -> String {
    let date = date_of(day_of(at));
    let ms = at.rem_euclid(DAY_MS);
    let (hours, minutes, seconds) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
    format!("{date}T{hours:02}:{minutes:02}:{seconds:02}.{:03}Z", ms % 1_000)
}

/// Year, month and day of the month. Years begin in March here, so that the leap day is the last.
fn civil(day: i64) -> (i64, i64, i64) {
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day_of_month)
}

fn day_number(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (at, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_796_083_200_123, "2026-12-01T00:00:00.123Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(text_of(at), text);
        }
    }

    #[test]
    fn days_as_people_write_them() {
        for (day, text) in
            [(0, "1970-01-01"), (59, "1970-03-01"), (11_016, "2000-02-29"), (20_787, "2026-11-30")]
        {
            assert_eq!(date_of(day), text);
            assert_eq!(day_of_date(text), Some(day));
        }
        for text in [
            "",
            "2026",
            "2026-11",
            "2026-11-31",
            "2026-02-29",
            "2026-13-01",
            "2026-00-10",
            "2026-01-00",
            "26-11-30",
            "2026-1-1",
            "1969-12-31",
            "2026-11-30-1",
            "2026-11-30T00",
            "+2026-11-30",
            "-1-1-1",
            "99999999999999999-01-01",
        ] {
            assert_eq!(day_of_date(text), None, "{text}");
        }
    }

    #[test]
    fn days_and_dates_are_each_others_inverse() {
        for day in -800_000..800_000 {
            let (year, month, of_month) = civil(day);
            assert_eq!(day_number(year, month, of_month), day);
        }
    }

    #[test]
    fn months_have_their_lengths() {
        for (at, days) in [(0, 31), (951_782_400_000, 29), (1_796_083_200_123, 31), (1_793_500_000_000, 30)] {
            let month = month_of(at);
            assert!(month.contains(&day_of(at)));
            assert_eq!(month.end - month.start, days);
        }
    }
}
