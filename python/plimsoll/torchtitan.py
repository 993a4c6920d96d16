"""`with plimsoll.torchtitan.watch(trainer): trainer.train()`: the prediction beside a TorchTitan run, by its Trainer's own configuration."""
from __future__ import annotations

from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, Iterator, Optional, TextIO

from ._calls import Model, model_of
from ._errors import BadInput
from ._native import call
from ._watch import Watch, torch_version

_RECOMPUTE = {"NoneType": "none", "FullAC": "full", "SelectiveAC": "selective-ac-op"}
_TYPES = {"bfloat16": "bf16", "float32": "fp32"}


#: Of torchtitan.models.common.attention.
_ATTENTIONS = {"FlexAttention": "flex", "VarlenAttention": "flash-varlen", "ScaledDotProductAttention": "sdpa"}


def _kind(config: Any) -> str:
    """A nested `Owner.Config` is called by its owner."""
    return type(config).__qualname__.split(".")[0]


def _loss(config: Any) -> dict[str, Any]:
    if _kind(config) == "ChunkedLossWrapper":
        return {"loss": "chunked-ce", "loss_chunks": config.num_chunks}
    return {"loss": "ce"}


def _attention(spec: Any) -> dict[str, Any]:
    from torchtitan.models.common import attention

    for kind, ours in _ATTENTIONS.items():
        if hasattr(attention, kind) and any(spec.model.traverse(getattr(attention, kind).Config)):
            return {"attention": ours}
    return {}


def _parallelism(config: Any) -> dict[str, Any]:
    said = {"tp": config.tensor_parallel_degree, "pp": config.pipeline_parallel_degree, "cp": config.context_parallel_degree, "ep": config.expert_parallel_degree,
            "dp_replicate": config.data_parallel_replicate_degree, "fsdp": {"reshard_after_forward": config.fsdp_reshard_after_forward}}
    if config.data_parallel_shard_degree > 0:
        said["dp_shard"] = config.data_parallel_shard_degree
    if config.pipeline_parallel_degree > 1:
        said.update(pp_schedule=config.pipeline_parallel_schedule.lower(), micro_batch=config.pipeline_parallel_microbatch_size)
    return said


def strategy_of(config: Any) -> dict[str, Any]:
    """What a Trainer of this `Trainer.Config` does, as keys of a strategy (docs/rows.md). Raises BadInput: a checkpointing that the planner does not know."""
    training, recompute = config.training, _kind(config.activation_checkpoint)
    if recompute not in _RECOMPUTE:
        raise BadInput(f"activation_checkpoint is {recompute}", hint=f"the planner knows {', '.join(_RECOMPUTE)[len('NoneType, '):]} and none")
    strategy: dict[str, Any] = {
        "framework": "torchtitan", "framework_version": version("torchtitan"), "torch": torch_version(), "seq_len": training.seq_len,
        "local_batch": training.local_batch_size, "micro_batch": training.local_batch_size, "param_dtype": _TYPES[training.dtype],
        "precision": _TYPES[training.mixed_precision_param], "optimizer_impl": config.optimizer.implementation, "clip_grad_norm": training.max_norm > 0,
        "recompute": _RECOMPUTE[recompute], "compile": "blocks" if config.compile.enable and "model" in config.compile.components else False,
        "spmd_backend": config.parallelism.spmd_backend, **_loss(config.loss), **_parallelism(config.parallelism),
        **_attention(config.model_spec),
    }
    if training.global_batch_size > 0:
        strategy["global_batch"] = training.global_batch_size
    if training.enable_cpu_offload:
        strategy["offload"] = "params+grads+optimizer"
    return strategy


def model_of_spec(spec: Any) -> Any:
    """The shipped model of a published flavor, as the planner finds it in TorchTitan's own file. Raises BadInput where there is none."""
    text = f'[model]\nname = "{spec.name}"\nflavor = "{spec.flavor}"\n[training]\nlocal_batch_size = 1\nseq_len = 128\n'
    try:
        return call({"command": "read", "files": [{"name": "torchtitan.toml", "text": text}], "on": "1xh100-sxm"})["model"]
    except BadInput as problem:
        raise BadInput(f"no shipped model is TorchTitan's {spec.name} {spec.flavor}", hint='give model=, a name or a config') from problem


@contextmanager
def watch(trainer: Any, *, model: Optional[Model] = None, on: Optional[str] = None, steps: int = 5, row: Optional[str] = None, out: Optional[TextIO] = None, **strategy: Any) -> Iterator[Watch]:
    """Predicts before the first step of a `torchtitan.trainer.Trainer` and compares after `steps` steady ones of `trainer.train_step`. `model` is what
    `plimsoll.estimate` takes where the flavor is none of the published ones; `strategy` says what the configuration cannot."""
    config = trainer.config
    watched = Watch(model_of(model) if model is not None else model_of_spec(config.model_spec), on, {**strategy_of(config), **strategy}, steps, row, out)
    watched.predict()
    step = trainer.train_step

    def watched_step(*args: Any, **kwargs: Any) -> Any:
        done = step(*args, **kwargs)
        watched.step_end()
        return done

    trainer.train_step = watched_step
    try:
        yield watched
    finally:
        trainer.train_step = step
