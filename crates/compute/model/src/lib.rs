//! Weights on disk to logits: GGUF reader and the llama architecture.
