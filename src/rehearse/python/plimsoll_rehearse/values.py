"""Values. The device computes nothing; but a device address is a readable address of this process, and the stand-in knows which bytes there
hold real values (control.h): what the host copied or filled. PyTorch's operators are followed in its dispatcher: where all tensors that go
into one are known and small, the processor's own kernel computes the result into the device's memory, so that masks, grids, ids, timesteps
and what hangs on them are what they would be, whole numbers or not. What comes out of uncomputed numbers is unknown, until a program turns
it into a decision or reads it: then it is assumed (choices.py), stays so, and is reported."""

import ctypes
import functools
import sys
import threading
import types
import warnings

from . import choices, device, journal, sparse
from .imports import after

MOST_BYTES = 1 << 20  # of a tensor whose values are followed: not activations
MOST_WHOLE = 1 << 20  # elements of one of whole numbers or truth values: ids and masks
MOST_PRODUCTS = 1 << 20  # multiplications of a matrix product that is computed: rotary angles, not layers
MOST_BESIDE = 64  # elements of a tensor that may be known beside others that are not: vectors of metrics
MOST_PARTS = 1024  # unbroken parts of a strided tensor that are looked at one by one

NONE, ASSUMED, CERTAIN = device.NONE, device.ASSUMED, device.CERTAIN

_followed = []  # once PyTorch is imported

# Operators without a kernel of the device's own that move or read values all the same.
COMPOSITE = ("copy_", "_is_all_true", "_is_any_true")
# Decided by the values alone: of numbers that nobody computed nothing can be said, and of assumed ones only where what comes out is finite: those
# that were drawn have an inverse, those that are all alike have none.
UNASSUMED = ("linalg_", "_linalg_", "cholesky", "_cholesky", "geqrf", "ormqr", "_fft")
ARITHMETIC = ("linalg_vector_norm", "linalg_cross")  # sums and products like any other, by their names alone among the above
# Work of a model: its results are uncomputed numbers, even where all that goes in happens to be known.
UNFOLLOWED = ("convolution", "attention", "rnn", "lstm", "gru", "_foreach", "_fused", "grouped_mm", "_scaled_mm", "cudnn", "miopen")
PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "addmv", "mv", "dot", "addbmm", "vdot")
# Operators that PyTorch's own caller gives a number where a tensor belongs.
TAKE_NUMBERS = ("add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide", "floor_divide", "copy")
# Operators whose kernels wrap a number into a tensor on the device, which cannot be handed to Python, and call another operator with it.
WRAPPING = ("aten.pow.Scalar", "aten.isin.Scalar_Tensor", "aten.searchsorted.Scalar", "aten.bucketize.Scalar")
# Operators that ask the device for the size of their result, which is then that of the values.
SIZED = ("_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive", "_unique")
# Operators that only the device's library has, and what the processor calls in their place; a convolution's weight says how long its sums are.
CONVOLUTIONS = ("cudnn_convolution", "cudnn_convolution_transpose")
# Operators whose result has the elements of what goes in, each in its place, beside those that PyTorch says compute each by itself.
PLACING = ("cat", "stack", "copy_", "_to_copy", "clone")
# Operators that write their tensor without reading it.
WRITING = ("copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_", "cauchy_", "log_normal_", "geometric_")


def host_view(tensor):
    """The device tensor's memory as a CPU tensor."""
    import torch

    storage = tensor.untyped_storage()
    if storage.nbytes() == 0 or tensor.numel() == 0:
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
    memory = (ctypes.c_uint8 * storage.nbytes()).from_address(storage.data_ptr())
    bytes_ = torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()
    return torch.empty(0, dtype=tensor.dtype, device="cpu").set_(bytes_, tensor.storage_offset(), tensor.shape, tensor.stride())


def unexpanded(tensor):
    """Its elements that are there once: of an expanded tensor those that it was expanded from."""
    return tensor[tuple(slice(0, 1) if step == 0 else slice(None) for step in tensor.stride())] if 0 in tensor.stride() else tensor


def extent(tensor):
    """Bytes from its first element to the end of its last."""
    if tensor.numel() == 0:
        return 0
    return (1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()))) * tensor.element_size()


def places(tensor):
    """Address and bytes of each unbroken part of it; all of its extent where there are too many."""
    address, item, whole = tensor.data_ptr(), tensor.element_size(), extent(tensor)
    if whole <= tensor.numel() * item:
        return ((address, whole),)
    steps = sorted((step, size) for size, step in zip(tensor.shape, tensor.stride()) if size > 1 and step > 0)
    block, starts = 1, [0]
    for step, size in steps:
        if step == block and starts == [0]:
            block *= size
            continue
        if len(starts) * size > MOST_PARTS:
            return ((address, whole),)
        starts = [start + i * step for start in starts for i in range(size)]
    return tuple((address + start * item, block * item) for start in starts)


def on_processor(torch, name):
    """What computes on the processor what the operator does on the device, where it has another name or takes other types; None for all others."""
    aten = torch.ops.aten

    def convolution(image, weight, padding, stride, dilation, groups, *settings, output_padding=(), transposed=False):
        return aten.convolution(image, weight, None, stride, padding, dilation, transposed, output_padding or [0] * len(stride), groups)

    def transposed(image, weight, padding, output_padding, stride, dilation, groups, *settings):
        return convolution(image, weight, padding, stride, dilation, groups, output_padding=output_padding, transposed=True)

    def histogram(values, *settings, **options):
        """Of whole numbers too, which the processor's kernel does not count."""
        return aten.histc(values.to(torch.float64), *settings, **options).to(values.dtype)

    bilinear_within_zeros = (0, 0, True)  # the one way of cuDNN: its corners are the image's
    return {
        "cudnn_convolution": convolution,
        "cudnn_convolution_transpose": transposed,
        "histc": histogram,
        "cudnn_grid_sampler": lambda image, grid: aten.grid_sampler(image, grid, *bilinear_within_zeros),
    }.get(name)


class Plan:
    """What an operator's schema says of it."""

    def __init__(self, torch, operator):
        schema = operator._schema
        self.operator, self.call, self.routes = operator, operator._op_dk, {}
        self._has_kernel = lambda key: torch._C._dispatch_has_kernel_for_dispatch_key(schema.name + (f".{schema.overload_name}" if schema.overload_name else ""), key)
        self.name = schema.name.split("::")[-1]
        # all numbers are finite: what a gradient scaler counts those by that are not stays as it is
        arguments = [(index, each) for index, each in enumerate(schema.arguments) if each.name != "found_inf"]
        written = [(index, each) for index, each in arguments if each.alias_info is not None and each.alias_info.is_write]
        self.written = tuple((index, each.name) for index, each in written)
        self.reads_written = self.name not in WRITING
        self.outs = tuple(each.name for _, each in written if each.is_out)
        self.is_view = any(each.alias_info is not None and not each.alias_info.is_write for each in schema.returns)
        self.random = torch.Tag.nondeterministic_seeded in operator.tags
        self.by_element = torch.Tag.pointwise in operator.tags or self.name in PLACING
        self.takes_generator = any(each.name == "generator" for each in schema.arguments)
        self.is_convolution = self.name in CONVOLUTIONS
        self.compute = on_processor(torch, self.name)
        self.is_product = self.name in PRODUCTS or self.is_convolution
        self.followed = self.compute is not None or not any(part in self.name for part in UNFOLLOWED)
        self.compute = self.compute or operator
        self.assumes = self.name in ARITHMETIC or not self.name.startswith(UNASSUMED)

        self.wraps_number = str(operator).removesuffix("_out") in WRAPPING
        tensors = (index for index, each in enumerate(schema.arguments) if str(each.type) in ("Tensor", "Optional[Tensor]"))
        self.number_places = () if self.name.rstrip("_") in TAKE_NUMBERS else tuple(tensors)

    def with_tensors(self, torch, arguments):
        """A number in a tensor's place comes from a scalar; as a tensor of no dimensions it leaves the result's type as it was."""
        if not any(type(arguments[place]) in (int, float, bool, complex) for place in self.number_places if place < len(arguments)):
            return arguments
        others = [each for each in arguments if isinstance(each, torch.Tensor)]
        arguments = list(arguments)
        for place in self.number_places:
            number = arguments[place] if place < len(arguments) else None
            if type(number) in (int, float, bool, complex):
                dtype = torch.result_type(others[0], number) if others else None
                arguments[place] = torch.scalar_tensor(number, dtype=dtype, device="cpu")
        return tuple(arguments)

    def route(self, backend):
        """The key under which the kernel for a backend is found, which a call that names its key must know itself."""
        composite = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional", "CompositeImplicitAutograd")
        found = next((key for key in (backend, *(getattr(type(backend), name) for name in composite)) if self._has_kernel(key.name)), None)
        if found is None:
            raise NotImplementedError(f"{self.operator} has no kernel for {backend.name}")
        self.routes[backend] = found
        return found

    def targets(self, arguments, options):
        """The tensors that it writes to, lists of them opened."""
        for index, name in self.written:
            given = arguments[index] if index < len(arguments) else options.get(name)
            if isinstance(given, (list, tuple)):
                yield from given
            elif given is not None:
                yield given

    def inputs(self, arguments, options):
        """What it reads: tensors, and the contents of lists."""
        skipped = () if self.reads_written else tuple(index for index, _ in self.written)
        for index, given in enumerate(arguments):
            if index not in skipped:
                yield from given if isinstance(given, (list, tuple)) else (given,)
        for name, given in options.items():
            if name not in self.outs:
                yield from given if isinstance(given, (list, tuple)) else (given,)


class Values:
    def __init__(self, torch):
        self._torch = torch
        self._whole = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
        self._generator = torch.Generator(device="cpu").manual_seed(0)  # not the program's own, whose draws would move
        self._thread = threading.local()
        self._choices = choices.Choices(torch, self)
        self.operators = 0  # on the device, that were followed
        self._alterations, self._altered = 0, {}  # how many were made in place; by address, which was the last

    # ---- what is known ---------------------------------------------------------------------------------------------

    def is_whole(self, tensor):
        return tensor.dtype in self._whole

    def is_small(self, tensor):
        elements = tensor.numel()
        return elements * tensor.element_size() <= MOST_BYTES or elements <= MOST_WHOLE and tensor.dtype in self._whole

    def knowledge(self, tensor):
        if not self.is_small(tensor):
            return NONE
        known = device.known(tensor.data_ptr(), extent(tensor))
        if known == NONE and not tensor.is_contiguous():
            known = min(device.known(*place) for place in places(tensor))
        return known

    def beside(self, tensor):
        """What is known of each element of a short tensor, where that is not the same of all; else None."""
        if not 1 < tensor.numel() <= MOST_BESIDE or not tensor.is_cuda:
            return None
        levels = [device.known(address, tensor.element_size()) for address in self._addresses(tensor)]
        return None if len(set(levels)) == 1 else self._levels(levels, tensor.shape)

    def _levels(self, levels, shape):
        return self._torch.tensor(levels, dtype=self._torch.uint8, device="cpu").view(shape)

    def _addresses(self, tensor):
        """Of its elements, in their order."""
        offsets = [0]
        for size, step in zip(tensor.shape, tensor.stride()):
            offsets = [offset + i * step for offset in offsets for i in range(size)]
        return [tensor.data_ptr() + offset * tensor.element_size() for offset in offsets]

    def note_each(self, tensor, levels):
        for address, level in zip(self._addresses(tensor), levels.flatten().tolist()):
            device.note_values(address, tensor.element_size(), level)

    def count_expanded(self, tensor):
        """How many are not zero of what is a small known tensor, expanded: a mask of rows over all their elements. None where it is not known."""
        once = unexpanded(tensor)
        if self.knowledge(once) == NONE:
            return None
        return int(self._torch.count_nonzero(host_view(once))) * (tensor.numel() // max(1, once.numel()))

    def note(self, tensor, knowledge):
        if tensor.is_cuda:
            for place in places(tensor):
                device.note_values(*place, knowledge)

    def set(self, tensor, values, knowledge=CERTAIN):
        self._torch.ops.aten.copy_(host_view(tensor), values)  # the operator itself: methods of large tensors write nothing (host_memory.py)
        self.note(tensor, knowledge)

    def like_this_rank(self, result, value):
        """What a peer would say is taken to be what this rank says."""
        if not value.is_cuda or not self.is_small(result) or result.dtype != value.dtype:
            return
        known, levels, ranks = self.knowledge(value), self.beside(value), result.numel() // max(1, value.numel())
        if known or levels is not None:
            self.set(result, host_view(value).reshape(-1).repeat(ranks).view(result.shape), known)
        if levels is not None:
            self.note_each(result, levels.flatten().repeat(ranks))

    def times(self, tensor, factor):
        """The sum over ranks that all say what this one says."""
        if tensor.is_cuda and (self.knowledge(tensor) or self.beside(tensor) is not None):
            self._torch.ops.aten.mul_(host_view(tensor), factor)

    # ---- one operator -----------------------------------------------------------------------------------------------

    def kernel(self, plan, below, on_device):
        """Takes the operator's place right above the backends, and follows what it does on the device."""
        call, routes, before = plan.call, plan.routes, getattr(self, f"_before_{plan.name}", None)
        alters = bool(plan.written) and plan.reads_written
        numbers, equal = len(plan.number_places) > 1, plan.name == "equal"
        launch = self._on_its_own(call, on_device) if plan.wraps_number else self._unfollowed(call) if equal or plan.name in SIZED else call

        def followed(keys, *arguments, **options):
            backend = (keys & below).highestPriorityTypeId()
            key = routes.get(backend) or plan.route(backend)
            if numbers:
                arguments = plan.with_tensors(self._torch, arguments)
            if backend != on_device or getattr(self._thread, "busy", False):
                return call(key, *arguments, **options)
            self.operators += 1
            if before is not None:
                before(*arguments, **options)
            begun = self._alterations
            result = launch(key, *arguments, **options)
            if alters and self._alterations != begun and self._was_altered(plan, begun, arguments, options):
                return result
            return self._equal(*arguments) if equal else self._follow(plan, result, arguments, options)

        return followed

    def _on_its_own(self, call, on_device):
        """The kernel and all that it calls in its turn, past this file: straight to the device, where also what names no tensor goes."""
        keys = self._torch._C
        device, here = keys.DispatchKeySet(on_device), keys.DispatchKeySet(keys.DispatchKey.BackendSelect)

        def called(key, *arguments, **options):
            within, without = keys._dispatch_tls_local_include_set(), keys._dispatch_tls_local_exclude_set()
            with keys._ForceDispatchKeyGuard(within | device, without | here):
                return call(key, *arguments, **options)

        return called

    def _was_altered(self, plan, begun, arguments, options):
        """An operator that changes what is there may have left that to another, which was followed: it is not changed twice."""
        return all(self._altered.get(each.data_ptr(), 0) > begun for each in plan.targets(arguments, options))

    def _follow(self, plan, result, arguments, options):
        written = tuple(plan.targets(arguments, options)) if plan.written else None
        outputs = written if written is not None else result if isinstance(result, tuple) else (result,)
        tensor = self._torch.Tensor
        if not any(isinstance(each, tensor) and self.is_small(each) for each in outputs):
            if written is not None:
                self._forget(written)
            return result
        self._thread.busy = True
        try:
            return self._follow_small(plan, result, outputs, arguments, options, written)
        finally:
            self._thread.busy = False

    def _follow_small(self, plan, result, outputs, arguments, options, written):
        tensor = self._torch.Tensor
        inputs = [each for each in plan.inputs(arguments, options) if isinstance(each, tensor) and each.is_cuda]
        tensors = [each for each in outputs if isinstance(each, tensor)]
        known = min(map(self.knowledge, inputs), default=CERTAIN)
        if plan.random and not any(map(self.is_whole, tensors)):  # one draw of many: as good as an assumption, and no better
            known = min(known, ASSUMED)
        if known == NONE and plan.by_element and self._follow_elements(plan, result, inputs, tensors, arguments, options, written):
            return result
        if known == NONE and (not plan.assumes or not any(map(self.is_whole, tensors))):
            if written is not None:
                self._forget(written)
            return result
        if known != CERTAIN:
            chosen = self._choices.choose(plan.name, result, inputs, arguments, options)
            if chosen is not None:
                return chosen
        if known == NONE:
            unknown = [each for each in inputs if self.knowledge(each) == NONE]
            if not all(map(self.is_small, inputs)) or self._are_conditions(unknown + tensors):
                self._forget(written or ())
                return result
            for each in unknown:
                self.assume(each)
            known = ASSUMED
        return self._compute(plan, result, known, arguments, options, written)

    def _follow_elements(self, plan, result, inputs, outputs, arguments, options, written):
        """An element that comes of known ones alone is known, whatever its neighbours are. Whether there is any."""
        if len(outputs) != 1 or not 1 < outputs[0].numel() <= MOST_BESIDE or plan.random or any(each.numel() > MOST_BESIDE for each in inputs):
            return False
        if all(self.beside(each) is None for each in inputs) and len({self.knowledge(each) for each in inputs}) == 1:
            return False
        levels = {id(each): self._known_of_each(each) for each in inputs}
        if plan.name in ("cat", "stack"):
            if plan.outs:  # a tensor of the program's own, which levels are not written into
                return False
            found = plan.operator([levels[id(each)] for each in arguments[0]], *arguments[1:], **options)
        else:
            found = functools.reduce(self._torch.minimum, levels.values()).expand(outputs[0].shape)
        if not found.any():
            return False
        self._compute(plan, result, ASSUMED, arguments, options, written)
        if self.knowledge(outputs[0]) == NONE:  # the processor has no such kernel
            return False
        self.note_each(outputs[0], found)
        return True

    def _known_of_each(self, tensor):
        levels = self.beside(tensor)
        return self._levels([self.knowledge(tensor)], ()).expand(tensor.shape) if levels is None else levels

    def _are_conditions(self, tensors):
        """What follows from conditions on unknown numbers stays one itself: nothing is said of it before a program asks."""
        return all(each.dtype == self._torch.bool for each in tensors)

    def _forget(self, tensors):
        for each in tensors:
            if each.is_cuda and each.numel():
                self.note(each, NONE)

    def _compute(self, plan, result, known, arguments, options, written):
        """The processor's kernel, on the device's memory itself."""
        try:
            if not plan.followed or plan.random and not plan.takes_generator or plan.is_product and self._is_large_product(plan, arguments, result):
                raise LookupError
            given = tuple(map(self._on_host, arguments))
            named = {name: self._on_host(each) for name, each in options.items() if name not in ("device", "pin_memory", "generator")}
            if plan.random:
                named["generator"] = self._generator
            value = plan.compute(*given, **named)
            if known != CERTAIN and not plan.assumes and not self._is_finite(value):
                raise LookupError
        except (LookupError, RuntimeError, TypeError, ValueError):  # no such kernel, or none for this type
            self._forget(written or ())
            return result
        if written is not None:
            for each in written:
                self.note(each, known)
                self._alterations += 1
                self._altered[each.data_ptr()] = self._alterations
            return result
        if isinstance(result, tuple):
            return tuple(self._placed(each, its, known) for each, its in zip(result, value))
        return self._placed(result, value, known)

    def _is_finite(self, value):
        return all(bool(self._torch.isfinite(each).all()) for each in (value if isinstance(value, tuple) else (value,)))

    def _placed(self, result, value, known):
        """The values in the result's memory; a result of another size, which hangs on values, is made anew."""
        if not isinstance(result, self._torch.Tensor) or not result.is_cuda or result.layout is not self._torch.strided:
            return result
        if result.shape != value.shape:
            result = self._torch.empty(value.shape, dtype=value.dtype, device=result.device)
        if result.numel() and self.is_small(result):
            self.set(result, value, known)
        return result

    def _is_large_product(self, plan, arguments, result):
        if plan.is_convolution:
            weight = arguments[1]
            return result.numel() * weight.numel() // max(1, min(weight.shape[:2])) > MOST_PRODUCTS
        left = next((each for each in reversed(arguments) if isinstance(each, self._torch.Tensor)), None)
        return left is None or result.numel() * max(left.shape[-2:], default=1) > MOST_PRODUCTS

    def _on_host(self, value):
        if isinstance(value, self._torch.Tensor):
            return host_view(value) if value.is_cuda else value
        if type(value) in (list, tuple):
            return type(value)(map(self._on_host, value))
        return self._torch.device("cpu") if isinstance(value, self._torch.device) else value

    # ---- unknown values ----------------------------------------------------------------------------------------------

    def assume(self, tensor):
        """From here on an unknown tensor has values: those that the user gave, else finite, positive ones that differ from zero."""
        once = unexpanded(tensor)
        levels, pattern = self.beside(once), self._choices.pattern(once)
        if levels is None:
            return self.set(once, pattern, ASSUMED)
        self.set(once, self._torch.where(levels > NONE, host_view(once), pattern), ASSUMED)
        self.note_each(once, levels.clamp(min=ASSUMED))

    def _before__local_scalar_dense(self, tensor):
        self.read(tensor, "item")

    def _before_copy_(self, target, source, non_blocking=False):
        if source.is_cuda and not target.is_cuda:
            self.read(source, "copy to the host")

    def _unfollowed(self, call):
        """An operator that itself reads what it launched: for what it allocates and launches."""

        def called(key, *arguments, **options):
            self._thread.busy = True
            try:
                return call(key, *arguments, **options)
            finally:
                self._thread.busy = False

        return called

    def _equal(self, left, right):
        """The only operator that answers the host itself."""
        if left.shape != right.shape or not self.is_small(left) or not self.is_small(right):
            return left.shape == right.shape
        self.read(left, "equal")
        self.read(right, "equal")
        return self._torch.equal(host_view(left), host_view(right))

    def read(self, tensor, how):
        """The program reads a value: of one that nobody computed it is said what was assumed."""
        if not self.is_small(tensor) or not tensor.numel() or type(tensor) is not self._torch.Tensor:
            return
        known = self.knowledge(tensor)
        if known == CERTAIN:
            return
        self._thread.busy = True
        try:
            if known == NONE:
                self.assume(tensor)
            elif tensor.numel() == 1:
                self._choices.give(tensor)
            if tensor.numel() <= choices.MOST_TOLD:
                value = f": taken as {host_view(tensor).item():.4g}" if tensor.numel() == 1 else ""
                journal.read(f"{how} of a {str(tensor.dtype)[6:]} tensor at {journal.user_line()}{value}")
        finally:
            self._thread.busy = False


_libraries = []  # a registration lasts as long as its library


@after("torch._dynamo.eval_frame")
def keep_from_compiler(eval_frame):
    """Operators of compiled code call back here: Dynamo, which would compile the frames of that too, is told to leave them alone."""

    def skip(code):
        eval_frame.skip_code(code)
        for inner in code.co_consts:
            if isinstance(inner, types.CodeType):
                skip(inner)

    for module in (sys.modules[__name__], choices, device, journal, sparse):
        for each in vars(module).values():
            owned = vars(each).values() if isinstance(each, type) and each.__module__ == module.__name__ else (each,)
            for function in owned:
                if isinstance(function, types.FunctionType) and function.__module__ == module.__name__:
                    skip(function.__code__)


def patch(torch):
    """Follows every operator that has a kernel for the device. Its place is taken at the key right above the backends: from there the kernel
    below can be called whatever its arguments are, which a kernel that was overridden cannot."""
    values = Values(torch)
    follow(torch, values, "aten", COMPOSITE)
    after("torchvision.extension")(lambda extension: follow(torch, values, "torchvision"))
    sparse.patch(torch, values)
    keep_parameters(values)
    _followed.append(values)
    return values


def are_known(*tensors):
    """For what stands in for a library's functions, which no operator is."""
    return bool(_followed) and all(bool(values.knowledge(each)) for values in _followed for each in tensors)


def keep_parameters(values):
    """A step moves a parameter by little: where nobody computed by how much, it is assumed to stay what it was."""
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    known = []  # and what it was, as memory of which nothing is known is given back

    def before(optimizer, arguments, options):
        parameters = (each for group in optimizer.param_groups for each in group["params"])
        local = (getattr(each, "_local_tensor", each).detach() for each in parameters)
        known[:] = [(each, host_view(each).clone()) for each in local if each.is_cuda and values.knowledge(each) != NONE]

    def afterwards(optimizer, arguments, options):
        for each, was in known:
            if values.knowledge(each) == NONE:
                values.set(each, was, ASSUMED)
        known.clear()

    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(afterwards)


def follow(torch, values, namespace, more=()):
    library = torch.library.Library(namespace, "IMPL")
    _libraries.append(library)
    registered = torch._C._dispatch_get_registrations_for_dispatch_key
    taken = set(registered("BackendSelect"))
    keys, on_device = torch._C.DispatchKey, torch._C.DispatchKey.CUDA
    below = torch._C._dispatch_keyset_full_after(keys.BackendSelect) - torch._C.DispatchKeySet(keys.PythonDispatcher)  # which is in every such set
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in (*registered("CUDA"), *(f"{namespace}::{each}" for each in more)):
            space, _, own = name.partition("::")
            if name in taken or space != namespace:
                continue
            base, _, overload = own.partition(".")
            plan = Plan(torch, getattr(getattr(getattr(torch.ops, namespace), base), overload or "default"))
            if not plan.is_view and not base.startswith(("empty", "set_", "resize_")):
                library.impl(own, values.kernel(plan, below, on_device), "BackendSelect", with_keyset=True)
