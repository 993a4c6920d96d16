"""Values: the device computes nothing, so small integer and boolean tensors, on which programs branch, are computed on the host and put
into the device's memory, which the stand-in keeps readable at the same address; every other read sees zeros and is noted."""
import ctypes
import functools

from . import journal

_MOST = 1 << 20  # elements that are worth computing: ids and masks, not activations

CREATE = ("arange", "ones", "zeros", "full", "ones_like", "zeros_like", "full_like", "tensor", "eye", "tril", "triu")
COMPUTE = ("all", "any", "cumsum", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not", "sum", "diff", "argmax",
           "max", "min", "amax", "amin", "isin", "where", "cat", "stack", "bincount", "unique", "clone", "add", "sub", "mul", "remainder",
           "floor_divide", "masked_fill")
OPERATORS = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__and__", "__or__", "__invert__", "__add__", "__sub__", "__mul__",
             "__radd__", "__rsub__", "__mod__", "__floordiv__")
IN_PLACE = ("fill_", "zero_", "masked_fill_")
CASTS = ("to", "long", "int", "bool", "contiguous")
READS = ("item", "tolist", "__bool__", "__int__", "__float__", "__index__", "numpy", "nonzero")


def host_view(tensor):
    """The device tensor's memory as a CPU tensor: a device address is a readable address of this process."""
    import torch

    storage = tensor.untyped_storage()
    if storage.nbytes() == 0:
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
    memory = (ctypes.c_uint8 * storage.nbytes()).from_address(storage.data_ptr())
    flat = torch.frombuffer(memory, dtype=torch.uint8).view(-1)
    return torch.empty(0, dtype=tensor.dtype, device="cpu").set_(
        flat.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())


class Emulation:
    """Wraps functions of PyTorch so that their results hold values where their inputs are small whole numbers."""

    def __init__(self, torch):
        self._torch = torch
        self._plain = (torch.Tensor, torch.nn.Parameter)
        self._whole = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
        self._inside = False

    def knows(self, tensor):
        return (type(tensor) in self._plain and tensor.is_cuda and tensor.dtype in self._whole and tensor.numel() <= _MOST
                and tensor.untyped_storage().nbytes() <= 64 * _MOST)

    def _on_host(self, value):
        if isinstance(value, self._torch.Tensor):
            if not value.is_cuda:
                return value
            if not self.knows(value):
                raise LookupError
            return host_view(value)
        if isinstance(value, (list, tuple)):
            return type(value)(map(self._on_host, value)) if type(value) in (list, tuple) else value
        return value

    def fill(self, result, function, arguments, options):
        """Computes the same on the host and puts it into `result`, when every input is known."""
        if not self.knows(result):
            return
        try:
            arguments, options = self._on_host(arguments), {key: self._on_host(value) for key, value in options.items()}
            options.pop("device", None), options.pop("pin_memory", None), options.pop("non_blocking", None), options.pop("out", None)
            arguments = tuple("cpu" if isinstance(each, self._torch.device) else each for each in arguments)
            value = function(*arguments, **options)
        except (LookupError, RuntimeError, TypeError, NotImplementedError):
            return
        if isinstance(value, self._torch.Tensor) and value.shape == result.shape:
            host_view(result).copy_(value)

    def emulated(self, function):
        compiling = self._torch.compiler.is_compiling
        tensor_type = self._torch.Tensor

        @functools.wraps(function)
        def wrapper(*arguments, **options):
            result = function(*arguments, **options)
            if compiling() or self._inside:
                return result
            first = result if isinstance(result, tensor_type) else None
            if first is None or not first.is_cuda or first.dtype not in self._whole:
                return result
            self._inside = True
            try:
                self.fill(first, function, arguments, options)
            finally:
                self._inside = False
            return result

        return wrapper

    def in_place(self, function):
        compiling = self._torch.compiler.is_compiling

        @functools.wraps(function)
        def wrapper(tensor, *arguments, **options):
            result = function(tensor, *arguments, **options)
            if not compiling() and not self._inside and self.knows(tensor):
                self._inside = True
                try:
                    function(host_view(tensor), *map(self._on_host, arguments), **options)
                except (LookupError, RuntimeError, TypeError):
                    pass
                finally:
                    self._inside = False
            return result

        return wrapper

    def noted_read(self, name, function):
        @functools.wraps(function)
        def wrapper(tensor, *arguments, **options):
            if not self._torch.compiler.is_compiling() and not self._inside and type(tensor) in self._plain and tensor.is_cuda:
                if name == "nonzero" and self.knows(tensor):
                    return self._nonzero(tensor, function, *arguments, **options)
                journal.read(f"{name} of a device tensor at {journal.user_line()}")
            return function(tensor, *arguments, **options)

        return wrapper

    def _nonzero(self, tensor, function, *arguments, **options):
        """Its result has as many rows as there are values: the kernels are those of the real one, the rows those of the host."""
        function(tensor, *arguments, **options)
        return function(host_view(tensor), *arguments, **options).to(tensor.device) if not options.get("as_tuple") else tuple(
            each.to(tensor.device) for each in function(host_view(tensor), *arguments, **options))


def patch(torch):
    emulation = Emulation(torch)
    for name in CREATE + COMPUTE:
        if hasattr(torch, name):
            setattr(torch, name, emulation.emulated(getattr(torch, name)))
    for name in COMPUTE + OPERATORS + CASTS:
        if hasattr(torch.Tensor, name):
            setattr(torch.Tensor, name, emulation.emulated(getattr(torch.Tensor, name)))
    for name in IN_PLACE:
        setattr(torch.Tensor, name, emulation.in_place(getattr(torch.Tensor, name)))
    for name in READS:
        setattr(torch.Tensor, name, emulation.noted_read(name, getattr(torch.Tensor, name)))
    torch.nonzero = emulation.noted_read("nonzero", torch.nonzero)
    balance_experts(torch)


def balance_experts(torch):
    """The indices of torch.topk over rows: dealt round robin, as a balanced router of experts deals its tokens."""
    topk = torch.topk

    @functools.wraps(topk)
    def balanced(tensor, k, *arguments, **options):
        result = topk(tensor, k, *arguments, **options)
        indices = result[1]
        if torch.compiler.is_compiling() or not (type(indices) is torch.Tensor and indices.is_cuda and indices.dim() >= 2 and
                                                  tensor.shape[-1] <= 4096 and indices.numel() <= 64 * _MOST):
            return result
        journal.replaced("the indices of topk over rows: dealt round robin, as a balanced router deals tokens to experts")
        choices = tensor.shape[-1]
        host_view(indices).copy_((torch.arange(indices.numel(), device="cpu") % choices).view(indices.shape))
        return result

    torch.topk = torch.Tensor.topk = balanced
