"""Answers as typed values. Quantities know their unit: Bytes are whole numbers, Seconds are floats, and both print as people read them."""
from __future__ import annotations

import os
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Mapping, Optional, Union

if TYPE_CHECKING:
    import matplotlib.axes
    import pandas


class Bytes(int):
    """Bytes. GiB are 2**30, GB are 1e9."""

    @property
    def gib(self) -> float:
        return self / 2**30

    @property
    def gb(self) -> float:
        return self / 1e9

    def __str__(self) -> str:
        if abs(self) >= 2**30:
            return f"{self.gib:.2f} GiB"
        return f"{self / 2**20:.1f} MiB" if abs(self) >= 2**20 else f"{int(self):,} B"

    __repr__ = __str__


class Seconds(float):
    """Seconds."""

    def __str__(self) -> str:
        value = float(self)
        if value >= 1:
            return f"{value:.2f} s"
        return f"{value * 1e3:.1f} ms" if value >= 1e-3 else f"{value * 1e6:.1f} µs"

    __repr__ = __str__


@dataclass(frozen=True)
class Band:
    """Between low and high lay nine in ten of the measured runs of this kind; all three are equal where nothing is known."""

    low: float
    expected: float
    high: float

    @staticmethod
    def of(quantity: Any, unit: Any) -> Band:
        if isinstance(quantity, Mapping):
            return Band(unit(quantity["low"]), unit(quantity["expected"]), unit(quantity["high"]))
        return Band(unit(quantity), unit(quantity), unit(quantity))


@dataclass(frozen=True)
class Memory:
    """Peak memory of one rank: live tensors, the allocator's segments, and what nvidia-smi or rocm-smi shows."""

    allocated: Bytes
    reserved: Bytes
    device: Band
    capacity: Bytes
    categories: dict[str, Bytes]
    requested: Optional[Bytes] = None

    @property
    def margin(self) -> Bytes:
        return Bytes(self.capacity - int(self.device.expected))

    @staticmethod
    def of(answer: Mapping[str, Any]) -> Memory:
        requested = answer.get("requested_bytes")
        return Memory(Bytes(answer["allocated_bytes"]), Bytes(answer["reserved_bytes"]), Band.of(answer["device_bytes"], Bytes), Bytes(answer["capacity_bytes"]),
                      {name: Bytes(value) for name, value in answer["categories"].items()}, None if requested is None else Bytes(requested))


@dataclass(frozen=True)
class Rank:
    """Ranks that hold the same program: one pipeline stage."""

    stage: int
    count: int
    memory: Memory


@dataclass(frozen=True)
class DearKernel:
    """Launches of a step that are the same kernel."""

    kernel: str
    label: str
    launches: int
    seconds: Seconds
    bound_by: str


@dataclass(frozen=True)
class Time:
    """A training step. The breakdown adds up to it."""

    step: Band
    tokens_per_second_per_gpu: float
    basis: str
    breakdown: dict[str, Seconds]
    dearest: list[DearKernel]
    advice: list[str]
    images_per_second_per_gpu: Optional[float] = None

    @staticmethod
    def of(answer: Mapping[str, Any]) -> Time:
        dearest = [DearKernel(each["kernel"], each["label"], each["launches"], Seconds(each["seconds"]), each["bound_by"]) for each in answer["dearest"]]
        return Time(Band.of(answer["step_seconds"], Seconds), answer["tokens_per_second_per_gpu"], answer["basis"],
                    {name: Seconds(value) for name, value in answer["breakdown"].items()}, dearest, list(answer["advice"]), answer.get("images_per_second_per_gpu"))


@dataclass(frozen=True)
class Flops:
    """Model FLOPs of a token and the share of the device's peak, by convention."""

    model_per_token: dict[str, float]
    mfu: dict[str, float]
    hfu: float


@dataclass(frozen=True)
class Estimate:
    """What one training step takes. `raw` is the whole plimsoll/estimate/1 object (docs/estimate-json.md)."""

    verdict: str
    model: str
    parameters: int
    ranks: list[Rank]
    memory: Memory
    time: Time
    flops: Flops
    assumptions: list[str]
    notes: list[str]
    raw: dict[str, Any] = field(repr=False, compare=False)
    request: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def fits(self) -> bool:
        return self.verdict != "does_not_fit"

    @staticmethod
    def of(answer: dict[str, Any], request: Optional[dict[str, Any]] = None) -> Estimate:
        flops = answer["flops"]
        return Estimate(answer["verdict"], answer["model"]["name"], answer["model"]["parameters"],
                        [Rank(each["stage"], each["count"], Memory.of(each["memory"])) for each in answer["ranks"]], Memory.of(answer["memory"]), Time.of(answer["time"]),
                        Flops(flops["model_flops_per_token"], flops["mfu"], flops["hfu"]), answer["assumptions"], answer["notes"], answer, request or {})

    def __str__(self) -> str:
        left, device = self.memory.margin, Bytes(int(self.memory.device.expected))
        room = f"{left} left" if left >= 0 else f"{Bytes(-left)} too much"
        return f"{self.verdict.replace('_', ' ')}: {self.model}, {device} of {self.memory.capacity} per GPU, {room}; {self.time.step.expected} a step"

    def to_frame(self) -> "pandas.DataFrame":
        """A row per pipeline stage, a column per category, in bytes. Needs pandas."""
        import pandas

        rows = [{"stage": rank.stage, "gpus": rank.count, "allocated": int(rank.memory.allocated), "reserved": int(rank.memory.reserved),
                 "device": int(rank.memory.device.expected), "capacity": int(rank.memory.capacity), **{name: int(value) for name, value in rank.memory.categories.items()}} for rank in self.ranks]
        return pandas.DataFrame(rows).set_index("stage")

    def plot(self, axes: "Optional[matplotlib.axes.Axes]" = None) -> "matplotlib.axes.Axes":
        """What takes the device's memory, a bar per category beside the capacity. Needs matplotlib."""
        import matplotlib.pyplot

        axes = axes if axes is not None else matplotlib.pyplot.subplots()[1]
        parts = [(name.replace("_", " "), value.gib) for name, value in self.memory.categories.items() if value >= 2**20]
        axes.barh([name for name, _ in parts], [value for _, value in parts])
        axes.axvline(self.memory.capacity.gib, linestyle="--", label=f"capacity, {self.memory.capacity}")
        axes.invert_yaxis()
        axes.set_xlabel("GiB per GPU")
        axes.set_title(f"{self.model}: {self.verdict.replace('_', ' ')}")
        axes.legend()
        return axes

    def _repr_html_(self) -> str:
        colour = {"fits": "#1a7f43", "tight": "#9a6700"}.get(self.verdict, "#c62f2f")
        whole = max(int(self.memory.capacity), int(self.memory.device.expected))
        rows = "".join(_bar(name.replace("_", " "), str(value), value / whole) for name, value in self.memory.categories.items() if value >= 2**20)
        step = self.time.step.expected
        times = "".join(_bar(name.replace("_", " "), str(value), value / step) for name, value in self.time.breakdown.items() if value > 0.001 * step)
        return (f'<div style="border-left:6px solid {colour};padding-left:1em"><b>{escape(str(self))}</b>'
                f"<table><tr><th colspan=3 style='text-align:left'>memory per GPU</th></tr>{rows}<tr><th colspan=3 style='text-align:left'>time of a step</th></tr>{times}</table></div>")


def _bar(name: str, value: str, share: float) -> str:
    return (f"<tr><td style='text-align:left'>{escape(name)}</td><td style='text-align:right'>{escape(value)}</td>"
            f"<td style='text-align:left'><div style='background:#3b78c3;height:.8em;width:{200 * min(1.0, share):.0f}px'></div></td></tr>")


@dataclass(frozen=True)
class AliveGroup:
    """Tensors alive at the peak that differ only in which layer made them."""

    category: str
    module: str
    operation: str
    count: int
    bytes: Bytes
    largest: Bytes


@dataclass(frozen=True)
class Export:
    """A plan as files of another program."""

    files: dict[str, str]
    command: str  # to be run in their folder
    no_equal: list[str]  # what the program cannot be told

    def save(self, folder: Union[str, os.PathLike[str]]) -> None:
        """Writes the files into a folder, which is made where it is not there."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name, text in self.files.items():
            path = Path(folder) / name
            path.write_text(text)
            if text.startswith("#!"):
                path.chmod(path.stat().st_mode | 0o111)


@dataclass(frozen=True)
class Change:
    """One change of the strategy, everything else as it was said."""

    flag: str
    saved: Bytes
    device: Bytes
    verdict: str
    step_time_ratio: Optional[float]
    fewer_bits: bool
    larger_batch: bool


@dataclass(frozen=True)
class Explanation:
    """What takes the memory at the peak and the time of the step, and what would lower either most."""

    verdict: str
    stage: int
    peak: dict[str, Any]
    alive: list[AliveGroup]
    changes: list[Change]
    causes: list[str]
    faster: list[Change]
    raw: dict[str, Any] = field(repr=False, compare=False)

    @staticmethod
    def of(answer: dict[str, Any]) -> Explanation:
        alive = [AliveGroup(each["category"], each["module"], each["operation"], each["count"], Bytes(each["bytes"]), Bytes(each["largest_bytes"])) for each in answer["alive"]]
        changes, faster = ([Change(each["flag"], Bytes(each["saved_bytes"]), Bytes(each["device_bytes"]), each["verdict"], each["step_time_ratio"], each["fewer_bits"], each["larger_batch"])
                            for each in answer[name]] for name in ("changes", "faster"))
        return Explanation(answer["verdict"], answer["stage"], answer["peak"], alive, changes, answer["causes"], faster, answer)

    def to_frame(self) -> "pandas.DataFrame":
        """A row per group of tensors alive at the peak, in bytes. Needs pandas."""
        import pandas

        return pandas.DataFrame([{"category": each.category, "module": each.module, "operation": each.operation, "count": each.count, "bytes": int(each.bytes)} for each in self.alive])
