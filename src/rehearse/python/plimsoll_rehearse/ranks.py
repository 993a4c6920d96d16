"""Many processes of which few are there: the rendezvous, groups, and what ranks tell each other."""

import functools
import inspect
import os
import urllib.parse

from . import device, journal, roles, together, told_values
from .imports import after


@after("torch.distributed.distributed_c10d")
def patch_distributed(c10d):
    answer_rendezvous(c10d)
    use_known_groups(c10d)
    if together.TOGETHER:
        together.share_objects(c10d, everywhere)
    else:
        gather_own_objects(c10d)


def answer_rendezvous(c10d):
    import torch.distributed as dist

    def answered(url, rank=-1, world_size=-1, **options):
        rank = rank if rank >= 0 else int(os.environ.get("RANK", "0"))
        world_size = world_size if world_size > 0 else int(os.environ.get("WORLD_SIZE", "1"))
        take_rank(rank, world_size)
        yield shared_store(real_store, url, rank, world_size) if together.TOGETHER else new_store(rank), rank, world_size

    real_store = dist.TCPStore
    c10d.rendezvous = answered
    if together.TOGETHER:
        return

    class AnsweredTcp:
        """In the place of torch.distributed.TCPStore and FileStore, for programs that make their own."""

        def __new__(cls, *arguments, **options):
            return new_store(int(os.environ.get("RANK", "0")))

    for name in ("TCPStore", "FileStore"):
        setattr(dist, name, AnsweredTcp)
        if hasattr(c10d, name):
            setattr(c10d, name, AnsweredTcp)


def shared_store(kind, url, rank, world_size):
    from .store import SharedStore

    if world_size > 1:
        journal.replaced("the other ranks, by processes that run together with this one: what hosts tell each other is real")
    port = urllib.parse.urlparse(url).port or int(os.environ.get("MASTER_PORT", "29500"))
    real = kind("127.0.0.1", port, world_size, rank == 0, wait_for_workers=False)
    journal.before_leaving(lambda: together.wait_for_all(real, rank, world_size))
    return SharedStore(rank, real)


def new_store(rank):
    from .store import AnsweredStore

    journal.replaced("the rendezvous: every key of its store is present")
    return AnsweredStore(rank)


def take_rank(rank, world_size):
    told = int(os.environ.get("WORLD_SIZE", world_size))
    if world_size != told:
        raise SystemExit(f"plimsoll rehearse: the program asks for a world of {world_size} at {journal.user_line()}, but --world is {told}")
    if rank >= world_size:
        raise SystemExit(f"plimsoll rehearse: there is no rank {rank} in a world of {world_size}")
    roles.check_world(world_size)
    roles.take(rank, world_size)


def without_gloo(backend):
    """Collectives on the host move nothing either: PyTorch's own `fake` backend stands for gloo, but where ranks run together."""
    if together.TOGETHER:
        return backend
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
        if ranks is not None and c10d.get_rank() not in ranks and not together.TOGETHER:
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
    """Objects of peers: every rank is taken to say what this one says. Parameters have torch's own names, by which some callers give them."""

    def all_gather_object(object_list, obj, group=None, weights_only=False):
        journal.replaced("all_gather_object: every rank says what this one says")
        for index in range(len(object_list)):
            object_list[index] = obj

    def gather_object(obj, object_gather_list=None, *arguments, **options):
        if object_gather_list is not None:
            all_gather_object(object_gather_list, obj)

    def broadcast_object_list(object_list, src=None, *arguments, **options):
        if any(each is None for each in object_list) and src not in (None, c10d.get_rank()):
            journal.summary("needs_peers", True)
            journal.read(f"objects broadcast by rank {src}, which stay None, at {journal.user_line()}")

    def scatter_object_list(scatter_object_output_list, scatter_object_input_list=None, *arguments, **options):
        if scatter_object_input_list:
            scatter_object_output_list[0] = scatter_object_input_list[0]
        else:
            journal.summary("needs_peers", True)
            journal.read(f"objects scattered by another rank, which stay None, at {journal.user_line()}")

    def recv_object_list(object_list, src=None, *arguments, **options):
        """Nobody sends, and what would have come cannot be guessed: a pipeline's stages ask so for shapes."""
        journal.summary("needs_peers", True)
        raise RuntimeError(
            f"the program waits for objects from rank {src}, which is not there: --together runs all ranks. A PipelineStage does so where its "
            "shapes are not given"
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


@after("torch.distributed.checkpoint.default_planner")
def trust_checkpoint_plans(module):
    """A checkpoint's planner asks whether the parts of all ranks make up whole tensors; here every rank's part is taken to be this one's."""
    original = module._validate_global_plan

    @functools.wraps(original)
    def _validate_global_plan(*arguments, **options):
        found = original(*arguments, **options)
        if together.TOGETHER or found in (True, []):
            return found
        journal.replaced("the check of a checkpoint's plan: other ranks' parts are taken to be like this one's")
        return True if isinstance(found, bool) else []  # by release: whether it is well, or what is not

    module._validate_global_plan = _validate_global_plan


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

    def summed(function):
        @functools.wraps(function)
        def all_reduce(tensor, op=c10d.ReduceOp.SUM, group=None, async_op=False):
            work = function(tensor, op, group, async_op)
            if op == c10d.ReduceOp.SUM:
                known.times(tensor, c10d.get_world_size(group))
            return work

        return all_reduce

    everywhere(c10d, all_reduce=summed(c10d.all_reduce))
    told_values.patch(c10d, known, everywhere)
    names = ("all_gather_into_tensor", "_all_gather_base", "all_gather", "all_to_all_single")
    everywhere(c10d, **{name: gathered(getattr(c10d, name)) for name in names if hasattr(c10d, name)})


@after("torch.nn.parallel.distributed")
def trust_ddp_shapes(module):
    """DDP compares the shapes of all ranks by gathering them."""

    def _verify_param_shape_across_processes(*arguments, **options):
        journal.replaced("DDP's comparison of parameter shapes across ranks")

    module._verify_param_shape_across_processes = _verify_param_shape_across_processes
