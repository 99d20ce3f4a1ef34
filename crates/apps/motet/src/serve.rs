use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use motet_gateway::{Gateway, GatewayConfig, ServedModel};
use tokio::net::TcpListener;

use crate::{
    config::{Config, human_bytes},
    failure::Failure,
    generate::warm,
    load::{Loaded, find_and_load},
    output::say,
    signals::shutdown_asked,
};

/// Serves until a signal. The port opens before the model is there, so that a supervisor sees a live
/// process; `/readyz` turns 200 after one real generation.
pub(crate) async fn serve(config: &Config) -> Result<(), Failure> {
    refuse_strangers(config.host)?;
    let listener = bind(SocketAddr::new(config.host, config.port)).await?;
    let address = listener.local_addr().map_err(Failure::runtime)?;
    say(&format!("Motet listens on http://{address} and loads {}", config.model));

    let gateway = Gateway::new(GatewayConfig::default());
    let serving = motet_gateway::serve(listener, gateway.router(), shutdown_asked());
    tokio::pin!(serving);
    let model = load_into(&gateway, config, address);
    tokio::pin!(model);
    let _loaded = tokio::select! {
        // A signal while the model loads: nothing is in flight that could be cut.
        ended = &mut serving => return ended.map_err(Failure::runtime),
        loaded = &mut model => loaded?,
    };
    serving.await.map_err(Failure::runtime)?;
    say("Motet stopped");
    Ok(())
}

/// Without accounts anyone who reaches the port may use the model, so only this machine may.
fn refuse_strangers(host: IpAddr) -> Result<(), Failure> {
    if host.is_loopback() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{host} can be reached from other machines, and Motet has no accounts yet to tell who may use it; \
         listen on 127.0.0.1 and use an SSH tunnel or an authenticating proxy from elsewhere"
    )))
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

async fn load_into(gateway: &Arc<Gateway>, config: &Config, address: SocketAddr) -> Result<Loaded, Failure> {
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
    gateway.set_ready(ServedModel {
        id: loaded.id.clone(),
        created: loaded.created,
        tokenizer: loaded.tokenizer.clone(),
        template: loaded.template.as_ref().ok().cloned(),
        backend: loaded.backend.clone(),
    });
    say(&ready_line(&loaded, config, address));
    Ok(loaded)
}

fn ready_line(loaded: &Loaded, config: &Config, address: SocketAddr) -> String {
    format!(
        "Ready: {} on http://{address}, room for {} tokens in {}, {} threads, loaded in {:.1} s; Ctrl-C stops",
        loaded.id,
        loaded.kv_tokens(),
        human_bytes(config.engine.kv_bytes as u64),
        config.engine.threads,
        loaded.took.as_secs_f64()
    )
}
