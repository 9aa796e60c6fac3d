# SPDX-License-Identifier: Apache-2.0
"""Ostrakon's models in lm-evaluation-harness: log-likelihoods by the program ostrakon-evaluate.

`python3 -m ostrakon_lm_eval run --model ostrakon --model_args model=output/mine --tasks ...` is lm_eval's own
command, which knows the model "ostrakon" then.
"""

import json
import shlex
import subprocess
import tempfile
from pathlib import Path

from lm_eval.api.model import LM
from lm_eval.api.registry import register_model

__all__ = ["OstrakonLM"]


def _request(context, continuation):
    """One line of a requests file. White space at the end of the context belongs to the continuation."""
    kept = context.rstrip()
    return {"context": kept, "continuation": context[len(kept):] + continuation}


@register_model("ostrakon")
class OstrakonLM(LM):
    """A model that ostrakon-evaluate reads.

    model: weights.h5, a checkpoint, a run's folder, or safetensors.
    program: ostrakon-evaluate, a name on PATH or a path.
    launcher: what starts it on several ranks, "mpiexec -n 8"; empty: one rank.
    options: further options of it, as in a shell: "--set parallel.tensor=2 --tokenizer byte".
    context: tokens from which one is predicted, at most (--context).

    Raises RuntimeError with what the program wrote to standard error where it fails.
    """

    def __init__(self, model, program="ostrakon-evaluate", launcher="", options="", context=None, **_):
        super().__init__()
        self._command = [*shlex.split(launcher), program, str(model), *shlex.split(options)]
        if context is not None:
            self._command += ["--context", str(context)]

    def _answers(self, requests):
        """The answers to requests, in their order; each is a dict."""
        if not requests:
            return []
        with tempfile.TemporaryDirectory(prefix="ostrakon-") as folder:
            asked, answered = Path(folder, "requests.jsonl"), Path(folder, "answers.jsonl")
            asked.write_text("".join(json.dumps(one) + "\n" for one in requests), encoding="utf-8")
            command = [*self._command, "--requests", str(asked), "--answers", str(answered)]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True, check=False)
            if done.returncode != 0:
                raise RuntimeError(f"{shlex.join(command)} ended with status {done.returncode}:\n{done.stderr}")
            answers = [json.loads(line) for line in answered.read_text(encoding="utf-8").splitlines()]
        if len(answers) != len(requests):
            raise RuntimeError(f"{len(requests)} requests have {len(answers)} answers")
        return answers

    def loglikelihood(self, requests, disable_tqdm=False):
        """(log-likelihood of the continuation, whether it is what greedy decoding gives) of each request."""
        answers = self._answers([_request(*request.args) for request in requests])
        results = [(answer["log_probability"], answer["greedy"]) for answer in answers]
        for request, result in zip(requests, results):
            self.cache_hook.add_partial("loglikelihood", request.args, result)
        return results

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        """The log-likelihood of each text, in windows of the context's length."""
        texts = [request.args[0] for request in requests]
        results = [answer["log_probability"] for answer in self._answers([{"text": text} for text in texts])]
        for request, result in zip(requests, results):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, result)
        return results

    def generate_until(self, requests, disable_tqdm=False):
        """Not there: ostrakon-evaluate scores texts and writes none."""
        raise NotImplementedError("the model 'ostrakon' scores texts and generates none; expected tasks whose "
                                  "output_type is loglikelihood, multiple_choice or loglikelihood_rolling")
