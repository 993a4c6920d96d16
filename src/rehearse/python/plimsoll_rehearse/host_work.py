"""What the host does to issue a step, counted in one of them and told by phase: operators and autograd's nodes by PyTorch's own profiler of the
processor, calls of modules, checkpoints and hooks by the interpreter's. The names are those of HostWork (include/plimsoll/program.hpp); how long a
piece takes is the planner's to say. Nothing is counted where the program profiles itself."""

import bisect
import collections
import math
import sys
import time

from . import device, journal, steps

#: The step that is counted, from 0: one whose optimizer has its states and whose modules are compiled.
_STEP = 2

_SECOND_RUN = "recompute_fn"

#: Functions, by the end of their file's path, and which work a call is.
_FUNCTIONS = {
    ("torch/nn/modules/module.py", "_call_impl"): "module",
    ("torch/utils/checkpoint.py", "checkpoint"): "checkpoint",
    ("torch/utils/checkpoint.py", _SECOND_RUN): "checkpoint",
    ("torch/utils/checkpoint.py", "backward"): "checkpoint",
    ("torch/utils/checkpoint.py", "pack_hook"): "saved_hook",
    ("torch/utils/checkpoint.py", "unpack_hook"): "saved_hook",
    ("_fully_shard/_fsdp_state.py", "_pre_forward"): "unit",
    ("_fully_shard/_fsdp_state.py", "_pre_backward"): "unit",
    ("_fully_shard/_fsdp_param_group.py", "post_backward"): "unit",
    ("torch/distributed/fsdp/_runtime_utils.py", "_pre_forward"): "unit",
    ("torch/distributed/fsdp/_runtime_utils.py", "_pre_backward_hook"): "unit",
    ("torch/distributed/fsdp/_runtime_utils.py", "_post_backward_hook"): "unit",
    ("runtime/zero/parameter_offload.py", "pre_sub_module_forward_function"): "zero_module",
    ("runtime/zero/parameter_offload.py", "pre_sub_module_backward_function"): "zero_module",
    ("runtime/zero/partition_parameters.py", "all_gather_coalesced"): "zero_gather",
    ("runtime/zero/partition_parameters.py", "partition"): "zero_parameter",
    ("torch/optim/optimizer.py", "wrapper"): "optimizer",
    ("torch/optim/optimizer.py", "zero_grad"): "optimizer",
}
#: Functions whose operators are part of them; PyTorch's own units say so to the profiler (_UNITS).
_WHOLE = {
    "pre_sub_module_forward_function",
    "post_sub_module_forward_function",
    "pre_sub_module_backward_function",
    "post_sub_module_backward_function",
}
_NODE = "autograd::engine::evaluate_function: "
_PARTS = frozenset(_NODE + each for each in ("TBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0"))  # of a linear's call
_UNITS = ("FSDP::", "FullyShardedDataParallel._")  # what lies within is the unit's
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::_scaled_dot_product")
_NOTHING = ("Identity", "IdentityOp", "IdentityFuncOp")  # modules that give back what they get: a call of theirs is a microsecond or two
_CASTS = ("aten::to", "aten::_to_copy", "aten::type_as", "aten::float")  # that the program asks for itself

_profile = None  # while the step is counted
_counts = collections.Counter()  # (phase, work)
_phases = []  # (nanoseconds, phase), as they begin
_spans = {name: [] for name in (_SECOND_RUN, *_WHOLE)}  # from and to, nanoseconds: second runs lie within nodes of autograd
_known_codes = {}  # code object -> work or None
_known_operators = {}  # whether an operator makes or changes a tensor, by its name
_optimizers = collections.Counter()  # calls of step ("wrapper") and of zero_grad
_lists = set()  # (optimizer, group, type, device) of the tensors that are stepped: each is one list
_done = False


def _work_of(code):
    if code not in _known_codes:
        _known_codes[code] = None
        for (file, name), work in _FUNCTIONS.items():
            if name == code.co_name and code.co_filename.endswith(file):
                _known_codes[code] = work
    return _known_codes[code]


def _called(frame, event, argument):
    if _profile is None:
        sys.setprofile(None)
    elif event == "call":
        work = _work_of(frame.f_code)
        if work == "optimizer":
            work = _work_of_optimizer(frame.f_code.co_name)
        if work is not None and (work != "module" or type(frame.f_locals.get("self")).__name__ not in _NOTHING):
            _counts[_phases[-1][1], work] += 1
        if frame.f_code.co_name in _spans:
            _spans[frame.f_code.co_name].append([time.time_ns(), None])
    elif event == "return" and frame.f_code.co_name in _spans and _spans[frame.f_code.co_name]:
        _spans[frame.f_code.co_name][-1][1] = time.time_ns()


def _work_of_optimizer(name):
    """What a step's optimizer takes was measured where there is one, over all of a model and with what a loop does once a step; of further ones
    (a generator's and a discriminator's, one for each parameter) the call is like any other, and their operators count."""
    _optimizers[name] += 1
    return "optimizer" if _optimizers[name] == 1 else "module"


def phase_begins(name):
    """From here on what the host does is that phase's."""
    if _profile is not None:
        _phases.append((time.time_ns(), name))


def watch_threads(roots):
    """A backward pass from these tensors runs in threads of the engine, whose calls count as well."""
    if _profile is None:
        return
    for root in roots if isinstance(roots, (list, tuple)) else [roots]:
        if hasattr(root, "register_hook") and root.requires_grad:
            root.register_hook(_count_here)


def _count_here(gradient):
    if _profile is not None:
        sys.setprofile(_called)


def optimizer_stepped(optimizer):
    if _profile is None:
        return
    for at, group in enumerate(optimizer.param_groups):
        stepped = [each for each in group["params"] if each.grad is not None]
        _counts["optimizer", "optimizer_tensor"] += len(stepped)
        _lists.update((id(optimizer), at, each.dtype, each.device) for each in stepped)


def _begin(torch):
    global _profile
    if sys.getprofile() is not None or torch.autograd._profiler_enabled():
        return
    _phases.append((time.time_ns(), "forward"))
    if dynamo := sys.modules.get("torch._dynamo.eval_frame"):
        for function in (_called, _work_of):  # which run wherever something is called: torch.compile is to leave them alone
            dynamo.skip_code(function.__code__)
    _profile = torch.autograd.profiler.profile(use_cpu=True, use_kineto=True)
    _profile.__enter__()
    device.mark(device.TEXT, 0, "host count")
    sys.setprofile(_called)


def _end():
    global _profile
    profile, _profile = _profile, None
    sys.setprofile(None)
    profile.__exit__(None, None, None)
    return profile.kineto_results.events()


def _is_compiled(name):
    return name.startswith("CompiledFunction")


def _is_arrival(name):
    return name.endswith("AccumulateGrad")


def _is_list(name):
    return name.startswith(("aten::_foreach_", "aten::_fused_"))


def _functions_of(events):
    """Names of what was written in Python as a function of autograd, whose node has a name without a number."""
    return {each.name()[len(_NODE) : -len("Backward")] for each in events if each.name().startswith(_NODE) and each.name().endswith("Backward")}


def _makes_tensors(name):
    """Whether an operator ever makes a tensor or changes one: views, and what answers the host alone, do not."""
    if name not in _known_operators:
        operator = getattr(sys.modules["torch"].ops.aten, name.removeprefix("aten::"), None)
        schemas = [getattr(operator, each)._schema for each in operator.overloads()] if operator is not None else []
        results = [each for schema in schemas for each in schema.returns if "Tensor" in str(each.type)]
        changes = any(each.alias_info is not None and each.alias_info.is_write for schema in schemas for each in schema.arguments)
        _known_operators[name] = not schemas or changes and name != "aten::record_stream" or any(each.alias_info is None for each in results)
    return _known_operators[name]


def _work_of_event(name, around):
    """Of an event and the operators and functions that it lies within, outermost first: what PyTorch's code calls itself is part of the call,
    but for the casts that autocast puts before an operator."""
    if any(_is_compiled(each) for each in around):
        return None
    if name.startswith("aten::"):
        if not around:
            return "operation"
        return "cast" if name == "aten::_to_copy" and around[0] not in _CASTS else None
    if around or name in _PARTS or name.startswith(_UNITS):
        return None
    node = name.removeprefix(_NODE)
    if _is_compiled(node):
        return "compiled_call"
    if node == name:
        return "python_function"
    if _is_arrival(node):
        return "accumulate"
    return "backward_node" if node[-1:].isdigit() else "python_function"


def _nanoseconds(event):
    """When an event began and how long it was: PyTorch before 2.4 says microseconds."""
    if hasattr(event, "start_ns"):
        return event.start_ns(), event.duration_ns()
    return event.start_us() * 1000, event.duration_us() * 1000


def _works(events):
    """(start, name, work) of every event that is one, one thread after another."""
    threads, functions = collections.defaultdict(list), _functions_of(events)
    for each in events:
        if each.name().startswith(("aten::", _NODE, "CompiledFunction", *_UNITS)) or each.name() in functions:
            start, length = _nanoseconds(each)
            threads[each.start_thread_id()].append((start, start + length, each.name()))
    for spans in threads.values():
        yield from _works_of_thread(sorted(spans, key=lambda span: (span[0], -span[1])))


class _Spans:
    """Spans of time that do not overlap."""

    def __init__(self, spans):
        self._spans = sorted(span for span in spans if span[1] is not None)

    def __contains__(self, time):
        at = bisect.bisect(self._spans, [time, math.inf]) - 1
        return at >= 0 and time < self._spans[at][1]


def _works_of_thread(spans):
    found = []
    around = []  # (end, name, its work among those found)
    has_operation = False  # the node of autograd that runs
    second_runs, whole = _Spans(_spans[_SECOND_RUN]), _Spans(span for name in _WHOLE for span in _spans[name])
    of_engine = any(name.startswith(_NODE) for _, _, name in spans)
    for start, end, name in spans:
        while around and around[-1][0] <= start:
            around.pop()
        if not around and name.startswith("aten::") and _phase_at(start) != "forward" and not _makes_tensors(name):
            continue  # of which autograd records nothing: a microsecond
        calls = [each for _, each, _ in around if not each.startswith(_NODE)]
        work = None if start in whole else _work_of_event(name, calls)
        if name.startswith(_NODE):
            has_operation = False
        elif work == "operation" and len(calls) < len(around):
            if start not in second_runs:  # a node's own operators are one piece of work, and that of a gradient's arrival is told
                node = around[0][1]
                work, has_operation = None if has_operation or node in _PARTS or _is_arrival(node) else work, True
        elif work == "operation" and of_engine and not around:  # by a hook of a gradient's arrival: the work of whoever hooked it
            work = None
        if name.startswith(_PRODUCTS):  # of a compiled function that multiplies: a layer, with all its weights
            for _, each, at in around:
                if _is_compiled(each) and at is not None:
                    found[at][2] = "compiled_layer"
        node = name.removeprefix(_NODE)
        around.append((end, node if _is_compiled(node) else name, None if work is None else len(found)))
        if work is not None:
            found.append([start, name, work])
    return found


def _phase_at(time):
    return _phases[max(0, bisect.bisect(_phases, time, key=lambda phase: phase[0]) - 1)][1]


def _tell(events):
    lists = 0
    for start, name, work in sorted(_works(events)):
        phase = _phase_at(start)
        if phase == "optimizer" and _is_list(name):
            lists += 1
            continue
        _counts[phase, work] += 1
        if work == "cast":
            _counts[phase, "operation"] += 1
        elif work == "python_function":
            _counts[phase, "backward_node" if name.startswith(_NODE) else "operation"] += 1
    if lists:  # of a step over lists of tensors, the rest is the step's own
        _counts["optimizer", "optimizer_tensor"] = _counts["optimizer", "optimizer_tensor"] * lists // max(1, len(_lists))
        stepped = max(1, _optimizers["wrapper"])
        _counts["optimizer", "operation"] = lists * (stepped - 1) // stepped
    for (phase, work), count in sorted(_counts.items()):
        device.mark(device.TEXT, count, f"host work {phase} {work}")


def boundary():
    global _done
    torch = sys.modules.get("torch")
    done = len(steps.cycles())
    if _profile is not None and done > _STEP:
        _done = True
        _tell(_end())
    elif _profile is None and not _done and torch is not None and done == _STEP:
        _begin(torch)


def give_way():
    """The program's own profiler begins, beside which there is none of ours; or the program ends within the step."""
    global _done
    if _profile is not None:
        _done = True
        _end()


def watch(torch):
    steps.at_boundaries(boundary)
    journal.before_end(give_way)
    journal.at_phases(phase_begins)
    prepare = torch.autograd.profiler.profile._prepare_trace

    def prepares(profile):
        if profile is not _profile:
            give_way()
        return prepare(profile)

    torch.autograd.profiler.profile._prepare_trace = prepares
