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


class Axes:
    """What a plot asks of matplotlib's axes, written down."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return lambda *values, **named: self.calls.append((name, values, named))


class Documents(unittest.TestCase):
    def test_the_first_example_says_what_comes_out(self):
        text = (Path(__file__).resolve().parents[2] / "docs" / "python.md").read_text()
        lines = text.split("```python\n")[1].split("```")[0].splitlines()
        names = {}
        exec("\n".join(line for line in lines if line.startswith(("import", "plan ="))), names)  # pylint: disable=exec-used
        said = [line.split("#") for line in lines if "#" in line and any(character in line for character in "0123456789'")]
        for expression, comment in said:
            if comment.strip()[0] in "'0123456789":
                self.assertEqual(repr(eval(expression, names)), comment.strip().split(", ")[0])  # pylint: disable=eval-used
        self.assertGreaterEqual(len(said), 3)


class Tables(unittest.TestCase):
    """Each is what the command of its name answers."""

    def test_a_sweep_has_a_row_per_point(self):
        table = plimsoll.sweep("llama-3.2-1b", on="8xh100-sxm", fsdp="full", micro_batch=[1, 2])
        self.assertEqual([row["micro_batch"] for row in table], [1, 2])
        alone = plimsoll.estimate("llama-3.2-1b", on="8xh100-sxm", fsdp="full", micro_batch=2)
        self.assertEqual(table.rows[1]["device_bytes"], int(alone.memory.device.expected))
        self.assertEqual(table.rows[1]["step_seconds"], alone.time.step.expected)
        axes = Axes()
        self.assertIs(table.plot(axes), axes)
        (drawn,) = (values for name, values, named in axes.calls if name == "scatter" and named["label"] == "fits")
        self.assertEqual(drawn[0], [row["device_bytes"] / 2**30 for row in table])

    def test_a_sweep_keeps_what_is_refused_with_its_reason(self):
        table = plimsoll.sweep("gpt2", on="2xh100-sxm", framework="megatron-core", tp=[1, 2, 5])
        self.assertEqual(len(table), 3)
        refused = [row for row in table if row["verdict"] == "refused"]
        self.assertEqual(len(refused), 1)
        self.assertTrue(refused[0]["refused"])

    def test_changes_are_added_one_after_the_other(self):
        table = plimsoll.compare("llama-3.2-1b", on="8xh100-sxm", then=[{"fsdp": "full"}, {"recompute": "full"}])
        self.assertEqual([row["added"] for row in table], ["", "--fsdp full", "--recompute full"])
        self.assertLess(table.rows[2]["device_bytes"], table.rows[1]["device_bytes"])

    def test_the_best_plan_is_a_strategy(self):
        found = plimsoll.search("gpt2", on="2xh100-sxm", global_batch=16, framework="accelerate", micro_batch=[2, 4], top=3)
        again = plimsoll.estimate("gpt2", on="2xh100-sxm", **found.best["options"])
        self.assertAlmostEqual(again.time.step.expected, found.best["step_seconds"])
        self.assertEqual(found.rows, sorted(found.rows, key=lambda row: row["step_seconds"]))
        self.assertTrue(found.front and sum(found.rejected.values()) >= 0)

    def test_a_campaign_has_days_and_money(self):
        run = plimsoll.campaign("llama-3.2-1b", on="8xh100-sxm", fsdp="full", tokens="10B", price_per_gpu_hour=2)
        self.assertAlmostEqual(run.dollars, 2 * run.gpu_hours)
        self.assertLess(run.days.low, run.days.high)
        self.assertIn("GiB", str(run.checkpoint))

    def test_a_gate_tells_what_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            case, baseline = Path(folder) / "case.json", Path(folder) / "base.json"
            for micro_batch in (2, 8):
                case.write_text(json.dumps({"model": "gpt2", "on": "1xh100-sxm", "micro_batch": micro_batch, "seq_len": 512}))
                held = plimsoll.gate([case], write_baseline=baseline) if micro_batch == 2 else plimsoll.gate([case], baseline=baseline)
                self.assertEqual(held.passed, micro_batch == 2, held.text)
            self.assertIn("reserved memory grew", held.failures[str(case)])
            with self.assertRaises(plimsoll.BadInput):
                plimsoll.gate([case], fail_on="nothing")

    def test_fits_is_a_yes_or_a_no(self):
        self.assertTrue(plimsoll.fits("gpt2", on="1xh100-sxm", micro_batch=1))
        self.assertFalse(plimsoll.fits("llama-3.1-70b", on="1xh100-sxm", micro_batch=1))

    def test_wrong_options_raise(self):
        with self.assertRaises(plimsoll.BadInput) as raised:
            plimsoll.sweep("gpt2", on="1xh100-sxm", micro_bach=[1, 2])
        self.assertIn("micro-bach", str(raised.exception))

    def test_a_config_may_be_a_dict(self):
        source = Path(__file__).resolve().parents[2] / "models" / "gpt2" / "config.json"
        row = plimsoll.sweep(json.loads(source.read_text()), on="1xh100-sxm", micro_batch=[4, 8], seq=1024).rows[1]
        self.assertEqual(row["device_bytes"], int(plimsoll.estimate("gpt2", on="1xh100-sxm", micro_batch=8, seq=1024).memory.device.expected))

    def test_an_explanation_has_causes(self):
        why = plimsoll.explain("bert-large-uncased", on="2x8xa100-80gb-sxm", data_parallel="ddp", micro_batch=1)
        self.assertTrue(any("gradients" in cause for cause in why.causes), why.causes)
        self.assertTrue(any(change.larger_batch for change in why.faster))


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
