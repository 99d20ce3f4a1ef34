//! The KV block pool: which block belongs to whom.
