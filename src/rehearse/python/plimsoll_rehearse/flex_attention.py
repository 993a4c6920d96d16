"""FlexAttention: torch.compile makes Triton's kernels of it, whose sizes are constants of their source and whose work is what a block mask leaves.
Before each launch both are told; how many blocks a mask leaves is found at the corners of its blocks, where the device would have counted them."""

import functools
import re

from . import device, journal
from .imports import after

MOST_POINTS = 1 << 22  # of a mask that are looked at: four of a block
SIZES = ("ZQ", "HQ", "HKV", "GQA_SHARED_HEADS", "Q_LEN", "KV_LEN", "QK_HEAD_DIM", "V_HEAD_DIM", "SPARSE_Q_BLOCK_SIZE", "SPARSE_KV_BLOCK_SIZE")
COUNTS = ("KV_NUM_BLKS", "FULL_KV_NUM_BLKS")


def patch(torch, values):
    after("torch._inductor.runtime.triton_heuristics")(lambda module: tell_before_launch(module, values))
    after("torch.nn.attention.flex_attention")(lambda module: count_blocks(torch, values, module))


# ---- masks ----------------------------------------------------------------------------------------------------------------


def count_blocks(torch, values, module):
    create = module.create_block_mask
    compile_function = torch.compile

    def counting(made):
        @functools.wraps(create)
        def create_block_mask(mask_mod, *arguments, **options):
            mask = made(mask_mod, *arguments, **options)
            if not torch.compiler.is_compiling():
                note_blocks(torch, values, module, mask_mod, mask)
            return mask

        return create_block_mask

    eager = counting(create)

    @functools.wraps(compile_function)
    def compiled(model=None, *arguments, **options):
        return counting(compile_function(create, *arguments, **options)) if model is eager else compile_function(model, *arguments, **options)

    module.create_block_mask, torch.compile = eager, compiled


def note_blocks(torch, values, module, mask_mod, mask):
    """Of each row and column of blocks how many are partly masked, and how many not at all: a block that any corner lies in is there, and whole
    where all do. That is so of causal masks, windows as wide as a block, documents and prefixes."""
    counts, full = mask.kv_num_blocks, mask.full_kv_num_blocks
    if values.knowledge(counts) or counts.dim() != 4 - 1:
        return
    batch, heads, rows = counts.shape
    lengths, blocks = mask.seq_lengths, mask.BLOCK_SIZE
    columns = -(-lengths[1] // blocks[1])
    if 4 * batch * heads * rows * columns > MOST_POINTS:
        return
    places = [corners(torch, length, block) for length, block in zip(lengths, blocks)]
    try:
        mod = module._vmap_for_bhqkv(mask_mod, prefix=())
        meets = mod(torch.arange(batch, device="cpu"), torch.arange(heads, device="cpu"), *places)
    except (RuntimeError, TypeError, ValueError):  # it asks for what lies on the device
        return
    meets = meets.expand(batch, heads, 2 * rows, 2 * columns).reshape(batch, heads, rows, 2, columns, 2)
    present, whole = meets.any(5).any(3), meets.all(5).all(3)
    if full is None:
        whole = torch.zeros_like(whole)
    for along, partly, wholly in ((-1, counts, full), (-2, mask.q_num_blocks, mask.full_q_num_blocks)):
        if partly is not None:
            values.set(partly, (present & ~whole).sum(along), device.ASSUMED)
        if wholly is not None:
            values.set(wholly, whole.sum(along), device.ASSUMED)


def corners(torch, length, block):
    """First and last place of each block."""
    first = torch.arange(0, length, block, device="cpu")
    return torch.stack((first, (first + block - 1).clamp(max=length - 1)), 1).reshape(-1)


# ---- launches -------------------------------------------------------------------------------------------------------------


def tell_before_launch(module, values):
    tuner = module.CachingAutotuner
    launch = tuner.run

    @functools.wraps(launch)
    def run(self, *arguments, **options):
        kernel = vars(self).get("_plimsoll_attention")
        if kernel is None:
            kernel = self._plimsoll_attention = FlexKernel.of(self.fn) or False
        if kernel:
            kernel.tell(values, arguments)
        return launch(self, *arguments, **options)

    tuner.run = run


class FlexKernel:
    """What one kernel's source says of its sizes."""

    def __init__(self, sizes, names, backward):
        self.sizes, self.names, self.backward = sizes, names, backward

    @classmethod
    def of(cls, function):
        names = getattr(function, "arg_names", ())
        source = getattr(function, "src", "")
        if not {"arg_Q", "arg_K", "arg_KV_NUM_BLKS"} <= set(names) or not isinstance(source, str):
            return None
        sizes = dict(re.findall(rf"^\s*({'|'.join(SIZES)})(?:\s*:\s*tl\.constexpr)?\s*=\s*(\w+)\s*$", source, re.MULTILINE))
        return cls(sizes, names, "arg_DO" in names)

    def size(self, name, arguments):
        """A number, or the argument that brings it."""
        text = self.sizes[name]
        return int(text) if text.isdigit() else int(arguments[self.names.index(text)])

    def tell(self, values, arguments):
        try:
            batch, queries, keys = (self.size(name, arguments) for name in ("ZQ", "Q_LEN", "KV_LEN"))
            heads = self.size("HQ", arguments)
            shared = self.size("GQA_SHARED_HEADS", arguments) if "GQA_SHARED_HEADS" in self.sizes else heads // self.size("HKV", arguments)
            head, value = self.size("QK_HEAD_DIM", arguments), self.size("V_HEAD_DIM", arguments)
            block = self.size("SPARSE_Q_BLOCK_SIZE", arguments) * self.size("SPARSE_KV_BLOCK_SIZE", arguments)
        except (KeyError, ValueError, IndexError, TypeError):
            return  # of a release that names them otherwise: the kernel is told by its traffic
        given = dict(zip(self.names, arguments))
        pairs = self.pairs(values, given, block, queries * keys)
        numbers = (int(self.backward), batch, heads, heads // shared, queries, keys, head, value, given["arg_Q"].element_size(), pairs)
        device.mark(device.TEXT, 0, "flex attention " + " ".join(map(str, numbers)))

    def pairs(self, values, given, block, whole):
        """Pairs of query and key of one head that are not masked: half of a block that is partly."""
        from .values import host_view

        partly, wholly = (given.get("arg_" + name) for name in COUNTS)
        known = [each for each in (partly, wholly) if each is not None]
        if not all(map(values.knowledge, known)):
            journal.note("a block mask of FlexAttention is not known: its kernels are taken to attend to all")
            return whole
        per_head = partly.numel() // max(1, partly.shape[-1])
        blocks = float(host_view(partly).sum()) / 2 + (float(host_view(wholly).sum()) if wholly is not None else 0)
        return min(whole, round(blocks * block / max(1, per_head)))
