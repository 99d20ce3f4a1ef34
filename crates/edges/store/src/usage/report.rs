//! Sums of what was used.

use std::ops::Range;

use crate::{
    Owner, Store, UserId,
    db::{Row, args},
    error::Result,
    usage::{UsageEvent, date_of, day_of_date, export::csv_text, month_of},
};

/// The most rows of a report: a year of fifty models.
const MAX_ROWS: u32 = 20_000;

/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

/// A sum of usage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct UsageSum {
    /// Replies, however they ended.
    pub requests: i64,
    /// Tokens of the prompts.
    pub prompt_tokens: i64,
    /// Those of them found in the prefix cache.
    pub cached_tokens: i64,
    /// Generated tokens.
    pub output_tokens: i64,
    /// Those of them that were reasoning.
    pub reasoning_tokens: i64,
    /// What it costs, in millionths of the currency's unit.
    pub cost_micros: i64,
}

impl UsageSum {
    /// Adds one event.
    pub fn add(&mut self, event: &UsageEvent) {
        self.requests += 1;
        self.prompt_tokens += i64::from(event.prompt_tokens);
        self.cached_tokens += i64::from(event.cached_tokens);
        self.output_tokens += i64::from(event.output_tokens);
        self.reasoning_tokens += i64::from(event.reasoning_tokens);
        self.cost_micros += event.cost_micros;
    }

    /// The names of the columns of [`UsageSum::csv_row`], ended by a newline; `group` is the first one's.
    #[must_use]
    pub fn csv_header(group: &str) -> String {
        format!("{group},requests,prompt_tokens,cached_tokens,output_tokens,reasoning_tokens,cost_micros\n")
    }

    /// A line of CSV under [`UsageSum::csv_header`], as of [`UsageEvent::csv_row`].
    #[must_use]
    pub fn csv_row(&self, group: &str) -> String {
        let counts = [
            self.requests,
            self.prompt_tokens,
            self.cached_tokens,
            self.output_tokens,
            self.reasoning_tokens,
            self.cost_micros,
        ];
        let counts = counts.map(|count| count.to_string()).join(",");
        format!("{},{counts}\n", csv_text(group))
    }

    fn of(row: &Row) -> Result<Self> {
        Ok(Self {
            requests: row.get("requests")?,
            prompt_tokens: row.get("prompt_tokens")?,
            cached_tokens: row.get("cached_tokens")?,
            output_tokens: row.get("output_tokens")?,
            reasoning_tokens: row.get("reasoning_tokens")?,
            cost_micros: row.get("cost_micros")?,
        })
    }
}

/// What was used on a day with a model.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct DailyUsage {
    /// Days since 1970-01-01 in UTC.
    pub day: i64,
    /// The model.
    pub model: String,
    /// The sum.
    #[serde(flatten)]
    pub sum: UsageSum,
}

/// What usage is summed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageGroup {
    /// The day in UTC, written as [`date_of`].
    Day,
    /// The model that answered.
    Model,
    /// The user's id.
    User,
    /// The API key's id; empty where it was none.
    Key,
}

/// A page of sums.
#[derive(Debug, Clone)]
pub struct UsageQuery<'a> {
    /// Of these days, as of [`day_of`](crate::day_of).
    pub days: Range<i64>,
    /// One for each of these.
    pub group: UsageGroup,
    /// After the one of this name.
    pub after: Option<&'a str>,
    /// The most sums.
    pub limit: u32,
}

/// A query for sums over days of an owner's usage. The casts are for PostgreSQL, where a sum of integers is no integer.
macro_rules! sums {
    ($columns:literal, $rest:literal) => {
        sums!($columns, "SUM(requests)", "usage_daily", "day", $rest)
    };
    ($columns:literal, $requests:literal, $table:literal, $time:literal, $rest:literal) => {
        concat!(
            "SELECT ",
            $columns,
            "CAST(COALESCE(",
            $requests,
            ", 0) AS BIGINT) AS requests, \
             CAST(COALESCE(SUM(prompt_tokens), 0) AS BIGINT) AS prompt_tokens, \
             CAST(COALESCE(SUM(cached_tokens), 0) AS BIGINT) AS cached_tokens, \
             CAST(COALESCE(SUM(output_tokens), 0) AS BIGINT) AS output_tokens, \
             CAST(COALESCE(SUM(reasoning_tokens), 0) AS BIGINT) AS reasoning_tokens, \
             CAST(COALESCE(SUM(cost_micros), 0) AS BIGINT) AS cost_micros FROM ",
            $table,
            " WHERE org_id = $1 AND (CAST($2 AS TEXT) IS NULL OR user_id = $2) AND ",
            $time,
            " >= $3 AND ",
            $time,
            " < $4",
            $rest
        )
    };
}

impl Store {
    /// What an organisation or a user used per day and model, oldest first. Days are as of [`day_of`](crate::day_of).
    ///
    /// # Errors
    /// The database's.
    pub async fn daily_usage(&self, owner: Owner<'_>, days: Range<i64>) -> Result<Vec<DailyUsage>> {
        let sql = sums!("day, model, ", " GROUP BY day, model ORDER BY day, model LIMIT $5");
        let rows = self.db.all(sql, args![owner.org(), owner.user(), days.start, days.end, MAX_ROWS]).await?;
        let daily = |row: &Row| {
            Ok(DailyUsage { day: row.get("day")?, model: row.get("model")?, sum: UsageSum::of(row)? })
        };
        rows.iter().map(daily).collect()
    }

    /// What an organisation or a user used by day, model, user or key, in the order of their names.
    ///
    /// # Errors
    /// The database's.
    pub async fn usage_by(&self, owner: Owner<'_>, asked: UsageQuery<'_>) -> Result<Vec<(String, UsageSum)>> {
        let UsageQuery { days, group, after, limit } = asked;
        let (mut from, mut until) = (days.start, days.end);
        let sql = match group {
            UsageGroup::Day => {
                let next = after.map(|date| day_of_date(date).map_or(until, |day| day + 1));
                from = from.max(next.unwrap_or(from));
                // The days themselves say where a page begins.
                sums!("day, ", " AND CAST($5 AS TEXT) IS NULL GROUP BY day ORDER BY day LIMIT $6")
            }
            UsageGroup::Model => sums!(
                "model AS name, ",
                " AND (CAST($5 AS TEXT) IS NULL OR model > $5) GROUP BY model ORDER BY model LIMIT $6"
            ),
            UsageGroup::User => sums!(
                "user_id AS name, ",
                " AND (CAST($5 AS TEXT) IS NULL OR user_id > $5) GROUP BY user_id ORDER BY user_id LIMIT $6"
            ),
            UsageGroup::Key => {
                // Sums by day do not know the keys.
                (from, until) = (from.saturating_mul(DAY_MS), until.saturating_mul(DAY_MS));
                sums!(
                    "COALESCE(key_id, '') AS name, ",
                    "COUNT(*)",
                    "usage_events",
                    "at",
                    " AND (CAST($5 AS TEXT) IS NULL OR COALESCE(key_id, '') > $5) \
                     GROUP BY COALESCE(key_id, '') ORDER BY COALESCE(key_id, '') LIMIT $6"
                )
            }
        };
        let after = after.filter(|_| group != UsageGroup::Day);
        let rows = self.db.all(sql, args![owner.org(), owner.user(), from, until, after, limit]).await?;
        let named = |row: &Row| {
            let name = if group == UsageGroup::Day { date_of(row.get("day")?) } else { row.get("name")? };
            Ok((name, UsageSum::of(row)?))
        };
        rows.iter().map(named).collect()
    }

    /// What each user of an organisation used on these days, the costliest first.
    ///
    /// # Errors
    /// The database's.
    pub async fn usage_by_user(&self, owner: Owner<'_>, days: Range<i64>) -> Result<Vec<(UserId, UsageSum)>> {
        let sql = sums!("user_id, ", " GROUP BY user_id ORDER BY cost_micros DESC, user_id LIMIT $5");
        let rows = self.db.all(sql, args![owner.org(), owner.user(), days.start, days.end, MAX_ROWS]).await?;
        rows.iter().map(|row| Ok((UserId::new(row.get::<String>("user_id")?), UsageSum::of(row)?))).collect()
    }

    /// What an organisation or a user used on these days.
    ///
    /// # Errors
    /// The database's.
    pub async fn usage_sum(&self, owner: Owner<'_>, days: Range<i64>) -> Result<UsageSum> {
        let sql = sums!("", "");
        let row = self.db.first(sql, args![owner.org(), owner.user(), days.start, days.end]).await?;
        row.as_ref().map_or(Ok(UsageSum::default()), UsageSum::of)
    }

    /// What an organisation or a user spent in the month (UTC) of a time, in millionths: what a budget is held against. It
    /// lacks what the [`UsageWriter`](crate::UsageWriter) has not written yet.
    ///
    /// # Errors
    /// The database's.
    pub async fn month_spend(&self, owner: Owner<'_>, now: i64) -> Result<i64> {
        Ok(self.usage_sum(owner, month_of(now)).await?.cost_micros)
    }
}
