//! `POST /v1/files`: a form whose file goes to the disk as it comes.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::multipart::{Field, Multipart, MultipartError, MultipartRejection};
use axum::extract::{FromRequest, Request, State};
use futures_util::StreamExt;
use futures_util::stream::poll_fn;
use motet_protocol::RequestError;
use motet_store::{FileId, FileInfo};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

use crate::disk::Temp;
use crate::error::ApiError;
use crate::guard::Sender;
use crate::service::Service;
use crate::wire::FileObject;

/// Longest value of a field that is not the file.
const MAX_FIELD_BYTES: usize = 256;
/// Most fields of a form.
const MAX_FIELDS: usize = 16;
/// Longest name of a file in characters.
const MAX_NAME_CHARS: usize = 255;
/// How long a client that was refused is listened to, so that one that writes before it reads sees the answer.
const DRAIN: Duration = Duration::from_secs(20);
/// The shortest and the longest life that can be asked for: an hour and thirty days.
pub(crate) const LIFE_SECONDS: std::ops::RangeInclusive<i64> = 3_600..=2_592_000;
/// What files may be for.
pub(crate) const PURPOSES: [&str; 2] = ["batch", "user_data"];
/// From when a file's life is counted.
pub(crate) const ANCHOR: &str = "created_at";

/// What came with a form.
#[derive(Default)]
struct Form {
    purpose: Option<String>,
    anchor: Option<String>,
    seconds: Option<String>,
    file: Option<Received>,
}

/// A file that has come, and is not kept yet.
struct Received {
    id: FileId,
    temp: Temp,
    name: String,
    bytes: u64,
}

/// `POST /v1/files`.
pub(crate) async fn create(
    State(service): State<Arc<Service>>,
    sender: Sender,
    request: Request,
) -> Result<Json<FileObject>, ApiError> {
    let request = request.map(one_by_one);
    let mut form = Multipart::from_request(request, &()).await.map_err(|error| match error {
        MultipartRejection::InvalidBoundary(_) => {
            ApiError::ContentType("multipart/form-data; send the fields 'purpose' and 'file'")
        }
        error => ApiError::NotMultipart(error.body_text()),
    })?;
    let timeout = service.config.upload_timeout;
    let received = tokio::time::timeout(timeout, receive(&service, &sender, &mut form)).await;
    match received.unwrap_or(Err(ApiError::UploadTimeout(timeout.as_secs()))) {
        Ok(file) => Ok(Json(file.into())),
        Err(error) => {
            let drained = async { while let Ok(Some(_)) = form.next_field().await {} };
            let _ = tokio::time::timeout(DRAIN, drained).await;
            Err(error)
        }
    }
}

/// A body whose pieces come one at each poll. The parser of forms polls as long as there is something, and keeps all of
/// it in memory: a client that is faster than the disk would fill that.
fn one_by_one(body: Body) -> Body {
    let mut pieces = body.into_data_stream();
    let mut has_given = false;
    Body::from_stream(poll_fn(move |context| {
        has_given = !has_given;
        if has_given {
            return pieces.poll_next_unpin(context);
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }))
}

async fn receive(service: &Service, sender: &Sender, form: &mut Multipart) -> Result<FileInfo, ApiError> {
    let store = service.store().await?;
    let _place = service.uploads.try_acquire().map_err(|_| ApiError::Busy)?;
    let per_tenant = service.config.per_tenant;
    store.check_room_for_file(&sender.owner.org, 1, per_tenant).await?;
    let form = read(service, form).await?;
    let purpose = purpose(form.purpose)?;
    let now = service.config.now();
    let expires_at = life(form.anchor, form.seconds)?.map(|seconds| now + seconds * 1000);
    let Received { id, temp, name, bytes } = form.file.ok_or_else(|| RequestError::missing("file"))?;
    let owner = sender.owner.clone();
    let file = FileInfo { id, owner, name, purpose, bytes, created_at: now, expires_at };
    if file.bytes == 0 {
        return Err(RequestError::bad_value("file", "is empty; send at least one byte").into());
    }
    let (disk, kept) = (service.disk.clone(), file.clone());
    let keeping = tokio::task::spawn_blocking(move || disk.keep(temp, &kept.owner, &kept.id));
    keeping.await.map_err(|_| ApiError::Internal)??;
    if let Err(error) = store.add_file(&file, per_tenant).await {
        service.disk.remove(&file.owner, &file.id)?;
        return Err(error.into());
    }
    Ok(file)
}

async fn read(service: &Service, multipart: &mut Multipart) -> Result<Form, ApiError> {
    let mut form = Form::default();
    for _ in 0..MAX_FIELDS {
        let Some(field) = multipart.next_field().await.map_err(broken)? else { return Ok(form) };
        match field.name().unwrap_or_default() {
            "purpose" => form.purpose = Some(text(field, "purpose").await?),
            "expires_after[anchor]" => form.anchor = Some(text(field, "expires_after[anchor]").await?),
            "expires_after[seconds]" => form.seconds = Some(text(field, "expires_after[seconds]").await?),
            "file" if form.file.is_some() => {
                return Err(RequestError::bad_value("file", "was sent twice; send one file").into());
            }
            "file" => form.file = Some(store(service, field).await?),
            // Dropped with the next one.
            _ => {}
        }
    }
    Err(ApiError::NotMultipart(format!("it has more than {MAX_FIELDS} fields")))
}

async fn text(mut field: Field<'_>, name: &'static str) -> Result<String, ApiError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = field.chunk().await.map_err(broken)? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MAX_FIELD_BYTES {
            return Err(RequestError::bad_value(name, "is too long").into());
        }
    }
    String::from_utf8(bytes).map_err(|_| RequestError::bad_value(name, "is not UTF-8").into())
}

/// Writes a file to the disk as it comes.
async fn store(service: &Service, mut field: Field<'_>) -> Result<Received, ApiError> {
    let name = file_name(field.file_name().unwrap_or_default());
    let id = FileId::fresh()?;
    service.home().await?;
    let (temp, file) = service.disk.temp(&id)?;
    let mut file = File::from_std(file);
    let (mut bytes, most) = (0_u64, service.config.max_file_bytes);
    while let Some(chunk) = field.chunk().await.map_err(broken)? {
        bytes = bytes.saturating_add(chunk.len() as u64);
        if bytes > most {
            return Err(ApiError::TooLarge(most));
        }
        file.write_all(&chunk).await?;
    }
    file.flush().await?;
    file.sync_all().await?;
    Ok(Received { id, temp, name, bytes })
}

/// The last part of a path, without what could not be in a header or a terminal.
fn file_name(sent: &str) -> String {
    let last = sent.rsplit(['/', '\\']).next().unwrap_or_default();
    let name: String = last.chars().filter(|c| !c.is_control()).take(MAX_NAME_CHARS).collect();
    if name.is_empty() { "file".to_owned() } else { name }
}

fn broken(error: MultipartError) -> ApiError {
    ApiError::NotMultipart(error.body_text().chars().filter(|c| !c.is_control()).take(100).collect())
}

fn purpose(sent: Option<String>) -> Result<String, RequestError> {
    let sent = sent.ok_or_else(|| RequestError::missing("purpose"))?;
    match sent.as_str() {
        known if PURPOSES.contains(&known) => Ok(sent),
        "assistants" | "fine-tune" | "vision" | "evals" => Err(RequestError::unsupported(
            "purpose",
            "asks for what this server does not do; it takes 'batch', and 'user_data' to only keep a file",
        )),
        _ => Err(RequestError::bad_value("purpose", "must be 'batch' or 'user_data'")),
    }
}

/// After how many seconds a file is to go.
fn life(anchor: Option<String>, seconds: Option<String>) -> Result<Option<i64>, RequestError> {
    if anchor.is_none() && seconds.is_none() {
        return Ok(None);
    }
    if anchor.as_deref() != Some(ANCHOR) {
        return Err(RequestError::bad_value("expires_after[anchor]", "must be 'created_at'"));
    }
    let life = seconds.as_deref().and_then(|seconds| seconds.parse().ok());
    let life = life.filter(|seconds| LIFE_SECONDS.contains(seconds));
    life.map(Some).ok_or_else(|| {
        let rule = "must be a whole number from 3600 to 2592000";
        RequestError::bad_value("expires_after[seconds]", rule)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files() {
        let check = |sent: &str, kept: &str| assert_eq!(file_name(sent), kept);
        check("a.jsonl", "a.jsonl");
        check("../../etc/passwd", "passwd");
        check("C:\\x\\a.jsonl", "a.jsonl");
        check("a\r\nb", "ab");
        check("", "file");
        check("x/", "file");
        check(&"é".repeat(300), &"é".repeat(255));
    }
}
