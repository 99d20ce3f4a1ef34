use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
};

use motet_engine::{Engine, LaneConfig, LaneKind};
use motet_gateway::{Access, ConnectionLimits, Gateway, GatewayConfig, Hosts, Lanes, ServedModel};
use motet_model::KvFormat;
use tokio::net::TcpListener;

use crate::{
    accounts::Door,
    config::{Auth, Config, human_bytes, thousands},
    failure::Failure,
    generate::warm,
    load::{Loaded, MEDIAN_CONVERSATION, find_and_load},
    output::say,
    signals::shutdown_asked,
};

/// Serves until a signal. The port opens before the model is there, so that a supervisor sees a live
/// process; `/readyz` turns 200 after one real generation.
pub(crate) async fn serve(config: &Config) -> Result<(), Failure> {
    let door = door(config).await?;
    let listener = bind(SocketAddr::new(config.host, config.port)).await?;
    let served = serve_on(listener, config, door.clone()).await;
    // What requests have used is written down once the last of them has ended.
    if let Some(door) = door.and_then(Arc::into_inner) {
        door.close().await;
    }
    served?;
    say("Motet stopped");
    Ok(())
}

async fn serve_on(listener: TcpListener, config: &Config, door: Option<Arc<Door>>) -> Result<(), Failure> {
    let address = listener.local_addr().map_err(Failure::runtime)?;
    say(&format!("Motet listens on http://{address} and loads {}", config.model));

    let lanes = lanes(&config.engine.sched.lanes);
    let access = door.map(|door| door as Arc<dyn Access>);
    // A key is what a foreign page does not have; without keys the name it asks for tells it apart.
    let hosts = if access.is_some() { Hosts::Any } else { Hosts::default() };
    let overload = config.overload.clone();
    let gateway = Gateway::new(GatewayConfig { lanes, access, hosts, overload, ..GatewayConfig::default() });
    let engine = EngineSlot::default();
    let limits = ConnectionLimits::default();
    let serving = motet_gateway::serve(listener, gateway.router(), limits, drained(engine.clone()));
    // The load is looked at until the server has ended, and no longer.
    let serving = async {
        tokio::select! {
            ended = serving => ended,
            () = gateway.watch_load() => Ok(()),
        }
    };
    tokio::pin!(serving);
    let model = load_into(&gateway, config, address, &engine);
    tokio::pin!(model);
    let _loaded = tokio::select! {
        // A signal while the model loads: nothing is in flight that could be cut.
        ended = &mut serving => return ended.map_err(Failure::runtime),
        loaded = &mut model => loaded?,
    };
    serving.await.map_err(Failure::runtime)
}

/// Requests go to the first lane, and those that can wait to the first background lane.
fn lanes(lanes: &[LaneConfig]) -> Lanes {
    let background = lanes.iter().position(|lane| lane.kind == LaneKind::Background);
    Lanes { default: 0, background }
}

/// The engine, once there is one.
type EngineSlot = Arc<OnceLock<Arc<Engine>>>;

/// Completes when a shutdown was asked for and the engine takes no more: a request on a connection that
/// is still open would only prolong the end.
async fn drained(engine: EngineSlot) {
    shutdown_asked().await;
    if let Some(engine) = engine.get() {
        engine.drain();
    }
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
    let door = Door::open(config).await?;
    if door.is_empty().await? {
        say("There are no accounts yet: `motet keys create` makes the first and prints its API key");
    }
    Ok(Some(Arc::new(door)))
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

async fn load_into(
    gateway: &Arc<Gateway>,
    config: &Config,
    address: SocketAddr,
    slot: &EngineSlot,
) -> Result<Loaded, Failure> {
    let outcome = async {
        let loaded = find_and_load(config).await?;
        warm(&loaded).await?;
        Ok(loaded)
    }
    .await;
    let loaded: Loaded = match outcome {
        Ok(loaded) => loaded,
        Err(failure) => {
            gateway.set_failed(Failure::line(&failure).unwrap_or_default());
            return Err(failure);
        }
    };
    if let Err(why) = &loaded.template {
        say(&format!("warning: {why}; only /v1/completions will answer"));
    }
    // It is the only one: a server loads once.
    let _ = slot.set(Arc::clone(&loaded.engine));
    gateway.set_ready(ServedModel {
        id: loaded.id.clone(),
        created: loaded.created,
        tokenizer: loaded.tokenizer.clone(),
        template: loaded.template.as_ref().ok().cloned(),
        backend: loaded.engine.clone(),
    });
    say(&ready_line(&loaded, config, address));
    Ok(loaded)
}

fn ready_line(loaded: &Loaded, config: &Config, address: SocketAddr) -> String {
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
        config.engine.threads,
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
