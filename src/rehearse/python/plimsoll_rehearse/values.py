"""Values: the device computes nothing. Whole numbers and truth values that came from the host or from functions such as arange are computed
on the host too and put into the device's memory, which the stand-in keeps readable at the same address: programs branch on them. Every other
value reads as zero, and that it was read is noted."""

import ctypes
import functools

from . import journal

_MOST = 1 << 20  # elements that are worth computing: ids and masks, not activations

CREATE = ("arange", "ones", "zeros", "full", "ones_like", "zeros_like", "full_like", "tensor", "as_tensor", "eye")
COMPUTE = (
    "tril",
    "triu",
    "all",
    "any",
    "cumsum",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "logical_and",
    "logical_or",
    "logical_not",
    "sum",
    "diff",
    "argmax",
    "max",
    "min",
    "amax",
    "amin",
    "isin",
    "where",
    "cat",
    "stack",
    "bincount",
    "clone",
    "add",
    "sub",
    "mul",
    "remainder",
    "greater",
    "less",
    "floor_divide",
    "masked_fill",
    "gather",
    "index_select",
    "repeat",
    "flip",
    "roll",
    "argsort",
    "to",
    "long",
    "int",
    "bool",
    "cuda",
    "contiguous",
    "__eq__",
    "__ne__",
    "__lt__",
    "__le__",
    "__gt__",
    "__ge__",
    "__and__",
    "__or__",
    "__invert__",
    "__add__",
    "__sub__",
    "__mul__",
    "__radd__",
    "__rsub__",
    "__mod__",
    "__floordiv__",
)
READS = ("item", "tolist", "__bool__", "__int__", "__float__", "__index__", "cpu")


def host_view(tensor):
    """The device tensor's memory as a CPU tensor: a device address is a readable address of this process."""
    import torch

    storage = tensor.untyped_storage()
    if storage.nbytes() == 0:
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
    memory = (ctypes.c_uint8 * storage.nbytes()).from_address(storage.data_ptr())
    bytes_ = torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()
    return torch.empty(0, dtype=tensor.dtype, device="cpu").set_(bytes_, tensor.storage_offset(), tensor.shape, tensor.stride())


class Values:
    """Wraps functions of PyTorch; a storage whose bytes are right carries a mark."""

    def __init__(self, torch):
        self._torch = torch
        self._plain = (torch.Tensor, torch.nn.Parameter)
        self._whole = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
        self._inside = False

    def _small(self, tensor):
        return type(tensor) in self._plain and tensor.is_cuda and tensor.numel() <= _MOST

    def is_known(self, tensor):
        return self._small(tensor) and tensor.dtype in self._whole and getattr(tensor.untyped_storage(), "plimsoll_known", False)

    def set(self, tensor, values):
        host_view(tensor).copy_(values)
        tensor.untyped_storage().plimsoll_known = True

    def _on_host(self, value):
        if isinstance(value, self._torch.Tensor):
            if value.is_cuda and not self.is_known(value):
                raise LookupError
            return host_view(value) if value.is_cuda else value
        if type(value) in (list, tuple):
            return type(value)(map(self._on_host, value))
        if isinstance(value, self._torch.device) or isinstance(value, str) and value.startswith("cuda"):
            return "cpu"
        return value

    def _compute(self, result, function, arguments, options):
        try:
            arguments = tuple(self._on_host(each) for each in arguments)
            options = {
                key: self._on_host(value) for key, value in options.items() if key not in ("device", "pin_memory", "non_blocking", "out")
            }
            value = function(*arguments, **options)
        except (LookupError, RuntimeError, TypeError, ValueError, NotImplementedError):
            return
        if isinstance(value, self._torch.Tensor) and value.shape == result.shape:
            self.set(result, value)

    def computed(self, name, function):
        """`function`, whose result then holds values where all of its inputs do."""
        compiling, tensor_type = self._torch.compiler.is_compiling, self._torch.Tensor
        on_host = function
        if name == "cuda":
            on_host = lambda tensor, *arguments, **options: tensor
        elif name in CREATE:
            on_host = functools.partial(function, device="cpu")

        @functools.wraps(function)
        def wrapper(*arguments, **options):
            result = function(*arguments, **options)
            if compiling() or self._inside or not isinstance(result, tensor_type) or not result.is_cuda or result.dtype not in self._whole:
                return result
            if not self._small(result) or arguments and result is arguments[0]:
                return result
            self._inside = True
            try:
                self._compute(result, on_host, arguments, options)
            finally:
                self._inside = False
            return result

        return wrapper

    def filled(self, function):
        """fill_ and zero_: known afterwards where they cover the storage or it was known before."""
        compiling = self._torch.compiler.is_compiling

        @functools.wraps(function)
        def wrapper(tensor, *arguments, **options):
            result = function(tensor, *arguments, **options)
            if compiling() or self._inside or not self._small(tensor) or tensor.dtype not in self._whole:
                return result
            covers = tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
            if covers and all(not isinstance(each, self._torch.Tensor) for each in arguments) or self.is_known(tensor):
                self._inside = True
                try:
                    self._compute(tensor, lambda *given, **named: function(host_view(tensor), *given, **named), arguments, options)
                finally:
                    self._inside = False
            return result

        return wrapper

    def copied(self, function):
        """copy_ from a tensor whose values are known."""
        compiling = self._torch.compiler.is_compiling

        @functools.wraps(function)
        def wrapper(tensor, source, *arguments, **options):
            result = function(tensor, source, *arguments, **options)
            if not compiling() and self._small(tensor) and tensor.dtype in self._whole and isinstance(source, self._torch.Tensor):
                if self.is_known(source) or source.device.type == "cpu":
                    self.set(tensor, host_view(source) if source.is_cuda else source)
            return result

        return wrapper

    def read(self, name, function):
        """A read of a value: of one that nobody computed, noted, and zero whatever lay in the memory before."""

        @functools.wraps(function)
        def wrapper(tensor, *arguments, **options):
            if not self._torch.compiler.is_compiling() and self._small(tensor) and not self.is_known(tensor):
                journal.read(f"{name} of a {str(tensor.dtype)[6:]} tensor at {journal.user_line()}")
                host_view(tensor).zero_()
            return function(tensor, *arguments, **options)

        return wrapper

    def nonzero(self, function):
        """As many rows as there are values that are not zero, where these are known."""

        @functools.wraps(function)
        def wrapper(tensor, *arguments, **options):
            if self._torch.compiler.is_compiling() or not self._small(tensor):
                return function(tensor, *arguments, **options)
            if not self.is_known(tensor):
                journal.read(f"nonzero of a {str(tensor.dtype)[6:]} tensor at {journal.user_line()}: it has no rows")
                return function(tensor, *arguments, **options)
            rows = function(host_view(tensor), *arguments, **options)
            function(tensor, *arguments, **options)  # for what it allocates and launches
            return tuple(each.to(tensor.device) for each in rows) if isinstance(rows, tuple) else rows.to(tensor.device)

        return wrapper


def patch(torch):
    values = Values(torch)
    for name in CREATE + COMPUTE:
        for owner in (torch, torch.Tensor):
            function = getattr(owner, name, None)  # torch.long is a type, torch.cuda a module
            if callable(function) and not (owner is torch.Tensor and name in CREATE):
                setattr(owner, name, values.computed(name, function))
    for name in ("fill_", "zero_", "masked_fill_"):
        setattr(torch.Tensor, name, values.filled(getattr(torch.Tensor, name)))
    torch.Tensor.copy_ = values.copied(torch.Tensor.copy_)
    for name in READS:
        setattr(torch.Tensor, name, values.read(name, getattr(torch.Tensor, name)))
    for owner in (torch, torch.Tensor):
        owner.nonzero = values.nonzero(owner.nonzero)
    balance_experts(torch, values)


def balance_experts(torch, values):
    """The indices of torch.topk over rows: dealt round robin, as a balanced router of experts deals its tokens."""
    topk = torch.topk

    @functools.wraps(topk)
    def balanced(tensor, k, *arguments, **options):
        result = topk(tensor, k, *arguments, **options)
        indices = result[1]
        if torch.compiler.is_compiling() or type(indices) is not torch.Tensor or not indices.is_cuda or indices.dim() < 2:
            return result
        choices = tensor.shape[-1]
        if choices > 4096 or indices.numel() > 8 * _MOST:
            return result
        journal.replaced("the indices of topk over rows: dealt round robin, as a balanced router deals tokens to experts")
        values.set(indices, (torch.arange(indices.numel(), device="cpu") % choices).view(indices.shape))
        return result

    torch.topk = torch.Tensor.topk = balanced
