# SPDX-License-Identifier: Apache-2.0
"""ostrakon_lm_eval with a program that answers by the lengths of texts, and with lm_eval or, where that is not
installed, with what it takes of it."""

import os
import sys
import tempfile
import types
import unittest
from pathlib import Path

SOURCE = Path(os.environ.get("OSTRAKON_SOURCE", Path(__file__).parents[2]))
sys.path.insert(0, str(SOURCE / "python"))


def stand_in():
    """The part of lm_eval that the adapter imports."""
    class Model:
        def __init__(self):
            self.cache_hook = types.SimpleNamespace(add_partial=lambda *_: None)
    names = ["lm_eval", "lm_eval.api", "lm_eval.api.model", "lm_eval.api.registry"]
    modules = {name: types.ModuleType(name) for name in names}
    modules["lm_eval.api.model"].LM = Model
    modules["lm_eval.api.registry"].register_model = lambda name: lambda made: made
    sys.modules.update(modules)


try:
    import lm_eval.api.model  # noqa: F401
except ImportError:
    stand_in()
from ostrakon_lm_eval import OstrakonLM  # noqa: E402

PROGRAM = """#!{python}
import json, sys
if "--fail" in sys.argv:
    sys.exit("ostrakon-evaluate: error: no such thing")
asked, answered = (sys.argv[sys.argv.index(option) + 1] for option in ("--requests", "--answers"))
with open({log!r}, "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n" + open(asked).read())
with open(answered, "w") as answers:
    for line in open(asked):
        one = json.loads(line)
        text = one.get("continuation", one.get("text"))
        answers.write(json.dumps({{"log_probability": -len(text), "greedy": text[:1] == " ", "tokens": 1}}) + "\\n")
"""


def instances(*arguments):
    return [types.SimpleNamespace(args=one) for one in arguments]


class Adapter(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.log = Path(folder.name, "log")
        self.program = Path(folder.name, "program")
        self.program.write_text(PROGRAM.format(python=sys.executable, log=str(self.log)))
        self.program.chmod(0o755)

    def model(self, **arguments):
        return OstrakonLM(model="some model", program=str(self.program), **arguments)

    def test_answers_are_in_the_order_of_requests(self):
        found = self.model().loglikelihood(instances(("a", " bc"), ("", "d"), ("e \u00a0\n", "f")))
        self.assertEqual(found, [(-3, True), (-1, False), (-4, True)])
        self.assertIn('{"context": "e", "continuation": " \\u00a0\\nf"}', self.log.read_text())

    def test_texts_are_whole(self):
        self.assertEqual(self.model().loglikelihood_rolling(instances(("a b ",), ("c",))), [-4, -1])

    def test_nothing_is_asked_without_requests(self):
        self.assertEqual(self.model().loglikelihood([]), [])
        self.assertFalse(self.log.exists())

    def test_the_command_is_as_given(self):
        self.model(launcher="env A=1", options="--set 'parallel.tensor=2'", context=7).loglikelihood(
            instances(("a", "b")))
        command = self.log.read_text().splitlines()[0]
        self.assertTrue(command.startswith('["some model", "--set", "parallel.tensor=2", "--context", "7", '), command)

    def test_failures_have_the_message_of_the_program(self):
        with self.assertRaisesRegex(RuntimeError, "status 1:\nostrakon-evaluate: error: no such thing"):
            self.model(options="--fail").loglikelihood(instances(("a", "b")))

    def test_nothing_is_generated(self):
        with self.assertRaisesRegex(NotImplementedError, "multiple_choice"):
            self.model().generate_until(instances(("a", {})))


if __name__ == "__main__":
    unittest.main()
