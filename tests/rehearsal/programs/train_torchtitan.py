"""Trains with torchtitan's own Trainer as a measured row says (bench/corpus/allocator-torchtitan.json)."""

import argparse
import json
import tempfile

import torch
from torchtitan.components.checkpoint import CheckpointManager
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.optimizer import default_adamw
from torchtitan.config import configs
from torchtitan.distributed import activation_checkpoint
from torchtitan.models import llama3, qwen3
from torchtitan.models.common import config_utils
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.trainer import Trainer


# The rows were measured without cuDNN, which torchtitan names among the backends of every call.
torch.backends.cuda.enable_cudnn_sdp(False)
torch._C._set_sdp_use_cudnn = lambda enabled: None
FAMILIES = {"llama3": llama3, "qwen3": qwen3}


def configuration(training, family, flavor):
    attention = config_utils.get_attention_config
    config_utils.get_attention_config = family.get_attention_config = lambda backend: (
        ScaledDotProductAttention.Config() if backend == "sdpa" else attention(backend)
    )
    experts = {"moe_comm_backend": "standard"} if training["ep"] > 1 else {}
    spec = family.model_registry(flavor, attn_backend="sdpa", **experts)
    cross_entropy = CrossEntropyLoss.Config(global_vocab_size=spec.model.vocab_size)
    optimizer = default_adamw(lr=1e-4)
    optimizer.implementation = "fused"
    parallelism = configs.ParallelismConfig(
        data_parallel_shard_degree=-1,
        tensor_parallel_degree=training["tp"],
        pipeline_parallel_degree=training["pp"],
        expert_parallel_degree=training["ep"],
    )
    steps = configs.TrainingConfig(
        local_batch_size=training["local_batch"],
        seq_len=training["seq_len"],
        steps=4,
        disable_cuda_graphs=True,
        mixed_precision_reduce="float32",
        mixed_precision_param="bfloat16",
    )
    recompute = {"none": None, "selective-ac-op": activation_checkpoint.SelectiveAC.Config(), "full": activation_checkpoint.FullAC.Config()}
    return Trainer.Config(
        model_spec=spec,
        dump_folder=tempfile.mkdtemp(),
        checkpoint=CheckpointManager.Config(enable=False),
        parallelism=parallelism,
        training=steps,
        activation_checkpoint=recompute[training["recompute"]],
        optimizer=optimizer,
        loss=ChunkedLossWrapper.Config(loss_fn=cross_entropy, num_chunks=training["loss_chunks"]),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--row", required=True)
    parser.add_argument("--family", default="llama3")
    parser.add_argument("--flavor", required=True)
    options = parser.parse_args()
    trainer = configuration(json.loads(options.row)["training"], FAMILIES[options.family], options.flavor).build()
    trainer.metrics_processor.should_log = lambda step: False  # as the row was measured: the steps alone
    batches = trainer.batch_generator(trainer.dataloader)
    for _ in range(4):
        trainer.step += 1
        trainer.gc_handler.run(trainer.step)
        trainer.train_step(batches)


main()
