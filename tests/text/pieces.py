#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares models of SentencePiece, and Unigram models of tokenizer.json, with their own libraries.

    ninja -C build-ci encode_strings
    tests/text/pieces.py build-ci/tests/text/encode_strings [--strings N] [--bytes N] [--table FILE]

Trains small models with many options, encodes odd strings and long texts with each, and compares ids
and decoded text. Needs sentencepiece and tokenizers from PyPI, which tests don't: it is run by hand.
sentencepiece has to be at most 0.2.1, as that of Debian: 0.2.3 rounds sums of scores in another way, which
decides in about one of 4000 odd strings between two ways that are equally good.
With --table it writes the models and cases of tests/text/pieces instead.
"""

import argparse
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

import sentencepiece
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

# First and last letters of scripts.
SCRIPTS = [
    (0x61, 0x7A), (0xE0, 0xFF), (0x100, 0x17F), (0x3B1, 0x3C9), (0x430, 0x44F), (0x561, 0x586),
    (0x5D0, 0x5EA), (0x627, 0x64A), (0x905, 0x939), (0x985, 0x9B9), (0xB85, 0xBB9), (0xE01, 0xE2E),
    (0x10D0, 0x10F0), (0x1200, 0x1246), (0x1780, 0x17A2), (0x3041, 0x3096), (0x30A1, 0x30FA),
    (0x4E00, 0x4F00), (0xAC00, 0xAD00), (0x1F600, 0x1F64F),
]
ODD = (
    ["\u0301", "\u0323", "\u200d", "\ufe0f", "\u200b", "\u00a0", "\u3000", "\u2028", "\ufb01", "\u212b"]
    + ["\uff21", "\u1e9b\u0323", "\ufdfa", "\u0958", "\u093c", "\u1100\u1161\u11a8", "\u2581", "\u2581\u2581"]
    + ["\u2161", "\u2460", "\u33a5", "\ufffd", "\uffff", "\U0010ffff", "\U000e0001", "\u0130", "\u00df"]
    + ["\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\U0001f44d\U0001f3fd"]
    + ["\0", "\1", "\t", "\n", "\r\n", "\r", "\x7f", "\x85", "\x1b", "\ufeff"]
    + [" ", "  ", "   ", "    ", "        "]
    + ["<s>", "</s>", "<unk>", "<pad>", "<0x41>", "<0x0A>", "<sep>", "[INST]", "<|user|>", " <sep> "]
    + ["0", "12", "345", "2026", "3.14", "1,000", "\u0663", "\u0967"]
    + ["don't", "it's", "a", "an", "the ", " of", "\u2047", "...", "!!", "(x)", "http://a.b/c?d=e"]
)


class Texts:
    """Texts of a seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.words = []
        for begin, end in SCRIPTS:
            letters = [chr(c) for c in range(begin, end + 1)]
            syllables = ["".join(self.random.choices(letters, k=self.random.randint(1, 3))) for _ in range(40)]
            self.words.append(
                ["".join(self.random.choices(syllables, k=self.random.randint(1, 3))) for _ in range(400)]
            )

    def word(self):
        words = self.words[0 if self.random.random() < 0.4 else self.random.randrange(len(self.words))]
        word = words[int(len(words) * self.random.random() ** 3)]
        return word.capitalize() if self.random.random() < 0.1 else word

    def sentence(self):
        gaps = [" "] * 12 + [", ", "  ", "\n", " 7 ", " 1984 ", "-", ""]
        parts = []
        for _ in range(self.random.randint(3, 14)):
            parts += [self.word(), self.random.choice(gaps)]
        return "".join(parts).strip(" ") + self.random.choice([".", "!", "?", "\u3002"])

    def text(self, size):
        parts, sum = [], 0
        while sum < size:
            parts.append(self.sentence())
            sum += 2 * len(parts[-1])
        return " ".join(parts)

    def any_character(self):
        while True:
            code = self.random.choice([0x80, 0x800, 0x3000, 0x10000, 0x20000, 0x110000])
            code = self.random.randrange(code)
            if not 0xD800 <= code < 0xE000:
                return chr(code)

    def odd(self):
        parts = []
        for _ in range(self.random.choice([0, 1, 1, 2, 3, 5, 8, 20])):
            kind = self.random.random()
            if kind < 0.3:
                parts.append(self.word())
            elif kind < 0.75:
                parts.append(self.random.choice(ODD))
            elif kind < 0.95:
                parts.append(self.any_character())
            else:
                parts.append(self.random.choice(ODD) * self.random.randint(2, 30))
        return "".join(parts)


def encode(program, tokenizer, strings):
    """Returns (ids, decoded, streamed) of each string by Ostrakon."""
    data = bytearray()
    for string in strings:
        data += struct.pack("=I", len(string)) + string
    done = subprocess.run([program, tokenizer], input=bytes(data), stdout=subprocess.PIPE, check=True)
    out, at = done.stdout, 0

    def take(bytes_each):
        nonlocal at
        (count,) = struct.unpack_from("=I", out, at)
        at += 4 + count * bytes_each
        return out[at - count * bytes_each : at]

    for _ in strings:
        ids = take(4)
        yield list(struct.unpack(f"={len(ids) // 4}i", ids)), take(1), take(1)


def compare(name, program, path, strings, ids_of, text_of):
    data = [string.encode() for string in strings]
    expected = ids_of(strings)
    texts = text_of(expected)
    bad = 0
    for string, ids, text, ours in zip(strings, expected, texts, encode(program, path, data)):
        if ours != (ids, text.encode(), text.encode()):
            bad += 1
            if bad <= 3:
                for label, value in (("text", string), ("expected", (ids, text)), ("found", ours)):
                    print(f"  {name}: {label} {value!r}"[:400])
    count = sum(map(len, data))
    print(f"{name}: {len(strings)} strings, {count / 1e6:.1f} MB, {sum(map(len, expected))} ids, {bad} differ")
    sys.stdout.flush()
    return bad


COMMON = dict(vocab_size=2000, character_coverage=0.98, hard_vocab_limit=False)
SENTENCEPIECE = {
    "unigram": dict(model_type="unigram"),
    "unigram-bytes": dict(model_type="unigram", byte_fallback=True),
    "unigram-identity": dict(model_type="unigram", normalization_rule_name="identity", byte_fallback=True),
    "unigram-spaces": dict(model_type="unigram", remove_extra_whitespaces=False, byte_fallback=True),
    "unigram-no-prefix": dict(model_type="unigram", add_dummy_prefix=False),
    "unigram-suffix": dict(model_type="unigram", treat_whitespace_as_suffix=True),
    "unigram-symbols": dict(
        model_type="unigram", user_defined_symbols=["<sep>", "[INST]", "ab", "    "], control_symbols=["<|user|>"]
    ),
    "unigram-casefold": dict(model_type="unigram", normalization_rule_name="nmt_nfkc_cf"),
    "bpe": dict(model_type="bpe"),
    "bpe-llama": dict(
        model_type="bpe", byte_fallback=True, split_digits=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, allow_whitespace_only_pieces=True,
    ),
    "bpe-gemma": dict(
        model_type="bpe", byte_fallback=True, split_digits=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, add_dummy_prefix=False, pad_id=0, eos_id=1, bos_id=2, unk_id=3,
        user_defined_symbols=["\n", "\n\n", "  ", "    ", "<sep>", "[INST]"],
    ),
    "bpe-nfkc": dict(model_type="bpe", normalization_rule_name="nfkc", unk_surface="?"),
    "bpe-no-marks": dict(model_type="bpe", bos_id=-1, eos_id=-1, byte_fallback=True),
    "bpe-across-words": dict(model_type="bpe", split_by_whitespace=False, split_by_unicode_script=False),
    "char": dict(model_type="char"),
    "word": dict(model_type="word"),
}


def train(folder, name, options, texts):
    corpus = folder / "corpus.txt"
    if not corpus.exists():
        corpus.write_text("\n".join(texts.sentence().replace("\n", " ") for _ in range(15000)))
    prefix = folder / name
    settings = {**COMMON, **options}
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus), model_prefix=str(prefix), minloglevel=2, num_threads=1, **settings
    )
    return f"{prefix}.model"


def pieces_of(model):
    """Returns [piece, score] of a model."""
    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    return [[processor.id_to_piece(i), processor.get_score(i)] for i in range(processor.get_piece_size())]


def unigram_tokenizers(folder, texts):
    """Yields names and tokenizers of tokenizer.json with Unigram models."""
    metaspace = pre_tokenizers.Metaspace()

    def of(pieces, pre=metaspace, decoder=decoders.Metaspace(), normalizer=None, unk_id=0, bytes=False):
        tokenizer = tokenizers.Tokenizer(models.Unigram([(p, s) for p, s in pieces], unk_id, bytes))
        if pre is not None:
            tokenizer.pre_tokenizer = pre
        if normalizer is not None:
            tokenizer.normalizer = normalizer
        tokenizer.decoder = decoder
        return tokenizer

    plain = pieces_of(train(folder, "for-json", dict(model_type="unigram"), texts))
    with_bytes = pieces_of(train(folder, "for-json-bytes", SENTENCEPIECE["unigram-bytes"], texts))
    fallback = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    yield "json", of(plain)
    yield "json-bytes", of(with_bytes, decoder=fallback, bytes=True)
    yield "json-some-bytes", of(with_bytes[:3] + with_bytes[40:], bytes=True)
    yield "json-whole", of(plain, pre=pre_tokenizers.Metaspace(split=False))
    yield "json-nfkc", of(plain, normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]))
    # Many equal sums.
    rounded = [[p, float(round(s))] for p, s in plain]
    yield "json-ties", of(rounded)
    yield "json-all-equal", of([[p, -1.0] for p, _ in plain])
    twice = plain + [[p, s - 0.5] for p, s in plain[100:200]]
    yield "json-twice", of(twice)


RULES = {"\ufb01": "fi", "\u212b": "\u00c5", "\uff21": "A", "\u3000": " ", "\t": " ", "\u2161": "II"}
IN_TABLE = {
    "bpe": dict(SENTENCEPIECE["bpe-llama"], vocab_size=1400),
    "no-prefix": dict(SENTENCEPIECE["bpe-gemma"], vocab_size=1400),
    "unigram": dict(SENTENCEPIECE["unigram-symbols"], vocab_size=1300),
}


def write_table(scratch, folder, texts):
    """Writes small models, and for each strings with their ids and what these decode to."""
    folder.mkdir(exist_ok=True)
    rules = scratch / "rules.tsv"
    lines = [" ".join(f"{ord(c):x}" for c in k) + "\t" + " ".join(f"{ord(c):x}" for c in v) for k, v in RULES.items()]
    rules.write_text("\n".join(lines) + "\n")
    cases = {}

    def add(name, encode, decode):
        strings = ["", " ", "  a  b ", "<s>a</s>", "a\n\nb", "\u2581a"]
        while len(strings) < 130:
            string = texts.odd() if len(strings) % 4 else texts.sentence()
            if len(string.encode()) < 60:
                strings.append(string)
        ids = [encode(string) for string in strings]
        cases[name] = [[text, i, decode(i)] for text, i in zip(strings, ids)]

    for name, options in IN_TABLE.items():
        if name == "unigram":
            options = dict(options, normalization_rule_tsv=str(rules))
        model = pathlib.Path(train(scratch, name, options, texts))
        (folder / model.name).write_bytes(model.read_bytes())
        processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
        add(model.name, processor.encode, processor.decode)
    plain = pieces_of(train(scratch, "plain", dict(model_type="unigram", vocab_size=1300), texts))
    for name, pieces, bytes in (
        ("scores.json", [[p, round(s, 2)] for p, s in plain], False),
        ("ties.json", [[p, float(round(s))] for p, s in plain] + [[f"<0x{b:02X}>", 0.0] for b in range(256)], True),
    ):
        tokenizer = tokenizers.Tokenizer(models.Unigram([tuple(piece) for piece in pieces], 0, bytes))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
        tokenizer.save(str(folder / name), pretty=False)
        add(name, lambda text: tokenizer.encode(text).ids, tokenizer.decode)
    lines = []
    for name, rows in cases.items():
        rows = ",\n".join(json.dumps(row, ensure_ascii=True) for row in rows)
        lines.append(f"{json.dumps(name)}: [\n{rows}\n]")
    (folder / "cases.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    training = [json.dumps(case, ensure_ascii=True) for case in training_cases()]
    (folder / "training.json").write_text("[\n" + ",\n".join(training) + "\n]\n")


def training_cases():
    """Yields words, with what `tokenizers` learns from them."""
    generator = random.Random(3)
    for letters in ["ab", "aaab", "abc", "xyz01", "a\u0301b", "\u4e00\u4e01", " \n", "abcdefgh"]:
        words = [
            "".join(generator.choices(letters, k=generator.randint(1, 9))) for _ in range(generator.randint(5, 60))
        ]
        special = generator.choice([[], ["<|endoftext|>"], ["<s>", "ab"]])
        tokenizer = tokenizers.Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split("|", "removed"), pre_tokenizers.ByteLevel(False, use_regex=False)]
        )
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=256 + generator.randint(5, 60), special_tokens=special, show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        )
        tokenizer.train_from_iterator(["|".join(words)], trainer)
        model = json.loads(tokenizer.to_str())["model"]
        ids = model["vocab"]
        yield {
            "words": words,
            "special": special,
            "vocabulary": trainer.vocab_size,
            "tokens": sorted(ids, key=ids.get)[len(special) + 256 :],
            "merges": [[ids[a], ids[b]] for a, b in model["merges"]],
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?")
    parser.add_argument("--strings", type=int, default=4000, help="odd strings for each model (4000)")
    parser.add_argument("--bytes", type=int, default=200000, help="bytes of text for each model (200000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="models whose names have this in them")
    parser.add_argument("--table", help="write the models and cases of the test into this folder")
    args = parser.parse_args()
    texts = Texts(args.seed)
    bad = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if args.table:
            write_table(folder, pathlib.Path(args.table), texts)
            return 0

        def strings():
            return [texts.odd() for _ in range(args.strings)] + [
                texts.text(20000) for _ in range(max(1, args.bytes // 20000))
            ]

        for model, options in SENTENCEPIECE.items():
            if args.only not in model:
                continue
            path = train(folder, model, options, texts)
            processor = sentencepiece.SentencePieceProcessor(model_file=path)
            bad += compare(model, args.program, path, strings(), processor.encode, processor.decode)
        for model, tokenizer in unigram_tokenizers(folder, texts):
            if args.only not in model:
                continue
            path = str(folder / f"{model}.json")
            tokenizer.save(path)
            bad += compare(
                model, args.program, path, strings(),
                lambda strings: [e.ids for e in tokenizer.encode_batch(strings, add_special_tokens=False)],
                lambda ids: tokenizer.decode_batch(ids, skip_special_tokens=True),
            )
    print("all equal" if bad == 0 else f"{bad} differ")
    return 0 if bad == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
