//! A real `motet serve` for the client tests.

use crate::{paths, sh};
use anyhow::{Context, Result, bail};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the server may take to be ready; the development build on a busy machine is slow.
const START_LIMIT: Duration = Duration::from_secs(120);
/// How long it may take to end after it was asked to.
const STOP_LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(50);

/// A running server; dropping it ends it.
pub(crate) struct Server {
    child: Child,
    port: u16,
    log: PathBuf,
}

impl Server {
    /// Starts the server on a free port of this machine with the default model and a tiny one for embeddings, and waits
    /// until it is ready.
    pub(crate) fn start() -> Result<Self> {
        let run = paths::target().join("client-tests");
        let (config, data) = (run.join("config"), run.join("data"));
        fs::create_dir_all(&config)?;
        if data.exists() {
            // Files of the last time.
            fs::remove_dir_all(&data)?;
        }
        let port = free_port()?;
        let mut command = sh::command(paths::target().join("debug/motet"));
        command.args(["serve", "--host", "127.0.0.1", "--port", &port.to_string()]);
        command.arg("--embedding-model").arg(tiny_embedding_model(&run)?);
        without_user_settings(&mut command).env("XDG_CONFIG_HOME", config).env("XDG_DATA_HOME", data);
        Self::launch(&mut command, port, run.join("motet.log"))
    }

    /// Starts a second one, in front of the same model, that asks for keys; also a key of each tier, and an administrator's.
    pub(crate) fn start_with_accounts() -> Result<(Self, String)> {
        let run = paths::target().join("client-tests/accounts");
        if run.exists() {
            fs::remove_dir_all(&run)?;
        }
        fs::create_dir_all(&run)?;
        let motet = || {
            let mut command = sh::command(paths::target().join("debug/motet"));
            without_user_settings(&mut command).env("XDG_CONFIG_HOME", &run).env("XDG_DATA_HOME", &run);
            command.arg("--config").arg(paths::root().join("tests/clients/accounts.toml"));
            command
        };
        let mut keys = Vec::new();
        for tier in ["roomy", "tight", "pair", "broke"] {
            sh::run(motet().args(["users", "create", tier, "--tier", tier]))?;
            let key = sh::capture(motet().args(["keys", "create", "--user", tier]))?;
            keys.push(format!("{tier}={}", key.trim()));
        }
        let all = "chat,embeddings,batches,usage,admin";
        sh::run(motet().args(["users", "create", "admin", "--role", "admin", "--tier", "roomy"]))?;
        let key = sh::capture(motet().args(["keys", "create", "--user", "admin", "--scopes", all]))?;
        keys.push(format!("admin={}", key.trim()));
        let port = free_port()?;
        let mut command = motet();
        command.args(["serve", "--auth", "on", "--host", "127.0.0.1", "--port", &port.to_string()]);
        Ok((Self::launch(&mut command, port, run.join("motet.log"))?, keys.join(" ")))
    }

    /// Runs the command, which serves on `port`, with its output in the file `log`, and waits until it is ready.
    fn launch(command: &mut Command, port: u16, log: PathBuf) -> Result<Self> {
        let log_file = fs::File::create(&log)?;
        command.stdout(log_file.try_clone()?).stderr(log_file);
        let child = command.spawn().with_context(|| format!("cannot start {}", sh::shown(command)))?;
        let mut server = Self { child, port, log };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Its address, without a slash at the end.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Ends it; an error when it had ended before, or does not end when asked to.
    pub(crate) fn stop(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("the server ended by itself ({status}):\n{}", self.log_tail());
        }
        sh::run(sh::command("kill").args(["-TERM", &self.child.id().to_string()]))?;
        let start = Instant::now();
        while start.elapsed() < STOP_LIMIT {
            if self.child.try_wait()?.is_some() {
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
        bail!("the server did not end within {} s of SIGTERM:\n{}", STOP_LIMIT.as_secs(), self.log_tail());
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < START_LIMIT {
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended at its start ({status}):\n{}", self.log_tail());
            }
            if is_ready(self.port) {
                println!("server: ready at {} after {:.1} s", self.url(), start.elapsed().as_secs_f64());
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
        bail!("the server was not ready within {} s:\n{}", START_LIMIT.as_secs(), self.log_tail());
    }

    /// The last lines the server wrote.
    pub(crate) fn log_tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only when it has ended, which is what they are for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes the folder of the embedding model that the client tests know as `tiny-bert`.
fn tiny_embedding_model(run: &Path) -> Result<PathBuf> {
    let folder = run.join("tiny-bert");
    let example = ["run", "--quiet", "-p", "motet-testkit", "--example", "tiny_bert", "--"];
    sh::run(sh::cargo().args(example).arg(&folder))?;
    Ok(folder)
}

/// Takes the user's own Motet settings out of the command's environment.
fn without_user_settings(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("MOTET_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null())
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn is_ready(port: u16) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")?;
        let mut status = [0; 12];
        stream.read_exact(&mut status)?;
        Ok(status.ends_with(b" 200"))
    };
    ask().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that is ready at the second time of asking.
    const STUB: &str = "
import http.server, sys
asked = 0
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global asked
        asked += 1
        self.send_response(200 if asked > 1 else 503)
        self.end_headers()
http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()
";

    #[test]
    fn a_server_is_waited_for_and_ended() {
        if sh::which("python3").is_none() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let port = free_port().unwrap();
        let mut command = sh::command("python3");
        command.args(["-c", STUB, &port.to_string()]);
        let mut server = Server::launch(&mut command, port, dir.path().join("log")).unwrap();
        assert!(is_ready(port));
        assert!(server.log_tail().contains("/readyz"));
        server.stop().unwrap();
        assert!(!is_ready(port));
        assert!(server.stop().unwrap_err().to_string().contains("ended by itself"));
    }

    #[test]
    fn a_server_that_ends_at_once_is_an_error_with_its_last_words() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = sh::command("sh");
        command.args(["-c", "echo no model; exit 2"]);
        let error = Server::launch(&mut command, 1, dir.path().join("log")).err().unwrap().to_string();
        assert!(error.contains("no model") && error.contains("exit status: 2"), "{error}");
    }
}
