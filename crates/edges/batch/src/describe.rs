//! Files and batches for the OpenAPI document, by the bounds that requests are read with.

use motet_protocol::openapi::{Access, Document, Operation, nullable, object, parameter, reference, with};
use motet_store::BatchStatus;
use serde_json::{Value, json};

use crate::list::Limits;
use crate::wire::WINDOW;
use crate::{batches, files, upload};

const FILES: &str = "Files";
const BATCHES: &str = "Batches";

/// What every route may answer with besides its own.
const LIST: &[u16] = &[400, 401, 403, 500, 503];
const ONE: &[u16] = &[401, 403, 404, 500, 503];
const CHANGE: &[u16] = &[400, 401, 403, 404, 500, 503];
const CREATE: &[u16] = &[400, 401, 403, 408, 415, 429, 500, 503];
const UPLOAD: &[u16] = &[400, 401, 403, 408, 413, 415, 429, 500, 503];

/// Adds the routes of [`Batches::routes`](crate::Batches::routes).
pub fn describe(document: &mut Document) {
    document.schema("File", file());
    document.schema("Batch", batch());
    files_of_callers(document);
    batches_of_callers(document);
}

fn files_of_callers(document: &mut Document) {
    let new = |id, summary, parameters, errors| Operation {
        parameters,
        errors,
        access: Access::Caller,
        ..Operation::new(id, FILES, summary)
    };
    let purpose = parameter("query", "purpose", "Only files of this one.", &json!({"type": "string"}));
    let list = new("listFiles", "Your files", part_of_a_list(files::LIMITS, vec![purpose]), LIST);
    document.route("get", "/v1/files", &list.gives("A part of the list.", part("File")));
    let create = Operation {
        body: Some(("multipart/form-data", form())),
        ..new("createFile", "Upload a file", Vec::new(), UPLOAD)
    };
    document.route("post", "/v1/files", &create.gives("The file.", reference("File")));
    let one = new("getFile", "One file", vec![id("file")], ONE);
    document.route("get", "/v1/files/{id}", &one.gives("The file.", reference("File")));
    let gone = object(
        &["id", "object", "deleted"],
        json!({"id": {"type": "string"}, "object": {"const": "file"}, "deleted": {"const": true}}),
    );
    let delete = new("deleteFile", "Delete a file", vec![id("file")], CHANGE);
    document.route("delete", "/v1/files/{id}", &delete.gives("It is gone.", gone));
    let bytes = json!({"type": "string", "contentMediaType": "application/octet-stream"});
    let content = Operation {
        answers: vec![(200, "What it holds.", vec![("application/octet-stream", bytes)])],
        headers: vec!["content-disposition"],
        ..new("getFileContent", "What a file holds", vec![id("file")], ONE)
    };
    document.route("get", "/v1/files/{id}/content", &content);
}

fn batches_of_callers(document: &mut Document) {
    let new = |id, summary, parameters, errors| {
        let operation = Operation::new(id, BATCHES, summary);
        Operation { parameters, errors, access: Access::Caller, ..operation }
    };
    let list = new("listBatches", "Your batches", part_of_a_list(batches::LIMITS, Vec::new()), LIST);
    document.route("get", "/v1/batches", &list.gives("A part of the list.", part("Batch")));
    let create = new("createBatch", "Run a file of requests in the background", Vec::new(), CREATE);
    document.route("post", "/v1/batches", &create.takes(asks()).gives("The batch.", reference("Batch")));
    let one = new("getBatch", "One batch", vec![id("batch")], ONE);
    document.route("get", "/v1/batches/{id}", &one.gives("The batch.", reference("Batch")));
    let cancel = new("cancelBatch", "End a batch; what is answered is kept", vec![id("batch")], CHANGE);
    document.route("post", "/v1/batches/{id}/cancel", &cancel.gives("The batch.", reference("Batch")));
}

fn id(what: &str) -> Value {
    parameter("path", "id", &format!("The {what}'s."), &json!({"type": "string", "minLength": 1}))
}

fn part_of_a_list(Limits { usual, most }: Limits, more: Vec<Value>) -> Vec<Value> {
    let limit = json!({"type": "integer", "minimum": 1, "maximum": most, "default": usual});
    let order = json!({"type": "string", "enum": ["asc", "desc"], "default": "desc"});
    let after = "The id of the last entry of the part before.";
    let own = [
        parameter("query", "limit", "Most entries.", &limit),
        parameter("query", "order", "By when they were made.", &order),
        parameter("query", "after", after, &json!({"type": "string"})),
    ];
    own.into_iter().chain(more).collect()
}

fn part(of: &str) -> Value {
    let id = || json!({"type": ["string", "null"]});
    object(
        &["object", "data", "first_id", "last_id", "has_more"],
        json!({
            "object": {"const": "list"},
            "data": {"type": "array", "items": reference(of)},
            "first_id": id(),
            "last_id": id(),
            "has_more": {"type": "boolean"},
        }),
    )
}

fn form() -> Value {
    let (least, most) = (upload::LIFE_SECONDS.start(), upload::LIFE_SECONDS.end());
    let mut form = object(
        &["file", "purpose"],
        json!({
            "file": {
                "type": "string", "format": "binary", "minLength": 1, "contentMediaType": "application/octet-stream",
            },
            "purpose": {
                "type": "string", "enum": upload::PURPOSES,
                "description": "`batch` for the input of a batch; `user_data` to only keep it.",
            },
            "expires_after[anchor]": {"type": "string", "enum": [upload::ANCHOR]},
            "expires_after[seconds]": {"type": "integer", "minimum": least, "maximum": most},
        }),
    );
    form["dependentRequired"] = json!({
        "expires_after[anchor]": ["expires_after[seconds]"],
        "expires_after[seconds]": ["expires_after[anchor]"],
    });
    form
}

fn asks() -> Value {
    let metadata = json!({
        "type": "object",
        "maxProperties": batches::MAX_PAIRS,
        "propertyNames": {"maxLength": batches::MAX_KEY_CHARS},
        "additionalProperties": {"type": "string", "maxLength": batches::MAX_VALUE_CHARS},
    });
    let mut asks = object(
        &["input_file_id", "endpoint", "completion_window"],
        json!({
            "input_file_id": {"type": "string", "description": "A file of the purpose `batch`."},
            "endpoint": {"type": "string", "enum": batches::ENDPOINTS},
            "completion_window": {"type": "string", "enum": [WINDOW]},
            "metadata": with(nullable(metadata), "The client's own."),
        }),
    );
    asks["properties"][batches::UNSUPPORTED] = json!({"type": "null", "description": "Not supported."});
    asks
}

fn seconds(what: &str) -> Value {
    json!({"type": "integer", "description": format!("Unix seconds: {what}")})
}

fn file() -> Value {
    object(
        &[
            "id",
            "object",
            "bytes",
            "created_at",
            "expires_at",
            "filename",
            "purpose",
            "status",
            "status_details",
        ],
        json!({
            "id": {"type": "string"},
            "object": {"const": "file"},
            "bytes": {"type": "integer", "minimum": 0},
            "created_at": seconds("when it came."),
            "expires_at": nullable(seconds("when it goes by itself.")),
            "filename": {"type": "string"},
            "purpose": {"type": "string"},
            "status": {"const": "processed"},
            "status_details": {"type": "null"},
        }),
    )
}

fn batch() -> Value {
    let problem = object(
        &["code", "message", "param", "line"],
        json!({
            "code": {"type": "string"},
            "message": {"type": "string"},
            "param": {"type": ["string", "null"]},
            "line": {"type": ["integer", "null"]},
        }),
    );
    let problems = object(
        &["object", "data"],
        json!({"object": {"const": "list"}, "data": {"type": "array", "items": problem}}),
    );
    let count = || json!({"type": "integer", "minimum": 0});
    let counts = object(
        &["total", "completed", "failed"],
        json!({"total": count(), "completed": count(), "failed": count()}),
    );
    let file = |what| with(json!({"type": ["string", "null"]}), what);
    let mut batch = object(
        &[
            "id",
            "object",
            "endpoint",
            "input_file_id",
            "completion_window",
            "status",
            "created_at",
            "expires_at",
        ],
        json!({
            "id": {"type": "string"},
            "object": {"const": "batch"},
            "endpoint": {"type": "string", "enum": batches::ENDPOINTS},
            "errors": with(nullable(problems), "What is wrong with its input."),
            "input_file_id": {"type": "string"},
            "completion_window": {"const": WINDOW},
            "status": {"type": "string", "enum": BatchStatus::ALL.map(BatchStatus::as_str)},
            "output_file_id": file("What was answered with success."),
            "error_file_id": file("What was answered with an error."),
            "created_at": seconds("when it was made."),
            "expires_at": seconds("when it ends at the latest."),
            "request_counts": counts,
            "metadata": {"type": ["object", "null"], "additionalProperties": {"type": "string"}},
        }),
    );
    for state in ["in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled"] {
        batch["properties"][format!("{state}_at")] = nullable(seconds("when it came to be so."));
    }
    batch
}

#[cfg(test)]
mod tests {
    use motet_protocol::openapi::Accounts;

    use super::*;

    #[test]
    fn it_stands_as_written() {
        let mut document = Document::new("0.0.0", Accounts::On);
        describe(&mut document);
        let document = document.json();
        insta::assert_json_snapshot!([&document["paths"], &document["components"]["schemas"]]);
    }
}
