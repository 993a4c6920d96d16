"""Values: the device computes nothing. Whole numbers and truth values that came from the host or from functions such as arange are computed
on the host too and put into the device's memory, which the stand-in keeps readable at the same address: programs branch on them. Every other
value reads as zero, and that it was read is noted."""

import ctypes
import functools
import warnings

from . import device, journal

_MOST = 1 << 20  # elements that are worth computing: ids and masks, not activations

CREATE = ("arange", "ones", "zeros", "full", "ones_like", "zeros_like", "full_like", "tensor", "as_tensor", "eye")
CONSTANT = ("zeros", "zeros_like", "ones_like")
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
    "scatter",
    "scatter_add",
    "index_add",
    "one_hot",
    "reshape",
    "flatten",
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
IN_PLACE = (
    "fill_",
    "zero_",
    "masked_fill_",
    "add_",
    "sub_",
    "mul_",
    "clamp_",
    "scatter_",
    "scatter_add_",
    "index_put_",
    "index_add_",
    "index_copy_",
    "index_fill_",
    "logical_and_",
    "logical_or_",
    "__setitem__",
    "__iadd__",
    "__isub__",
    "__imul__",
    "__iand__",
    "__ior__",
)
# functions whose results have as many elements as the values say: PyTorch reads them where no wrapper sees it
SIZED = ("unique", "unique_consecutive", "bincount", "masked_select", "repeat_interleave")
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
        self._shapes_only = set()
        self._within_vmap = torch._C._functorch.is_functorch_wrapped_tensor

    def _small(self, tensor):
        return type(tensor) in self._plain and tensor.is_cuda and tensor.numel() <= _MOST and not self._within_vmap(tensor)

    def is_known(self, tensor):
        return self._small(tensor) and getattr(tensor.untyped_storage(), "plimsoll_known", False)

    def set(self, tensor, values):
        host_view(tensor).copy_(values)
        storage = tensor.untyped_storage()
        storage.plimsoll_known = True
        device.written(storage.data_ptr(), storage.nbytes())

    def like_this_rank(self, result, value):
        """What a peer would say is taken to be what this rank says."""
        if value.is_cuda and self.is_known(value) and self._small(result) and result.dtype in self._whole:
            self.set(result, host_view(value).reshape(-1).repeat(result.numel() // max(1, value.numel())).view(result.shape))

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
            if function in self._shapes_only:
                arguments = (self._torch.empty(result.shape, dtype=arguments[0].dtype, device="cpu"), *arguments[1:])
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
        elif name.endswith("_like"):  # of which only the shape matters
            on_host = functools.partial(function, device="cpu")
            self._shapes_only.add(on_host)
        elif name in CREATE:
            on_host = functools.partial(function, device="cpu")

        @functools.wraps(function)
        def wrapper(*arguments, **options):
            result = function(*arguments, **options)
            if compiling() or self._inside or not isinstance(result, tensor_type) or not result.is_cuda:
                return result
            if result.dtype not in self._whole and name not in CONSTANT:  # zeros that become a map of whole numbers
                return result
            if not self._small(result) or arguments and result is arguments[0] or self.is_known(result):
                return result
            self._inside = True
            try:
                self._compute(result, on_host, arguments, options)
            finally:
                self._inside = False
            return result

        return wrapper

    def changed(self, name, function):
        """A function that changes its tensor: known afterwards where the tensor was and what came in is, or where all of it is filled."""
        compiling = self._torch.compiler.is_compiling
        fills = name in ("fill_", "zero_")

        def on_host(tensor, arguments, options):
            values = host_view(tensor).clone()
            function(values, *map(self._on_host, arguments), **{key: self._on_host(value) for key, value in options.items()})
            return values

        @functools.wraps(function)
        def wrapper(tensor, *arguments, **options):
            result = function(tensor, *arguments, **options)
            if compiling() or self._inside or not self._small(tensor):
                return result
            whole = tensor.dtype in self._whole
            covers = fills and whole and tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
            if not covers and not self.is_known(tensor):
                return result
            self._inside = True
            try:
                if not whole and name not in ("index_put_", "scatter_", "__setitem__"):
                    raise LookupError
                self.set(tensor, on_host(tensor, arguments, options))
            except (LookupError, RuntimeError, TypeError, ValueError, NotImplementedError):
                tensor.untyped_storage().plimsoll_known = False
            finally:
                self._inside = False
            return result

        return wrapper

    def sized(self, name, function):
        """Results of the size that known values give them; of masked_select, only the mask need be known."""

        def on_device(result, near):
            if isinstance(result, tuple):
                return tuple(on_device(each, near) for each in result)
            return result.to(near.device) if isinstance(result, self._torch.Tensor) else result

        @functools.wraps(function)
        def wrapper(tensor, *arguments, **options):
            if self._torch.compiler.is_compiling() or self._inside or type(tensor) not in self._plain or not tensor.is_cuda:
                return function(tensor, *arguments, **options)
            if name == "masked_select" and arguments and self.is_known(arguments[0]):
                wide, mask = self._torch.broadcast_tensors(tensor, arguments[0])
                return wide[tuple(each.to(tensor.device) for each in host_view(mask).nonzero(as_tuple=True))]
            if name == "repeat_interleave" and arguments and self.is_known(arguments[0]) and "output_size" not in options:
                return function(tensor, *arguments, **options, output_size=int(host_view(arguments[0]).sum()))
            try:
                given = tuple(self._on_host(each) for each in (tensor, *arguments))
            except LookupError:
                if name not in ("repeat_interleave",) or arguments and isinstance(arguments[0], self._torch.Tensor):
                    journal.read(f"{name} of a {str(tensor.dtype)[6:]} tensor at {journal.user_line()}: its size hangs on values")
                return function(tensor, *arguments, **options)
            function(tensor, *arguments, **options)  # for what it allocates and launches
            return on_device(function(*given, **{key: self._on_host(value) for key, value in options.items()}), tensor)

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
            if self._torch.compiler.is_compiling() or self._inside or not self._small(tensor):
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
    torch.nn.functional.one_hot = values.computed("one_hot", torch.nn.functional.one_hot)
    for name in IN_PLACE:
        setattr(torch.Tensor, name, values.changed(name, getattr(torch.Tensor, name)))
    for name in SIZED:
        for owner in (torch, torch.Tensor):
            if hasattr(owner, name):
                setattr(owner, name, values.sized(name, getattr(owner, name)))
    torch.Tensor.copy_ = values.copied(torch.Tensor.copy_)
    for name in READS:
        setattr(torch.Tensor, name, values.read(name, getattr(torch.Tensor, name)))
    if not answer_below(torch, values):
        for owner in (torch, torch.Tensor):
            owner.nonzero = values.nonzero(owner.nonzero)
        torch.where = places_or_choice(torch, torch.where)
    balance_experts(torch, values)
    return values


_libraries = []  # a registration lasts as long as its library


def answer_below(torch, values):
    """nonzero and indexing in PyTorch's dispatcher, where x[mask] asks too: torch.Tensor.__getitem__ itself cannot be replaced, it would make
    sequences of tensors. False where a kernel cannot be had to be called from its replacement (before PyTorch 2.9)."""
    if not hasattr(torch.library, "get_kernel"):
        return False
    find, pick = (torch.library.get_kernel(f"aten::{name}", "CUDA") for name in ("nonzero", "index.Tensor"))

    def nonzero(keys, tensor):
        rows = find.call_boxed(keys, tensor)
        if values.is_known(tensor):
            return host_view(tensor).nonzero().to(tensor.device)
        journal.read(f"places of what is not zero in a {str(tensor.dtype)[6:]} tensor at {journal.user_line()}: there are none")
        return rows

    def index(keys, tensor, places):
        result = pick.call_boxed(keys, tensor, places)
        if values.is_known(tensor) and values._small(result) and all(each is None or values.is_known(each) for each in places):
            chosen = tuple(slice(None) if each is None else host_view(each) for each in places)
            values.set(result, host_view(tensor)[chosen])
        return result

    library = torch.library.Library("aten", "IMPL")
    _libraries.append(library)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that kernels are overridden is what is meant
        library.impl("nonzero", nonzero, "CUDA", with_keyset=True)
        library.impl("index.Tensor", index, "CUDA", with_keyset=True)
    return True


def places_or_choice(torch, where):
    """torch.where(condition) alone is nonzero."""

    @functools.wraps(where)
    def wrapper(condition, *arguments, **options):
        if arguments or options or torch.compiler.is_compiling():
            return where(condition, *arguments, **options)
        return torch.nonzero(condition, as_tuple=True)

    return wrapper


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
