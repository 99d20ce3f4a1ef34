-- Files and batches. Nobody's, where there are no accounts, have an empty organisation and user; so no foreign keys.
-- What a file holds is beside the database; of a batch here is what it is and how far it came.

CREATE TABLE files (
    id TEXT NOT NULL PRIMARY KEY,
    org_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    name TEXT NOT NULL,
    purpose TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT
);
CREATE INDEX files_by_owner ON files (org_id, user_id, created_at, id);
CREATE INDEX files_by_expiry ON files (expires_at);

CREATE TABLE batches (
    id TEXT NOT NULL PRIMARY KEY,
    org_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    key_id TEXT,
    -- The data folder that has its files: of several servers with one database, the one with this folder runs it.
    home TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    input_file_id TEXT NOT NULL,
    output_file_id TEXT,
    error_file_id TEXT,
    status TEXT NOT NULL,
    -- JSON as the client sent it.
    metadata TEXT,
    -- JSON: what is wrong with the input.
    problems TEXT,
    total BIGINT NOT NULL,
    completed BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    in_progress_at BIGINT,
    finalizing_at BIGINT,
    completed_at BIGINT,
    failed_at BIGINT,
    expired_at BIGINT,
    cancelling_at BIGINT,
    cancelled_at BIGINT,
    -- When it came to an end, whichever; null while there is something to do.
    ended_at BIGINT
);
CREATE INDEX batches_by_owner ON batches (org_id, user_id, created_at, id);
CREATE INDEX batches_by_end ON batches (ended_at, home);
