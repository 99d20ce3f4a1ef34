"""What the tokenizers library makes of hostile texts: the expectations of the WordPiece tests.

    python wordpiece.py [FOLDER WITH all-MiniLM-L6-v2'S tokenizer.json]

Writes wordpiece.json (two small tokenizers, texts and their ids; those of MiniLM's tokenizer where its folder is given,
else null) and wordpiece_unicode.json (digests of every character's treatment) beside itself.

Needs tokenizers (the package of this name; 0.23.3 made the committed files).
"""

import json
import pathlib
import random
import string
import sys

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

HERE = pathlib.Path(__file__).parent
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def tokenizer(is_lower):
    letters = string.ascii_lowercase + string.digits + ("" if is_lower else string.ascii_uppercase)
    others = "éßıøñ東京한ᄒ가ёй中αω€½①"
    words = ["the", "quick", "brown", "un", "##aff", "##able", "##ing", "##s", "test", "##東", "[", "]", "hello"]
    vocab = SPECIAL + list(letters) + ["##" + c for c in letters] + list(string.punctuation[:-4]) + list(others)
    vocab += ["##" + c for c in others] + words + ["ᅡ", "##ᅡ", "##ᆫ", "##", "##\u0301", "##\u0300"]
    vocab = list(dict.fromkeys(vocab))
    made = Tokenizer(models.WordPiece({t: i for i, t in enumerate(vocab)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=is_lower)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", vocab.index("[CLS]")), ("[SEP]", vocab.index("[SEP]"))]
    )
    made.add_special_tokens(SPECIAL)
    return made


def texts():
    yield from [
        "", " ", "\t\n\r\x0b\x0c\x85\u00a0\u3000", "\0", "\ufffd", "\ufeffhello", "hello", "Hello, World!", "unaffable",
        "The quick brown fox's test-ing", "HELLO hELLO", "[CLS] [SEP][MASK] [PAD] [UNK]", "##ing", "un##aff", "a#b##c",
        "don't", "e.g. 3.14, 1,000", "a_b-c/d\\e|f~g`h^i", "$€£¥", "½①Ⅷ", "東京タワー", "a東b京c", "한국어", "각", "\u1100\u1161",
        "İstanbul ıI", "ẞß", "ﬁ ﬂ", "Ünïcödé", "e\u0301e\u0300\u0301", "\u0301a", "a\u0301\u0302\u0303" * 30,
        "ёй ЁЙ", "αω ΑΩ Σς ΣΑΣ", "𝐇𝐞𝐥𝐥𝐨", "😀👩‍👩‍👧‍👦🏳️‍🌈", "\u200b\u200c\u200d\u2060", "soft\u00adhyphen", "\u202eevil\u202c",
        "مرحبا بالعالم", "नमस्ते दुनिया", "สวัสดี", "\ue000\U000f0000\U0010fffd", "\ufdd0\uffff", "\U0001f1e9\U0001f1ea",
        "\u1885\u1886", "\u1734", "\u166d\U000111c9", "\u0890x\u08e2x", "\u0903\u093e", "\U0001d165\U0001d16d\u302e", "\u0344",
        "\u212b\u2126\u01c4\u01c5", "\U0002f800\uf900", "\u3400\u4dbf\u4dc0", "\U0002b81e\U0002b820\U0002b920", "x" * 100, "x" * 101,
        "é" * 100, "é" * 101, "東" * 101, "x" * 99 + "e\u0301", "a," * 50, "\u2028\u2029", "a\u2e43b\u2e52c\u061dd", "a。b、c「d」",
        "http://example.com/?q=1&r=[2]#frag", '{"k": [1, 2.5e-3, null]}', "for (int i=0;i<n;++i) a[i]<<=1;", "``quoted''",
        "ǅǈǋ", "ŉ ǰ ΐ", "ﬀ ŀ", "\u0130\u0307", "ᾳ ᾼ", "Ωmega", "K Å", "℡ ™", "ａＢｃ", "\u0e33", "test " * 700,
    ]
    rng = random.Random(7)
    blocks = [(0x20, 0x7E), (0, 0x24F), (0x300, 0x52F), (0x590, 0xDFF), (0x1100, 0x1FFF), (0x2000, 0x2FFF), (0x3000, 0x33FF)]
    blocks += [(0x4E00, 0x4E80), (0xA640, 0xABFF), (0xAC00, 0xAC80), (0xF900, 0xFFFF), (0x10000, 0x11FFF), (0x1D000, 0x1F9FF)]
    for _ in range(240):
        picked = [rng.choice(blocks) for _ in range(rng.randint(1, 3))] + [blocks[0]]
        chars = [chr(rng.randint(*rng.choice(picked))) for _ in range(rng.randint(1, 40))]
        yield "".join(c if rng.random() > 0.15 else " " for c in chars)


def ids(tokenizer, text):
    return tokenizer.encode(text).ids


def cases(minilm):
    lower, cased = tokenizer(True), tokenizer(False)
    rows = []
    for made in [lower, cased] + ([minilm] if minilm else []):
        # As text of a user is read: what spells a control token is text.
        made.encode_special_tokens = True
        made.no_truncation()
        made.no_padding()
    for text in texts():
        row = {"text": text, "lower": ids(lower, text), "cased": ids(cased, text)}
        rows.append(row | {"minilm": ids(minilm, text) if minilm else None})
    return {"lower": json.loads(lower.to_str()), "cased": json.loads(cased.to_str()), "cases": rows}


# Composed letters of scripts that Unicode got after the library's tables were made; no vocabulary has their parts.
UNDECOMPOSED = {0x105C9, 0x105E4, 0x11383, 0x11385, 0x1138E, 0x11391, 0x113C5, 0x113C7, 0x113C8, 0x11938}
UNDECOMPOSED |= set(range(0x16121, 0x16129)) | set(range(0x16D68, 0x16D6B))


def unicode_digests():
    """FNV-1a over the words of "a" + c + "b", each followed by a 0, for each 4,096 characters c but the ones above."""
    lower = tokenizer(True)
    blocks = []
    for start in range(0, 0x110000, 0x1000):
        digest = 0xCBF29CE484222325
        for point in range(start, start + 0x1000):
            if 0xD800 <= point < 0xE000 or point in UNDECOMPOSED:
                continue
            text = lower.normalizer.normalize_str("a" + chr(point) + "b")
            for word, _ in lower.pre_tokenizer.pre_tokenize_str(text):
                for byte in word.encode() + b"\0":
                    digest = (digest ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
        blocks.append(f"{digest:016x}")
    return blocks


def write(name, value):
    (HERE / name).write_text(json.dumps(value, separators=(",", ":"), ensure_ascii=True) + "\n")


minilm = Tokenizer.from_file(f"{sys.argv[1]}/tokenizer.json") if len(sys.argv) > 1 else None
write("wordpiece.json", cases(minilm))
write("wordpiece_unicode.json", unicode_digests())
