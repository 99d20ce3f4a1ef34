//! Events into the database, each counted once however often it comes.

use std::collections::BTreeMap;

use crate::{
    Store,
    db::{Tx, args},
    error::Result,
    usage::{UsageEvent, UsageSum, day_of},
};

/// Day, user and model in an organisation: the order in which rows are locked, the same for every writer, so that two
/// gateways never wait for each other in a circle.
type DailyKey<'a> = (&'a str, i64, &'a str, &'a str);

impl Store {
    /// Writes events and their daily sums in one transaction, and says how many were new. One that is there already
    /// changes nothing.
    ///
    /// # Errors
    /// The database's; nothing is written then, or, where only the answer was lost, all.
    pub async fn insert_usage(&self, events: &[UsageEvent]) -> Result<u64> {
        let mut tx = self.db.begin().await?;
        let mut daily: BTreeMap<DailyKey<'_>, UsageSum> = BTreeMap::new();
        let mut new = 0;
        let events: Vec<UsageEvent> = events.iter().map(UsageEvent::bounded).collect();
        for event in &events {
            if insert(&mut tx, event).await? {
                let key = (event.org.as_str(), day_of(event.at), event.user.as_str(), event.model.as_str());
                daily.entry(key).or_default().add(event);
                new += 1;
            }
        }
        for (key, sum) in &daily {
            add_to_day(&mut tx, key, sum).await?;
        }
        tx.commit().await?;
        Ok(new)
    }
}

/// Whether it was new.
async fn insert(tx: &mut Tx, event: &UsageEvent) -> Result<bool> {
    let sql = "INSERT INTO usage_events (id, at, org_id, user_id, key_id, request_id, model, tier, finish, \
               prompt_tokens, cached_tokens, output_tokens, reasoning_tokens, queue_ms, ttft_ms, duration_ms, \
               cost_micros) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) \
               ON CONFLICT (id) DO NOTHING";
    let values = args![
        event.id.as_str(),
        event.at,
        event.org.as_str(),
        event.user.as_str(),
        event.key.as_ref().map(crate::KeyId::as_str),
        &event.request_id,
        &event.model,
        &event.tier,
        event.finish.as_str(),
        event.prompt_tokens,
        event.cached_tokens,
        event.output_tokens,
        event.reasoning_tokens,
        event.queue_ms,
        event.ttft_ms.map(i64::from),
        event.duration_ms,
        event.cost_micros,
    ];
    Ok(tx.execute(sql, values).await? == 1)
}

async fn add_to_day(tx: &mut Tx, &(org, day, user, model): &DailyKey<'_>, sum: &UsageSum) -> Result<()> {
    let sql = "INSERT INTO usage_daily (org_id, day, user_id, model, requests, prompt_tokens, cached_tokens, \
               output_tokens, reasoning_tokens, cost_micros) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) \
               ON CONFLICT (org_id, day, user_id, model) DO UPDATE SET \
               requests = usage_daily.requests + excluded.requests, \
               prompt_tokens = usage_daily.prompt_tokens + excluded.prompt_tokens, \
               cached_tokens = usage_daily.cached_tokens + excluded.cached_tokens, \
               output_tokens = usage_daily.output_tokens + excluded.output_tokens, \
               reasoning_tokens = usage_daily.reasoning_tokens + excluded.reasoning_tokens, \
               cost_micros = usage_daily.cost_micros + excluded.cost_micros";
    let values = args![
        org,
        day,
        user,
        model,
        sum.requests,
        sum.prompt_tokens,
        sum.cached_tokens,
        sum.output_tokens,
        sum.reasoning_tokens,
        sum.cost_micros,
    ];
    tx.execute(sql, values).await.map(drop)
}
