#!/usr/bin/env python3
"""Start-up, memory and speed of `motet serve` as a client sees them.

    cargo build --release -p motet && python3 bench/serve.py

Starts target/release/motet on a free port of the loopback, measures, and ends it by its process id.
Only the standard library is needed. Server and clients share the machine's cores.
"""

import http.client
import itertools
import json
import pathlib
import socket
import statistics
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROMPT = "Tell me a long story about a lighthouse and the people who keep it. " * 9  # about 128 tokens
OUTPUT_TOKENS = 64
# Prompts differ from their beginning on, so that the prefix cache helps with the template's alone.
NUMBERS = itertools.count(1000)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path)
    response = connection.getresponse()
    return response.status, response.read()


def wait_ready(port, deadline=60):
    begun = time.perf_counter()
    while time.perf_counter() - begun < deadline:
        try:
            if get(port, "/readyz")[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.005)
    raise SystemExit("the server did not become ready")


def reply(port, model, results, number):
    """One streamed reply to a prompt of its own: (seconds to the first text, seconds in all, tokens)."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": f"{number}. {PROMPT}"}],
        "max_tokens": OUTPUT_TOKENS,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    begun = time.perf_counter()
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    first, usage = None, {}
    for line in connection.getresponse():
        if not line.startswith(b"data: {"):
            continue
        chunk = json.loads(line[6:])
        if first is None and any(choice["delta"].get("content") for choice in chunk["choices"]):
            first = time.perf_counter() - begun
        usage = chunk.get("usage") or usage
    results.append((first, time.perf_counter() - begun, usage["completion_tokens"], usage["prompt_tokens"]))


def load(port, model, clients):
    results = []
    numbers = [next(NUMBERS) for _ in range(clients)]
    threads = [threading.Thread(target=reply, args=(port, model, results, number)) for number in numbers]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - begun
    output = sum(tokens for _, _, tokens, _ in results)
    ttft = statistics.mean(first for first, *_ in results)
    print(f"| {clients} | {output / took:.0f} | {ttft * 1000:.0f} ms | {results[0][3]} |")


def resident_mib(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return float("nan")


def main():
    port = free_port()
    begun = time.perf_counter()
    server = subprocess.Popen(
        [ROOT / "target/release/motet", "serve", "--port", str(port)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    try:
        wait_ready(port)
        print(f"ready after {time.perf_counter() - begun:.2f} s; idle memory {resident_mib(server.pid):.0f} MiB")
        model = json.loads(get(port, "/v1/models")[1])["data"][0]["id"]
        load(port, model, 1)  # warms up; printed under the header below for what it is
        print("\n| clients | output tokens/s | mean TTFT | prompt tokens |\n|---|---|---|---|")
        for clients in (1, 8, 32, 64):
            load(port, model, clients)
        print(f"\nmemory after the load {resident_mib(server.pid):.0f} MiB")
    finally:
        server.terminate()
        server.wait(timeout=20)


if __name__ == "__main__":
    main()
