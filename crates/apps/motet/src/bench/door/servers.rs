//! The servers that are compared.

use std::{collections::BTreeMap, net::SocketAddr, path::Path, sync::Arc};

use axum::{Json, Router, extract::State, routing::post};
use futures_util::StreamExt;
use motet_gateway::{Access, ConnectionLimits, Gateway, GatewayConfig, Hosts, ServedModel};
use motet_simulated::{Pace, Simulated, tokenizer};
use motet_text::{ChatTemplate, Tokenizer};
use motet_types::{Backend, Event, Origin, Request, SamplingParams, StopTokens};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};

use crate::{
    accounts::{Door, first_key},
    config::{Config, RawConfig, Sources},
    failure::Failure,
};

/// The name of the model.
pub(super) const MODEL: &str = "simulated";

/// How most models take conversations.
const TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n\
    {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// Everything is counted and nothing is refused.
const TIERS: &str = "[[tiers]]\nname = \"bench\"\nrequests_per_minute = 1000000\ntokens_per_minute = 1000000000\n\
    tokens_per_day = 1000000000000\nconcurrent = 60000\nbudget_per_month = 1000000\ninput_price = 0.1\noutput_price = 0.2\n";

/// A server that runs.
pub(super) struct Server {
    pub(super) name: &'static str,
    pub(super) address: SocketAddr,
    /// What requests carry.
    pub(super) key: Option<String>,
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
    door: Option<Arc<Door>>,
}

impl Server {
    /// No more than has to be: reads JSON, submits, answers JSON.
    pub(super) async fn bare(tokens: u32) -> Result<Self, Failure> {
        let replica = Arc::new(replica());
        let words = tokenizer().map_err(Failure::runtime)?;
        let router = Router::new().route("/v1/chat/completions", post(answer)).with_state(Bare {
            replica,
            words,
            tokens,
        });
        Self::start("bare", router).await
    }

    /// Motet's gateway for everybody.
    pub(super) async fn open() -> Result<Self, Failure> {
        Self::start("gateway", gateway(None)?.router()).await
    }

    /// Motet's gateway with keys, limits and usage, all in `folder` but what is in `redis`.
    pub(super) async fn with_accounts(
        name: &'static str,
        folder: &Path,
        redis: Option<&str>,
    ) -> Result<Self, Failure> {
        let folder = folder.join(if redis.is_some() { "redis" } else { "memory" });
        std::fs::create_dir_all(&folder).map_err(Failure::runtime)?;
        let config = config(&folder, redis)?;
        let key = first_key(&config).await?;
        let door = Arc::new(Door::open(&config, &folder).await?);
        let router = gateway(Some(Arc::clone(&door) as Arc<dyn Access>))?.router();
        Ok(Self { key: Some(key), door: Some(door), ..Self::start(name, router).await? })
    }

    async fn start(name: &'static str, router: Router) -> Result<Self, Failure> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(Failure::runtime)?;
        let address = listener.local_addr().map_err(Failure::runtime)?;
        let (end, ended) = oneshot::channel();
        let task = tokio::spawn(async move {
            let shutdown = async { drop(ended.await) };
            // It does not fail: see its documentation.
            let _ = motet_gateway::serve(listener, router, ConnectionLimits::default(), shutdown).await;
        });
        Ok(Self { name, address, key: None, end, task, door: None })
    }

    /// Ends it, and writes down what is left.
    pub(super) async fn stop(self) {
        let _ = self.end.send(());
        // A panic has been reported by then.
        let _ = self.task.await;
        if let Some(door) = self.door.and_then(Arc::into_inner) {
            door.close().await;
        }
    }
}

fn replica() -> Simulated {
    Simulated::new(MODEL, Pace::default(), vec!["main".to_owned()])
}

fn gateway(access: Option<Arc<dyn Access>>) -> Result<Arc<Gateway>, Failure> {
    let hosts = if access.is_some() { Hosts::Any } else { Hosts::default() };
    let gateway = Gateway::new(GatewayConfig { access, hosts, ..GatewayConfig::default() });
    let template = ChatTemplate::new(TEMPLATE, "", "<|im_end|>").map_err(Failure::runtime)?;
    gateway.set_ready(ServedModel {
        id: MODEL.to_owned(),
        created: 0,
        tokenizer: tokenizer().map_err(Failure::runtime)?,
        template: Some(Arc::new(template)),
        weight_bytes: 0,
        backend: Arc::new(replica()),
    });
    Ok(gateway)
}

fn config(folder: &Path, redis: Option<&str>) -> Result<Config, Failure> {
    let file = folder.join("motet.toml");
    let redis = redis.map_or(String::new(), |url| format!("redis = {url:?}\n"));
    let store = format!("store = {:?}\n", format!("sqlite:{}", folder.join("motet.db").display()));
    std::fs::write(&file, format!("[accounts]\n{store}{redis}{TIERS}")).map_err(Failure::runtime)?;
    let raw = RawConfig::read(Sources { file: Some(file), variables: BTreeMap::new(), flags: Vec::new() })
        .map_err(Failure::usage)?;
    Config::resolve(&raw).map_err(Failure::usage)
}

/// What the bare server has.
#[derive(Clone)]
struct Bare {
    replica: Arc<Simulated>,
    words: Arc<Tokenizer>,
    tokens: u32,
}

async fn answer(State(bare): State<Bare>, Json(request): Json<Value>) -> Json<Value> {
    let prompt = request["messages"][1]["content"].as_str().unwrap_or("x");
    let request = Request {
        prompt: prompt.bytes().map(u32::from).collect(),
        max_tokens: bare.tokens,
        samples: vec![SamplingParams::GREEDY],
        stop: StopTokens::default(),
        logprobs: None,
        origin: Origin::default(),
        deadline: None,
    };
    let mut tokens = Vec::new();
    for mut events in bare.replica.submit(request).unwrap_or_default() {
        while let Some(event) = events.next().await {
            if let Event::Token(token) = event {
                tokens.push(token.token);
            }
        }
    }
    let message = json!({"role": "assistant", "content": bare.words.decode(&tokens)});
    Json(json!({"object": "chat.completion", "choices": [{"index": 0, "message": message}]}))
}
