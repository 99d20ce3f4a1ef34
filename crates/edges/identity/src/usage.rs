//! What was used.

use std::ops::Range;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use http::header;
use motet_protocol::RequestError;
use motet_store::{
    CSV_HEADER, OrgId, Owner, Result as StoreResult, Role, Scope, Span, Store, StoreError, UsageGroup,
    UsageQuery, UsageSum, UserId, day_of, day_of_date,
};

use crate::credentials::{By, Who};
use crate::error::Refusal;
use crate::identity::Identity;
use crate::request::Params;
use crate::{users, wire};

/// The days of a report that names none.
const USUAL_DAYS: i64 = 30;

/// The most days of a report: two leap years, to compare one with the next.
pub(crate) const MAX_DAYS: i64 = 732;

/// Groups per query of a report that is streamed.
const PAGE: u32 = 500;

const DAY_MS: i64 = 86_400_000;

/// The id of the group of requests without a key.
const NO_KEY: &str = "none";

/// A report that was asked for.
#[derive(Clone)]
struct Report {
    org: OrgId,
    /// `None`: of all of the organisation.
    user: Option<UserId>,
    days: Range<i64>,
    group: Option<Group>,
}

/// What sums are by, and its name in requests.
#[derive(Clone, Copy)]
pub(crate) struct Group(UsageGroup, pub(crate) &'static str);

pub(crate) const GROUPS: [Group; 4] = [
    Group(UsageGroup::Day, "day"),
    Group(UsageGroup::Model, "model"),
    Group(UsageGroup::User, "user"),
    Group(UsageGroup::Key, "key"),
];

/// `GET /v1/usage`: sums as a list, sums as CSV, or every request as CSV.
pub(crate) async fn report(
    State(identity): State<Arc<Identity>>,
    By(who): By,
    params: Params,
) -> Result<Response, Refusal> {
    let user = whose(&identity, &who, params.get("user")).await?;
    let days = days(&params, day_of(identity.now()))?;
    let report = Report { org: who.principal.org.clone(), user, days, group: group(&params)? };
    match params.get("format").unwrap_or("json") {
        "json" => report.list(&identity.store, &params).await,
        "csv" => Ok(report.csv(&identity.store)),
        _ => Err(RequestError::bad_value("format", "must be 'json' or 'csv'").into()),
    }
}

/// Whose usage the caller asks for and may read; `None` is all of the organisation's.
async fn whose(identity: &Identity, who: &Who, asked: Option<&str>) -> Result<Option<UserId>, Refusal> {
    let principal = &who.principal;
    let own = principal.user.as_str();
    if asked.is_none_or(|asked| asked == own) {
        if principal.scopes.has(Scope::Usage) || principal.scopes.has(Scope::Admin) {
            return Ok(Some(principal.user.clone()));
        }
        return Err(Refusal::Forbidden("this key may not read usage; make one with the scope 'usage'"));
    }
    if !principal.scopes.has(Scope::Admin) || principal.role == Role::Member {
        return Err(Refusal::Forbidden(
            "other people's usage is for administrators, by session or with a key of the scope 'admin'",
        ));
    }
    match asked {
        None | Some("all") => Ok(None),
        Some(id) => {
            let user = users::of_org(identity, who, id).await?;
            Ok(Some(user.ok_or(StoreError::Missing("user"))?.id))
        }
    }
}

/// From the one day to the other, both included.
fn days(params: &Params, today: i64) -> Result<Range<i64>, RequestError> {
    let date = |name: &str| match params.get(name) {
        None => Ok(None),
        Some(text) => day_of_date(text)
            .map(Some)
            .ok_or_else(|| RequestError::bad_value(name, "must be a date in UTC, such as 2026-11-30")),
    };
    let (from, to) = (date("from")?, date("to")?.unwrap_or(today));
    let from = from.unwrap_or(to - USUAL_DAYS + 1);
    match to - from {
        ..0 => Err(RequestError::bad_value("from", "may not be after 'to'")),
        MAX_DAYS.. => Err(RequestError::bad_value("from", format!("to 'to' may be at most {MAX_DAYS} days"))),
        _ => Ok(from..to + 1),
    }
}

fn group(params: &Params) -> Result<Option<Group>, RequestError> {
    let Some(name) = params.get("group_by") else { return Ok(None) };
    let found = GROUPS.into_iter().find(|group| group.1 == name);
    let why = || RequestError::bad_value("group_by", "must be 'day', 'model', 'user' or 'key'");
    found.map(Some).ok_or_else(why)
}

impl Report {
    fn owner(&self) -> Owner<'_> {
        self.user.as_ref().map_or(Owner::Org(&self.org), |user| Owner::User(&self.org, user))
    }

    /// The next sums after one of them.
    async fn sums(
        &self,
        store: &Store,
        group: UsageGroup,
        after: Option<&str>,
        limit: u32,
    ) -> StoreResult<Vec<(String, UsageSum)>> {
        let after = after.map(|id| if group == UsageGroup::Key && id == NO_KEY { "" } else { id });
        let mut sums =
            store.usage_by(self.owner(), UsageQuery { days: self.days.clone(), group, after, limit }).await?;
        // The empty name comes first.
        if let Some((name, _)) =
            sums.first_mut().filter(|(name, _)| group == UsageGroup::Key && name.is_empty())
        {
            NO_KEY.clone_into(name);
        }
        Ok(sums)
    }

    async fn list(&self, store: &Store, params: &Params) -> Result<Response, Refusal> {
        let limit = params.limit()?;
        let Group(group, _) = self.group.unwrap_or(GROUPS[0]);
        let after = params.after();
        if group == UsageGroup::Day && after.is_some_and(|date| day_of_date(date).is_none()) {
            return Err(wire::unknown_cursor().into());
        }
        // One more than asked for tells whether there are more.
        let most = u32::try_from(limit).unwrap_or(PAGE) + 1;
        let sums = self.sums(store, group, after, most).await?;
        let data = sums.iter().take(limit).map(|(id, sum)| wire::usage(id, sum)).collect();
        Ok(Json(wire::list(data, sums.len() > limit)).into_response())
    }

    /// Rows as they are read: a report of any length takes the memory of a page. An error breaks the answer off, so
    /// that what is left of it does not look whole.
    fn csv(self, store: &Store) -> Response {
        let heading = match self.group {
            None => CSV_HEADER.to_owned(),
            Some(group) => UsageSum::csv_header(group.1),
        };
        let heading = stream::once(async { Ok(heading) });
        let body = match self.group {
            None => {
                let span = Span { from: self.days.start * DAY_MS, until: self.days.end * DAY_MS };
                let events = store.export_usage(self.owner(), span);
                Body::from_stream(heading.chain(events.map_ok(|event| event.csv_row())))
            }
            Some(group) => Body::from_stream(heading.chain(self.rows(store.clone(), group.0))),
        };
        let headers = [
            (header::CONTENT_TYPE, "text/csv; charset=utf-8"),
            (header::CONTENT_DISPOSITION, "attachment; filename=\"usage.csv\""),
        ];
        (headers, body).into_response()
    }

    /// Pages of sums as CSV.
    fn rows(self, store: Store, group: UsageGroup) -> impl Stream<Item = StoreResult<String>> + Send {
        stream::try_unfold(Some(None::<String>), move |after| {
            let page = after.map(|after| (after, store.clone(), self.clone()));
            async move {
                let Some((after, store, report)) = page else { return Ok(None) };
                let sums = report.sums(&store, group, after.as_deref(), PAGE).await?;
                if sums.is_empty() {
                    return Ok(None);
                }
                let rows: String = sums.iter().map(|(name, sum)| sum.csv_row(name)).collect();
                let is_full = sums.len() == PAGE as usize;
                let next = sums.into_iter().next_back().filter(|_| is_full).map(|(name, _)| Some(name));
                Ok(Some((rows, next)))
            }
        })
    }
}
