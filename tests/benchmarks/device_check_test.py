# SPDX-License-Identifier: Apache-2.0
"""benchmarks/device/check.py on a host: that it passes what is well, and finds what is not.

    device_check_test.py BUILD MPIEXEC
"""
import json
import os
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "benchmarks", "device"))
import check  # noqa: E402
import layouts  # noqa: E402

BUILD, MPIEXEC = sys.argv[1:3]


class DeviceCheck(unittest.TestCase):
    def check(self, *arguments):
        """The exit status, the rows of results.json by part, and the report."""
        with tempfile.TemporaryDirectory() as folder:
            status = check.main([BUILD, "--cpu", "--mpiexec", MPIEXEC, "--output", folder,
                                 "--minutes", "2", *arguments])
            with open(os.path.join(folder, "results.json"), encoding="utf-8") as file:
                parts = json.load(file)["parts"]
            with open(os.path.join(folder, "report.md"), encoding="utf-8") as file:
                return status, parts, file.read()

    def check_layout(self, layout):
        whole, layouts.LAYOUTS = layouts.LAYOUTS, [layout]
        try:
            return self.check("--parts", "layouts")
        finally:
            layouts.LAYOUTS = whole

    def test_a_host_passes(self):
        status, parts, report = self.check(
            "--parts", "machine,tests,layouts,steps", "--tests", "base", "--tests-filter", "Text*",
            "--layouts", "3")
        self.assertEqual(status, 0)
        self.assertEqual(len(parts["layouts"]), 5)  # with one rank of two models
        self.assertGreater(parts["steps"][0]["step_seconds"], 0.0)
        self.assertGreater(len(parts["steps"][0]["kernels"]), 5)
        for words in ("| llama on 2: sharding=full | passed |", "| kernel | share |", "- program: "):
            self.assertIn(words, report)

    def test_other_bits_fail(self):
        status, parts, _ = self.check_layout(("llama", 2, {"training.seed": 2}))
        self.assertEqual(status, 1)
        self.assertIs(parts["layouts"][1]["passed"], False)

    def test_a_run_that_ends_in_an_error_fails(self):
        status, parts, _ = self.check_layout(("llama", 2, {"parallel.tensor": 3}))
        self.assertEqual(status, 1)
        self.assertIn("error", parts["layouts"][1]["said"])

    def test_what_a_build_has_not_is_told_apart(self):
        status, parts, _ = self.check_layout(("llama", 2, {"runtime.communicators": "single"}))
        self.assertEqual(status, 0)
        self.assertEqual(parts["layouts"][1]["passed"], "refused")

    def test_out_of_time_fails(self):
        status, parts, _ = self.check("--parts", "layouts", "--layouts", "1", "--minutes", "0.01")
        self.assertEqual(status, 1)
        self.assertIs(parts["layouts"][0]["passed"], False)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
