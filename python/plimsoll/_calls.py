"""What the planner answers."""
from __future__ import annotations

import os
from typing import Any, Mapping, Optional, Union

from ._native import call
from ._results import Estimate, Explanation, Export

Model = Union[str, "os.PathLike[str]", Mapping[str, Any], Any]


def model_of(model: Model) -> Any:
    """A name, a path, a config as a dict, a transformers config object, or a transformers model."""
    if isinstance(model, str):
        return model
    if isinstance(model, os.PathLike):
        return os.fspath(model)
    if isinstance(model, Mapping):
        return dict(model)
    config = getattr(model, "config", model)
    if hasattr(config, "to_dict"):
        return {key: value for key, value in config.to_dict().items() if not key.startswith("_")}
    raise TypeError(f"a model is a name, a path, a dict or a transformers config, not {type(model).__name__}")


def request_of(command: str, model: Model, on: str, strategy: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    said = {key: value for key, value in strategy.items() if value is not None}
    return {"command": command, "model": model_of(model), "on": on, "strategy": said, **{key: value for key, value in more.items() if value is not None}}


def estimate(model: Model, *, on: str, **strategy: Any) -> Estimate:
    """Memory, time and a verdict of one training step: `estimate("llama-3.1-8b", on="8xmi300x", fsdp="full", micro_batch=1, seq=8192)`.

    `on` is a cluster ("16x8xh100-sxm"); the keys of the strategy are those of `strategy_keys()`, a dict for what has a dot
    (`lora={"r": 16}`). Raises PlimsollError. Other threads run meanwhile.
    """
    request = request_of("estimate", model, on, strategy)
    return Estimate.of(call(request), request)


def explain(model: Model, *, on: str, stage: Optional[int] = None, **strategy: Any) -> Explanation:
    """What takes the memory of a pipeline stage at its peak (else the one with the least margin), and what would lower it most."""
    return Explanation.of(call(request_of("explain", model, on, strategy, stage=stage)))


def report(model: Model, *, on: str, format: str = "html", stage: Optional[int] = None, **strategy: Any) -> str:
    """The report as a file: "html" (one that needs nothing else), "markdown" or "csv"."""
    return call(request_of("report", model, on, strategy, stage=stage, format=format))["text"]


def export(model: Model, *, on: str, to: str, **strategy: Any) -> Export:
    """The plan as files of another program, ready to launch: `export("llama-3.2-1b", on="8xh100-sxm", to="accelerate", ...)`."""
    answer = call(request_of("export", model, on, strategy, to=to))
    return Export({each["name"]: each["text"] for each in answer["files"]}, answer["command"], answer["no_equal"])


def export_formats() -> list[str]:
    """What `export` writes for."""
    return call({"command": "export"})["formats"]


def models() -> list[dict[str, Any]]:
    """The shipped models: name, type, parameters."""
    return call({"command": "models"})["models"]


def hardware() -> dict[str, list[str]]:
    """Names of the shipped accelerators and clusters."""
    answer = call({"command": "hardware"})
    return {"accelerators": answer["accelerators"], "clusters": answer["clusters"]}


def strategy_keys() -> dict[str, str]:
    """Every key of a strategy with its values and what it means."""
    return {each["key"]: ": ".join(part for part in (each["help"], each["values"]) if part) for each in call({"command": "options"})["options"]}


def version() -> str:
    return call({"command": "version"})["version"]
