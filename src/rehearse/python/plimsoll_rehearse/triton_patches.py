"""Triton's search for the fastest of a kernel's configurations: on a device that computes nothing all are as fast, so the first that compiles is
taken, and the others are neither compiled nor run."""

import functools
import math

from . import journal
from .imports import after


@after("triton.runtime.autotuner")
def take_the_first(module):
    tuner = module.Autotuner
    made, measure = tuner.__init__, tuner._bench

    @functools.wraps(made)
    def noted(self, *arguments, **options):
        made(self, *arguments, **options)
        self._answered = None  # the arguments for which a configuration was found
        if getattr(self, "cache_results", False):
            self.cache_results = False  # what is found here is nothing for runs on a device

    @functools.wraps(measure)
    def first(self, *arguments, config, **meta):
        if self.nargs is not None and self._answered is self.nargs:
            return [math.inf] * 3
        journal.replaced("Triton's search for the fastest configuration of a kernel: the first that compiles is taken")
        timings = measure(self, *arguments, config=config, **meta)
        lowest = timings[0] if isinstance(timings, (list, tuple)) else timings
        if lowest != math.inf:
            self._answered = self.nargs
        return timings

    tuner.__init__, tuner._bench = noted, first
    if isinstance(vars(tuner).get("do_bench"), (property, functools.cached_property)):
        tuner.do_bench = property(lambda self: run_once)


def run_once(call, quantiles=(0.5,), **options):
    """With the tensor of do_bench that would clear the device's cache: the framework's allocator keeps its memory."""
    import triton

    clear = getattr(triton.runtime.driver.active, "get_empty_cache_for_benchmark", None)
    buffer = clear() if clear is not None else None
    call()
    del buffer
    return [1.0] * len(quantiles)


@after("torch._inductor.config")
def take_the_library(config):
    """max-autotune compiles and runs dozens of templates for each product and convolution: the vendor's library is what it compares them with."""
    for name in ("max_autotune_gemm_backends", "max_autotune_conv_backends"):
        if hasattr(config, name):
            setattr(config, name, "ATEN")


@after("torch._inductor.compile_fx")
def tell_of_the_library(module):
    compile_fx = module.compile_fx

    @functools.wraps(compile_fx)
    def told(*arguments, **options):
        from torch._inductor import config

        asked = {**(options.get("config_patches") or {})}
        if any(asked.get(name, getattr(config, name, False)) for name in ("max_autotune", "max_autotune_gemm")):
            journal.replaced("Inductor's search for the fastest kernel of a product (max-autotune): the vendor's library is taken")
        return compile_fx(*arguments, **options)

    module.compile_fx = told
