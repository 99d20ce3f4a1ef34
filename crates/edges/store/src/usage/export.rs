//! Events out of the database, a page at a time.

use futures_util::{Stream, TryStreamExt as _, stream};

use crate::{
    KeyId, OrgId, Owner, Store, UserId,
    db::{Row, args},
    error::{Result, StoreError},
    usage::{UsageEvent, UsageFinish, UsageId, calendar},
};

/// Events per query.
const PAGE: u32 = 1_000;

/// The names of the columns of [`UsageEvent::csv_row`], ended by a newline.
pub const CSV_HEADER: &str = "id,time,org,user,key,request_id,model,tier,finish,prompt_tokens,cached_tokens,\
                              output_tokens,reasoning_tokens,queue_ms,ttft_ms,duration_ms,cost_micros\n";

/// From a time to before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first time in it.
    pub from: i64,
    /// The first time after it.
    pub until: i64,
}

impl Store {
    /// An organisation's or a user's events in the order of their time.
    ///
    /// Each page is a query of its own that starts after the last event of the one before: a reader who is slow, or who
    /// leaves, holds neither a connection nor a transaction.
    pub fn export_usage(
        &self,
        owner: Owner<'_>,
        span: Span,
    ) -> impl Stream<Item = Result<UsageEvent>> + Send + use<> {
        let export = Export {
            store: self.clone(),
            org: owner.org().to_owned(),
            user: owner.user().map(str::to_owned),
            until: span.until,
            after: Some((span.from, String::new())),
        };
        let pages = stream::try_unfold(export, |mut export| async move {
            Ok::<_, StoreError>(export.next_page().await?.map(|page| (page, export)))
        });
        pages.map_ok(|page| stream::iter(page.into_iter().map(Ok))).try_flatten()
    }
}

struct Export {
    store: Store,
    org: String,
    user: Option<String>,
    until: i64,
    /// Time and id of the last event; none when there is no more.
    after: Option<(i64, String)>,
}

impl Export {
    async fn next_page(&mut self) -> Result<Option<Vec<UsageEvent>>> {
        let Some((at, id)) = self.after.take() else { return Ok(None) };
        let sql = "SELECT id, at, org_id, user_id, key_id, request_id, model, tier, finish, prompt_tokens, \
                   cached_tokens, output_tokens, reasoning_tokens, queue_ms, ttft_ms, duration_ms, cost_micros \
                   FROM usage_events WHERE org_id = $1 AND (CAST($2 AS TEXT) IS NULL OR user_id = $2) \
                   AND (at, id) > ($3, $4) AND at < $5 ORDER BY at, id LIMIT $6";
        let values = args![&self.org, self.user.as_deref(), at, &id, self.until, PAGE];
        let rows = self.store.db.all(sql, values).await?;
        let page: Vec<UsageEvent> = rows.iter().map(event_of).collect::<Result<_>>()?;
        if page.len() == PAGE as usize {
            self.after = page.last().map(|last| (last.at, last.id.as_str().to_owned()));
        }
        Ok(Some(page))
    }
}

impl UsageEvent {
    /// A line of CSV (RFC 4180, but for the newline alone) under [`CSV_HEADER`].
    #[must_use]
    pub fn csv_row(&self) -> String {
        let texts = [
            self.id.as_str().to_owned(),
            calendar::text_of(self.at),
            csv_text(self.org.as_str()),
            csv_text(self.user.as_str()),
            csv_text(self.key.as_ref().map_or("", KeyId::as_str)),
            csv_text(&self.request_id),
            csv_text(&self.model),
            csv_text(&self.tier),
            self.finish.as_str().to_owned(),
        ];
        let ttft = self.ttft_ms.map_or_else(String::new, |ms| ms.to_string());
        format!(
            "{},{},{},{},{},{},{ttft},{},{}\n",
            texts.join(","),
            self.prompt_tokens,
            self.cached_tokens,
            self.output_tokens,
            self.reasoning_tokens,
            self.queue_ms,
            self.duration_ms,
            self.cost_micros,
        )
    }
}

/// A field of CSV. One that a spreadsheet would run as a formula gets a quote in front, as OWASP recommends.
pub(crate) fn csv_text(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = if is_formula { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

fn event_of(row: &Row) -> Result<UsageEvent> {
    Ok(UsageEvent {
        id: UsageId::from_text(row.get::<String>("id")?),
        at: row.get("at")?,
        org: OrgId::new(row.get::<String>("org_id")?),
        user: UserId::new(row.get::<String>("user_id")?),
        key: row.get::<Option<String>>("key_id")?.map(KeyId::new),
        request_id: row.get("request_id")?,
        model: row.get("model")?,
        tier: row.get("tier")?,
        finish: UsageFinish::from_name(&row.get::<String>("finish")?)?,
        prompt_tokens: count(row, "prompt_tokens")?,
        cached_tokens: count(row, "cached_tokens")?,
        output_tokens: count(row, "output_tokens")?,
        reasoning_tokens: count(row, "reasoning_tokens")?,
        queue_ms: count(row, "queue_ms")?,
        ttft_ms: row.get::<Option<i64>>("ttft_ms")?.map(narrow).transpose()?,
        duration_ms: count(row, "duration_ms")?,
        cost_micros: row.get("cost_micros")?,
    })
}

fn count(row: &Row, column: &str) -> Result<u32> {
    narrow(row.get(column)?)
}

fn narrow(number: i64) -> Result<u32> {
    u32::try_from(number).map_err(|_| StoreError::corrupt("count", &number.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::event::sample;

    #[test]
    fn csv_has_a_field_for_each_name_and_runs_nothing() {
        let mut event = sample("id1", 0);
        event.key = None;
        event.ttft_ms = None;
        event.model = "=HYPERLINK(\"x\",1)".into();
        let row = event.csv_row();
        let want = "id1,1970-01-01T00:00:00.000Z,org,user,,req,\"'=HYPERLINK(\"\"x\"\",1)\",free,stop,10,4,5,2,1,,90,7\n";
        assert_eq!(row, want);
        event.model = "model".into();
        assert_eq!(event.csv_row().matches(',').count(), CSV_HEADER.matches(',').count());
    }
}
