//! `POST /v1/embeddings`: texts or tokens in, a vector for each out.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State as Extract;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, header};
use motet_protocol::{
    EmbeddingList, EmbeddingRequest, FinishReason, MAX_EMBEDDING_TOKENS, ModelObject, Prompt, RequestError,
    parse_body,
};
use motet_text::WordPiece;
use motet_types::{EmbedError, Embedder, TokenId};
use tokio::time::Instant;

use crate::access::{Ask, Caller, End, Outcome, Permit, RateLimits};
use crate::body;
use crate::catalogue::State;
use crate::error::{ApiError, MODELS};
use crate::gateway::Gateway;
use crate::handlers::{IGNORED_PARAMETERS, Sender, ignored};

/// An embedding model that can be served.
#[derive(Clone)]
pub struct EmbeddingModel {
    /// The name requests use, exactly.
    pub id: String,
    /// When the model was made or fetched, in Unix seconds.
    pub created: u64,
    /// Its vocabulary.
    pub tokenizer: Arc<WordPiece>,
    /// What turns token sequences into vectors.
    pub embedder: Arc<dyn Embedder>,
}

impl EmbeddingModel {
    /// As `/v1/models` shows it.
    pub(crate) fn object(&self) -> ModelObject {
        ModelObject::new(&self.id, self.created, self.embedder.model().context_length)
    }
}

/// A request that is ready to be computed.
struct Job {
    model: Arc<EmbeddingModel>,
    request: EmbeddingRequest,
    inputs: Vec<Vec<TokenId>>,
    tokens: u64,
}

/// The route's handler.
pub(crate) async fn embeddings(
    Extract(gateway): Extract<Arc<Gateway>>,
    sender: Sender,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let bytes = body::read(&gateway.config, &headers, body).await;
    let model = gateway.embedding_model();
    if model.is_none() && matches!(gateway.catalogue().default_state(), State::Loading) {
        return Err(ApiError::Loading);
    }
    let (bytes, caller) = (bytes?, Arc::clone(&sender.caller));
    let job = gateway.workers.run(bytes.len(), move || prepare(model, &caller, &bytes)).await?;
    let permit = permit(&gateway, &job, &sender).await?;
    let limits = permit.as_ref().map_or(RateLimits::default(), |permit| permit.limits());
    let Job { model, request, inputs, tokens } = job;
    let vectors = model.embedder.embed(inputs).map_err(refused)?;
    sender.begin_work();
    let mut settling = Settling { permit, tokens, accepted: sender.accepted, end: End::Cancelled };
    let vectors = vectors.await;
    settling.end = if vectors.is_ok() { End::Finished(FinishReason::Stop) } else { End::Failed };
    // Before the client learns of the end: its next request may depend on what this one gives back.
    drop(settling);
    let list = EmbeddingList::new(&model.id, vectors.map_err(refused)?, request.format, tokens);
    // Thousands of vectors take a while to write.
    let json = tokio::task::spawn_blocking(move || serde_json::to_vec(&list)).await;
    let json = json.map_err(|_| ApiError::Internal)??;
    let mut response = ([(header::CONTENT_TYPE, "application/json")], json).into_response();
    limits.write(response.headers_mut());
    if let Some(names) = ignored(&request.unknown) {
        response.headers_mut().insert(IGNORED_PARAMETERS, names);
    }
    Ok(response)
}

/// Reads, tokenizes and checks a request.
fn prepare(model: Option<Arc<EmbeddingModel>>, caller: &Caller, body: &[u8]) -> Result<Job, ApiError> {
    let mut request = EmbeddingRequest::from_body(&parse_body(body)?)?;
    let asked = || request.model.chars().take(100).collect::<String>();
    let Some(model) = model else { return Err(ApiError::NoEmbeddingModel(asked())) };
    if !caller.may_use(&model.id) {
        return Err(ApiError::UnknownModel(asked()));
    }
    if request.model != model.id {
        return Err(ApiError::OtherEmbeddingModel { asked: asked(), served: model.id.clone() });
    }
    check_dimensions(request.dimensions, model.embedder.model().dimensions)?;
    let is_one = request.inputs.len() == 1;
    let (mut inputs, mut tokens) = (Vec::with_capacity(request.inputs.len()), 0);
    for (index, input) in std::mem::take(&mut request.inputs).into_iter().enumerate() {
        let (path, ids) = match input {
            Prompt::Text(text) if is_one => ("input".to_owned(), model.tokenizer.encode(&text)),
            Prompt::Text(text) => (format!("input[{index}]"), model.tokenizer.encode(&text)),
            Prompt::Tokens { path, ids } => (path, ids),
        };
        check_input(&model, caller, path, &ids)?;
        tokens += ids.len() as u64;
        inputs.push(ids);
    }
    if tokens > MAX_EMBEDDING_TOKENS {
        let rule =
            format!("has {tokens} tokens in all; at most {MAX_EMBEDDING_TOKENS} are allowed in one request");
        return Err(RequestError::bad_value("input", rule).into());
    }
    Ok(Job { model, request, inputs, tokens })
}

/// A model trained for one length gives no sense when it is cut.
fn check_dimensions(asked: Option<u32>, size: u32) -> Result<(), ApiError> {
    match asked {
        Some(asked) if asked != size => {
            let rule = format!("is {asked}; this model's vectors have {size} numbers and can't be shortened");
            Err(RequestError::bad_value("dimensions", rule).into())
        }
        _ => Ok(()),
    }
}

fn check_input(
    model: &EmbeddingModel,
    caller: &Caller,
    param: String,
    ids: &[TokenId],
) -> Result<(), ApiError> {
    let info = model.embedder.model();
    let vocab_size = info.vocab_size;
    if let Some(i) = ids.iter().position(|id| *id >= vocab_size) {
        return Err(ApiError::UnknownToken { param: format!("{param}[{i}]"), id: ids[i], vocab_size });
    }
    let (limit, whose) = match caller.max_context {
        Some(most) if most < info.context_length => (most, "Your account's"),
        _ => (info.context_length, MODELS),
    };
    if ids.len() > limit as usize {
        return Err(ApiError::InputTooLong { param, tokens: ids.len(), limit, whose });
    }
    Ok(())
}

/// Reserves what the job will use, where there are limits.
async fn permit(gateway: &Gateway, job: &Job, sender: &Sender) -> Result<Option<Box<dyn Permit>>, ApiError> {
    let Some(access) = &gateway.config.access else { return Ok(None) };
    let ask = Ask {
        model: job.model.id.clone(),
        prompt_tokens: job.tokens,
        output_tokens: 0,
        request_id: sender.request_id.clone(),
    };
    Ok(Some(access.reserve(&sender.caller, ask).await?))
}

/// Tells what was used when the request ends, also where the client leaves before: its tokens were queued.
struct Settling {
    permit: Option<Box<dyn Permit>>,
    tokens: u64,
    accepted: Instant,
    end: End,
}

impl Drop for Settling {
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else { return };
        permit.settle(Outcome {
            prompt_tokens: self.tokens,
            cached_tokens: 0,
            output_tokens: 0,
            queued: Duration::ZERO,
            end: self.end,
            ttft: None,
            took: self.accepted.elapsed(),
        });
    }
}

fn refused(error: EmbedError) -> ApiError {
    match error {
        EmbedError::QueueFull { waiting_tokens, retry_after_seconds: seconds } => {
            ApiError::EmbeddingQueueFull { waiting_tokens, seconds }
        }
        EmbedError::Draining => ApiError::Draining,
        EmbedError::Down(why) => ApiError::Down(why),
        EmbedError::NotFinite => ApiError::EmbeddingFailed,
        // Inputs were checked against the same limits, so these are the server's own mistakes.
        error @ (EmbedError::Empty(_) | EmbedError::TooLong { .. } | EmbedError::UnknownToken { .. }) => {
            tracing::error!(%error, "the embedding model refused what the gateway made of a request");
            ApiError::Internal
        }
    }
}
