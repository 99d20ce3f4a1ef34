//! A PostgreSQL server for the time of a test: in a temporary folder, on a Unix socket, stopped when dropped.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// A running server.
pub(crate) struct Server {
    process: Child,
    folder: TempDir,
    programs: PathBuf,
}

impl Server {
    /// Starts one. `None`, with a word about it: there is no PostgreSQL here; with `CI` set that is a failure.
    pub(crate) fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            let is_ci = env::var("CI").is_ok_and(|value| !value.is_empty() && value != "false");
            assert!(!is_ci, "PostgreSQL is not installed, and CI is set");
            eprintln!("skipped: PostgreSQL is not installed (Debian: apt-get install postgresql)");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        if is_root() {
            give_to_postgres(folder.path());
        }
        let data = folder.path().join("data");
        let made = as_user(&programs.join("initdb"))
            .args(["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "-D"])
            .arg(&data)
            .stdout(Stdio::null())
            .status();
        assert!(made.unwrap().success(), "initdb failed");
        let process = launch(&programs, folder.path());
        let mut server = Self { process, folder, programs };
        server.wait();
        Some(server)
    }

    /// Cuts every connection.
    pub(crate) fn stop(&mut self) {
        // Once it has ended its number may be another process's.
        if self.process.try_wait().is_ok_and(|status| status.is_some()) {
            return;
        }
        // SIGINT is a fast shutdown: nothing is waited for, files are left in order.
        let _ = Command::new("kill").args(["-INT", &self.process.id().to_string()]).status();
        let _ = self.process.wait();
    }

    /// Starts it again after [`Server::stop`].
    pub(crate) fn start_again(&mut self) {
        self.process = launch(&self.programs, self.folder.path());
        self.wait();
    }

    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://postgres@localhost/{database}?host={}", self.folder.path().display())
    }

    /// A database as SQL text.
    pub(crate) fn dump(&self, database: &str) -> String {
        let mut dump = Command::new(self.programs.join("pg_dump"));
        dump.args(["--inserts", "--no-owner", "--no-privileges", "-U", "postgres", "-h"]);
        let output = dump.arg(self.folder.path()).arg(database).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Until the server answers: there is no file or signal that tells.
    fn wait(&mut self) {
        let begun = Instant::now();
        let mut ready = Command::new(self.programs.join("pg_isready"));
        ready.arg("-q").arg("-h").arg(self.folder.path());
        while !ready.status().unwrap().success() {
            let log = || fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(self.process.try_wait().unwrap().is_none(), "the server ended: {}", log());
            assert!(begun.elapsed() < Duration::from_secs(60), "the server does not answer: {}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn launch(programs: &Path, folder: &Path) -> Child {
    let log = fs::File::create(folder.join("log")).unwrap();
    as_user(&programs.join("postgres"))
        .args(["-F", "-c", "listen_addresses=", "-c", "max_connections=60", "-D"])
        .arg(folder.join("data"))
        .arg("-k")
        .arg(folder)
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// The folder with the server's programs.
fn programs() -> Option<PathBuf> {
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut debian: Vec<PathBuf> = debian.map(|version| version.path().join("bin")).collect();
    debian.sort();
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders = debian.into_iter().rev().chain(env::split_paths(&path));
    folders.find(|folder| {
        ["initdb", "postgres", "pg_isready"].iter().all(|program| folder.join(program).exists())
    })
}

fn is_root() -> bool {
    id(&["-u"]).as_deref() == Some("0")
}

fn id(args: &[&str]) -> Option<String> {
    let output = Command::new("id").args(args).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// PostgreSQL does not run as root.
fn as_user(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program).current_dir("/");
    command
}

fn give_to_postgres(folder: &Path) {
    let owner = id(&["-u", "postgres"]).and_then(|id| id.parse().ok());
    assert!(owner.is_some(), "this runs as root, and there is no user `postgres` to run the server as");
    std::os::unix::fs::chown(folder, owner, None).unwrap();
}
