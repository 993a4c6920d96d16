"""DeepSpeed: compiled operators that would run on the device, and decisions that read norms."""

import os
from types import SimpleNamespace

from . import journal
from .imports import after

os.environ.setdefault("DS_ACCELERATOR", "cuda")


@after("deepspeed")
def patch_deepspeed(deepspeed):
    journal.version("deepspeed", deepspeed.__version__)


class NoKernels:
    """An operator library whose functions do nothing: device kernels allocate nothing, host kernels are not run."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, function):
        if function.startswith("__"):
            raise AttributeError(function)

        def nothing(*arguments, **options):
            journal.replaced(f"DeepSpeed's compiled operator {self._name}.{function}: it does nothing")
            return 0

        return nothing


@after("deepspeed.ops.op_builder.builder")
def load_no_kernels(module):
    """Operators are neither compiled nor looked for."""

    def load(self, verbose=True):
        name = self.name
        if name not in module.OpBuilder._loaded_ops:
            module.OpBuilder._loaded_ops[name] = NoKernels(name)
        return module.OpBuilder._loaded_ops[name]

    module.OpBuilder.load = module.OpBuilder.jit_load = load
    module.OpBuilder.is_compatible = lambda self, verbose=False: True
    module.OpBuilder._loaded_ops.update(
        fused_adam=SimpleNamespace(multi_tensor_adam=NoKernels("fused_adam").multi_tensor_adam),
        cpu_adam=SimpleNamespace(
            **{name: getattr(NoKernels("cpu_adam"), name) for name in ("create_adam", "destroy_adam", "adam_update", "adam_rollback")}
        ),
    )


def _finite(module, *classes):
    for name in classes:
        owner = getattr(module, name, None)
        if owner is None or not hasattr(owner, "has_overflow"):
            continue

        def has_overflow(self, *arguments, _original=owner.has_overflow, **options):
            _original(self, *arguments, **options)
            journal.replaced("DeepSpeed's check of gradients: they are finite")
            return False

        owner.has_overflow = has_overflow
    if hasattr(module, "is_invalid_grad_norm"):
        module.is_invalid_grad_norm = lambda *arguments, **options: False


@after("deepspeed.runtime.zero.stage_1_and_2")
def finite_norms_12(module):
    _finite(module, "DeepSpeedZeroOptimizer")


@after("deepspeed.runtime.zero.stage3")
def finite_norms_3(module):
    _finite(module, "DeepSpeedZeroOptimizer_Stage3")


@after("deepspeed.runtime.zero.utils")
def trust_other_ranks(module):
    """ZeRO-3 compares its order of modules with what rank 0 says, which only rank 0 knows here."""

    def same(*arguments):
        journal.replaced("ZeRO-3's comparison of its order of modules with rank 0's")

    for name in ("assert_ints_same_as_other_ranks", "assert_lst_len_same_as_other_ranks"):
        if hasattr(module, name):
            setattr(module, name, same)
