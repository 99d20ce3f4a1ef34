#!/usr/bin/env python3
"""Motet beside llama.cpp's llama-server and vLLM, each alone on this machine.

    cargo build --release -p motet
    python3 bench/peers.py --model small.Q4_1.gguf --llama-server build/bin/llama-server --llama-model small.Q4_0.gguf \\
        --vllm .venv/bin/vllm --vllm-model small-folder --trace AzureLLMInferenceTrace_conv.csv

Each peer is started in the variants that serve it best (see `variants`), on a free port of the loopback, one server at a
time and anew for each scenario; `motet bench serve` puts the load on it. Results go to --out as JSON and, put together, as
one page for each scenario; the tables go to standard output as Markdown. Only the standard library is needed. Server and
load generator share the machine's processors. Servers are ended by the process id they were started with.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Slots of llama-server in the open loop, where the number of clients is not known.
OPEN_SLOTS = 16
# Tokens of context for each slot, by scenario: what its longest request needs, with some room.
SLOT_TOKENS = {"closed": 256, "prefix": 1280, "rate": 2048, "find": 2048}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--motet", default=str(ROOT / "target/release/motet"), help="the motet binary, server and generator")
    parser.add_argument("--model", required=True, help="GGUF file for Motet and, unless --llama-model is given, llama-server")
    parser.add_argument("--llama-server", help="llama-server binary")
    parser.add_argument("--llama-model", action="append", help="GGUF file for llama-server; several are tried in turn")
    parser.add_argument("--vllm", help="vllm command")
    parser.add_argument("--vllm-model", help="folder or hub name of the same model for vLLM")
    parser.add_argument("--vllm-dtype", default="bfloat16")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
    parser.add_argument("--clients", default="1,8,32,64")
    parser.add_argument("--trace", help="trace for the scenarios rate and find")
    parser.add_argument("--rate", default="2", help="requests a second in the scenario rate")
    parser.add_argument("--requests", type=int, help="requests in a row")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--only", default="closed,prefix,rate,find", help="scenarios: closed, prefix, rate, find")
    parser.add_argument("--ready", type=float, default=300, help="seconds that a server may take to become ready")
    parser.add_argument("--out", default=str(ROOT / "target/bench"))
    options = parser.parse_args()
    if options.vllm and not options.vllm_model:
        parser.error("--vllm needs --vllm-model: vLLM reads a folder of the model, not this GGUF file")
    unknown = set(options.only.split(",")) - set(SLOT_TOKENS)
    if unknown:
        parser.error(f"--only: {', '.join(sorted(unknown))}: write some of {', '.join(SLOT_TOKENS)}")
    if not options.trace:
        options.only = ",".join(name for name in options.only.split(",") if name in ("closed", "prefix"))
    return options


def scenarios(options):
    """Name → flags of `motet bench serve`."""
    common = ["--repeats", str(options.repeats)]
    if options.requests:
        common += ["--requests", str(options.requests)]
    trace = ["--trace", options.trace, "--scale-lengths", "8", "--goodput", "ttft<1s,itl<50ms"] if options.trace else []
    flags = {
        "closed": ["--concurrency", options.clients, "--input-tokens", "128", "--output-tokens", "64"],
        "prefix": ["--concurrency", "8", "--prefix-tokens", "1000", "--input-tokens", "16", "--output-tokens", "16"],
        "rate": [*trace, "--rate", options.rate],
        "find": [*trace, "--find-rate"],
    }
    return {name: flags[name] + common for name in options.only.split(",") if name}


def variants(options, scenario):
    """Name → (command without its port, path that says it is ready)."""
    found = {"motet": ([options.motet, "serve", "--model", options.model, "--threads", str(options.threads)], "/readyz")}
    if scenario != "closed":
        # Short steps: prompts that arrive together are answered one after the other instead of all at the end.
        found["motet, short steps"] = (found["motet"][0] + ["--itl-target", "40ms"], "/readyz")
    slots = {"closed": max(int(n) for n in options.clients.split(",")), "prefix": 8}.get(scenario, OPEN_SLOTS)
    if options.llama_server:
        for model in options.llama_model or [options.model]:
            quantisation = re.search(r"(Q\d\w*|IQ\d\w*|F16|BF16|F32)\.gguf$", model, re.IGNORECASE)
            name = f"llama-server {quantisation.group(1) if quantisation else pathlib.Path(model).stem}"
            command = [options.llama_server, "--model", model, "-t", str(options.threads), "-np", str(slots)]
            command += ["-c", str(slots * SLOT_TOKENS[scenario]), "--no-webui", "--host", "127.0.0.1"]
            # One KV buffer for all slots lets them share a prefix; one for each keeps attention to a slot's own keys.
            found[name] = (command + ["--no-kv-unified"], "/health")
            found[f"{name} --kv-unified"] = (command + ["--kv-unified"], "/health")
    if options.vllm:
        command = [options.vllm, "serve", options.vllm_model, "--dtype", options.vllm_dtype, "--host", "127.0.0.1"]
        found["vLLM"] = (command, "/health")
        # Small steps keep the time between tokens low on a processor; the block size is what its CPU kernels are made for.
        found["vLLM, small steps"] = (command + ["--block-size", "32", "--max-num-batched-tokens", "256"], "/health")
    return found


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def is_ready(url):
    # Not through a proxy: the server is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        return opener.open(url, timeout=5).status == 200
    except (OSError, urllib.error.URLError):
        return False


@contextlib.contextmanager
def server(name, command, ready_path, options):
    """Starts a server, waits until it is ready, and ends it: (address, seconds to ready)."""
    port = free_port()
    log = pathlib.Path(options.out) / f"{file_name(name)}.log"
    begun = time.perf_counter()
    with open(log, "w") as out:
        process = subprocess.Popen([*command, "--port", str(port)], stdout=out, stderr=out, start_new_session=True)
    try:
        while not is_ready(f"http://127.0.0.1:{port}{ready_path}"):
            if process.poll() is not None or time.perf_counter() - begun > options.ready:
                raise RuntimeError(f"{name} did not become ready; see {log}")
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}", time.perf_counter() - begun, process.pid
    finally:
        end(process)


def end(process):
    """Ends a server with what it started: they are a process group of their own."""
    for how, patience in ((signal.SIGTERM, 20), (signal.SIGKILL, 5)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=patience)
            return


def resident_mib(pid):
    """Resident memory of a process; its children aside."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
    return float("nan")


def file_name(name):
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")


def measure(scenario, flags, options):
    """The saved results of every variant, in order, and how each server started."""
    files, starts = [], {}
    for name, (command, ready_path) in variants(options, scenario).items():
        print(f"{scenario}: {name}", file=sys.stderr)
        saved = pathlib.Path(options.out) / f"{scenario}-{file_name(name)}.json"
        saved.unlink(missing_ok=True)
        try:
            with server(name, command, ready_path, options) as (url, seconds, pid):
                idle = resident_mib(pid)
                bench = [options.motet, "bench", "serve", "--target", f"{name}={url}", "--json", str(saved), *flags]
                subprocess.run(bench, stdout=subprocess.DEVNULL, check=False)
                starts[name] = (seconds, idle, resident_mib(pid))
        except RuntimeError as error:
            print(f"{scenario}: {error}", file=sys.stderr)
        if saved.exists():
            files.append(saved)
    return files, starts


def merged(scenario, files, options):
    """One page and one object with the results of all variants."""
    page = pathlib.Path(options.out) / f"{scenario}.html"
    command = [options.motet, "bench", "serve", "--json", "-", "--report", str(page)]
    for file in files:
        command += ["--from", str(file)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def cell(value, base, digits=0):
    """A number and how many times the baseline's it is."""
    if value is None:
        return "none"
    text = f"{value:.{digits}f}"
    return f"{text} ({value / base:.2f} ×)" if base else text


def load_name(load):
    kind, value = next(iter(load.items()))
    return {"concurrency": f"{value} client{'' if value == 1 else 's'}", "rate": f"{value:g} req/s"}.get(kind, f"trace × {value:g}")


def table(report, quantity, value, digits=0):
    """Rows are servers, columns loads."""
    rows = {}
    for row in report["rows"]:
        rows.setdefault(row["target"], {})[load_name(row["load"])] = value(row)
    loads = list(dict.fromkeys(load_name(row["load"]) for row in report["rows"]))
    base = rows.get(report["baseline"], {})
    print(f"\n| {quantity} | {' | '.join(loads)} |\n|---|{'---|' * len(loads)}")
    for target, values in rows.items():
        is_base = target == report["baseline"]
        cells = [cell(values[load], None if is_base else base.get(load), digits) if load in values else "" for load in loads]
        print(f"| {target} | {' | '.join(cells)} |")


def show(scenario, report):
    print(f"\n### {scenario}: {report['settings']['workload']}")
    if scenario == "find":
        base = next((s["best_rate"] for s in report["searches"] if s["target"] == report["baseline"]), None)
        print("\n| | highest rate with goodput ≥ 0.9, req/s |\n|---|---|")
        for search in report["searches"]:
            is_base = search["target"] == report["baseline"]
            print(f"| {search['target']} | {cell(search['best_rate'], None if is_base else base, 2)} |")
    else:
        table(report, "output tokens/s", lambda row: row["output_tok_s"]["mean"])
        table(report, "mean TTFT, ms", lambda row: row["ttft_ms"]["mean"]["mean"])
        table(report, "mean ITL, ms", lambda row: row["tpot_ms"]["mean"]["mean"], 1)
        if any(row["goodput"] is not None for row in report["rows"]):
            table(report, "goodput", lambda row: row["goodput"] or 0.0, 2)
    for note in report["notes"]:
        print(f"\nNote: {note}.")


def main():
    options = arguments()
    # So that the server in use is ended then, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    pathlib.Path(options.out).mkdir(parents=True, exist_ok=True)
    starts = {}
    for scenario, flags in scenarios(options).items():
        files, started = measure(scenario, flags, options)
        starts = starts or started
        if files:
            show(scenario, merged(scenario, files, options))
    print("\n| start | seconds to ready | resident when ready, MiB | after the load, MiB |\n|---|---|---|---|")
    for name, (seconds, idle, after) in starts.items():
        print(f"| {name} | {seconds:.2f} | {idle:.0f} | {after:.0f} |")


if __name__ == "__main__":
    main()
