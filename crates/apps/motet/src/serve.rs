use std::{
    collections::BTreeSet,
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use motet_engine::{Engine, LaneConfig, LaneKind};
use motet_gateway::{
    Access, ConnectionLimits, Gateway, GatewayConfig, Hosts, Lanes, ModelCard, SHUTDOWN_GRACE, ServedModel,
};
use motet_model::KvFormat;
use motet_safety::Moderations;
use motet_types::Embedder;
use tokio::{net::TcpListener, sync::oneshot};

use crate::{
    accounts::{Door, data_folder},
    batches,
    config::{Auth, Config, KvMemory, ModelSettings, available_memory, human_bytes, thousands},
    embed,
    failure::Failure,
    generate::warm,
    load::{Loaded, MEDIAN_CONVERSATION, find_and_load_one},
    output::say,
    safety,
    signals::shutdown_asked,
};

/// Serves until a signal. The port opens before the models are there, so that a supervisor sees a live
/// process; `/readyz` turns 200 after one real generation of the default model.
pub(crate) async fn serve(config: &Config) -> Result<(), Failure> {
    check_memory(&config.models, available_memory())?;
    let moderations = safety::moderations(config)?;
    let door = door(config).await?;
    let listener = bind(SocketAddr::new(config.host, config.port)).await?;
    let served = tokio::select! {
        served = serve_on(listener, config, door.clone(), moderations) => served,
        never = keep_clean(door.as_deref()) => match never {},
    };
    // What requests have used is written down once the last of them has ended.
    if let Some(door) = door.and_then(Arc::into_inner) {
        door.close().await;
    }
    served?;
    say("Motet stopped");
    Ok(())
}

async fn serve_on(
    listener: TcpListener,
    config: &Config,
    door: Option<Arc<Door>>,
    moderations: Moderations,
) -> Result<(), Failure> {
    let address = listener.local_addr().map_err(Failure::runtime)?;
    let models: Vec<_> = config.models.iter().map(|model| model.model.to_string()).collect();
    say(&format!("Motet listens on http://{address} and loads {}", models.join(", ")));

    let lanes = lanes(&config.engine.sched.lanes);
    let mut routes = door.as_ref().map(|door| door.routes()).unwrap_or_default();
    if let Some(door) = &door {
        invite(door, config, address).await?;
    }
    let batches = batches::of(config, door.as_deref());
    let run_as = batches::run_as(door.as_ref());
    routes.for_callers = routes.for_callers.merge(batches.routes()).merge(moderations.routes());
    routes.described_by.extend([motet_batch::describe, motet_safety::describe]);
    let access = door.map(|door| door as Arc<dyn Access>);
    // A key or a token is what a foreign page does not have; without accounts the name it asks for tells it apart.
    let hosts = if access.is_some() { Hosts::Any } else { Hosts::default() };
    let overload = config.overload.clone();
    let gateway_config = GatewayConfig { lanes, access, hosts, overload, ..GatewayConfig::default() };
    let gateway = Gateway::with_models(gateway_config, config.models.iter().map(card).collect());
    let computing = Arc::<Computing>::default();
    let limits = ConnectionLimits::default();
    let (stopping, is_stopping) = oneshot::channel();
    let shutdown = drained(Arc::clone(&computing), stopping);
    let serving = motet_gateway::serve(listener, gateway.router_with(routes), limits, shutdown);
    // The load is looked at until the server has ended, and no longer.
    let serving = async {
        let ended = tokio::select! {
            ended = serving => ended,
            () = gateway.watch_load() => Ok(()),
        };
        gateway.end_recorded().await;
        ended
    };
    tokio::pin!(serving);
    let models = load_all(&gateway, config, address, &computing);
    tokio::pin!(models);
    tokio::select! {
        // A signal while models load: what is in flight of those that are there has ended.
        ended = &mut serving => return ended.map_err(Failure::runtime),
        loaded = &mut models => loaded?,
    };
    let runner = batches.start(gateway.inner_router(), run_as);
    let running = async {
        // It ends when the shutdown begins or the server fails: both drop the other end.
        let _: Result<(), _> = is_stopping.await;
        runner.close(SHUTDOWN_GRACE).await;
    };
    let (served, ()) = tokio::join!(serving, running);
    served.map_err(Failure::runtime)
}

/// Requests go to the first lane, and those that can wait to the first background lane.
fn lanes(lanes: &[LaneConfig]) -> Lanes {
    let background = lanes.iter().position(|lane| lane.kind == LaneKind::Background);
    Lanes { default: 0, background }
}

/// What computes, as far as it is there.
#[derive(Default)]
struct Computing {
    engines: Mutex<Vec<Arc<Engine>>>,
    embedder: OnceLock<Arc<dyn Embedder>>,
}

impl Computing {
    fn engines(&self) -> MutexGuard<'_, Vec<Arc<Engine>>> {
        self.engines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes nothing more.
    fn drain(&self) {
        self.engines().iter().for_each(|engine| engine.drain());
        if let Some(embedder) = self.embedder.get() {
            embedder.drain();
        }
    }
}

/// Completes when a shutdown was asked for and no engine takes more: a request on a connection that
/// is still open would only prolong the end. Batches stop with it.
async fn drained(computing: Arc<Computing>, stopping: oneshot::Sender<()>) {
    shutdown_asked().await;
    drop(stopping);
    computing.drain();
}

/// What tells who may use the server. Without one anyone who reaches the port may, so only this machine must.
async fn door(config: &Config) -> Result<Option<Arc<Door>>, Failure> {
    let host = config.host;
    match config.accounts.auth {
        Auth::Auto if host.is_loopback() => return Ok(None),
        Auth::Off if host.is_loopback() => return Ok(None),
        Auth::Off => {
            return Err(Failure::usage(format!(
                "{host} can be reached from other machines, and without keys anyone there may use the model; \
                 leave --no-auth and server.auth = off away, or listen on 127.0.0.1"
            )));
        }
        Auth::On | Auth::Auto => {}
    }
    Ok(Some(Arc::new(Door::open(config, &data_folder()?).await?)))
}

/// Says how the first account is made, while there is none.
async fn invite(door: &Door, config: &Config, address: SocketAddr) -> Result<(), Failure> {
    let Some(token) = door.setup_token().await? else { return Ok(()) };
    let port = address.port();
    let place = match &config.accounts.public_url {
        Some(url) => url.to_string(),
        None if address.ip().is_unspecified() => format!("http://localhost:{port}/"),
        None => format!("http://{address}/"),
    };
    say(&format!(
        "There are no accounts yet: make the first at {place}, or with `motet keys create`, which prints an API key"
    ));
    say(&format!("One-time token to make it from another machine: {}", token.expose()));
    Ok(())
}

/// Looks after the database as long as the server runs.
async fn keep_clean(door: Option<&Door>) -> Infallible {
    match door {
        Some(door) => door.keep_clean().await,
        None => std::future::pending().await,
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|e| match e.kind() {
        std::io::ErrorKind::AddrInUse => Failure::usage(format!(
            "port {} on {} is in use; stop the program that has it, or choose another with --port (0 takes a free one)",
            address.port(),
            address.ip()
        )),
        std::io::ErrorKind::PermissionDenied => Failure::usage(format!(
            "port {} needs a privilege this user lacks; choose one from 1024 with --port",
            address.port()
        )),
        _ => Failure::usage(format!("{address} can't be listened on: {e}")),
    })
}

/// Refuses arenas that the machine can't hold together. Of one alone the engine tells when it is made.
fn check_memory(models: &[ModelSettings], free: u64) -> Result<(), Failure> {
    let bytes = |model: &ModelSettings| match model.engine.kv_memory {
        KvMemory::Bytes(bytes) => bytes as u64,
        KvMemory::Share(_) | KvMemory::Tokens(_) => 0,
    };
    let sum = models.iter().map(bytes).fold(0, u64::saturating_add);
    if models.len() < 2 || sum <= free {
        return Ok(());
    }
    let of_each = models.iter().map(|m| format!("{} {}", m.label(), m.engine.kv_memory)).collect::<Vec<_>>();
    Err(Failure::usage(format!(
        "the models' memory for conversations adds up to {} ({}), and {} is free; lower models.kv_memory, or \
         engine.kv_memory, which those without their own divide",
        human_bytes(sum),
        of_each.join(", "),
        human_bytes(free)
    )))
}

/// What the gateway knows of a model before it is there.
fn card(model: &ModelSettings) -> ModelCard {
    let ModelSettings { name, aliases, roles, description, context, smaller, .. } = model;
    ModelCard {
        id: name.clone(),
        aliases: aliases.clone(),
        roles: roles.clone(),
        description: description.clone(),
        context: *context,
        smaller: smaller.clone(),
    }
}

/// Loads the models one after the other, the default one first, each of which is served as soon as it is there. One that
/// can't be loaded is left out; only when none can be is that a failure.
async fn load_all(
    gateway: &Arc<Gateway>,
    config: &Config,
    address: SocketAddr,
    computing: &Computing,
) -> Result<(), Failure> {
    let mut failure = None;
    let mut names = Names::of(&config.models);
    // First, so that all that is configured answers when the server says that it is ready.
    if let Some(embedding) = embed::load(config).await? {
        if !names.0.insert(embedding.id.clone()) {
            let why = format!("embedding_model: it has the same name as another model, {}", embedding.id);
            return Err(Failure::usage(why));
        }
        let dimensions = embedding.embedder.model().dimensions;
        say(&format!("Embeddings: {} gives vectors of {dimensions} numbers", embedding.id));
        // It is the only one: a server loads once.
        let _ = computing.embedder.set(Arc::clone(&embedding.embedder));
        gateway.set_embedding_model(embedding);
    }
    for (index, model) in config.models.iter().enumerate() {
        let loaded = match load_one(model, &mut names).await {
            Ok(loaded) => loaded,
            Err(error) => {
                let line = error.line().unwrap_or_default();
                gateway.set_model_failed(index, line.clone());
                if config.models.len() > 1 {
                    say(&format!("warning: {} is not served: {line}", model.label()));
                }
                failure.get_or_insert(error);
                continue;
            }
        };
        if let Err(why) = &loaded.template {
            say(&format!("warning: {}: {why}; only /v1/completions will answer", loaded.id));
        }
        computing.engines().push(Arc::clone(&loaded.engine));
        let ready = ready_line(&loaded, address);
        gateway.set_model_ready(index, served(loaded));
        say(&ready);
    }
    let are_there = !computing.engines().is_empty();
    failure.filter(|_| !are_there).map_or(Ok(()), Err)
}

/// Loads a model and lets it generate once.
async fn load_one(model: &ModelSettings, names: &mut Names) -> Result<Loaded, Failure> {
    let loaded = find_and_load_one(model).await?;
    names.add(model, &loaded.id)?;
    warm(&loaded).await?;
    Ok(loaded)
}

fn served(loaded: Loaded) -> ServedModel {
    ServedModel {
        id: loaded.id,
        created: loaded.created,
        tokenizer: loaded.tokenizer,
        template: loaded.template.ok(),
        backend: loaded.engine,
        weight_bytes: loaded.weight_bytes,
    }
}

/// The names that are taken: those of folders show when the model is found.
struct Names(BTreeSet<String>);

impl Names {
    fn of(models: &[ModelSettings]) -> Self {
        Self(models.iter().flat_map(|model| model.name.iter().chain(&model.aliases).cloned()).collect())
    }

    fn add(&mut self, model: &ModelSettings, id: &str) -> Result<(), Failure> {
        if model.name.is_none() && !self.0.insert(id.to_owned()) {
            return Err(Failure::usage(format!(
                "{} is called {id}, as another model is; give it a models.name of its own",
                model.model
            )));
        }
        Ok(())
    }
}

fn ready_line(loaded: &Loaded, address: SocketAddr) -> String {
    let format = match loaded.kv_format {
        KvFormat::F32 => "f32",
        KvFormat::F16 => "f16",
        KvFormat::Int8 => "int8",
    };
    format!(
        "Ready: {} on http://{address}, {}, in {} of {format}, {} threads, loaded in {:.1} s; Ctrl-C stops",
        loaded.id,
        room(loaded.kv_tokens),
        human_bytes(loaded.kv_bytes),
        loaded.threads,
        loaded.took.as_secs_f64()
    )
}

/// What `tokens` of KV memory hold, in words.
fn room(tokens: u64) -> String {
    let conversations = match tokens / MEDIAN_CONVERSATION as u64 {
        0 => "less than one conversation".to_owned(),
        1 => "about one conversation".to_owned(),
        count => format!("about {} conversations", thousands(count)),
    };
    format!(
        "room for {} tokens, {conversations} of {}",
        thousands(tokens),
        thousands(MEDIAN_CONVERSATION as u64)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_told_in_conversations() {
        let check = |tokens: u64, expected: &str| assert_eq!(room(tokens), expected);
        check(61_035, "room for 61,035 tokens, about 53 conversations of 1,149");
        check(2_000, "room for 2,000 tokens, about one conversation of 1,149");
        check(16, "room for 16 tokens, less than one conversation of 1,149");
        check(1 << 26, "room for 67,108,864 tokens, about 58,406 conversations of 1,149");
    }
}
