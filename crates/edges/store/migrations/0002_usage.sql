-- What was used. No foreign keys: what an account used stays on record when the account is gone, and no row can be
-- refused, so that a journal always replays to its end.

CREATE TABLE usage_events (
    id TEXT NOT NULL PRIMARY KEY,
    at BIGINT NOT NULL,
    org_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    key_id TEXT,
    request_id TEXT NOT NULL,
    model TEXT NOT NULL,
    tier TEXT NOT NULL,
    finish TEXT NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    cached_tokens BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    reasoning_tokens BIGINT NOT NULL,
    queue_ms BIGINT NOT NULL,
    ttft_ms BIGINT,
    duration_ms BIGINT NOT NULL,
    cost_micros BIGINT NOT NULL
);
CREATE INDEX usage_events_by_org ON usage_events (org_id, at, id);

-- Sums of usage_events, changed in the transaction that inserts them. A day is counted from 1970-01-01 in UTC.
CREATE TABLE usage_daily (
    org_id TEXT NOT NULL,
    day BIGINT NOT NULL,
    user_id TEXT NOT NULL,
    model TEXT NOT NULL,
    requests BIGINT NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    cached_tokens BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    reasoning_tokens BIGINT NOT NULL,
    cost_micros BIGINT NOT NULL,
    PRIMARY KEY (org_id, day, user_id, model)
);
