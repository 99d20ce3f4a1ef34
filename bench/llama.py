#!/usr/bin/env python3
"""Motet's engine beside llama.cpp's, without servers, in turns on this machine.

    cargo build --release -p motet
    python3 bench/llama.py --llama build/bin --model small.Q4_1.gguf --best small.Q4_0.gguf

--llama is the folder with `llama-bench` and `llama-batched-bench`, built for this machine. Motet reads --model; llama.cpp reads
it too, and --best, the same model in the quantisation that llama.cpp is fastest with. Each round runs everything once, so that
what else the machine does hits all alike; the table, Markdown on standard output, has medians over the rounds. The last column is
Motet's share of the most that the machine can do, by `motet bench kernels`: 8-bit products for prefill and large batches, bytes
read from memory for one sequence. Only the standard library is needed.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEQUENCES = 32
# Tokens behind each of the sequences that are decoded together, by the name of the figure.
CONTEXTS = {"decode_32": 128, "decode_32_at_2000": 2000}
TITLES = {"prefill_512": "prefill 512", "decode_1": "decode 1", "decode_32": "decode 32", "decode_32_at_2000": "decode 32 at 2,000"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--motet", default=str(ROOT / "target/release/motet"), help="the motet binary")
    parser.add_argument("--llama", required=True, type=pathlib.Path, help="folder with llama-bench and llama-batched-bench")
    parser.add_argument("--model", required=True, help="GGUF file for both")
    parser.add_argument("--best", help="GGUF file of the same model that llama.cpp is fastest with")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--long", action="store_true", help="32 sequences at 2,000 tokens too: minutes for llama.cpp")
    return parser.parse_args()


def run(command):
    print("·", " ".join(map(str, command)), file=sys.stderr)
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command[0]} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def motet(options, names):
    report = json.loads(run([options.motet, "bench", "engine", "--model", options.model, "--threads", options.threads, "--only", ",".join(names), "--json"]))
    return report, {name: report[f"{name}_tok_s"] for name in names}


def llama(options, model, names):
    common = ["-m", model, "-t", options.threads]
    rows = json.loads(run([options.llama / "llama-bench", *common, "-p", 512, "-n", 64, "-r", 3, "-o", "json"]))
    speeds = {"prefill_512" if row["n_prompt"] else "decode_1": row["avg_ts"] for row in rows}
    for name in names:
        if name not in CONTEXTS:
            continue
        context, steps = CONTEXTS[name], 64 if CONTEXTS[name] < 1000 else 16
        cells = SEQUENCES * (context + steps)
        out = run([options.llama / "llama-batched-bench", *common, "-c", cells, "-npp", context, "-ntg", steps, "-npl", SEQUENCES])
        row = [cell.strip() for cell in re.findall(r"^\|[\s\d.|]+$", out, re.MULTILINE)[-1].split("|")]
        # | PP | TG | B | N_KV | T_PP s | S_PP t/s | T_TG s | S_TG t/s | T s | S t/s |
        speeds[name] = float(row[8])
    return speeds


def limits(options, report):
    """The most tokens a second that the machine could compute, by figure."""
    kernels = json.loads(run([options.motet, "bench", "kernels", "--formats", "Q4_1", "--ctx", "0", "--batch", "1", "--threads", options.threads, "--json"]))
    gops = max(kernels["int8_gops"].values())
    layers, head = report["layer_weights"], report["head_weights"]
    batch = gops * 1e9 / (2 * (layers + head))
    return {
        "prefill_512": gops * 1e9 / (2 * layers),
        "decode_1": kernels["memory_gigabytes_per_second"] * 1e9 / report["file_bytes"],
        "decode_32": batch,
        "decode_32_at_2000": None,
    }


def main():
    options = arguments()
    names = [name for name in TITLES if options.long or name != "decode_32_at_2000"]
    files = [options.model, *([options.best] if options.best else [])]
    ours, theirs = {name: [] for name in names}, {file: {name: [] for name in names} for file in files}
    report = None
    for _ in range(options.rounds):
        report, speeds = motet(options, names)
        for name in names:
            ours[name].append(speeds[name])
        for file in files:
            speeds = llama(options, file, names)
            for name in names:
                theirs[file][name].append(speeds[name])
    most = limits(options, report)
    print(f"| tokens/s, {report['isa']}, {options.threads} threads | Motet | " + " | ".join(f"llama.cpp, {pathlib.Path(file).name}" for file in files) + " | of the limit |")
    print("|---" * (len(files) + 3) + "|")
    for name in names:
        mine = statistics.median(ours[name])
        cells = [f"{mine:,.0f}"]
        for file in files:
            speed = statistics.median(theirs[file][name])
            cells.append(f"{speed:,.0f} ({mine / speed:.1f} ×)")
        cells.append(f"{mine / most[name]:.0%} of {most[name]:,.0f}" if most[name] else "")
        print(f"| {TITLES[name]} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
