-- Who may ask. Times are Unix milliseconds, flags 0 or 1, hashes hexadecimal: the same types in SQLite and PostgreSQL.

CREATE TABLE orgs (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE TABLE users (
    id TEXT NOT NULL PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES orgs (id),
    login TEXT NOT NULL UNIQUE,
    display_name TEXT NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('owner', 'admin', 'member')),
    tier TEXT NOT NULL,
    disabled BIGINT NOT NULL,
    -- PHC string; absent for who signs in elsewhere.
    password TEXT,
    created_at BIGINT NOT NULL
);
CREATE INDEX users_by_org ON users (org_id, login);

-- At most one row: whoever inserts it makes the first account.
CREATE TABLE setup (
    singleton BIGINT NOT NULL PRIMARY KEY CHECK (singleton = 1),
    completed_at BIGINT NOT NULL
);

CREATE TABLE api_keys (
    id TEXT NOT NULL PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES orgs (id),
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    prefix TEXT NOT NULL UNIQUE,
    hash TEXT NOT NULL,
    scopes TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    last_used_at BIGINT,
    revoked_at BIGINT
);
CREATE INDEX api_keys_by_user ON api_keys (user_id, created_at);
CREATE INDEX api_keys_by_org ON api_keys (org_id, created_at);

CREATE TABLE sessions (
    id TEXT NOT NULL PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    token_hash TEXT NOT NULL UNIQUE,
    -- The token before the last rotation; good until previous_until, or, while that is null, until the new one is seen.
    previous_hash TEXT,
    previous_until BIGINT,
    csrf TEXT NOT NULL,
    user_agent TEXT NOT NULL,
    address TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    rotated_at BIGINT NOT NULL,
    seen_at BIGINT NOT NULL
);
CREATE INDEX sessions_by_previous ON sessions (previous_hash);
CREATE INDEX sessions_by_user ON sessions (user_id, seen_at);
CREATE INDEX sessions_by_seen ON sessions (seen_at);
