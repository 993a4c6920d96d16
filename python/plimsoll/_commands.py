"""Questions about many plans: the commands of the program, which answer in JSON, as tables."""
from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Mapping, Optional, Sequence, Union
from xml.etree import ElementTree

from ._calls import Model, estimate, model_of
from ._errors import InternalError, raise_for
from ._program import program
from ._results import Band, Bytes, Seconds

if TYPE_CHECKING:
    import matplotlib.axes
    import pandas

GIB = float(2**30)


def _flag(name: str, value: Any) -> Iterator[str]:
    """"--micro-batch 4", "--lora.r 16"; a list is an axis with its values."""
    if isinstance(value, Mapping):
        for inner, each in value.items():
            yield from _flag(f"{name}.{inner}", each)
        return
    yield "--" + name.replace("_", "-")
    if isinstance(value, bool):
        yield "true" if value else "false"
    elif isinstance(value, (list, tuple)):
        yield ",".join(map(str, value))
    else:
        yield str(value)


def _flags(options: Mapping[str, Any]) -> list[str]:
    return [word for name, value in options.items() if value is not None for word in _flag(name, value)]


def _answer(command: str, words: Sequence[str]) -> dict[str, Any]:
    """What the program answers. Raises PlimsollError."""
    done = subprocess.run([str(program()), command, *words, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise InternalError(done.stderr.strip() or f"plimsoll {command} answered nothing", command, "") from None
    raise_for(answer)
    return answer


def _asked(command: str, model: Model, on: str, options: Mapping[str, Any], more: Iterable[str] = ()) -> dict[str, Any]:
    named = model_of(model)
    if isinstance(named, str):
        return _answer(command, [named, "--on", on, *_flags(options), *more])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(named), encoding="utf-8")
        return _answer(command, [str(path), "--on", on, *_flags(options), *more])


@dataclass(frozen=True)
class Table:
    """Plans side by side. Columns have their unit in their name (`step_seconds`, `device_bytes`); `raw` is the whole answer."""

    rows: list[dict[str, Any]]
    raw: dict[str, Any] = field(repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def to_frame(self) -> "pandas.DataFrame":
        """A row per plan. Needs pandas."""
        import pandas

        return pandas.DataFrame(self.rows)

    def plot(self, axes: "Optional[matplotlib.axes.Axes]" = None) -> "matplotlib.axes.Axes":
        """Device memory against the step's time, a point per plan that could be estimated, those that do not fit hollow. Needs matplotlib."""
        axes = axes if axes is not None else _axes()
        plans = [row for row in self.rows if row.get("step_seconds") is not None]
        for fits, face in ((True, "tab:blue"), (False, "none")):
            points = [row for row in plans if (row["verdict"] != "does_not_fit") == fits]
            axes.scatter([row["device_bytes"] / GIB for row in points], [row["step_seconds"] for row in points], facecolors=face, edgecolors="tab:blue",
                         label="fits" if fits else "does not fit")
        axes.set_xlabel("device memory (GiB)")
        axes.set_ylabel("step (s)")
        axes.legend()
        return axes


def _axes() -> "matplotlib.axes.Axes":
    import matplotlib.pyplot

    return matplotlib.pyplot.subplots()[1]


def _value(text: str) -> Any:
    """What a command line's word is as a value of a strategy: 4, 0.5, True, "full"."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def _options(found: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _value(text) for key, text in found["options"].items()}


def _estimated(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a plan's estimate; of one that was refused, why."""
    if "estimate" not in answer:
        return {"verdict": "refused", "refused": answer["refusal"]}
    known = answer["estimate"]
    return {key: known[key] for key in ("verdict", "step_seconds", "tokens_per_second_per_gpu", "device_bytes", "headroom_bytes") if key in known}


@dataclass(frozen=True)
class Search(Table):
    """What a search found. `rows` are the best plans, the first the best; `front` those that no other beats in both time and memory."""

    front: list[dict[str, Any]] = field(default_factory=list, repr=False)

    @property
    def best(self) -> Optional[dict[str, Any]]:
        """The best plan: its `options` are keys for `estimate`, its `command` is a line. None: no plan fits."""
        return self.rows[0] if self.rows else None

    @property
    def rejected(self) -> dict[str, int]:
        """Why the other plans are none, with how many each."""
        return dict(self.raw.get("rejected", {}))


# What search takes beside a strategy's keys.
_OF_SEARCH = {"gpus", "open", "minimize", "max_step_seconds", "top", "sample", "shard", "max_estimates", "threads", "largest", "least", "resume", "power_limit"}


def _plan(found: Mapping[str, Any], held: Mapping[str, Any]) -> dict[str, Any]:
    step = found["step_seconds"]
    return {**_options(found), "gpus": found["gpus"], "verdict": found["verdict"], "step_seconds": step["expected"], "step_seconds_low": step["low"], "step_seconds_high": step["high"],
            "tokens_per_step": found["tokens_per_step"], "tokens_per_second_per_gpu": found["tokens_per_second_per_gpu"], "device_bytes": found["device_bytes"],
            "headroom_bytes": found["headroom_bytes"], "command": found["command"],
            "options": {**held, **_options(found)}}


def search(model: Model, *, on: str, **options: Any) -> Search:
    """The best strategies on a cluster: `search("llama-3.1-70b", on="8x8xh100-sxm", global_batch=512)`.

    `options` are the command's own (`open`, `minimize`, `top`, `max_step_seconds`, …) and keys of the strategy, which hold; a list is an axis
    (`tp=[1, 2, 4]`). Without `global_batch` plans train batches of their own size and tokens per second decide (`raw["free_batch"]`).
    Raises PlimsollError.
    """
    answer = _asked("search", model, on, options)
    held = {key: value for key, value in options.items() if key not in _OF_SEARCH and not isinstance(value, (list, tuple))}
    return Search([_plan(each, held) for each in answer["top"]], answer, [_plan(each, held) for each in answer["front"]])


def sweep(model: Model, *, on: str, **options: Any) -> Table:
    """Every point of a few axes, which are the lists: `sweep("llama-3.2-1b", on="8xh100-sxm", fsdp="full", micro_batch=[1, 2, 4])`."""
    answer = _asked("sweep", model, on, options)
    return Table([{"gpus": each["gpus"], **_options(each), **_estimated(each)} for each in answer["points"]], answer)


def compare(model: Model, *, on: str, then: Sequence[Mapping[str, Any]], **strategy: Any) -> Table:
    """What each change adds to those before it: `compare("llama-3.1-8b", on="8xh100-sxm", then=[{"fsdp": "full"}, {"recompute": "full"}])`."""
    more = [word for change in then for word in ("--then", " ".join(_flags(change)))]
    answer = _asked("compare", model, on, strategy, more)
    return Table([{"added": each["added"], "strategy": each["strategy"], **_estimated(each)} for each in answer["steps"]], answer)


@dataclass(frozen=True)
class Campaign:
    """A whole run. `raw` is the plimsoll/campaign/1 object (docs/campaign.md)."""

    verdict: str
    steps: float
    step: Band
    days: Band
    gpu_hours: float
    megawatt_hours: Optional[float]
    dollars: Optional[float]
    checkpoint: Bytes
    notes: list[str]
    raw: dict[str, Any] = field(repr=False, compare=False)

    @property
    def fits(self) -> bool:
        return self.verdict != "does_not_fit"


def campaign(model: Model, *, on: str, **options: Any) -> Campaign:
    """Days, money, energy and checkpoints of a whole run: `campaign("llama-3.1-8b", on="64xh100-sxm", fsdp="full", tokens="15T")`."""
    answer = _asked("campaign", model, on, options)
    price = answer.get("price") or {}
    return Campaign(answer["verdict"], answer["steps"], Band.of(answer["step_seconds"], Seconds), Band.of(answer["days"], float), answer["gpu_hours"],
                    answer.get("megawatt_hours"), price.get("dollars"), Bytes(answer["checkpoint"]["bytes"]), answer["notes"], answer)


@dataclass(frozen=True)
class Gate:
    """Runs held against a baseline: what each fails in, an empty text where it passes; `missing` are those that only the baseline has."""

    failures: dict[str, str]
    missing: list[str]
    text: str

    @property
    def passed(self) -> bool:
        return not any(self.failures.values())


def gate(files: Sequence[Union[str, "os.PathLike[str]"]], *, baseline: Union[str, "os.PathLike[str]", None] = None, **options: Any) -> Gate:
    """Holds files of runs against a baseline, as `plimsoll gate` does (docs/gate.md): `gate(["run.yaml"], on="8xh100-sxm", baseline="baseline.json")`. Raises PlimsollError."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "gate.xml"
        words = [*map(os.fspath, files), *_flags({"baseline": baseline, **options}), "--junit", str(report)]
        done = subprocess.run([str(program()), "gate", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        if not report.exists():
            raise_for({"schema": "plimsoll/error/1", "error": {"code": "bad_input", "message": done.stderr.strip().removeprefix("plimsoll: "), "where": "gate", "hint": ""}})
        failures, missing = {}, []
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            failure = case.find("failure")
            if case.find("skipped") is not None:
                missing.append(case.attrib["name"])
            else:
                failures[case.attrib["name"]] = failure.attrib["message"] if failure is not None else ""
    return Gate(failures, missing, done.stdout)


def fits(model: Model, *, on: str, **strategy: Any) -> bool:
    """Whether a step fits, tightly or well."""
    return estimate(model, on=on, **strategy).fits
