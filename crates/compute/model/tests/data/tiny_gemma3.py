"""Logits of the generated Gemma 3 model, computed in double precision from the model's definition.

    cargo run -p motet-testkit --example tiny_gemma3 -- tiny.gguf
    python tiny_gemma3.py tiny.gguf > tiny_gemma3.json

Needs numpy and gguf (the packages of these names).
"""

import json
import sys

import gguf
import numpy as np

reader = gguf.GGUFReader(sys.argv[1])
TENSORS = {t.name: t.data.reshape(t.shape[::-1]).astype(np.float64) for t in reader.tensors}


def key(name):
    return reader.fields[f"gemma3.{name}"].contents()


WIDTH, HEADS, KV_HEADS = key("embedding_length"), key("attention.head_count"), key("attention.head_count_kv")
HEAD_DIM, EPS = key("attention.key_length"), key("attention.layer_norm_rms_epsilon")
LAYERS, WINDOW, PATTERN = key("block_count"), key("attention.sliding_window"), key("attention.sliding_window_pattern")


def norm(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * weight


def gelu(x):
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def turn(x, base, divisor):
    """Rotary embedding of (tokens, heads, head_dim), first half against second half."""
    half = HEAD_DIM // 2
    frequencies = base ** (-np.arange(half) / half) / divisor
    angles = np.arange(len(x))[:, None, None] * frequencies
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)], -1)


def attention(x, layer, is_global):
    weight = lambda part: TENSORS[f"blk.{layer}.{part}.weight"]
    heads = lambda part, count: (x @ weight(part).T).reshape(len(x), count, HEAD_DIM)
    rope = (key("rope.freq_base"), key("rope.scaling.factor")) if is_global else (10000.0, 1.0)
    query = turn(norm(heads("attn_q", HEADS), weight("attn_q_norm")), *rope)
    keys = turn(norm(heads("attn_k", KV_HEADS), weight("attn_k_norm")), *rope)
    values = heads("attn_v", KV_HEADS)
    positions = np.arange(len(x))
    distance = positions[:, None] - positions[None, :]
    hidden = (distance < 0) | ((distance >= WINDOW) & (not is_global))
    out = np.empty_like(query)
    for head in range(HEADS):
        kv = head // (HEADS // KV_HEADS)
        scores = query[:, head] @ keys[:, kv].T / np.sqrt(HEAD_DIM)
        scores[hidden] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        out[:, head] = weights / weights.sum(-1, keepdims=True) @ values[:, kv]
    return out.reshape(len(x), -1) @ weight("attn_output").T


def logits(ids):
    embedding = TENSORS["token_embd.weight"]
    x = embedding[ids] * np.sqrt(WIDTH)
    for layer in range(LAYERS):
        weight = lambda part: TENSORS[f"blk.{layer}.{part}.weight"]
        update = attention(norm(x, weight("attn_norm")), layer, (layer + 1) % PATTERN == 0)
        x = x + norm(update, weight("post_attention_norm"))
        y = norm(x, weight("ffn_norm"))
        y = (gelu(y @ weight("ffn_gate").T) * (y @ weight("ffn_up").T)) @ weight("ffn_down").T
        x = x + norm(y, weight("post_ffw_norm"))
    return norm(x, TENSORS["output_norm.weight"]) @ embedding.T


ids = [2] + [(7 * i * i + 31 * i) % 350 + 10 for i in range(99)]
rows = logits(np.array(ids))
positions = [0, 1, 22, 23, 24, 40, 63, 99]
cases = [{"position": p, "logits": [round(float(v), 6) for v in rows[p]]} for p in positions]
json.dump({"ids": ids, "rows": cases}, sys.stdout, separators=(",", ":"))
print()
