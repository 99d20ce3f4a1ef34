//! The bytes of one blob: resumed, checked, renamed into place.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use reqwest::{Response, StatusCode, header::CONTENT_RANGE};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncWriteExt, BufWriter};

use crate::{
    HubError, Progress, RetryPolicy,
    client::{Client, Fault, FileInfo, broken, protocol},
};

/// Bytes gathered before they go to the disk.
const BUFFER: usize = 1 << 20;

/// A blob to be fetched. Whoever holds one holds the blob's lock.
pub(crate) struct Download<'a> {
    pub(crate) client: &'a Client,
    pub(crate) repo: &'a str,
    pub(crate) file: &'a str,
    pub(crate) info: &'a FileInfo,
    pub(crate) progress: &'a dyn Progress,
}

impl Download<'_> {
    /// Fetches what is missing, checks the whole and renames it to `blob`.
    pub(crate) async fn run(&self, blob: &Path) -> Result<(), HubError> {
        let partial = PathBuf::from(format!("{}.incomplete", blob.display()));
        let resumed = usable_bytes(&partial, self.info.size)?;
        self.progress.start(self.file, resumed, self.info.size);
        self.complete(&partial).await?;
        if let Err(error) = self.verify(&partial).await {
            fs::remove_file(&partial).map_err(HubError::io(&partial))?;
            if resumed == 0 {
                return Err(error);
            }
            // What was on the disk may be to blame: once more from the start.
            self.progress.note("the resumed file fails its check; fetching it from the start");
            self.progress.advance(0);
            self.complete(&partial).await?;
            if let Err(error) = self.verify(&partial).await {
                fs::remove_file(&partial).map_err(HubError::io(&partial))?;
                return Err(error);
            }
        }
        fs::rename(&partial, blob).map_err(HubError::io(blob))?;
        self.progress.finish();
        Ok(())
    }

    /// Fetches until `partial` has all its bytes. Tries that bring little are limited in a row.
    async fn complete(&self, partial: &Path) -> Result<(), HubError> {
        let limit = self.client.config.retry.attempts;
        let mut tries = 0;
        loop {
            let before = usable_bytes(partial, self.info.size)?;
            if before == self.info.size && partial.exists() {
                return Ok(());
            }
            let Err(fault) = self.append(partial, before).await else { continue };
            let after = usable_bytes(partial, self.info.size)?;
            self.progress.advance(after);
            tries = if after.saturating_sub(before) >= RetryPolicy::GAIN { 1 } else { tries + 1 };
            self.client.pause(fault, tries, limit, self.progress).await.map_err(|e| keep_note(e, after))?;
        }
    }

    /// One try: asks for the bytes from `from` on and writes what comes.
    async fn append(&self, partial: &Path, from: u64) -> Result<(), Fault> {
        let mut response = self.client.open(self.repo, self.file, from).await?;
        if response.status() == StatusCode::RANGE_NOT_SATISFIABLE {
            fs::remove_file(partial).map_err(HubError::io(partial))?;
            let host = response.url().host_str().unwrap_or_default().to_owned();
            return Err(Fault::Broken { host, why: format!("the server has no byte {from} to resume at") });
        }
        let start = self.start_of(&response, from)?;
        let file = open_at(partial, start).await.map_err(|e| self.disk(partial, start, e))?;
        let mut writer = BufWriter::with_capacity(BUFFER, file);
        let mut done = start;
        let outcome = loop {
            match response.chunk().await {
                Ok(None) => break Ok(()),
                Err(error) => break Err(broken(response.url(), &error)),
                Ok(Some(chunk)) => {
                    done += chunk.len() as u64;
                    if done > self.info.size {
                        break Err(Fault::Fatal(
                            self.protocol(format!("more than {} bytes came", self.info.size)),
                        ));
                    }
                    writer.write_all(&chunk).await.map_err(|e| self.disk(partial, done, e))?;
                    self.progress.advance(done);
                }
            }
        };
        // What came before a fault is kept for the next try.
        writer.flush().await.map_err(|e| self.disk(partial, done, e))?;
        outcome?;
        if done < self.info.size {
            let host = response.url().host_str().unwrap_or_default().to_owned();
            return Err(Fault::Broken { host, why: "the connection ended before the file did".to_owned() });
        }
        writer.get_ref().sync_all().await.map_err(|e| Fault::Fatal(self.disk(partial, done, e)))
    }

    /// Where the bytes of `response` belong: `from`, or 0 when the server does not resume.
    fn start_of(&self, response: &Response, from: u64) -> Result<u64, Fault> {
        match response.status() {
            StatusCode::PARTIAL_CONTENT => {
                let range = response.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
                match range.and_then(parse_range) {
                    Some((start, total)) if start == from && total.is_none_or(|t| t == self.info.size) => {
                        Ok(from)
                    }
                    _ => Err(self.protocol(format!("asked from byte {from}, got range {range:?}")).into()),
                }
            }
            _ => match response.content_length() {
                Some(length) if length != self.info.size => Err(self
                    .protocol(format!("{length} bytes were announced where the file has {}", self.info.size))
                    .into()),
                _ => Ok(0),
            },
        }
    }

    async fn verify(&self, partial: &Path) -> Result<(), HubError> {
        let Some(want) = self.info.sha256.clone() else { return Ok(()) };
        let path = partial.to_owned();
        let got = tokio::task::spawn_blocking(move || sha256(&path))
            .await
            .unwrap_or_else(|e| Err(io::Error::other(e)))
            .map_err(HubError::io(partial))?;
        if got == want { Ok(()) } else { Err(HubError::WrongSha { file: self.file.to_owned(), want, got }) }
    }

    fn disk(&self, path: &Path, done: u64, error: io::Error) -> HubError {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => HubError::DiskFull {
                path: path.to_owned(),
                missing: self.info.size.saturating_sub(done).max(1),
            },
            _ => HubError::io(path)(error),
        }
    }

    fn protocol(&self, why: String) -> HubError {
        protocol(&format!("{}/{}", self.repo, self.file), why)
    }
}

/// Bytes of an earlier try that can be built on; removes a file that is longer than it may be.
fn usable_bytes(partial: &Path, size: u64) -> Result<u64, HubError> {
    match fs::metadata(partial) {
        Ok(meta) if meta.len() <= size => Ok(meta.len()),
        Ok(_) => fs::remove_file(partial).map(|()| 0).map_err(HubError::io(partial)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(HubError::io(partial)(error)),
    }
}

/// `partial` for appending at `start`, its end; 0 empties it.
async fn open_at(partial: &Path, start: u64) -> io::Result<tokio::fs::File> {
    let mut options = tokio::fs::OpenOptions::new();
    if start == 0 {
        options.write(true).create(true).truncate(true)
    } else {
        options.append(true)
    };
    options.open(partial).await
}

/// `bytes 5-9/10` → `(5, Some(10))`.
fn parse_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let start = range.split_once('-')?.0.trim().parse().ok()?;
    if total == "*" { Some((start, None)) } else { Some((start, Some(total.trim().parse().ok()?))) }
}

fn sha256(path: &Path) -> io::Result<String> {
    use std::{fmt::Write, io::Read};
    let mut file = fs::File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; BUFFER];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
    }
    let mut hex = String::with_capacity(64);
    for byte in hasher.finalize() {
        // Writing to a string does not fail.
        let _ = write!(hex, "{byte:02x}");
    }
    Ok(hex)
}

fn keep_note(error: HubError, kept: u64) -> HubError {
    match error {
        HubError::Network { host, tries, why, .. } if kept > 0 => HubError::Network {
            host,
            tries,
            why,
            kept: format!("; {kept} bytes are kept, run the same command to resume"),
        },
        other => other,
    }
}
