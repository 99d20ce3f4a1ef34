"""Vectors of a BERT model, computed in double precision from the model's definition.

    cargo run -p motet-testkit --example tiny_bert -- tiny
    python encoder.py tiny > encoder_tiny.json
    python encoder.py FOLDER WITH all-MiniLM-L6-v2 > encoder_minilm.json

Needs numpy (the package of this name).
"""

import json
import math
import pathlib
import sys

import numpy as np

FOLDER = pathlib.Path(sys.argv[1])
CONFIG = json.loads((FOLDER / "config.json").read_text())
WIDTH, HEADS, EPS = CONFIG["hidden_size"], CONFIG["num_attention_heads"], CONFIG["layer_norm_eps"]


def tensors():
    raw = (FOLDER / "model.safetensors").read_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")
    types = {"F32": np.float32, "F16": np.float16, "I64": np.int64}
    for name, info in json.loads(raw[8:end]).items():
        if name != "__metadata__":
            first, last = info["data_offsets"]
            data = np.frombuffer(raw[end + first : end + last], types[info["dtype"]])
            yield name, data.reshape(info["shape"]).astype(np.float64)


TENSORS = dict(tensors())
ERF = np.vectorize(math.erf)


def norm(x, name):
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS)
    return x * TENSORS[f"{name}.weight"] + TENSORS[f"{name}.bias"]


def linear(x, name):
    return x @ TENSORS[f"{name}.weight"].T + TENSORS[f"{name}.bias"]


def attention(x, name):
    heads = lambda part: linear(x, f"{name}.{part}").reshape(len(x), HEADS, -1).transpose(1, 0, 2)
    query, key, value = heads("query"), heads("key"), heads("value")
    scores = query @ key.transpose(0, 2, 1) / np.sqrt(WIDTH // HEADS)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True) @ value).transpose(1, 0, 2).reshape(len(x), WIDTH)


def embed(ids):
    part = lambda name: TENSORS[f"embeddings.{name}_embeddings.weight"]
    x = part("word")[ids] + part("token_type")[0] + part("position")[: len(ids)]
    x = norm(x, "embeddings.LayerNorm")
    for layer in range(CONFIG["num_hidden_layers"]):
        name = f"encoder.layer.{layer}"
        x = norm(x + linear(attention(x, f"{name}.attention.self"), f"{name}.attention.output.dense"), f"{name}.attention.output.LayerNorm")
        y = linear(x, f"{name}.intermediate.dense")
        y = y / 2 * (1 + ERF(y / np.sqrt(2)))
        x = norm(x + linear(y, f"{name}.output.dense"), f"{name}.output.LayerNorm")
    vector = x.mean(0)
    return vector / np.linalg.norm(vector)


def ids(count, seed):
    return [(7 * i * i + 31 * i * seed + seed) % (CONFIG["vocab_size"] - 5) + 5 for i in range(count)]


cases = []
for count in [1, 2, 7, 33, CONFIG["max_position_embeddings"]]:
    vector = embed(np.array(ids(count, count)))
    cases.append({"ids": ids(count, count), "vector": [round(float(v), 7) for v in vector]})
json.dump(cases, sys.stdout, separators=(",", ":"))
print()
