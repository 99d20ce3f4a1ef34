//! A Redis of the test's own.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// `redis-server` on a free port, in a folder that goes with it. Killed when dropped.
pub(crate) struct Server {
    process: Child,
    pub(crate) port: u16,
    _folder: TempDir,
}

impl Server {
    /// `None` where Redis is not installed; with `CI` set that is a failure.
    pub(crate) fn start() -> Option<Self> {
        let is_there = Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_ok();
        if !is_there {
            assert!(
                std::env::var_os("CI").is_none(),
                "redis-server is not installed: apt-get install redis-server"
            );
            eprintln!("skipped: redis-server is not installed (apt-get install redis-server)");
            return None;
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Some(Self::start_on(port))
    }

    pub(crate) fn start_on(port: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .arg("--dir")
            .arg(folder.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(started.elapsed() < Duration::from_secs(60), "redis-server does not listen on {port}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { process, port, _folder: folder }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
