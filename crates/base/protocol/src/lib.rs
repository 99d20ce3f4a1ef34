//! Wire types of the OpenAI-compatible API and SSE framing.
