"""Host memory: initial values and casts of large CPU tensors are never computed, so that their pages are never touched. What a program draws
itself may be its data, which selects, weighs and is divided by: draws have values until they come to as much as a data set has."""

import functools
import math

from . import device, journal
from .imports import in_torchs_place

_LARGE = 1 << 20  # bytes; up to here values are followed (MOST_BYTES of values.py)
_DRAWN = 1 << 28  # bytes of all draws that have values: two seconds of a processor
_RESERVED = 1 << 26  # bytes of a tensor whose memory is new and all zeros (kLarge of src/rehearse/torch/host_allocator.cpp)

FILLS = (
    "normal_",
    "uniform_",
    "zero_",
    "fill_",
    "trunc_normal_",
    "random_",
    "bernoulli_",
    "exponential_",
    "xavier_uniform_",
    "copy_",
    "mul_",
    "add_",
    "div_",
    "clamp_",
    "erfinv_",
)
_UPDATES = ("mul_", "add_", "div_", "clamp_")  # which read what they write
INITIALISERS = (
    "uniform_",
    "normal_",
    "trunc_normal_",
    "constant_",
    "ones_",
    "zeros_",
    "eye_",
    "dirac_",
    "xavier_uniform_",
    "xavier_normal_",
    "kaiming_uniform_",
    "kaiming_normal_",
    "orthogonal_",
    "sparse_",
)


def patch(torch):
    plain = (torch.Tensor, torch.nn.Parameter)

    def is_large(tensor):
        return type(tensor) in plain and tensor.device.type == "cpu" and tensor.numel() * tensor.element_size() > _LARGE

    def untouched(function):
        @in_torchs_place
        @functools.wraps(function)
        def wrapper(tensor, *arguments, **options):
            sources = [each for each in arguments if isinstance(each, torch.Tensor)]
            on_host = all(each.device.type == "cpu" for each in sources)
            if is_large(tensor) and on_host and not torch.compiler.is_compiling() and tensor.is_floating_point():
                journal.replaced("values of large CPU tensors: their memory is reserved and not written")
                read = [*sources, *([tensor] if function.__name__ in _UPDATES else [])]
                device.host_traffic(tensor.nbytes + sum(each.nbytes for each in read))
                return tensor
            return function(tensor, *arguments, **options)

        return wrapper

    for name in FILLS:
        if hasattr(torch.Tensor, name):
            setattr(torch.Tensor, name, untouched(getattr(torch.Tensor, name)))
    for name in INITIALISERS:
        if hasattr(torch.nn.init, name):
            setattr(torch.nn.init, name, untouched(getattr(torch.nn.init, name)))
    patch_creation(torch)
    patch_casts(torch, is_large)
    skip_host_optimizers(torch)


def patch_creation(torch):
    """randn, rand and ones of large CPU tensors: memory, no values; zeros of such whose memory is zeros already."""
    drawn = [0]

    def has_values(bytes_):
        if bytes_ <= _LARGE:
            return True
        drawn[0] += bytes_
        return drawn[0] <= _DRAWN

    def is_written(bytes_):
        return bytes_ < _RESERVED

    def lazily(name, is_made, zeros=False):
        function = getattr(torch, name)

        @in_torchs_place
        @functools.wraps(function)
        def wrapper(*size, **options):
            device = options.get("device") or torch.get_default_device()
            if torch.device(device).type != "cpu" or options.get("out") is not None or torch.compiler.is_compiling():
                return function(*size, **options)
            shape = size[0] if len(size) == 1 and isinstance(size[0], (tuple, list, torch.Size)) else size
            dtype = options.get("dtype") or torch.get_default_dtype()
            if not isinstance(dtype, torch.dtype):  # Python's own types
                return function(*size, **options)
            whole_numbers = not dtype.is_floating_point  # their values matter, and pinned memory may have been another's
            if not all(isinstance(extent, int) for extent in shape) or whole_numbers and (not zeros or options.get("pin_memory")):
                return function(*size, **options)
            if is_made(math.prod(shape) * dtype.itemsize):
                return function(*size, **options)
            if not zeros:
                journal.replaced("values of large CPU tensors: their memory is reserved and not written")
            options.pop("generator", None)
            return torch.empty(*shape, **options)

        setattr(torch, name, wrapper)
        torch.jit._builtins._register_builtin(wrapper, f"aten::{name}")  # TorchScript knows what it has no source of by identity

    if not hasattr(torch, "get_default_device"):
        return
    for name in ("randn", "rand"):
        lazily(name, has_values)
    lazily("ones", is_written)
    lazily("zeros", is_written, zeros=True)


def patch_casts(torch, is_large):
    def without_values(function, dtype_of):
        @in_torchs_place
        @functools.wraps(function)
        def wrapper(tensor, *arguments, **options):
            if is_large(tensor) and not torch.compiler.is_compiling() and tensor.is_floating_point():
                dtype = dtype_of(tensor, arguments, options)
                if dtype is not None and dtype != tensor.dtype and tensor.numel() * dtype.itemsize > _LARGE:
                    return torch.empty_like(tensor, dtype=dtype, requires_grad=False)
            return function(tensor, *arguments, **options)

        return wrapper

    def asked(tensor, arguments, options):
        devices = [each for each in arguments if isinstance(each, (torch.device, str, int)) and not isinstance(each, bool)]
        devices.append(options.get("device"))
        if any(each is not None and torch.device(each).type != "cpu" for each in devices):
            return None
        types = [each for each in arguments if isinstance(each, torch.dtype)] + [options.get("dtype")]
        return next((each for each in types if each is not None), None)

    torch.Tensor.to = without_values(torch.Tensor.to, asked)
    for name, dtype in (("half", torch.float16), ("bfloat16", torch.bfloat16), ("float", torch.float32)):
        setattr(torch.Tensor, name, without_values(getattr(torch.Tensor, name), lambda t, a, o, dtype=dtype: dtype))


def skip_host_optimizers(torch):
    """An optimizer whose parameters lie on the host (CPU offload) would compute and touch all of its state."""
    from torch.optim import optimizer as module

    original = module.Optimizer.profile_hook_step

    def local_parameters(optimizer):
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        return [getattr(p, "_local_tensor", p) for p in parameters]

    def on_host(parameters):
        return bool(parameters) and all(p.device.type == "cpu" for p in parameters) and sum(p.numel() for p in parameters) >= _LARGE

    def kind_of(optimizer):
        """Its name and implementation, as the planner writes them."""
        name = type(optimizer).__name__.lower()
        if name.startswith("deepspeedcpu"):
            return name.removeprefix("deepspeedcpu"), "cpu"
        if name == "sgd" and optimizer.defaults.get("momentum"):
            name = "sgdm"
        return name, "fused" if optimizer.defaults.get("fused") else "for-loop"

    def profile_hook_step(function):
        stepping = original(lambda self, *arguments, **options: None if _skip(self) else function(self, *arguments, **options))
        return functools.wraps(function)(stepping)

    def _skip(optimizer):
        parameters = local_parameters(optimizer)
        if not on_host(parameters):
            return False
        journal.replaced("the optimizer of parameters on the host: it is not run")
        device.host_step(*kind_of(optimizer), sum(p.nbytes for p in parameters))
        return True

    module.Optimizer.profile_hook_step = staticmethod(profile_hook_step)
