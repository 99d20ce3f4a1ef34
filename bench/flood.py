"""What paid requests feel when free ones come at five times what the machine can do, and whether the refused can trust
what they are told.

    python3 bench/flood.py --motet target/release/motet [--model NAME] [--factor 5] [--seconds 30]

Starts a server with two lanes (paid: weight 8, first token within 2 s; free: within 5 s), makes an account for each tier,
measures what the machine does with free requests alone (closed loop), then sends paid requests at a tenth of that rate
and free ones at `factor` times it, at random times. Who is refused with a `retry-after` comes back once, when told.
Only 127.0.0.1 is spoken to, and everything that is started is ended. Prints a table and, with --json, one object.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import tempfile
import time

CONFIG = """
[[lanes]]
name = "paid"
weight = 8
waiting = 256
ttft_promise = "2s"

[[lanes]]
name = "free"
free = true
waiting = 256
ttft_promise = "5s"

[[lanes]]
name = "background"
kind = "background"

[[tiers]]
name = "pro"
lane = "paid"

[[tiers]]
name = "free"
lane = "free"
"""
WORDS = "many voices enter and leave each in its own time over one instrument as it was written long ago".split()


def prompt(rng, words):
    return " ".join(rng.choice(WORDS) for _ in range(words))


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


class Client:
    """Speaks HTTP by hand, so that the sender costs little of the machine that is measured."""

    def __init__(self, port, model, tokens):
        self.port, self.model, self.tokens = port, model, tokens

    async def ask(self, key, text):
        """(status, seconds to the first piece of text or to the whole refusal, seconds to come back)."""
        body = json.dumps({
            "model": self.model, "stream": True, "max_tokens": self.tokens, "temperature": 0, "ignore_eos": True,
            "messages": [{"role": "user", "content": text}],
        }).encode()
        began = time.monotonic()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
                b"connection: close\r\nauthorization: Bearer " + key.encode()
                + b"\r\ncontent-length: " + str(len(body)).encode() + b"\r\n\r\n" + body
            )
            await writer.drain()
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            status = int(head.split()[1])
            if status != 200:
                await reader.read()
                took = time.monotonic() - began
                waits = [line.split(":")[1] for line in head.splitlines() if line.startswith("retry-after-ms:")]
                return status, took, int(waits[0]) / 1000 if waits else None
            first = None
            while line := await reader.readline():
                if first is None and b'"content":"' in line and b'"content":""' not in line:
                    first = time.monotonic() - began
            return status, first if first is not None else time.monotonic() - began, None
        finally:
            writer.close()


async def capacity(client, key, rng, seconds, clients=16):
    """Requests a second that the machine answers when as many are always under way."""
    done = 0
    end = time.monotonic() + seconds

    async def loop():
        nonlocal done
        while time.monotonic() < end:
            status, _, _ = await client.ask(key, prompt(rng, 60))
            done += status == 200

    began = time.monotonic()
    await asyncio.gather(*(loop() for _ in range(clients)))
    return done / (time.monotonic() - began)


async def flood(client, keys, rates, rng, seconds):
    """What came of requests sent at random times, by kind."""
    results = {kind: {"sent": 0, "ttft": [], "refused": [], "told": [], "kept": 0, "broken": 0} for kind in rates}
    tasks = set()

    async def request(kind):
        result, text = results[kind], prompt(rng, 60)
        status, took, wait = await client.ask(keys[kind], text)
        if status == 200:
            result["ttft"].append(took)
            return
        result["refused"].append(took)
        if wait is None:
            return
        result["told"].append(wait)
        await asyncio.sleep(wait)
        status, took, _ = await client.ask(keys[kind], text)
        if status == 200:
            result["kept"] += 1
            result["ttft"].append(took)
        else:
            result["broken"] += 1

    async def arrivals(kind, rate):
        end = time.monotonic() + seconds
        at = time.monotonic()
        while (at := at + rng.expovariate(rate)) < end:
            await asyncio.sleep(max(0, at - time.monotonic()))
            results[kind]["sent"] += 1
            task = asyncio.create_task(request(kind))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    await asyncio.gather(*(arrivals(kind, rate) for kind, rate in rates.items()))
    if tasks:
        await asyncio.wait(tasks, timeout=300)
    for task in tasks:
        task.cancel()
    return results


async def run(arguments, port, keys, model):
    rng = random.Random(arguments.seed)
    client = Client(port, model, arguments.tokens)
    await capacity(client, keys["free"], rng, 3)
    able = await capacity(client, keys["free"], rng, arguments.warm)
    rates = {"paid": able / 10, "free": able * arguments.factor}
    quiet = await flood(client, keys, {"paid": able / 10}, rng, arguments.warm)
    results = await flood(client, keys, rates, rng, arguments.seconds)
    return able, quiet["paid"], results


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--motet", required=True)
    parser.add_argument("--model")
    parser.add_argument("--factor", type=float, default=5)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--warm", type=float, default=10)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "motet.toml")
        with open(config, "w") as file:
            file.write(CONFIG)
        variables = {**os.environ, "XDG_DATA_HOME": folder}
        motet = [arguments.motet, "--config", config]
        keys = {}
        for kind, tier in (("paid", "pro"), ("free", "free")):
            subprocess.run([*motet, "users", "create", kind, "--tier", tier], env=variables, check=True, capture_output=True)
            made = subprocess.run([*motet, "keys", "create", "--user", kind], env=variables, check=True, capture_output=True)
            keys[kind] = made.stdout.decode().strip()
        port = free_port()
        command = [*motet, "serve", "--auth", "on", "--port", str(port)]
        if arguments.model:
            command += ["--model", arguments.model]
        log = open(os.path.join(folder, "log"), "w+")
        server = subprocess.Popen(command, env=variables, stdout=log, stderr=log)
        try:
            model = wait_for(port, keys["free"], server, log)
            able, quiet, results = asyncio.run(run(arguments, port, keys, model))
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(timeout=20)
    show(arguments, able, quiet, results)


def wait_for(port, key, server, log):
    import urllib.request

    for _ in range(600):
        if server.poll() is not None:
            log.seek(0)
            raise SystemExit(log.read())
        try:
            request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/models", headers={"authorization": f"Bearer {key}"})
            with urllib.request.urlopen(request, timeout=5) as response:
                if data := json.load(response)["data"]:
                    return data[0]["id"]
        except OSError:
            pass
        time.sleep(0.1)
    raise SystemExit("the server was not ready within a minute")


def show(arguments, able, quiet, results):
    rows = {"paid, alone": quiet, "paid, in the flood": results["paid"], "free": results["free"]}
    if arguments.json:
        print(json.dumps({"capacity_rps": able, **{name: summary(row) for name, row in rows.items()}}))
        return
    print(f"the machine answers {able:.1f} requests/s; free ones come at {able * arguments.factor:.1f}/s")
    print(f"{'':20} {'sent':>6} {'answered':>8} {'TTFT p50':>9} {'p95':>7} {'refused':>8} {'in ms p50':>10} {'p99':>6} {'told s p50':>10} {'kept':>7}")
    for name, row in rows.items():
        s = summary(row)
        print(
            f"{name:20} {s['sent']:>6} {s['answered']:>8} {s['ttft_p50']:>8.2f}s {s['ttft_p95']:>6.2f}s {s['refused']:>8}"
            f" {s['refusal_ms_p50']:>10.1f} {s['refusal_ms_p99']:>6.1f} {s['told_p50']:>10.1f} {s['kept']:>6.1%}"
        )


def summary(row):
    came_back = row["kept"] + row["broken"]
    return {
        "sent": row["sent"], "answered": len(row["ttft"]), "refused": len(row["refused"]), "came_back": came_back,
        "ttft_p50": percentile(row["ttft"], 0.5), "ttft_p95": percentile(row["ttft"], 0.95),
        "refusal_ms_p50": percentile(row["refused"], 0.5) * 1e3, "refusal_ms_p99": percentile(row["refused"], 0.99) * 1e3,
        "told_p50": percentile(row["told"], 0.5), "kept": row["kept"] / came_back if came_back else float("nan"),
    }


if __name__ == "__main__":
    main()
