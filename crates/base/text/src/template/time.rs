//! Civil time and Python's `strftime`, for templates that print today's date.

use std::fmt::Write;

const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A date and a time of day without a zone (proleptic Gregorian calendar).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CivilTime {
    /// Year, astronomical numbering.
    pub year: i32,
    /// 1..=12.
    pub month: u8,
    /// 1..=31.
    pub day: u8,
    /// 0..=23.
    pub hour: u8,
    /// 0..=59.
    pub minute: u8,
    /// 0..=60.
    pub second: u8,
}

impl Default for CivilTime {
    /// 1970-01-01 00:00:00.
    fn default() -> Self {
        Self { year: 1970, month: 1, day: 1, hour: 0, minute: 0, second: 0 }
    }
}

impl CivilTime {
    /// The UTC time of a Unix timestamp in seconds. Years beyond ±200,000 are clamped.
    ///
    /// The date follows Howard Hinnant's `civil_from_days`.
    pub fn from_unix(seconds: i64) -> Self {
        let limit = 200_000 * 366 * 86_400;
        let seconds = seconds.clamp(-limit, limit);
        let (days, second_of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * day_of_year + 2) / 153;
        let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
        Self {
            year: (year_of_era + era * 400 + i64::from(month <= 2)) as i32,
            month: month as u8,
            day: (day_of_year - (153 * shifted_month + 2) / 5 + 1) as u8,
            hour: (second_of_day / 3600) as u8,
            minute: (second_of_day / 60 % 60) as u8,
            second: (second_of_day % 60) as u8,
        }
    }

    /// 1..=366.
    fn day_of_year(&self) -> u32 {
        let leap = (self.year % 4 == 0 && self.year % 100 != 0) || self.year % 400 == 0;
        let before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
        let month = usize::from(self.month.clamp(1, 12));
        before[month - 1] + u32::from(leap && month > 2) + u32::from(self.day)
    }

    /// 0 is Sunday.
    fn weekday(&self) -> usize {
        let years = i64::from(self.year) - 1;
        let days = years * 365 + years.div_euclid(4) - years.div_euclid(100) + years.div_euclid(400);
        (days + i64::from(self.day_of_year())).rem_euclid(7) as usize
    }

    /// Formats as `datetime.strftime` does in the C locale. An unknown directive stays as it is; zone
    /// directives give nothing, as for a naive `datetime`.
    pub(super) fn strftime(&self, format: &str) -> String {
        let mut out = String::with_capacity(format.len() * 2);
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let rest = chars.as_str();
            let (padded, directive) = match rest.strip_prefix('-') {
                Some(after) => (false, after.chars().next()),
                None => (true, rest.chars().next()),
            };
            let mut text = String::new();
            match directive {
                Some(d) if self.directive(d, &mut text) => {
                    chars.nth(usize::from(!padded));
                    let bare = text.trim_start_matches(['0', ' ']);
                    out.push_str(match () {
                        () if padded => &text,
                        () if bare.is_empty() && !text.is_empty() => "0",
                        () => bare,
                    });
                }
                _ => out.push('%'),
            }
        }
        out
    }

    /// Appends what a directive stands for; false if there is none of that letter.
    fn directive(&self, letter: char, out: &mut String) -> bool {
        let hour12 = if self.hour.is_multiple_of(12) { 12 } else { self.hour % 12 };
        let weekday = self.weekday();
        let month = MONTHS[usize::from(self.month.clamp(1, 12)) - 1];
        let day_of_year = self.day_of_year();
        // Writing to a string cannot fail.
        let _ = match letter {
            'Y' => write!(out, "{}", self.year),
            'y' => write!(out, "{:02}", self.year.rem_euclid(100)),
            'C' => write!(out, "{:02}", self.year.div_euclid(100)),
            'm' => write!(out, "{:02}", self.month),
            'd' => write!(out, "{:02}", self.day),
            'e' => write!(out, "{:2}", self.day),
            'H' => write!(out, "{:02}", self.hour),
            'I' => write!(out, "{hour12:02}"),
            'M' => write!(out, "{:02}", self.minute),
            'S' => write!(out, "{:02}", self.second),
            'f' => write!(out, "000000"),
            'j' => write!(out, "{day_of_year:03}"),
            'w' => write!(out, "{weekday}"),
            'u' => write!(out, "{}", if weekday == 0 { 7 } else { weekday }),
            'U' => write!(out, "{:02}", (day_of_year as usize + 6 - weekday) / 7),
            'W' => write!(out, "{:02}", (day_of_year as usize + 6 - (weekday + 6) % 7) / 7),
            'p' => write!(out, "{}", if self.hour < 12 { "AM" } else { "PM" }),
            'A' => write!(out, "{}", WEEKDAYS[weekday]),
            'a' => write!(out, "{}", &WEEKDAYS[weekday][..3]),
            'B' => write!(out, "{month}"),
            'b' | 'h' => write!(out, "{}", &month[..3]),
            'F' => write!(out, "{}", self.strftime("%Y-%m-%d")),
            'T' | 'X' => write!(out, "{}", self.strftime("%H:%M:%S")),
            'R' => write!(out, "{}", self.strftime("%H:%M")),
            'D' | 'x' => write!(out, "{}", self.strftime("%m/%d/%y")),
            'c' => write!(out, "{}", self.strftime("%a %b %e %H:%M:%S %Y")),
            'n' => out.write_str("\n"),
            't' => out.write_str("\t"),
            'z' | 'Z' => Ok(()),
            '%' => write!(out, "%"),
            _ => return false,
        };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_seconds_become_dates() {
        let check = |seconds, expected: &str| {
            assert_eq!(CivilTime::from_unix(seconds).strftime("%F %T %a"), expected);
        };
        check(0, "1970-01-01 00:00:00 Thu");
        check(-1, "1969-12-31 23:59:59 Wed");
        check(951_782_400, "2000-02-29 00:00:00 Tue");
        check(1_722_006_245, "2024-07-26 15:04:05 Fri");
        check(4_107_542_400, "2100-03-01 00:00:00 Mon");
        let _ = (CivilTime::from_unix(i64::MIN), CivilTime::from_unix(i64::MAX));
    }

    #[test]
    fn directives() {
        let now = CivilTime { year: 2024, month: 7, day: 6, hour: 0, minute: 4, second: 5 };
        let check = |format: &str, expected: &str| assert_eq!(now.strftime(format), expected, "{format}");
        check("%d %b %Y, %-d/%-m %e", "06 Jul 2024, 6/7  6");
        check("%I %p %-H %j %U %W %w %u", "12 AM 0 188 26 27 6 6");
        check("100%% %q % %-", "100% %q % %-");
        check("%c|%D|%f|%z", "Sat Jul  6 00:04:05 2024|07/06/24|000000|");
    }
}
