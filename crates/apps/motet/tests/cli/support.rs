//! The binary with an environment of its own, and as much HTTP as the tests need.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use motet_testkit::{TinyModel, TinyModelFile, tiny_model_file};
use tempfile::TempDir;

/// Longest wait for something that should take milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// A tiny model and an empty home folder.
pub struct World {
    pub home: TempDir,
    pub model: TinyModelFile,
}

impl World {
    pub fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap(), model: tiny_model_file(&TinyModel::default()) }
    }

    /// The binary with nothing of this machine's environment.
    pub fn motet(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_motet"));
        command.env_clear().env("HOME", self.home.path()).current_dir(self.home.path());
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn model(&self) -> String {
        self.model.path().to_str().unwrap().to_owned()
    }

    /// Runs it with the tiny model, small memory, and `input` on standard input.
    pub fn with_model(&self, args: &[&str], input: &str) -> Output {
        let model = self.model();
        let args = with_defaults(args, &[("--model", &model), ("--kv-memory", "4MiB"), ("--threads", "1")]);
        let mut child = self.motet(&args).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// Runs it to the end; returns exit code, standard output, standard error.
    pub fn run(&self, args: &[&str]) -> (i32, String, String) {
        parts(self.motet(args).output().unwrap())
    }
}

/// `args` and the flags of `defaults` that are not among them.
fn with_defaults<'a>(args: &[&'a str], defaults: &[(&'a str, &'a str)]) -> Vec<&'a str> {
    let absent = defaults.iter().filter(|(flag, _)| !args.contains(flag));
    args.iter().copied().chain(absent.flat_map(|(flag, value)| [*flag, *value])).collect()
}

pub fn parts(output: Output) -> (i32, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// A server that ends with the test.
pub struct Server {
    child: Child,
    pub address: String,
    /// Lines of standard error as they come.
    lines: mpsc::Receiver<String>,
}

impl Server {
    /// Starts `motet serve` on a free port and waits until it listens.
    pub fn start(world: &World, model: &Path, args: &[&str]) -> Self {
        let model = ("--model", model.to_str().unwrap());
        Self::start_with(world, args, &[("--port", "0"), ("--kv-memory", "4MiB"), model])
    }

    /// Starts `motet serve` with the models of a configuration file.
    pub fn start_models(world: &World, config: &Path) -> Self {
        Self::start_with(world, &["--config", config.to_str().unwrap()], &[("--port", "0")])
    }

    fn start_with(world: &World, args: &[&str], defaults: &[(&str, &str)]) -> Self {
        let mut all = vec!["serve"];
        all.extend(with_defaults(args, defaults));
        let mut child = world.motet(&all).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            stderr.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let mut server = Self { child, address: String::new(), lines };
        let line = server.line("listens on");
        server.address = line.split("http://").nth(1).unwrap().split(' ').next().unwrap().to_owned();
        server
    }

    /// The next line of standard error that contains `part`.
    pub fn line(&self, part: &str) -> String {
        let begun = Instant::now();
        loop {
            let line = self.lines.recv_timeout(PATIENCE.saturating_sub(begun.elapsed())).expect(part);
            if line.contains(part) {
                return line;
            }
        }
    }

    pub fn get(&self, path: &str) -> Response {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")).read()
    }

    /// Posts JSON; the caller reads the answer as it comes.
    pub fn post(&self, path: &str, body: &serde_json::Value) -> Reply {
        self.post_with("", path, body)
    }

    /// Posts JSON with a key.
    pub fn post_as(&self, key: &str, path: &str, body: &serde_json::Value) -> Reply {
        self.post_with(&format!("Authorization: Bearer {key}\r\n"), path, body)
    }

    /// Posts JSON with header lines, each ended by CR LF.
    pub fn post_with(&self, headers: &str, path: &str, body: &serde_json::Value) -> Reply {
        let body = body.to_string();
        self.send(&format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
             {headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    }

    /// Reads with a key.
    pub fn get_as(&self, key: &str, path: &str) -> Response {
        let auth = format!("Authorization: Bearer {key}");
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{auth}\r\n\r\n"))
            .read()
    }

    /// Uploads a file for batches with a key.
    pub fn upload_as(&self, key: &str, content: &str) -> Response {
        let part = "--XX\r\nContent-Disposition: form-data; name=";
        let body = format!(
            "{part}\"purpose\"\r\n\r\nbatch\r\n{part}\"file\"; filename=\"in.jsonl\"\r\n\r\n{content}\r\n--XX--\r\n"
        );
        self.send(&format!(
            "POST /v1/files HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {key}\r\n\
             Content-Type: multipart/form-data; boundary=XX\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ))
        .read()
    }

    fn send(&self, request: &str) -> Reply {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        Reply(BufReader::new(stream))
    }

    /// A gauge or counter of `/metrics`, such as `motet_ready` or `motet_x{lane="main"}`: the sum over all other labels.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").body;
        let (name, label) = name.trim_end_matches('}').split_once('{').unwrap_or((name, ""));
        let is_meant = |line: &&str| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']) && rest.contains(label))
        };
        let values: Vec<f64> = text
            .lines()
            .filter(is_meant)
            .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
            .collect();
        assert!(!values.is_empty(), "{name}{{{label}}} is not in\n{text}");
        values.iter().sum()
    }

    /// Asks until `holds`; fails when it takes too long.
    pub fn wait_until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !holds(self) {
            assert!(begun.elapsed() < PATIENCE, "{what}");
            std::thread::yield_now();
        }
    }

    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Waits for the end and returns the exit code.
    pub fn ended(&mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An answer that is still coming.
pub struct Reply(BufReader<TcpStream>);

impl Reply {
    /// The next line, without its end.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The next line that starts with `start`.
    pub fn line_with(&mut self, start: &str) -> String {
        loop {
            let line = self.line();
            if line.starts_with(start) {
                return line;
            }
        }
    }

    /// Everything that is still to come.
    pub fn read_rest(mut self) -> String {
        let mut text = String::new();
        self.0.read_to_string(&mut text).unwrap();
        text
    }

    pub fn read(self) -> Response {
        let text = self.read_rest();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Response { status, head: head.to_owned(), body: body.to_owned() }
    }
}

/// A whole answer; the body may still be in chunks.
pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Response {
    /// A header's value; empty where it is not there.
    pub fn header(&self, name: &str) -> &str {
        let value =
            |line: &'_ str| line.strip_prefix(name).and_then(|rest| rest.strip_prefix(": ").map(str::len));
        self.head
            .lines()
            .find_map(|line| value(line).map(|length| &line[line.len() - length..]))
            .unwrap_or("")
    }
}
