"""Writes blocks.json: a few blocks of every format and their values, taken from the reference data.

Usage: blocks.py REFERENCE, where REFERENCE is the folder reference/quants of the reference data.
Per format: `raw` (whole blocks) and `values` (f32, little-endian), both hex; the first blocks of the random group and of
the quantised one.
"""

import json
import pathlib
import sys

FORMATS = "F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4".split()
VALUES = 256  # of each group: one block of the largest formats


def first_blocks(group):
    values = bytes.fromhex(group["values_f32le_hex"])
    raw = bytes.fromhex(group["raw_hex"])
    count = min(VALUES, len(values) // 4)
    # Blocks are consecutive and of one size, so that bytes and values shrink by the same share.
    return raw[: len(raw) * count * 4 // len(values)].hex(), values[: count * 4].hex()


def subset(path):
    groups = [first_blocks(group) for group in json.loads(path.read_text())["groups"][:2]]
    return {"raw": "".join(raw for raw, _ in groups), "values": "".join(values for _, values in groups)}


def main():
    reference = pathlib.Path(sys.argv[1])
    lines = [f'"{name}": {json.dumps(subset(reference / f"{name}.json"))}' for name in FORMATS]
    target = pathlib.Path(__file__).with_name("blocks.json")
    target.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
