"""torchtitan: data, tokenizer and checkpoints that are not there, and the messages of peers that shape a pipeline or a mixture of experts."""

import functools
import os

from . import journal
from .imports import after

SYNTHETIC = os.environ.get("PLIMSOLL_REHEARSE_SYNTHETIC") == "1"


@after("torchtitan.distributed.utils")
def patch_version(module):
    import importlib.metadata

    journal.version("torchtitan", importlib.metadata.version("torchtitan"))


class Tokenizer:
    """Knows no words; its vocabulary is the model's."""

    eos_id = bos_id = pad_id = 0

    def encode(self, text, *arguments, **options):
        return [0] * len(text.split())

    def decode(self, ids):
        return "the " * len(ids)

    def get_vocab_size(self):
        return 1


@after("torchtitan.components.tokenizer")
def make_up_tokenizer(module):
    if not SYNTHETIC:
        return
    original = module.HuggingFaceTokenizer.Config.build

    def build(self, **options):
        try:
            return original(self, **options)
        except Exception:  # no files of a tokenizer under hf_assets_path
            journal.replaced("torchtitan's tokenizer: its files are not there")
            return Tokenizer()

    module.HuggingFaceTokenizer.Config.build = build


class Documents:
    """Batches of zeros, one document per sequence."""

    def __init__(self, batch, sequence):
        self._batch, self._sequence = batch, sequence

    def __iter__(self):
        import torch

        shape = (self._batch, self._sequence)
        positions = torch.arange(self._sequence).expand(*shape).contiguous()
        while True:
            yield {"input": torch.zeros(shape, dtype=torch.long), "positions": positions.clone()}, torch.zeros(shape, dtype=torch.long)

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


@after("torchtitan.components.dataloader")
def make_up_data(module):
    if not SYNTHETIC:
        return

    def build(self, **options):
        journal.replaced("torchtitan's data loader: batches of zeros, one document per sequence")
        return Documents(options["local_batch_size"], options["seq_len"])

    for name in ("BaseDataLoader", "ParallelAwareDataloader"):
        owner = getattr(module, name, None)
        if owner is not None and hasattr(owner, "Config"):
            owner.Config.build = build
    _replace_hugging_face_loader(build)


def _replace_hugging_face_loader(build):
    @after("torchtitan.hf_datasets.text_datasets")
    def replace(module):
        for name in dir(module):
            owner = getattr(module, name)
            config = getattr(owner, "Config", None)
            if isinstance(owner, type) and name.endswith("DataLoader") and config is not None:
                config.build = build


@after("torchtitan.models.common.token_dispatcher")
def balance_tokens(module):
    """Every expert of every peer gets the same number of tokens."""
    dispatcher = getattr(module, "AllToAllTokenDispatcher", None)
    if dispatcher is None or not hasattr(dispatcher, "_sync_token_count_exchange"):
        return
    dispatch = dispatcher.dispatch

    def balanced_dispatch(self, tokens, *arguments, **options):
        self._rehearsed_tokens = tokens.shape[0] * tokens.shape[1] if tokens.dim() == 3 else tokens.shape[0]
        return dispatch(self, tokens, *arguments, **options)

    def exchange(self, num_local, num_global, ep):
        import torch

        journal.replaced("torchtitan's exchange of token counts: balanced experts")
        each = self._rehearsed_tokens * getattr(self, "top_k", 1) // num_local.numel() * (num_local.numel() // ep)
        return torch.ops._c10d_functional.wait_tensor(num_global).reshape(-1), [each] * ep, [each] * ep

    dispatcher.dispatch = balanced_dispatch
    dispatcher._sync_token_count_exchange = exchange


_config = []  # of the trainer that is being built


@after("torchtitan.trainer")
def remember_config(module):
    original = module.Trainer.__init__

    @functools.wraps(original)
    def remembered(self, config, *arguments, **options):
        _config[:] = [config]
        original(self, config, *arguments, **options)

    module.Trainer.__init__ = remembered


def hidden_state(config):
    """What a stage of a decoder hands to the next: [micro-batch, this rank's part of the sequence, width], in the type of the compute."""
    parallelism, training = config.parallelism, config.training
    parts = parallelism.context_parallel_degree
    if getattr(parallelism, "enable_sequence_parallel", True):
        parts *= parallelism.tensor_parallel_degree
    return (parallelism.pipeline_parallel_microbatch_size, training.seq_len // parts, config.model_spec.model.dim)


@after("torch.distributed.pipelining.stage")
def answer_neighbours(module):
    """Stages tell each other the shapes of what they will send."""
    stage = module.PipelineStage
    if not hasattr(stage, "_recv_meta") or not hasattr(module, "_StageForwardMeta"):
        return
    from torch.distributed.pipelining import _utils

    def described(config):
        import torch

        shape = torch.Size(hidden_state(config))
        dtype = getattr(torch, config.training.mixed_precision_param)
        return _utils._TensorMeta(shape=shape, stride=torch.empty(shape, device="meta").stride(), dtype=dtype, requires_grad=True)

    receive, send = stage._recv_meta, stage._send_meta

    def recv_meta(self, source):
        if not _config:
            return receive(self, source)
        journal.replaced("shapes that neighbouring pipeline stages tell: the hidden state of the model")
        if source < self.stage_index:
            return _utils._StageForwardMeta(forward_metas=(described(_config[0]),))
        return _utils._StageBackwardMeta(backward_metas=tuple(_utils._derive_grad_metas(self._stage_meta.outputs)))

    stage._recv_meta = recv_meta
    stage._send_meta = lambda self, meta, to: None if _config else send(self, meta, to)
