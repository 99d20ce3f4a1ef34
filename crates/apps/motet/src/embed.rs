//! From a folder to an embedding model that answers.

use std::{path::Path, sync::Arc};

use motet_engine::{EmbedConfig, EmbedEngine};
use motet_gateway::EmbeddingModel;
use motet_model::{
    Isa,
    encoder::{self, Encoder},
};
use motet_types::EmbedderInfo;

use crate::{config::Config, failure::Failure, load::modified};

/// Loads the configured embedding model, if there is one. It keeps a thread busy, so it gets one of its own.
pub(crate) async fn load(config: &Config) -> Result<Option<EmbeddingModel>, Failure> {
    let Some(folder) = config.embedding_model.clone() else { return Ok(None) };
    let threads = config.engine.threads;
    let loaded = tokio::task::spawn_blocking(move || load_from(&folder, threads)).await;
    loaded.map_err(Failure::runtime)?.map(Some)
}

fn load_from(folder: &Path, threads: usize) -> Result<EmbeddingModel, Failure> {
    let wrong = |why: String| Failure::usage(format!("embedding_model: {why}"));
    // `.` has no name of its own.
    let folder = std::path::absolute(folder).map_err(|e| wrong(format!("{}: {e}", folder.display())))?;
    let Some(id) = folder.file_name().map(|name| name.to_string_lossy().into_owned()) else {
        return Err(wrong(format!("{} does not end in a folder's name", folder.display())));
    };
    let tokenizer = encoder::tokenizer(&folder).map_err(|e| wrong(e.to_string()))?;
    let mut encoder = Encoder::load(&folder, threads, Isa::detect()).map_err(|e| wrong(e.to_string()))?;
    let (config, count) = (encoder.config().clone(), |size: usize| u32::try_from(size).unwrap_or(u32::MAX));
    if tokenizer.vocab_size() > config.vocab_size {
        let (tokens, rows) = (tokenizer.vocab_size(), config.vocab_size);
        return Err(wrong(format!("{}: {tokens} tokens for a model of {rows}", folder.display())));
    }
    let info = EmbedderInfo {
        dimensions: count(config.width),
        context_length: count(config.context_length),
        vocab_size: count(config.vocab_size),
    };
    let encode = Box::new(move |sequences: &[&[u32]], vectors: &mut Vec<f32>| {
        encoder.encode(sequences, vectors).map_err(|error| error.to_string())
    });
    let embedder = EmbedEngine::start(info, encode, EmbedConfig::default()).map_err(Failure::runtime)?;
    Ok(EmbeddingModel {
        id,
        created: modified(&folder.join("model.safetensors")),
        tokenizer: Arc::new(tokenizer),
        embedder,
    })
}
