"""Marks of passes and optimizers: modules that are called, backward passes, replays of graphs, and torch.optim's hooks."""

import functools
import gc
import sys

from . import activities, host_work, journal, steps
from .imports import after, in_torchs_place


def class_of_model(module):
    """The class of what a wrapper wraps: LlamaForCausalLM under DistributedDataParallel, or FSDPLlamaForCausalLM of fully_shard."""
    import torch

    for wrapped in ("module", "_orig_mod", "module", "_fsdp_wrapped_module"):
        while isinstance(getattr(module, wrapped, None), torch.nn.Module):
            module = getattr(module, wrapped)
    kind = type(module)
    return (kind.__bases__[-1] if kind.__bases__[0].__name__ == "FSDPModule" else kind).__name__


def whole_elements(parameter):
    """Of the tensor that all ranks hold together: ZeRO-3 and FSDP1 keep a part under the same name."""
    whole = getattr(parameter, "ds_numel", None)
    if whole is None and hasattr(parameter, "_unpadded_unsharded_size"):
        whole = parameter._unpadded_unsharded_size.numel()
    if whole is None and hasattr(parameter, "quant_state"):  # two numbers of bitsandbytes' lie in a byte
        whole = getattr(parameter.quant_state, "shape", parameter.shape).numel() if parameter.quant_state is not None else None
    return parameter.numel() if whole is None else whole


def note_model(module):
    """The model and its parameters, whole tensors."""
    journal.summary("model", class_of_model(module))
    journal.summary("parameters", sum(map(whole_elements, module.parameters())))


def note_largest_model():
    """Of a program that never called a module where it could be seen (a compiled function, a graph): the largest that lives."""
    torch = sys.modules.get("torch")  # absent where its import failed
    if journal.has("parameters") or torch is None or not torch.cuda.is_initialized():
        return
    largest, most = None, 0
    for each in gc.get_objects():
        # Not isinstance, which asks the object; and one whose construction failed has no tables of parameters and children.
        if issubclass(type(each), torch.nn.Module) and "_modules" in getattr(each, "__dict__", ()):
            count = sum(parameter.numel() for parameter in each.parameters())
            if count > most:
                largest, most = each, count
    if largest is not None:
        note_model(largest)


class ForwardWatch:
    """A forward hook on every module, there only until the next module is called, or something that was compiled: it costs nothing inside a
    pass, and compiled code, which guards on the number of hooks, is never entered with it."""

    def __init__(self, torch):
        self._torch = torch
        self._register = torch.nn.modules.module.register_module_forward_pre_hook
        self._handle = None
        self.backward_passes = 0  # that are under way: a checkpointed segment runs one within another, and calls its modules again

    def arm(self):
        if self._handle is None and self.backward_passes == 0:
            self._handle = self._register(lambda module, arguments: self.called(module))

    def called(self, module=None):
        if self._handle is None:
            return
        self.disarm()
        if module is not None and not journal.has("parameters"):
            note_model(module)
        steps.pass_begins("forward")
        activities.pass_begins(self._torch)

    def disarm(self):
        if self._handle is not None:
            self._handle.remove()
            self._handle = None


def mark_passes(torch):
    forward = ForwardWatch(torch)
    forward.arm()
    mark_backward(torch, forward)
    after("torch._dynamo.eval_frame")(lambda module: mark_compiled(torch, forward, module))
    mark_graphs(torch, forward)
    mark_optimizers(torch, forward)
    activities.watch_gradients(torch, forward.arm)
    activities.watch_saving(torch)
    host_work.watch(torch)
    count_tokens(torch)
    journal.before_end(note_largest_model)


def mark_backward(torch, forward):
    def marks_backward(run):
        @functools.wraps(run)
        def backward(*arguments, **options):
            if torch._guards.TracingContext.try_get() is not None:  # of a graph that is being compiled
                return run(*arguments, **options)
            if forward.backward_passes == 0:
                forward.disarm()
                activities.backward_begins()
                steps.pass_begins("backward")
                host_work.watch_threads(arguments[0] if arguments else options.get("tensors", options.get("outputs")))
            forward.backward_passes += 1
            try:
                return run(*arguments, **options)
            finally:
                forward.backward_passes -= 1
                forward.arm()

        return backward

    torch.autograd.backward = marks_backward(torch.autograd.backward)
    torch.autograd.grad = marks_backward(torch.autograd.grad)


def mark_compiled(torch, forward, eval_frame):
    """A compiled function may be all of a pass: model.compile() makes one of the module's call."""
    compiled = eval_frame._TorchDynamoContext.__call__

    @functools.wraps(compiled)
    def compile_and_mark(self, function):
        result = compiled(self, function)
        if isinstance(result, (type, torch.nn.Module)) or not callable(result) or not _compiles(self):
            return result
        owner = getattr(function, "__self__", None)
        module = owner if isinstance(owner, torch.nn.Module) else None

        @functools.wraps(result)
        def called(*arguments, **options):
            if not torch.compiler.is_compiling():
                forward.called(module)
            return result(*arguments, **options)

        return called

    eval_frame._TorchDynamoContext.__call__ = compile_and_mark
    mark_compiled_modules(torch, forward, eval_frame.OptimizedModule)


def mark_compiled_modules(torch, forward, optimized):
    """A compiled module asks before it is called whether modules have hooks, and warns of ours."""
    call = vars(optimized).get("__call__")  # releases that do not ask have none
    if call is None:
        return

    @functools.wraps(call)
    def called(self, *arguments, **options):
        if not torch.compiler.is_compiling():
            forward.called(self._orig_mod)
        return call(self, *arguments, **options)

    optimized.__call__ = called


def _compiles(context):
    return type(context).__name__ == "OptimizeContext"


def mark_graphs(torch, forward):
    """A replay is a pass, and where an optimizer stepped while the graph was captured, a step of that one too."""
    graph = torch.cuda.CUDAGraph
    begin, replay = graph.capture_begin, graph.replay

    class MarkedGraph(graph):
        def capture_begin(self, *arguments, **options):
            self._rehearsed_steps = steps.captured = []
            return begin(self, *arguments, **options)

        def replay(self):
            if steps.pending() or getattr(self, "_rehearsed_steps", None):
                forward.disarm()
                steps.pass_begins("forward")
            replay(self)
            for optimizer in getattr(self, "_rehearsed_steps", ()):
                steps.optimizer_stepped(optimizer)
            forward.arm()

    MarkedGraph.__name__ = MarkedGraph.__qualname__ = graph.__name__
    torch.cuda.CUDAGraph = torch.cuda.graphs.CUDAGraph = MarkedGraph


# Frameworks' optimizers that are none of torch.optim's: module, class, and the method that steps.
OWN_OPTIMIZERS = (("fastai.optimizer", "Optimizer", "step"), ("keras.src.optimizers.base_optimizer", "BaseOptimizer", "apply"))


def mark_own_optimizer(forward, kind, method, module):
    kind = getattr(module, kind)
    step = getattr(kind, method)

    @functools.wraps(step)
    def stepped(self, *arguments, **options):
        forward.disarm()
        steps.optimizer_begins()
        result = step(self, *arguments, **options)
        steps.optimizer_stepped(self)
        forward.arm()
        return result

    setattr(kind, method, stepped)


def mark_optimizers(torch, forward):
    from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    made = Optimizer.__init__

    @functools.wraps(made)
    def noted(self, *arguments, **options):
        made(self, *arguments, **options)
        steps.optimizer_made(self)

    Optimizer.__init__ = noted

    def before(optimizer, arguments, options):
        forward.disarm()
        steps.optimizer_begins()

    def afterwards(optimizer, arguments, options):
        host_work.optimizer_stepped(optimizer)
        steps.optimizer_stepped(optimizer)
        if forward.backward_passes:  # a hook of a gradient's arrival stepped: the pass goes on
            journal.phase("backward")
        forward.arm()

    for module, kind, method in OWN_OPTIMIZERS:
        after(module)(functools.partial(mark_own_optimizer, forward, kind, method))
    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(afterwards)
    save = torch.save

    @functools.wraps(save)
    def saved(*arguments, **options):
        steps.boundary()
        return save(*arguments, **options)

    torch.save = activities.saves(saved)


def count_tokens(torch):
    """Ids that are looked up in the largest embedding table, in the last whole step."""
    functional = torch.nn.functional
    embedding = functional.embedding
    looked_up = [{}]  # for each boundary, rows of the table -> ids

    @in_torchs_place
    @functools.wraps(embedding)
    def counted(ids, weight, *arguments, **options):
        if not torch.compiler.is_compiling():
            rows = weight.shape[0]
            looked_up[-1][rows] = looked_up[-1].get(rows, 0) + ids.numel()
        return embedding(ids, weight, *arguments, **options)

    functional.embedding = counted
    steps.at_boundaries(lambda: looked_up.append({}))

    def of_last_step():
        first, last = steps.last_step()
        parts = looked_up[first:last]
        largest = max((rows for part in parts for rows in part), default=0)
        journal.summary("tokens", sum(part.get(largest, 0) for part in parts))

    journal.before_end(of_last_step)
