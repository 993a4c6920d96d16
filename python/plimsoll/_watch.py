"""A prediction beside the run that it is about: before the first step, and again after a few."""
from __future__ import annotations

import json
import os
import re
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator, Mapping, Optional, TextIO

from ._calls import Model, estimate, model_of
from ._errors import PlimsollError
from ._results import Bytes, Estimate, Seconds


@dataclass(frozen=True)
class Comparison:
    """Predicted against measured. Peaks are those of the process so far; device is the whole device, other processes included."""

    predicted: Estimate
    allocated: Bytes
    reserved: Bytes
    device: Bytes
    step: Seconds
    steps: int

    def lines(self) -> list[str]:
        memory = self.predicted.memory
        pairs = [("allocated", memory.allocated, self.allocated), ("reserved", memory.reserved, self.reserved),
                 ("device", Bytes(int(memory.device.expected)), self.device)]
        if "PLIMSOLL_REHEARSE" not in os.environ:  # a rehearsed step computes nothing
            pairs.append(("step", self.predicted.time.step.expected, self.step))
        return [f"{name:<10} predicted {expected!s:>12}  measured {measured!s:>12}  {100 * (float(expected) / float(measured) - 1):+.1f} %" if measured else f"{name:<10} predicted {expected!s:>12}"
                for name, expected, measured in pairs]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def row_of(comparison: Comparison, request: Mapping[str, Any], gpu: str, gpus: int, per_node: int) -> dict[str, Any]:
    """What was measured as a row that `plimsoll validate` reads (docs/rows.md)."""
    model = request["model"]
    described = {"name": model} if isinstance(model, str) else {"name": model.get("model_type", "model"), "config": model}
    return {
        "id": f"watch-{described['name']}-{gpus}gpus", "source": {"title": "plimsoll.watch", "where": gpu, "version_or_date": time.strftime("%Y-%m-%d")},
        "model": described, "hardware": {"gpu": gpu, "gpus": gpus, "gpus_per_node": per_node}, "training": dict(request["strategy"]),
        "measured": {"peak_allocated_bytes": int(comparison.allocated), "peak_reserved_bytes": int(comparison.reserved), "step_time_s": float(comparison.step)},
    }


@dataclass
class Watch:
    """Predicts when the first batch is seen, measures until `steps` steady steps are done, and says both."""

    model: Model
    on: Optional[str] = None
    strategy: dict[str, Any] = field(default_factory=dict)
    steps: int = 5
    row: Optional[str] = None
    out: Optional[TextIO] = None
    predicted: Optional[Estimate] = None
    comparison: Optional[Comparison] = None
    problem: Optional[PlimsollError] = None
    _done: int = 0
    _began: float = 0.0

    def seen_batch(self, shape: tuple[int, ...]) -> None:
        """The first batch of a rank: sequences, and tokens where it holds text. Settings that were given stay as they were said."""
        if self.predicted is not None or self.problem is not None:
            return
        self.strategy.setdefault("micro_batch", int(shape[0]))
        if len(shape) == 2 and "seq" not in self.strategy and "seq_len" not in self.strategy:
            self.strategy["seq_len"] = int(shape[1])
        self.predict()

    def predict(self) -> None:
        """Predicts with what is known. A run is not ended by a prediction that fails: the reason is kept and said."""
        try:
            self.on = self.on or this_cluster()
            self.predicted = estimate(self.model, on=self.on, **self.strategy)
            self._say(f"plimsoll: before the first step: {self.predicted}")
        except PlimsollError as problem:
            self.problem = problem
            self._say(f"plimsoll: no prediction: {problem}")

    def step_end(self) -> None:
        """An optimizer step of this rank is done. Waits for the device twice in all: after the first step and after the last."""
        import torch

        self._done += 1
        if self.predicted is None or self.comparison is not None:
            return
        if self._done == 1:
            torch.cuda.synchronize()
            self._began = time.perf_counter()
        elif self._done == self.steps + 1:
            torch.cuda.synchronize()
            self._compare((time.perf_counter() - self._began) / self.steps)

    def _compare(self, seconds: float) -> None:
        import torch

        assert self.predicted is not None
        free, total = torch.cuda.mem_get_info()
        self.comparison = Comparison(self.predicted, Bytes(torch.cuda.max_memory_allocated()), Bytes(torch.cuda.max_memory_reserved()), Bytes(total - free), Seconds(seconds), self.steps)
        self._say("\n".join(["plimsoll: after %d steps" % (self.steps + 1), *("  " + line for line in self.comparison.lines())]))
        if self.row and _rank() == 0:
            per_node = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
            with open(self.row, "w", encoding="utf-8") as file:
                json.dump([row_of(self.comparison, self.predicted.request, torch.cuda.get_device_name(), _world(), per_node)], file, indent=2, default=str)

    def _say(self, text: str) -> None:
        if _rank() == 0:
            print(text, file=self.out or sys.stderr, flush=True)


def _rank() -> int:
    return int(os.environ.get("RANK", "0"))


def _world() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def this_cluster() -> str:
    """The devices that this program runs on, as its launcher and PyTorch name them. Raises PlimsollError where PyTorch sees none."""
    import torch

    if not torch.cuda.is_available():
        raise PlimsollError("PyTorch sees no device here", hint='say which it is about: on="8xh100-sxm"')
    world, per_node = _world(), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    device = torch.cuda.get_device_name()
    return f"{world // per_node}x{per_node}x{device}" if world > per_node else f"{world}x{device}"


def batch_shape(args: tuple, kwargs: Mapping[str, Any]) -> Optional[tuple[int, ...]]:
    """The shape of what a module's forward is given: input_ids, pixel_values, or the first tensor."""
    for name in ("input_ids", "pixel_values", "inputs_embeds"):
        if getattr(kwargs.get(name), "shape", None) is not None:
            shape = tuple(kwargs[name].shape)
            return shape[:2] if name == "inputs_embeds" else shape
    for value in (*args, *kwargs.values()):
        if getattr(value, "shape", None) is not None:
            return tuple(value.shape)
    return None


def watch_first_batch(module: Any, seen: Callable[[tuple[int, ...]], None]) -> Callable[[], None]:
    """Calls `seen` with the shape of the first batch that the module is given. Returns what takes the hook off again."""
    handle: list[Any] = []

    def hook(_module: Any, args: tuple, kwargs: dict[str, Any]) -> None:
        shape = batch_shape(args, kwargs)
        if shape is not None:
            seen(shape)
            handle[0].remove()

    handle.append(module.register_forward_pre_hook(hook, with_kwargs=True))
    return handle[0].remove


@contextmanager
def watch(module: Any, *, model: Optional[Model] = None, on: Optional[str] = None, steps: int = 5, row: Optional[str] = None, out: Optional[TextIO] = None, **strategy: Any) -> Iterator[Watch]:
    """`with plimsoll.watch(module, precision="bf16"): …train…` predicts at the first batch and compares after `steps` steady steps of any
    torch.optim optimizer. `model` is what `estimate` takes where the module has no transformers config; `row` names a file for `plimsoll validate`.
    """
    from torch.optim.optimizer import register_optimizer_step_post_hook

    watched = Watch(model_of(model if model is not None else module), on, dict(strategy), steps, row, out)
    let_go = watch_first_batch(module, watched.seen_batch)
    handle = register_optimizer_step_post_hook(lambda *_: watched.step_end())
    try:
        yield watched
    finally:
        handle.remove()
        let_go()


def torch_version() -> str:
    import torch

    return re.sub(r"\.dev.*|rc\d+", "", torch.__version__)
