//! The first requests to a target: which model it has, and how it counts tokens.

use std::sync::Arc;

use tokio::time::Instant;

use super::Experiment;
use crate::{
    LoadError,
    client::{Client, Failure, Record},
    drive::Sender,
    wire::History,
    words::{self, TokenScale},
    workload::{GivenText, Workload},
};

/// Words of the two prompts that show how a tokenizer counts. The longer one fits a context of 256 tokens.
const WORDS: [usize; 2] = [40, 160];

/// A sender for a target that answers.
pub(super) async fn sender(client: Client, experiment: &Experiment) -> Result<Sender, LoadError> {
    let model = match &experiment.model {
        Some(model) => model.clone(),
        None => client.first_model().await.map_err(|failure| explain(&client, &failure))?,
    };
    let mut counts = Vec::new();
    for (index, words) in WORDS.into_iter().enumerate() {
        let record = ask(&client, &model, words, experiment.seed.wrapping_add(index as u64)).await;
        if let Some(failure) = &record.failure {
            return Err(explain(&client, failure));
        }
        counts.push((words, record.prompt_tokens));
    }
    // Without counts, or where prompts are given, a word is taken as a token.
    let is_given = matches!(experiment.workload, Workload::Given(_));
    let scale = if is_given { None } else { TokenScale::fit(counts[0], counts[1]) };
    Ok(Sender { client: Arc::new(client), model: model.into(), scale: scale.unwrap_or_default() })
}

async fn ask(client: &Client, model: &str, count: usize, seed: u64) -> Record {
    let mut text = String::new();
    words::append(&mut text, seed ^ 0x6361_6c69, count);
    let mut history = History::default();
    history.ask(GivenText::Text(text));
    client.complete(history.body(model, 1, &client.options), Instant::now()).await
}

/// What happened and what to do about it.
fn explain(client: &Client, failure: &Failure) -> LoadError {
    let remedy = match failure.kind.as_str() {
        "connect" => "start the server there, or correct --target",
        "timeout" => "is it busy? wait, or raise --timeout",
        "http 401" | "http 403" => "give its key with --api-key or MOTET_BENCH_API_KEY",
        "http 404" => "is it an OpenAI-compatible server, and --model one of its models?",
        "http 400" | "http 422" => "correct what it names; where that is ignore_eos, try --no-ignore-eos",
        "http 503" => "it may still be loading its model: try again when it is ready",
        _ => "see the server's log",
    };
    let target = &client.target;
    LoadError::Target {
        target: target.name.clone(),
        url: target.url.clone(),
        why: format!("{}: {remedy}", failure.what),
    }
}
