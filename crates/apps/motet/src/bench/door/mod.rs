//! `motet bench door`: what stands in front of a replica, and how long it takes.
//!
//! The replica is a simulated one that answers at once, so all that is measured is around it: HTTP, JSON, templates,
//! tokens, and with accounts the key, the limits and the usage written down. The reference is the barest server over
//! the same replica, in the same run, and the sender is the same for all.

mod sender;
mod servers;

use std::time::Duration;

use clap::Args;

use crate::{failure::Failure, output::print};

use sender::{Load, Sample};
use servers::Server;

pub(super) const HELP: &str = "\
Examples:
  motet bench door                                500 requests/s, replies of 16 tokens
  motet bench door --rate 2000 --seconds 20
  motet bench door --redis redis://127.0.0.1:6379 limits kept in Redis, too

Times are from the sending of a request to the last byte of its reply, over loopback, in milliseconds. `added` is what
is more than the bare server's at the same share of requests.";

/// What to put on the server.
#[derive(Debug, Args)]
pub(crate) struct DoorBenchArgs {
    /// Requests a second, at random times
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// Seconds for each server in each round
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Rounds; servers take turns in each
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Connections that are kept open
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    connections: u32,
    /// Tokens of a reply
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    tokens: u32,
    /// Replies as events instead of one body
    #[arg(long)]
    stream: bool,
    /// Also measure with limits in this Redis
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
}

pub(super) async fn bench(args: &DoorBenchArgs) -> Result<(), Failure> {
    let folder = tempfile::tempdir().map_err(Failure::runtime)?;
    let mut servers = vec![Server::bare(args.tokens).await?, Server::open().await?];
    servers.push(Server::with_accounts("accounts, limits in memory", folder.path(), None).await?);
    if let Some(url) = &args.redis {
        servers.push(Server::with_accounts("accounts, limits in Redis", folder.path(), Some(url)).await?);
    }
    let mut samples: Vec<Sample> = servers.iter().map(|_| Sample::default()).collect();
    for round in 0..args.rounds {
        for (server, sample) in servers.iter().zip(&mut samples) {
            let load = Load {
                rate: f64::from(args.rate),
                length: Duration::from_secs(u64::from(args.seconds)),
                connections: args.connections,
                request: request(args, server),
                seed: u64::from(round),
            };
            sample.add(sender::send(server.address, load).await?);
        }
    }
    let text = table(&servers, &samples);
    for server in servers {
        server.stop().await;
    }
    print(&text)
}

/// The bytes of a request, some hundred characters of prompt.
fn request(args: &DoorBenchArgs, server: &Server) -> Vec<u8> {
    let body = serde_json::json!({
        "model": servers::MODEL,
        "messages": [
            {"role": "system", "content": "You are a helpful assistant. Answer briefly and to the point."},
            {"role": "user", "content": "Which voices enter first in a motet, and who leaves before the end? Say why."},
        ],
        "max_tokens": args.tokens,
        "stream": args.stream,
    })
    .to_string();
    let key = server.key.as_ref().map_or(String::new(), |key| format!("authorization: Bearer {key}\r\n"));
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n{key}content-length: {}\r\n\r\n",
        body.len()
    );
    (head + &body).into_bytes()
}

fn table(servers: &[Server], samples: &[Sample]) -> String {
    let mut text = format!(
        "{:<28} {:>9} {:>7} {:>8} {:>8} {:>8} {:>11} {:>11}\n",
        "milliseconds", "replies/s", "failed", "p50", "p90", "p99", "added p50", "added p99"
    );
    let bare = [samples[0].at(0.5), samples[0].at(0.99)];
    for (server, sample) in servers.iter().zip(samples) {
        let added = [sample.at(0.5) - bare[0], sample.at(0.99) - bare[1]];
        text += &format!(
            "{:<28} {:>9.0} {:>7} {:>8.3} {:>8.3} {:>8.3} {:>11.3} {:>11.3}\n",
            server.name,
            sample.rate(),
            sample.failed,
            sample.at(0.5),
            sample.at(0.9),
            sample.at(0.99),
            added[0],
            added[1]
        );
    }
    text
}
