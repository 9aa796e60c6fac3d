# SPDX-License-Identifier: Apache-2.0
"""Compares Ostrakon's tokenizer.json with the Python library `tokenizers`, whose ids it must give.

    compare_tokenizers.py train FOLDER [VOCABULARY]        tokenizers with the options of published ones
    compare_tokenizers.py cases FOLDER                     the table that CTest checks, from small ones
    compare_tokenizers.py fuzz PROGRAM FOLDER COUNT SEED   COUNT random strings for each, ids and texts
    compare_tokenizers.py text PROGRAM FOLDER MEGABYTES    mixed text in the scripts of SCRIPTS

PROGRAM is encode_strings of a build (tests/text). Needs `pip install tokenizers`; 0.23 made the table.
"""

import json
import os
import random
import struct
import subprocess
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, trainers
from tokenizers import pre_tokenizers as pre
from tokenizers import processors

SCRIPTS = {
    "latin": (0x61, 0x7A), "capitals": (0x41, 0x5A), "latin1": (0xC0, 0xFF), "latin_a": (0x100, 0x17F),
    "greek": (0x391, 0x3C9), "cyrillic": (0x410, 0x44F), "armenian": (0x531, 0x556), "hebrew": (0x5D0, 0x5EA),
    "arabic": (0x620, 0x64A), "devanagari": (0x905, 0x94D), "bengali": (0x985, 0x9B9), "tamil": (0xB85, 0xBCD),
    "thai": (0xE01, 0xE4E), "tibetan": (0xF40, 0xF69), "georgian": (0x10D0, 0x10FA), "jamo": (0x1100, 0x11C2),
    "ethiopic": (0x1200, 0x1240), "khmer": (0x1780, 0x17D3), "hiragana": (0x3041, 0x3096),
    "katakana": (0x30A1, 0x30FA), "han": (0x4E00, 0x5000), "hangul": (0xAC00, 0xAE00),
}  # fmt: skip
RANGES = list(SCRIPTS.values())

# The regular expressions of published tokenizers.
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + TAIL
QWEN2 = LLAMA3.replace("{1,3}", "")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTIONS}?"
    r"|\p{N}{1,3}|" + TAIL.replace(r"[\r\n]*|", r"[\r\n/]*|", 1)
)
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
DEEPSEEK = [
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
]
BLOOM = " ?[^(\\s|[.,!?…。，、।۔،])]+"


def corpus(lines, seed=1):
    """Yields lines of words, most of them common, numbers, marks and spaces."""
    rng = random.Random(seed)

    def word():
        first, last = rng.choice(RANGES) if rng.random() < 0.4 else RANGES[0]
        length = rng.choice([1, 2, 3, 3, 4, 5, 6, 8])
        return "".join(chr(first + int((last - first + 1) * rng.random() ** 2)) for _ in range(length))

    words = [word() for _ in range(20000)]
    others = "don't I'll we've IT'S he'd ... !! -> == // , ; : ( ) [ ] { } < > / e\u0301 \u0928\u093f 😀 👨‍👩‍👧 🇩🇪".split()
    for _ in range(lines):
        line = []
        for _ in range(rng.randrange(5, 30)):
            kind = rng.random()
            if kind < 0.8:
                line.append(words[int(len(words) * rng.random() ** 3)])
            elif kind < 0.88:
                line.append(str(rng.randrange(10 ** rng.randrange(1, 7))))
            else:
                line.append(rng.choice(others) if kind < 0.95 else rng.choice(["\n", "\n\n", "\t", "   ", "\r\n"]))
            line.append(" " if rng.random() < 0.9 else "")
        yield "".join(line)


def added(text, special=True, **options):
    return AddedToken(text, special=special, **{"normalized": False, **options})


def trained(parts, vocabulary):
    """A tokenizer of parts, trained on pieces of bounded length whatever its pre-tokenizer is."""
    tokenizer = Tokenizer(models.BPE(**parts.get("model", {})))
    tokenizer.normalizer = parts.get("normalizer")
    tokenizer.pre_tokenizer = parts.get("trained_with", parts.get("pre_tokenizer"))
    byte_level = parts.get("byte_level", True)
    byte_tokens = [f"<0x{i:02X}>" for i in range(256)] if parts.get("model", {}).get("byte_fallback") else []
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=parts.get("first", []) + byte_tokens, show_progress=False,
        limit_alphabet=1000 if byte_level else 150,
        initial_alphabet=pre.ByteLevel.alphabet() if byte_level else [])  # fmt: skip
    tokenizer.train_from_iterator(corpus(vocabulary), trainer)
    whole = Tokenizer(models.BPE())
    whole.normalizer, whole.decoder = parts.get("normalizer"), parts.get("decoder", decoders.ByteLevel())
    whole.pre_tokenizer = parts.get("pre_tokenizer")
    described = json.loads(tokenizer.to_str())
    for key in ("pre_tokenizer", "decoder"):
        described[key] = json.loads(whole.to_str())[key]
    described["added_tokens"] = [token for token in described["added_tokens"] if token["content"] not in byte_tokens]
    tokenizer = Tokenizer.from_str(json.dumps(described))
    tokenizer.add_tokens(parts.get("added", []))
    if "post" in parts:
        tokenizer.post_processor = parts["post"](tokenizer)
    return tokenizer


def split(*regexes):
    steps = [pre.Split(Regex(regex), "isolated") for regex in regexes]
    return pre.Sequence([*steps, pre.ByteLevel(add_prefix_space=False, use_regex=False)])


def llama_decoder(strips=True):
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if strips else []))


def begins_with(token):
    def post(tokenizer):
        template = processors.TemplateProcessing(
            single=f"{token} $A", special_tokens=[(token, tokenizer.token_to_id(token))]
        )
        return processors.Sequence([processors.ByteLevel(trim_offsets=False), template])

    return post


def pieces(**parts):
    """Parts of a tokenizer whose pieces are text, as SentencePiece's are."""
    model = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, **parts.pop("model", {})}
    return {
        "model": model, "byte_level": False, "trained_with": pre.Metaspace(), "first": ["<unk>", "<s>", "</s>"],
        "decoder": llama_decoder(), **parts}  # fmt: skip


def all_parts():
    """Parts by name: the options of published tokenizers, and of none for what these do not use."""
    chat = [added("<|im_start|>"), added("<|im_end|>"), added("<think>", False), added("<tool_call>", False)]
    spaces = [added(" " * n, False, normalized=True) for n in range(24, 1, -1)]
    prefix = pre.ByteLevel(add_prefix_space=True)
    plain = pre.ByteLevel(add_prefix_space=False)
    whole_words = {"model": {"ignore_merges": True}}
    parts = {
        "gpt2": {"pre_tokenizer": plain, "added": [added("<|endoftext|>", normalized=True)]},
        "roberta": {
            "pre_tokenizer": prefix, "first": ["<s>", "<pad>", "</s>", "<unk>"],
            "added": [added("<mask>", lstrip=True), added("<end>", rstrip=True), added("<one>", False, single_word=True)],
            "post": lambda _: processors.RobertaProcessing(("</s>", 2), ("<s>", 0))},
        "llama3": {
            **whole_words, "pre_tokenizer": split(LLAMA3), "post": begins_with("<|begin_of_text|>"),
            "added": [added("<|begin_of_text|>"), added("<|eot_id|>")]},
        "qwen2": {"normalizer": normalizers.NFC(), "pre_tokenizer": split(QWEN2), "added": chat},
        "deepseek": {
            "normalizer": normalizers.Sequence([]), "pre_tokenizer": split(*DEEPSEEK),
            "added": [added("<｜begin▁of▁sentence｜>"), added("<｜User｜>", False)]},
        "o200k": {**whole_words, "pre_tokenizer": split(O200K), "added": [added("<|start|>")]},
        "cl100k": {"pre_tokenizer": split(CL100K)},
        "bloom": {"pre_tokenizer": split(BLOOM), "first": ["<unk>", "<s>", "</s>", "<pad>"]},
        "neox": {"normalizer": normalizers.NFC(), "pre_tokenizer": plain, "first": ["<|endoftext|>"], "added": spaces},
        "starcoder": {"pre_tokenizer": pre.Sequence([pre.Digits(True), plain]), "first": ["<|endoftext|>"]},
        "bytes_first": {
            "pre_tokenizer": pre.Sequence([pre.ByteLevel(False, use_regex=False), pre.Digits(True)]),
            "trained_with": plain},
        "llama2": pieces(
            normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])),
        "mistral": pieces(
            pre_tokenizer=pre.Metaspace(prepend_scheme="first", split=False), added=[added("[INST]")]),
        "gemma": pieces(
            normalizer=normalizers.Replace(" ", "▁"), pre_tokenizer=pre.Split(" ", "merged_with_previous"),
            decoder=llama_decoder(False),
            added=[added("\n" * n, False) for n in range(1, 6)] + [added("▁▁", False)]),
        "metaspace": pieces(
            model={"byte_fallback": False, "fuse_unk": False}, normalizer=normalizers.NFKC(),
            pre_tokenizer=pre.Metaspace(), decoder=decoders.Metaspace()),
        "marks": pieces(
            model={"byte_fallback": False}, decoder=decoders.Metaspace(),
            normalizer=normalizers.Sequence(
                [normalizers.NFKD(), normalizers.Lowercase(), normalizers.StripAccents(), normalizers.Strip()]),
            pre_tokenizer=pre.Sequence([pre.WhitespaceSplit(), pre.Punctuation("contiguous"), pre.Metaspace()]),
            added=[
                added("sol", False, single_word=True, normalized=True), added("🙂", lstrip=True, rstrip=True),
                added("Éa", False, normalized=True, rstrip=True)]),
        "words": pieces(
            model={"byte_fallback": False}, decoder=None,
            normalizer=normalizers.Sequence(
                [normalizers.NFD(), normalizers.Replace(Regex(" {2,}"), " "), normalizers.Replace("ab", "cd")]),
            pre_tokenizer=pre.Sequence([pre.Whitespace(), pre.Digits(False)])),
    }  # fmt: skip
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        for inverts in (False, True):
            vowels = pre.Split(Regex(r"[aeiou0-9]|\s+|\p{M}"), behavior, invert=inverts)
            literal = pre.Sequence([pre.Split("an", behavior, invert=inverts), pre.Punctuation(behavior)])
            name = behavior + ("_inverted" if inverts else "")
            parts[name] = pieces(
                model={"byte_fallback": inverts}, decoder=decoders.Fuse(),
                pre_tokenizer=pre.Sequence([vowels, literal]))  # fmt: skip
    return parts


EDGES = (
    "'s 'S 'ſ 'ſx 'sx 'LLx <end> <one> <end>\u00a0 'LL 'll 'Ve 're \u212a 1234567 ٣٤ ½ Ⅷ ² e\u0301 a\u0316\u0301\u0334 \u1100\u1161\u11a8 \u1100\u1161\u11a7 \uac00\u11a8 ﬁ ﬆ ß İ Σς 👨‍👩‍👧 🇩🇪 ☺️ "
    "▁ ▁▁ <0x41> <0xE2> <unk> <s> </s> the ing an ab sol ... !! :// / नि กำ क्ष"
).split() + ["  ", "   ", "\t", "\n", "\n\n", "\r\n", "\u00a0", "\u3000", "\u200d", "\ufeff", "\ufffd", "\x00", "\x7f", "\x85", "\u2028", " a", " an"]  # fmt: skip
PLANES = [(0, 0x7F)] * 4 + RANGES + [
    (0x80, 0x24F), (0x300, 0x36F), (0x600, 0x6FF), (0x900, 0xDFF), (0x1680, 0x1680), (0x180B, 0x180F), (0x1AB0, 0x1AFF),
    (0x2000, 0x206F), (0x2100, 0x24FF), (0x2E80, 0x312F), (0xE000, 0xE010), (0xFB00, 0xFEFF), (0xFF00, 0xFFFF),
    (0x10000, 0x1FFFF), (0x1F300, 0x1FAFF), (0x20000, 0x323AF), (0xE0000, 0xE01EF), (0x10FFF0, 0x10FFFF)]  # fmt: skip


def strings(count, seed, special):
    """Random strings: texts that are known to be difficult, words, and characters of all planes."""
    rng = random.Random(seed)
    edges = EDGES + special * 2

    def part():
        kind = rng.random()
        if kind < 0.35:
            return rng.choice(edges)
        if kind < 0.6:
            return "".join(rng.choice("etaoin shrdlu") for _ in range(rng.randrange(1, 8)))
        if kind < 0.7:
            return " "
        first, last = rng.choice(PLANES)
        return "".join(chr(rng.randrange(first, last + 1)) for _ in range(rng.randrange(1, 4)))

    return ["".join(part() for _ in range(rng.choice([1, 1, 2, 3, 5, 8, 13, 25]))) for _ in range(count)]


def ours(program, path, texts, finds_special):
    """(ids, text without special tokens, text with them) of each text, by Ostrakon."""
    data = b"".join(struct.pack("<I", len(text)) + text for text in (text.encode() for text in texts))
    command = [program, path] + (["special"] if finds_special else [])
    out = subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True).stdout
    at = 0
    for _ in texts:
        fields = []
        for size in (4, 1, 1):
            (count,) = struct.unpack_from("<I", out, at)
            fields.append(out[at + 4 : at + 4 + size * count])
            at += 4 + size * count
        yield (list(struct.unpack(f"<{len(fields[0]) // 4}i", fields[0])), fields[1], fields[2])


def theirs(tokenizer, texts, finds_special):
    tokenizer.encode_special_tokens = not finds_special
    for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False):
        skipped, shown = (tokenizer.decode(encoding.ids, skip_special_tokens=skip) for skip in (True, False))
        yield encoding.ids, skipped.encode(), shown.encode()


def compare(program, folder, texts_of):
    different = 0
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name, "tokenizer.json")
        tokenizer = Tokenizer.from_file(path)
        special = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        count, wrong = 0, 0
        for texts in texts_of(special):
            for finds_special in (False, True):
                pairs = zip(texts, ours(program, path, texts, finds_special), theirs(tokenizer, texts, finds_special))
                for text, a, b in pairs:
                    count += 1
                    if a != b:
                        wrong += 1
                        if wrong < 4:
                            print(f"{name}: {text[:200]!r}\n  ours   {a}\n  theirs {b}"[:1500])
        print(f"{name}: {count} strings, {wrong} differ", flush=True)
        different += wrong
    return different


def fuzz(count, seed):
    block = 5000
    return lambda special: (
        strings(min(block, count - begin), f"{seed} {begin}", special) for begin in range(0, count, block)
    )


def mixed_text(megabytes):
    def texts(_):
        for seed in range(megabytes):
            lines = corpus(9000, seed)  # about a megabyte
            yield ["\n".join(next(lines) for _ in range(90)) for _ in range(100)]

    return texts


def save(folder, vocabulary):
    for name, parts in all_parts().items():
        os.makedirs(os.path.join(folder, name), exist_ok=True)
        trained(parts, vocabulary).save(os.path.join(folder, name, "tokenizer.json"), pretty=False)
        print(name, flush=True)


def cases(folder):
    """tokenizer.json, and cases.json: a text, its ids, those with special tokens found, and their texts.

    What is null is equal: ids with special tokens to the first ones, texts to the first one.
    """
    save(folder, 500)
    for name in all_parts():
        tokenizer = Tokenizer.from_file(os.path.join(folder, name, "tokenizer.json"))
        special = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        texts = strings(110, name, special)
        table = []
        for text, plain, found in zip(texts, theirs(tokenizer, texts, False), list(theirs(tokenizer, texts, True))):
            ids = None if found[0] == plain[0] else found[0]
            decoded = (None if part.decode() == text else part.decode() for part in found[1:])
            table.append([text, plain[0], ids, *decoded])
        with open(os.path.join(folder, name, "cases.json"), "w") as file:
            file.write("[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in table) + "\n]\n")


def main(command, *arguments):
    if command == "train":
        save(arguments[0], int(arguments[1]) if len(arguments) > 1 else 6000)
    elif command == "cases":
        cases(arguments[0])
    elif command == "fuzz":
        return compare(arguments[0], arguments[1], fuzz(int(arguments[2]), arguments[3])) != 0
    elif command == "text":
        return compare(arguments[0], arguments[1], mixed_text(int(arguments[2]))) != 0
    else:
        sys.exit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) > 2 else __doc__)
