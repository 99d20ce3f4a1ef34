//! The gateway with a scripted model, for work on clients without weights:
//! `cargo run -p motet-gateway --example fake_server`, then `MOTET_URL=http://127.0.0.1:8080`.
//!
//! The model, `lab/tiny`, has single bytes for tokens and answers every prompt with the same text,
//! varied by the seed, 50 tokens a second. `MOTET_FAKE_PORT` chooses another port.

#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::Duration;

use motet_gateway::{Gateway, GatewayConfig};
use motet_types::Request;
use support::{Beat, Fake, IM_END, say, served};
use tokio::net::TcpListener;

/// Between two tokens.
const PACE: Duration = Duration::from_millis(20);

#[tokio::main]
#[allow(clippy::print_stdout)]
async fn main() -> std::io::Result<()> {
    let port = std::env::var("MOTET_FAKE_PORT").ok().and_then(|port| port.parse().ok()).unwrap_or(8080);
    let gateway = Gateway::new(GatewayConfig::default());
    gateway.set_ready(served(Fake::new(script)));
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("http://{}", listener.local_addr()?);
    let shutdown = async { drop(tokio::signal::ctrl_c().await) };
    motet_gateway::serve(
        listener,
        Arc::clone(&gateway).router(),
        motet_gateway::ConnectionLimits::default(),
        shutdown,
    )
    .await
}

/// A greeting, a list and some code, so that a page has something to render.
fn script(request: &Request) -> Vec<Beat> {
    let sampling = request.samples[0];
    let seed = if sampling.temperature > 0.0 { sampling.seed % 1000 } else { 0 };
    let text = format!(
        "Hello {seed}! Here is a list:\n\n- **one**\n- *two*\n- three with `code`\n\n```python\nprint(1)\n```\n\nThat is **all** — goodbye."
    );
    let paced = say(&text).into_iter().flat_map(|beat| [Beat::Pause(PACE), beat]);
    paced.chain([Beat::Token(IM_END)]).collect()
}
