//! The HTTP front door: OpenAI-compatible API, health, metrics and the web app.
