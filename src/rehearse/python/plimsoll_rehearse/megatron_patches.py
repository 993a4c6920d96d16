"""Megatron-core: its own backward of pipeline stages, and what its packages leave undefined without Transformer Engine."""

import functools

from . import journal, steps
from .imports import after


@after("megatron.core")
def patch_core(module):
    journal.version("megatron-core", getattr(module, "__version__", "unknown"))


@after("megatron.core.pipeline_parallel.schedules")
def mark_backward(module):
    """Pipeline stages call the autograd engine directly."""
    custom = module.custom_backward

    @functools.wraps(custom)
    def custom_backward(*arguments, **options):
        steps.pass_begins("backward")
        return custom(*arguments, **options)

    module.custom_backward = custom_backward


@after("megatron.core.transformer.moe.moe_utils")
def define_gemm(module):
    """Left undefined where Transformer Engine is absent, and asked for by routers."""
    if not hasattr(module, "te_general_gemm"):
        module.te_general_gemm = None
