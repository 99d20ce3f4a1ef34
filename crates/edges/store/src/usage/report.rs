//! Sums of what was used.

use std::ops::Range;

use crate::{
    Owner, Store, UserId,
    db::{Row, args},
    error::Result,
    usage::{UsageEvent, month_of},
};

/// The most rows of a report: a year of fifty models.
const MAX_ROWS: u32 = 20_000;

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

/// A query for sums over days of an owner's usage. The casts are for PostgreSQL, where a sum of integers is no integer.
macro_rules! sums {
    ($columns:literal, $rest:literal) => {
        concat!(
            "SELECT ",
            $columns,
            "CAST(COALESCE(SUM(requests), 0) AS BIGINT) AS requests, \
             CAST(COALESCE(SUM(prompt_tokens), 0) AS BIGINT) AS prompt_tokens, \
             CAST(COALESCE(SUM(cached_tokens), 0) AS BIGINT) AS cached_tokens, \
             CAST(COALESCE(SUM(output_tokens), 0) AS BIGINT) AS output_tokens, \
             CAST(COALESCE(SUM(reasoning_tokens), 0) AS BIGINT) AS reasoning_tokens, \
             CAST(COALESCE(SUM(cost_micros), 0) AS BIGINT) AS cost_micros \
             FROM usage_daily WHERE org_id = $1 AND (CAST($2 AS TEXT) IS NULL OR user_id = $2) \
             AND day >= $3 AND day < $4",
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
