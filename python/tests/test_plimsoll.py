"""The package from outside, with the libraries of PLIMSOLL_PREFIX. No network, no PyTorch: unittest, so that any Python runs it."""
import io
import json
import subprocess
import tempfile
import threading
import unittest
from pathlib import Path

import plimsoll
from plimsoll._program import program
from plimsoll._watch import Watch, batch_shape, row_of

PLAN = {"on": "8xmi300x", "fsdp": "full", "seq": 8192}


def of_the_program(command, *words):
    done = subprocess.run([str(program()), command, *words, "--json"], stdout=subprocess.PIPE, check=False)
    return json.loads(done.stdout)


class Estimates(unittest.TestCase):
    def test_they_are_those_of_the_command_line(self):
        plan = plimsoll.estimate("llama-3.1-8b", **PLAN)
        answer = of_the_program("estimate", "llama-3.1-8b", "--on", "8xmi300x", "--fsdp", "full", "--seq", "8192")
        raw = json.loads(json.dumps(plan.raw))
        for settings in (raw["strategy"], answer["strategy"]):  # a flag there, a key of the strategy here
            for setting in settings.values():
                setting.pop("where", None)
        self.assertEqual(raw, answer)
        self.assertEqual(plan.memory.allocated, answer["memory"]["allocated_bytes"])
        self.assertEqual(plan.time.step.expected, answer["time"]["step_seconds"]["expected"])

    def test_values_know_their_units(self):
        memory = plimsoll.estimate("llama-3.1-8b", **PLAN).memory
        self.assertIsInstance(memory.reserved, plimsoll.Bytes)
        self.assertEqual(memory.margin, memory.capacity - int(memory.device.expected))
        self.assertAlmostEqual(memory.reserved.gib * 2**30, float(memory.reserved))
        self.assertLessEqual(sum(memory.categories.values()) - int(memory.device.expected), 1)  # the categories add up to the device's bytes
        self.assertEqual(str(plimsoll.Bytes(3 * 2**30)), "3.00 GiB")

    def test_a_config_as_dict_and_as_object_is_the_shipped_model(self):
        source = Path(__file__).resolve().parents[2] / "models" / "gpt2" / "config.json"
        config = json.loads(source.read_text())

        class Config:
            def to_dict(self):
                return {**config, "_name_or_path": "gpt2"}

        shipped = plimsoll.estimate("gpt2", on="1xh100-sxm", micro_batch=8, seq=1024)
        for model in (config, Config(), source):
            self.assertEqual(plimsoll.estimate(model, on="1xh100-sxm", micro_batch=8, seq=1024).memory, shipped.memory)

    def test_does_not_fit_is_a_result(self):
        plan = plimsoll.estimate("llama-3.1-70b", on="1xh100-sxm", micro_batch=1, seq=4096)
        self.assertFalse(plan.fits)
        self.assertIn("too much", str(plan))

    def test_html_holds_the_verdict_and_no_markup_of_a_name(self):
        plan = plimsoll.estimate("llama-3.1-8b", **PLAN)
        self.assertIn("fits: llama-3.1-8b", plan._repr_html_())
        hostile = plimsoll.Estimate.of({**plan.raw, "model": {"name": "<script>", "parameters": 1}})
        self.assertNotIn("<script>", hostile._repr_html_())

    def test_other_threads_run_meanwhile(self):
        turns, stop = [0], threading.Event()

        def spin():
            while not stop.is_set():
                turns[0] += 1

        thread = threading.Thread(target=spin)
        thread.start()
        before = turns[0]
        plimsoll.estimate("llama-3.1-405b", on="128x8xh100-sxm", framework="megatron-core", tp=8, pp=16, global_batch=512, seq=8192)
        during = turns[0] - before
        stop.set()
        thread.join()
        self.assertGreater(during, 0)

    def test_answers_of_threads_are_the_same(self):
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(plimsoll.estimate("gpt2", on="1xh100-sxm", micro_batch=4, seq=512).raw)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(answers), 8)
        self.assertTrue(all(answer == answers[0] for answer in answers))


class OtherAnswers(unittest.TestCase):
    def test_explanation(self):
        explanation = plimsoll.explain("llama-3.1-8b", **PLAN)
        self.assertEqual(explanation.alive, sorted(explanation.alive, key=lambda each: -each.bytes))
        self.assertTrue(any(change.flag == "--recompute full" and change.saved > 0 for change in explanation.changes))

    def test_reports(self):
        self.assertTrue(plimsoll.report("gpt2", on="1xh100-sxm", micro_batch=8, seq=1024).startswith("<!doctype html>"))
        self.assertIn("stage,gpus,parameters", plimsoll.report("gpt2", on="1xh100-sxm", format="csv", micro_batch=8, seq=1024))

    def test_a_plan_as_files(self):
        self.assertIn("accelerate", plimsoll.export_formats())
        plan = plimsoll.export("llama-3.2-1b", on="8xh100-sxm", to="accelerate", data_parallel="fsdp2", micro_batch=1, seq=2048)
        self.assertEqual(plan.command, "bash run.sh")
        self.assertIn("fsdp_version: 2", plan.files["accelerate.yaml"])
        with tempfile.TemporaryDirectory() as folder:
            plan.save(folder)
            self.assertEqual({path.name: path.read_text() for path in Path(folder).iterdir()}, plan.files)

    def test_catalogues(self):
        self.assertIn("gpt2", [model["name"] for model in plimsoll.models()])
        self.assertIn("mi300x", plimsoll.hardware()["accelerators"])
        self.assertIn("micro_batch", plimsoll.strategy_keys())


class Errors(unittest.TestCase):
    def test_the_hint_names_what_was_meant(self):
        with self.assertRaises(plimsoll.BadInput) as caught:
            plimsoll.estimate("llama-3.1-8c", on="8xmi300x")
        self.assertIn("llama-3.1-8b", caught.exception.hint)
        with self.assertRaises(plimsoll.BadInput) as caught:
            plimsoll.estimate("gpt2", on="1xh100-sxm", micro_bach=1)
        self.assertIn("micro_batch", str(caught.exception))

    def test_what_is_not_modelled_is_refused(self):
        with self.assertRaises(plimsoll.Refused):
            plimsoll.estimate("gpt2", on="2xh100-sxm", micro_batch=1, seq=128, ddp={"comm_hook": "power_sgd"})

    def test_what_is_no_model(self):
        with self.assertRaises(TypeError):
            plimsoll.estimate(7, on="1xh100-sxm")


class Watching(unittest.TestCase):
    class Tensor:
        def __init__(self, *shape):
            self.shape = shape

    def test_the_batch_says_what_was_not_said(self):
        watched = Watch("gpt2", "1xh100-sxm", {"precision": "bf16"}, out=io.StringIO())
        watched.seen_batch(batch_shape((), {"attention_mask": self.Tensor(4, 256), "input_ids": self.Tensor(4, 256)}))
        self.assertEqual(watched.predicted.memory, plimsoll.estimate("gpt2", on="1xh100-sxm", precision="bf16", micro_batch=4, seq=256).memory)

    def test_a_run_goes_on_without_a_prediction(self):
        watched = Watch("gpt2", "1xnothing", {}, out=io.StringIO())
        watched.seen_batch((1, 128))
        self.assertIsInstance(watched.problem, plimsoll.BadInput)

    def test_its_row_is_one_that_validate_reads(self):
        plan = plimsoll.estimate("gpt2", on="1xh100-sxm", micro_batch=4, seq_len=256, precision="bf16")
        seen = plimsoll.Comparison(plan, plan.memory.allocated, plan.memory.reserved, plimsoll.Bytes(0), plimsoll.Seconds(plan.time.step.expected), 5)
        rows = Path(self.id() + ".json")
        rows.write_text(json.dumps([row_of(seen, plan.request, "h100-sxm", 1, 1)]))
        try:
            answer = of_the_program("validate", str(rows))
        finally:
            rows.unlink()
        self.assertEqual(answer["refused"], [])
        self.assertEqual({row["quantity"]: row["error"] for row in answer["rows"]}["allocated_bytes"], 0)


if __name__ == "__main__":
    unittest.main()
