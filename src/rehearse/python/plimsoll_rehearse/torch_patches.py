"""PyTorch: the rendezvous, the marks of steps and phases, and what reads values that no device computed."""

import functools
import inspect
import os
import sys

from . import device, journal, steps
from .imports import after


@after("torch")
def patch_torch(torch):
    journal.version("torch", torch.__version__)
    if not torch.cuda.is_available():
        raise SystemExit(
            "plimsoll rehearse: this PyTorch sees no device: it was built for the CPU alone, or for another runtime than the stand-in has"
        )
    choose_cudnn(torch)
    note_memory(torch)
    mark_passes(torch)
    from torch.utils import _device

    from . import host_memory, math_libraries, values

    _device._device_constructors()  # `with torch.device(…)` knows PyTorch's own functions, which are wrapped now: remembered before
    known = values.patch(torch)
    host_memory.patch(torch)
    math_libraries.patch(torch)
    after("torch.distributed.distributed_c10d")(lambda c10d: exchange_known_values(c10d, known))


def choose_cudnn(torch):
    """The stand-in's cuDNN knows convolutions and normalisation; attention takes PyTorch's own kernels, and so do recurrent networks."""
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch._C._set_sdp_use_cudnn = lambda enabled: None  # stays off, whichever backends a program names
    if os.environ.get("PLIMSOLL_REHEARSE_CUDNN") != "1":
        torch.backends.cudnn.enabled = False
        journal.note("cuDNN is switched off: convolutions and attention take PyTorch's own kernels")
        return
    journal.note("attention takes PyTorch's own kernels, not cuDNN's")
    torch.backends.cudnn.is_acceptable = lambda tensor: False  # asked by recurrent networks alone
    for name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        setattr(torch._VF, name, without_cudnn(torch, getattr(torch._VF, name)))


def without_cudnn(torch, function):
    @functools.wraps(function)
    def wrapper(*arguments, **options):
        journal.note("recurrent networks take PyTorch's own kernels, not cuDNN's")
        with torch.backends.cudnn.flags(enabled=False):
            return function(*arguments, **options)

    return wrapper


# ---- memory ----------------------------------------------------------------------------------------------------------


def note_memory(torch):
    """What PyTorch's own statistics say at the end, and the stack of an allocation that failed."""

    def failed(index, requested, capacity, free):
        journal.out_of_memory(
            {
                "requested_bytes": requested,
                "device_bytes": capacity,
                "device_free_bytes": free,
                "allocated_bytes": torch.cuda.memory_allocated(index),
                "reserved_bytes": torch.cuda.memory_reserved(index),
                "stack": journal.user_frames() or main_thread_frames(),
            }
        )

    def at_end():
        if not torch.cuda.is_initialized():
            return
        stats = torch.cuda.memory_stats()
        journal.summary(
            "memory",
            {
                name: stats.get(key, 0)
                for name, key in (
                    ("peak_allocated_bytes", "allocated_bytes.all.peak"),
                    ("peak_reserved_bytes", "reserved_bytes.all.peak"),
                    ("allocated_bytes", "allocated_bytes.all.current"),
                    ("reserved_bytes", "reserved_bytes.all.current"),
                    ("alloc_retries", "num_alloc_retries"),
                )
            },
        )
        if os.environ.get("PLIMSOLL_REHEARSE_SNAPSHOT"):
            torch.cuda.memory._dump_snapshot(os.environ["PLIMSOLL_REHEARSE_SNAPSHOT"])

    def attach():
        torch._C._cuda_attach_out_of_memory_observer(failed)
        if os.environ.get("PLIMSOLL_REHEARSE_SNAPSHOT"):
            torch.cuda.memory._record_memory_history(context="alloc", stacks="python")

    torch.cuda._lazy_call(attach)
    journal.before_end(at_end)


def main_thread_frames():
    """A backward pass allocates in a thread without Python frames: the program is where its main thread is."""
    import threading

    return journal.user_frames(frame=sys._current_frames().get(threading.main_thread().ident))


# ---- steps and phases ------------------------------------------------------------------------------------------------


def class_of_model(module):
    """The class of what a wrapper wraps: LlamaForCausalLM under DistributedDataParallel, or FSDPLlamaForCausalLM of fully_shard."""
    import torch

    for wrapped in ("module", "_orig_mod", "module"):
        while isinstance(getattr(module, wrapped, None), torch.nn.Module):
            module = getattr(module, wrapped)
    kind = type(module)
    return (kind.__bases__[-1] if kind.__bases__[0].__name__ == "FSDPModule" else kind).__name__


def note_parameters(module):
    """Of the module that is called first: the model, whole tensors."""
    if not journal.has("parameters"):
        journal.summary("model", class_of_model(module))
        journal.summary("parameters", sum(getattr(each, "ds_numel", None) or each.numel() for each in module.parameters()))


def count_tokens(torch):
    """Ids that are looked up in the largest embedding table, in the last whole step."""
    functional = torch.nn.functional
    embedding = functional.embedding
    looked_up = {}  # rows of the table -> ids

    @functools.wraps(embedding)
    def counted(ids, weight, *arguments, **options):
        if not torch.compiler.is_compiling():
            rows = weight.shape[0]
            looked_up[rows] = looked_up.get(rows, 0) + ids.numel()
        return embedding(ids, weight, *arguments, **options)

    functional.embedding = counted

    def step_finished():
        journal.summary("tokens", looked_up[max(looked_up)] if looked_up else 0)
        looked_up.clear()

    steps.after_step(step_finished)


class ForwardWatch:
    """A forward hook on every module, there only until the next module is called: it costs nothing inside a pass."""

    def __init__(self, torch):
        self._register = torch.nn.modules.module.register_module_forward_pre_hook
        self._handle = None

    def arm(self):
        if self._handle is None:
            self._handle = self._register(self._called)

    def _called(self, module, arguments):
        self.disarm()
        note_parameters(module)
        steps.pass_begins("forward")

    def disarm(self):
        if self._handle is not None:
            self._handle.remove()
            self._handle = None


def mark_passes(torch):
    forward = ForwardWatch(torch)
    forward.arm()
    count_tokens(torch)
    depth = [0]  # a checkpointed segment runs a backward within the backward

    def marks_backward(run):
        @functools.wraps(run)
        def backward(*arguments, **options):
            if depth[0] == 0:
                forward.disarm()
                steps.pass_begins("backward")
            depth[0] += 1
            try:
                return run(*arguments, **options)
            finally:
                depth[0] -= 1
                if depth[0] == 0:
                    forward.arm()

        return backward

    torch.autograd.backward = marks_backward(torch.autograd.backward)
    torch.autograd.grad = marks_backward(torch.autograd.grad)
    mark_optimizers(torch, forward)


def mark_optimizers(torch, forward):
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    def before(optimizer, arguments, options):
        forward.disarm()
        steps.optimizer_begins()

    def afterwards(optimizer, arguments, options):
        steps.optimizer_stepped()
        forward.arm()

    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(afterwards)

    save = torch.save

    @functools.wraps(save)
    def saved(*arguments, **options):
        steps.boundary()
        return save(*arguments, **options)

    torch.save = saved


# ---- many processes --------------------------------------------------------------------------------------------------


@after("torch.distributed.distributed_c10d")
def patch_distributed(c10d):
    answer_rendezvous(c10d)
    use_known_groups(c10d)
    gather_own_objects(c10d)


def answer_rendezvous(c10d):
    import torch.distributed as dist

    def answered(url, rank=-1, world_size=-1, **options):
        rank = rank if rank >= 0 else int(os.environ.get("RANK", "0"))
        world_size = world_size if world_size > 0 else int(os.environ.get("WORLD_SIZE", "1"))
        check_world(rank, world_size)
        journal.replaced("the rendezvous: every key of its store is present")
        yield new_store(rank), rank, world_size

    c10d.rendezvous = answered

    class AnsweredTcp:
        """In the place of torch.distributed.TCPStore and FileStore, for programs that make their own."""

        def __new__(cls, *arguments, **options):
            journal.replaced("a TCPStore, FileStore or HashStore of the program's own")
            return new_store(int(os.environ.get("RANK", "0")))

    for name in ("TCPStore", "FileStore"):
        setattr(dist, name, AnsweredTcp)
        if hasattr(c10d, name):
            setattr(c10d, name, AnsweredTcp)


def new_store(rank):
    from .store import AnsweredStore

    return AnsweredStore(rank)


def check_world(rank, world_size):
    told = int(os.environ.get("WORLD_SIZE", world_size))
    if world_size != told:
        raise SystemExit(f"plimsoll rehearse: the program asks for a world of {world_size} at {journal.user_line()}, but --world is {told}")
    if rank >= world_size:
        raise SystemExit(f"plimsoll rehearse: there is no rank {rank} in a world of {world_size}")


def without_gloo(backend):
    """Collectives on the host move nothing either: PyTorch's own `fake` backend stands for gloo."""
    if backend is None:
        backend = "cpu:gloo,cuda:nccl"
    text = str(backend).lower()
    if "gloo" not in text and "mpi" not in text:
        return backend
    __import__("torch.testing._internal.distributed.fake_pg")
    journal.replaced("gloo, by PyTorch's fake backend")
    return text.replace("gloo", "fake").replace("mpi", "fake")


def use_known_groups(c10d):
    """Who is in a group is known here alone: told to the collective library before it makes the communicator."""
    from .store import remember_group

    helper = c10d._new_process_group_helper

    @functools.wraps(helper)
    def announced(group_size, group_rank, global_ranks, backend, store, group_name, *arguments, **options):
        ranks = list(global_ranks) or list(range(group_size))
        if group_rank is not None:
            remember_group(group_name, ranks)
            device.next_communicator(ranks, ranks[group_rank] if global_ranks else group_rank)
        return helper(group_size, group_rank, global_ranks, backend, store, group_name, *arguments, **options)

    c10d._new_process_group_helper = announced
    make_groups_from_scratch(c10d)
    init, new_group = c10d.init_process_group, c10d.new_group

    @functools.wraps(init)
    def init_without_gloo(backend=None, *arguments, **options):
        return init(without_gloo(backend), *arguments, **options)

    @functools.wraps(new_group)
    def new_group_of_mine(ranks=None, timeout=None, backend=None, *arguments, **options):
        if ranks is not None and c10d.get_rank() not in ranks:
            return c10d.GroupMember.NON_GROUP_MEMBER
        if backend is not None:
            backend = without_gloo(backend)
        return new_group(ranks, timeout, backend, *arguments, **options)

    everywhere(c10d, init_process_group=init_without_gloo, new_group=new_group_of_mine)


def make_groups_from_scratch(c10d):
    """A split communicator names no members; one made from scratch knows how many it has, and PyTorch takes either."""
    if hasattr(c10d, "_get_split_source"):
        c10d._get_split_source = lambda *arguments, **options: None

    takes = inspect.signature(c10d.new_group).parameters

    def split_group(parent_pg=None, split_ranks=None, timeout=None, pg_options=None, group_desc=None, backend=None):
        parent = c10d.get_process_group_ranks(c10d._get_default_group() if parent_pg is None else parent_pg)
        for split in split_ranks or ():
            ranks = [parent[each] for each in split]
            if c10d.get_rank() in ranks:
                given = {"group_desc": group_desc, "sort_ranks": False}
                return c10d.new_group(
                    ranks, timeout, backend, pg_options, **{key: value for key, value in given.items() if key in takes}
                )
        return c10d.GroupMember.NON_GROUP_MEMBER

    if hasattr(c10d, "split_group"):
        everywhere(c10d, split_group=split_group)


def everywhere(c10d, **functions):
    import torch.distributed as dist

    for name, function in functions.items():
        for module in (c10d, dist):
            setattr(module, name, function)


def gather_own_objects(c10d):
    """Objects of peers: every rank is taken to say what this one says."""

    def all_gather_object(object_list, obj, group=None):
        journal.replaced("all_gather_object: every rank says what this one says")
        for index in range(len(object_list)):
            object_list[index] = obj

    def gather_object(obj, object_gather_list=None, *arguments, **options):
        if object_gather_list is not None:
            all_gather_object(object_gather_list, obj)

    def broadcast_object_list(object_list, src=None, *arguments, **options):
        if any(each is None for each in object_list) and src not in (None, c10d.get_rank()):
            journal.read(f"objects broadcast by rank {src}, which stay None, at {journal.user_line()}")

    def scatter_object_list(output, inputs=None, *arguments, **options):
        if inputs:
            output[0] = inputs[0]
        else:
            journal.read(f"objects scattered by another rank, which stay None, at {journal.user_line()}")

    def recv_object_list(object_list, src=None, *arguments, **options):
        """Nobody sends, and what would have come cannot be guessed: a pipeline's stages ask so for shapes."""
        raise RuntimeError(
            f"the program waits for objects from rank {src}, which is not there. A PipelineStage does where its shapes are not given: "
            "give it input_args and output_args"
        )

    def send_object_list(*arguments, **options):
        journal.replaced("send_object_list: nobody receives")

    everywhere(
        c10d,
        recv_object_list=recv_object_list,
        send_object_list=send_object_list,
        all_gather_object=all_gather_object,
        gather_object=gather_object,
        broadcast_object_list=broadcast_object_list,
        scatter_object_list=scatter_object_list,
    )


def exchange_known_values(c10d, known):
    """Counts and flags that ranks exchange (tokens of each expert, lengths): every rank is taken to say what this one says."""

    def gathered(function):
        @functools.wraps(function)
        def wrapper(*arguments, **options):
            work = function(*arguments, **options)
            output, value = (*arguments, *options.values())[:2]  # whatever they are called, they come first
            for each in output if isinstance(output, list) else (output,):
                if not isinstance(value, list):
                    known.like_this_rank(each, value)
            return work

        return wrapper

    names = ("all_gather_into_tensor", "_all_gather_base", "all_gather", "all_to_all_single")
    everywhere(c10d, **{name: gathered(getattr(c10d, name)) for name in names if hasattr(c10d, name)})


@after("torch.nn.parallel.distributed")
def trust_ddp_shapes(module):
    """DDP compares the shapes of all ranks by gathering them."""

    def _verify_param_shape_across_processes(*arguments, **options):
        journal.replaced("DDP's comparison of parameter shapes across ranks")

    module._verify_param_shape_across_processes = _verify_param_shape_across_processes
