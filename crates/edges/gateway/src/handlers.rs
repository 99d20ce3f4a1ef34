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
use crate::observe::RequestId;
use crate::overload::{Comer, Entry, Notices, Tries, peek_tier};
use crate::prepare::{self, Job};
use crate::reply::{Reply, note_down};
use crate::wire::{Chat, Collected, Envelope, Shape, TextCompletion};
use crate::{body, ids, stream};

/// Names parameters of the request that this API does not know and ignored, so that a typo shows.
const IGNORED_PARAMETERS: HeaderName = HeaderName::from_static("x-motet-ignored-parameters");
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
    let (served, bytes) = receive(&gateway, &headers, body).await?;
    let entry = admit(&gateway, &served, &sender, &bytes)?;
    let now = gateway.unix_seconds();
    let caller = Arc::clone(&sender.caller);
    let job = gateway.workers.run(bytes.len(), move || prepare::chat((served, caller), &bytes, now)).await?;
    answer(gateway, job, (sender, entry), "chatcmpl-", Chat).await
}

/// `POST /v1/completions`.
pub(crate) async fn completions(
    State(gateway): State<Arc<Gateway>>,
    sender: Sender,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let (served, bytes) = receive(&gateway, &headers, body).await?;
    let entry = admit(&gateway, &served, &sender, &bytes)?;
    let caller = Arc::clone(&sender.caller);
    let job = gateway.workers.run(bytes.len(), move || prepare::completion((served, caller), &bytes)).await?;
    answer(gateway, job, (sender, entry), "cmpl-", TextCompletion).await
}

/// The model, and the request's body. It is read even when there is no model: see [`body::refuse`].
async fn receive(
    gateway: &Gateway,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Arc<Served>, Vec<u8>), ApiError> {
    let bytes = body::read(&gateway.config, headers, body).await;
    Ok((gateway.served()?, bytes?))
}

/// Lets a request in, before it waits for anything.
fn admit(gateway: &Gateway, served: &Served, sender: &Sender, bytes: &[u8]) -> Result<Entry, ApiError> {
    let lanes = gateway.config.lanes;
    let tier = lanes.background.and_then(|_| peek_tier(bytes));
    let (_, lane) = lanes.choose(tier, &sender.caller);
    gateway.admit(served, lane, &Comer { caller: &sender.caller, bytes, tries: sender.tries })
}

/// Submits a job and answers with events or with one body.
async fn answer<S: Shape>(
    gateway: Arc<Gateway>,
    mut job: Job,
    (sender, mut entry): (Sender, Entry),
    prefix: &str,
    shape: impl FnOnce(Envelope) -> S,
) -> Result<Response, ApiError> {
    let (_, lane) = gateway.config.lanes.choose(job.generation.service_tier, &sender.caller);
    if lane != entry.lane {
        // Its tier was written in an unusual way. It has been read, so there is no body to know it by.
        let comer = Comer { caller: &sender.caller, bytes: &[], tries: sender.tries };
        entry = gateway.admit(&job.served, lane, &comer)?;
    }
    job.short_output = gateway.short_output(&entry);
    let permit = permit(&gateway, &job, &sender).await?;
    let limits = permit.as_ref().map_or(RateLimits::default(), |permit| permit.limits());
    let notices = Notices::new(&job.served, &entry, &job);
    let reply = Reply::start(&gateway, &job, &entry, sender.accepted, permit)?;
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
        stream::respond(gateway, reply, shape, notices)
    } else {
        whole(&gateway, reply, generation.n, &shape).await?
    };
    limits.write(response.headers_mut());
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
    caller: Arc<Caller>,
    request_id: String,
    accepted: Instant,
    tries: Tries,
}

impl<S: Sync> FromRequestParts<S> for Sender {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        // Both were put there by the layers around every route that has a sender.
        let caller = parts.extensions.get().cloned().ok_or(ApiError::Internal)?;
        let RequestId(request_id) = parts.extensions.get().cloned().ok_or(ApiError::Internal)?;
        let retries = parts.headers.get(RETRY_COUNT).is_some_and(|count| count != "0");
        let tries = if retries { Tries::Again } else { Tries::First };
        Ok(Self { caller, request_id, accepted: Instant::now(), tries })
    }
}

/// Waits for the reply and sends it as one body.
async fn whole(
    gateway: &Gateway,
    mut reply: Reply,
    n: u32,
    shape: &impl Shape,
) -> Result<Response, ApiError> {
    let choices = collect(&mut reply).await.inspect_err(|error| note_down(gateway, error))?;
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

fn ignored(names: &[String]) -> Option<HeaderValue> {
    let is_name =
        |name: &&str| name.len() <= 64 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let names: Vec<&str> = names.iter().map(String::as_str).filter(is_name).take(MAX_IGNORED).collect();
    if names.is_empty() { None } else { HeaderValue::from_str(&names.join(", ")).ok() }
}
