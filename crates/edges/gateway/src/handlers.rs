use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts, State};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use motet_protocol::Streaming;
use tokio::time::Instant;

use crate::access::{Ask, Caller, Permit, RateLimits};
use crate::error::{ApiError, DEGRADED};
use crate::gateway::{Gateway, Served};
use crate::idempotency::Work;
use crate::observe::RequestId;
use crate::overload::{Comer, Entry, Notices, Tries, peek_model, peek_tier};
use crate::prepare::{self, Job};
use crate::reply::{Reply, note_down};
use crate::wire::{Chat, Collected, Envelope, Shape, TextCompletion};
use crate::{body, choosing, ids, stream};

/// Names parameters of the request that this API does not know and ignored, so that a typo shows.
pub(crate) const IGNORED_PARAMETERS: HeaderName = HeaderName::from_static("x-motet-ignored-parameters");
/// How OpenAI's clients say how often they have tried before.
const RETRY_COUNT: HeaderName = HeaderName::from_static("x-stainless-retry-count");
/// Most names in that header.
const MAX_IGNORED: usize = 16;

/// `POST /v1/chat/completions`.
pub(crate) async fn chat(
    State(gateway): State<Arc<Gateway>>,
    sender: Sender,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let bytes = receive(&gateway, &headers, body).await?;
    let early = admit_early(&gateway, &sender, &bytes)?;
    let now = gateway.unix_seconds();
    let desk = gateway.desk(Arc::clone(&sender.caller));
    let job = gateway.workers.run(bytes.len(), move || prepare::chat(desk, &bytes, now)).await?;
    answer(gateway, job, (sender, early), "chatcmpl-", Chat).await
}

/// `POST /v1/completions`.
pub(crate) async fn completions(
    State(gateway): State<Arc<Gateway>>,
    sender: Sender,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let bytes = receive(&gateway, &headers, body).await?;
    let early = admit_early(&gateway, &sender, &bytes)?;
    let desk = gateway.desk(Arc::clone(&sender.caller));
    let job = gateway.workers.run(bytes.len(), move || prepare::completion(desk, &bytes)).await?;
    answer(gateway, job, (sender, early), "cmpl-", TextCompletion).await
}

/// The request's body. It is read even when there is no model: see [`body::refuse`].
async fn receive(gateway: &Gateway, headers: &HeaderMap, body: Body) -> Result<Vec<u8>, ApiError> {
    let bytes = body::read(&gateway.config, headers, body).await;
    gateway.catalogue().check_any_ready()?;
    bytes
}

/// Lets a request in, before it waits for anything, where it is plain for which model it is; else that is left to
/// [`answer`]. What it was let in on is kept with what it is known by.
fn admit_early(gateway: &Gateway, sender: &Sender, bytes: &[u8]) -> Result<Early, ApiError> {
    let comer = gateway.comer(&sender.caller, bytes, sender.tries);
    let catalogue = gateway.catalogue();
    let Some(served) = catalogue.plainly(|| peek_model(bytes)) else { return Ok((comer, None)) };
    let lanes = gateway.config.lanes;
    let tier = lanes.background.and_then(|_| peek_tier(bytes));
    let (_, lane) = lanes.choose(tier, &sender.caller);
    let entry = gateway.admit(&served, lane, &comer)?;
    Ok((comer, Some((served, entry))))
}

/// What is known of a request before its body is parsed: who comes, and to which model it was let in.
type Early = (Comer, Option<(Arc<Served>, Entry)>);

/// Submits a job and answers with events or with one body.
async fn answer<S: Shape>(
    gateway: Arc<Gateway>,
    mut job: Job,
    (sender, (comer, early)): (Sender, Early),
    prefix: &str,
    shape: impl FnOnce(Envelope) -> S,
) -> Result<Response, ApiError> {
    let (_, lane) = gateway.config.lanes.choose(job.generation.service_tier, &sender.caller);
    let is_that =
        |(served, entry): &(Arc<Served>, Entry)| Arc::ptr_eq(served, &job.served) && entry.lane == lane;
    let entry = match early.filter(is_that) {
        Some((_, entry)) => entry,
        None => gateway.admit(&job.served, lane, &comer)?,
    };
    job.short_output = gateway.short_output(&entry);
    let permit = permit(&gateway, &job, &sender).await?;
    let limits = permit.as_ref().map_or(RateLimits::default(), |permit| permit.limits());
    let notices = Notices::new(&job.served, &entry, &job);
    let reply = Reply::start(&gateway, &job, &entry, sender.accepted, permit)?;
    sender.begin_work();
    let generation = &job.generation;
    let shape = shape(Envelope {
        id: ids::fresh(prefix, &gateway.config.entropy),
        created: gateway.unix_seconds(),
        served: Arc::clone(&job.served),
        has_logprobs: generation.logprobs.is_some(),
        has_usage: generation.streaming == Streaming::WithUsage,
        service_tier: generation
            .service_tier
            .map(|tier| gateway.config.lanes.choose(Some(tier), &sender.caller).0),
    });
    let mut response = if generation.streaming.is_on() {
        // What is read from a log has comments of its own.
        let keep_alive = sender.work.is_none().then_some(gateway.config.keep_alive);
        stream::respond(gateway, reply, shape, notices, keep_alive)
    } else {
        whole(&gateway, reply, generation.n, &shape).await?
    };
    limits.write(response.headers_mut());
    choosing::write_headers(&job.served, &job.why, response.headers_mut());
    response.headers_mut().extend(entry.degraded(&job).map(|what| (DEGRADED, what)));
    if let Some(names) = ignored(&generation.unknown) {
        response.headers_mut().insert(IGNORED_PARAMETERS, names);
    }
    Ok(response)
}

/// Reserves what the job may use at most, where there are limits.
async fn permit(gateway: &Gateway, job: &Job, sender: &Sender) -> Result<Option<Box<dyn Permit>>, ApiError> {
    let Some(access) = &gateway.config.access else { return Ok(None) };
    let ask = Ask {
        model: job.served.model.id.clone(),
        prompt_tokens: job.prompt_tokens(),
        output_tokens: job.output_tokens()?,
        request_id: sender.request_id.clone(),
    };
    Ok(Some(access.reserve(&sender.caller, ask).await?))
}

/// Who sent a request, and when.
pub(crate) struct Sender {
    pub(crate) caller: Arc<Caller>,
    pub(crate) request_id: String,
    pub(crate) accepted: Instant,
    tries: Tries,
    /// Where the request may be sent again for the same answer.
    work: Option<Work>,
}

impl Sender {
    /// From now on the request costs something.
    pub(crate) fn begin_work(&self) {
        if let Some(work) = &self.work {
            work.begin();
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Sender {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        // Both were put there by the layers around every route that has a sender.
        let caller = parts.extensions.get().cloned().ok_or(ApiError::Internal)?;
        let RequestId(request_id) = parts.extensions.get().cloned().ok_or(ApiError::Internal)?;
        let retries = parts.headers.get(RETRY_COUNT).is_some_and(|count| count != "0");
        let tries = if retries { Tries::Again } else { Tries::First };
        let work = parts.extensions.get().cloned();
        Ok(Self { caller, request_id, accepted: Instant::now(), tries, work })
    }
}

/// Waits for the reply and sends it as one body.
async fn whole(
    gateway: &Gateway,
    mut reply: Reply,
    n: u32,
    shape: &impl Shape,
) -> Result<Response, ApiError> {
    let choices =
        collect(&mut reply).await.inspect_err(|error| note_down(gateway, &shape.envelope().served, error))?;
    let json = shape.whole(reply.best(n as usize, choices), reply.usage())?;
    Ok(([(header::CONTENT_TYPE, "application/json")], json).into_response())
}

async fn collect(reply: &mut Reply) -> Result<Vec<Collected>, ApiError> {
    let mut choices: Vec<_> = (0..reply.choices()).map(|_| (String::new(), Vec::new(), None)).collect();
    while let Some((choice, update)) = reply.next().await? {
        let (text, tokens, finish) = &mut choices[choice];
        text.push_str(&update.text);
        tokens.extend(update.tokens);
        *finish = update.finish.or(*finish);
    }
    let ended = |(text, tokens, finish): (String, Vec<_>, Option<_>)| {
        finish.map(|finish| Collected { text, tokens, finish }).ok_or(ApiError::Truncated)
    };
    choices.into_iter().map(ended).collect()
}

pub(crate) fn ignored(names: &[String]) -> Option<HeaderValue> {
    let is_name =
        |name: &&str| name.len() <= 64 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let names: Vec<&str> = names.iter().map(String::as_str).filter(is_name).take(MAX_IGNORED).collect();
    if names.is_empty() { None } else { HeaderValue::from_str(&names.join(", ")).ok() }
}
