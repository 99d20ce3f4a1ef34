//! Finds and fetches models: local paths, the hub's HTTP API and its cache.
