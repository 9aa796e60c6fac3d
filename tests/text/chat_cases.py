#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes chat_cases.json: chats, and the texts that transformers makes of them by the templates in
chat_templates/. Needs Jinja2 and transformers (PyPI); the tests read the file alone.

    python3 tests/text/chat_cases.py > tests/text/chat_cases.json
"""

import json
import pathlib
import random

from transformers.utils import chat_template_utils

FOLDER = pathlib.Path(__file__).parent / "chat_templates"
VARIABLES = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
WORDS = [
    "hello", "World", "Zürich", "漢字", "🙂", "e\u0301", "\u00a0", "\u2028", "\n", "\n\n", "  ", "\t",
    "it's", '"no"', "{}", "{{ x }}", "{% if %}", "\\n", "<think>", "</think>", "<|close|>", "&<>", "\x01",
    "1.5", "\r\n",
]


def expected(template, messages, prompt, more, spans=False):
    """Returns what apply_chat_template of a tokenizer does with the text, and the generated parts."""
    if not messages:
        raise ValueError("no messages")
    texts, indices = chat_template_utils.render_jinja_template(
        conversations=[chat_template_utils._normalize_chat_messages(messages)],
        tools=more.get("tools"), documents=more.get("documents"), chat_template=template,
        add_generation_prompt=prompt, return_assistant_tokens_mask=spans,
        **VARIABLES, **{key: more[key] for key in more if key not in ("tools", "documents")})
    return (texts[0], indices[0]) if spans else texts[0]


def text(choose):
    count = choose.choice([0, 1, 2, 3, 6])
    return (" " if choose.random() < 0.6 else "").join(choose.choice(WORDS) for _ in range(count))


def tool(choose):
    properties = {
        "city": {"type": "string", "description": text(choose), "enum": ["Bern", "Zürich"]},
        "days": {"type": "integer", "default": choose.choice([3, 2.5, None, True, "a\"b"])},
        "tags": {"type": "array", "items": {"type": "string"}, "nullable": True},
        "place": {"type": "object", "properties": {"x": {"type": ["number", "null"]}}, "required": ["x"]},
    }
    keys = choose.sample(sorted(properties), choose.randint(0, 4))
    return {"type": "function", "function": {
        "name": choose.choice(["search", "interpreter"]), "description": text(choose),
        "parameters": {"type": "object", "properties": {key: properties[key] for key in keys},
                       "required": keys[:1]}}}


def chat(choose):
    messages = []
    if choose.random() < 0.5:
        messages.append({"role": "system", "content": text(choose)})
    for _ in range(choose.choice([1, 1, 2, 3])):
        messages.append({"role": "user", "content": text(choose)})
        if choose.random() < 0.3:
            arguments = {"q": text(choose), "n": choose.choice([1, 0.1, 1e18, [None, False], {}])}
            call = {"name": "search", "arguments": arguments}
            messages.append({"role": "assistant", "content": choose.choice([None, text(choose)]),
                             "tool_calls": [{"type": "function", "id": "abcdef123", "function": call}]})
            messages.append({"role": "tool", "tool_call_id": "abcdef123", "content": text(choose)})
        answer = {"role": "assistant", "content": text(choose)}
        if choose.random() < 0.2:
            answer["reasoning_content"] = text(choose)
        elif choose.random() < 0.2:
            answer["content"] = "<think>\n" + text(choose) + "\n</think>\n\n" + text(choose)
        messages.append(answer)
    if choose.random() < 0.4:
        messages.pop()
    if choose.random() < 0.1:
        messages.append({"role": choose.choice(["user", "critic"]), "content": choose.choice([7, "x"])})
    return messages


def options(choose):
    more = {}
    if choose.random() < 0.4:
        more["tools"] = [tool(choose) for _ in range(choose.randint(0, 2))]
    if choose.random() < 0.2:
        more["documents"] = [{"title": text(choose), "text": text(choose)}]
    if choose.random() < 0.3:
        more["enable_thinking"] = choose.random() < 0.5
    if choose.random() < 0.2:
        more["date_string"] = "1 Feb 2025"
    return more


def main():
    choose = random.Random(7)
    templates = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.jinja"))}
    cases = []
    for name, template in templates.items():
        made = {"text": 0, "error": 0}
        for _ in range(120):
            case = {"template": name, "messages": chat(choose), "prompt": choose.random() < 0.5,
                    "more": options(choose)}
            try:
                case["text"] = expected(template, case["messages"], case["prompt"], case["more"])
            except Exception:  # whatever a template's Python code throws
                pass
            kind = "text" if "text" in case else "error"
            if made[kind] >= (28 if kind == "text" else 4):
                continue
            made[kind] += 1
            if name == "generation" and kind == "text":
                trained, spans = expected(template, case["messages"], False, case["more"], spans=True)
                # Python counts characters.
                case["trained"] = trained
                case["spans"] = [[len(trained[:at].encode()) for at in span] for span in spans]
            cases.append(case)
    print(json.dumps({"variables": VARIABLES, "cases": cases}, ensure_ascii=False, indent=0))


if __name__ == "__main__":
    main()
