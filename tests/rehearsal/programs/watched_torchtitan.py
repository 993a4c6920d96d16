"""TorchTitan's own Trainer under plimsoll.torchtitan.watch: predicted before the first step, compared after two steady ones. Ends with 1 where the peaks differ."""
import json
import sys
import tempfile

import torch
from torchtitan.components.checkpoint import CheckpointManager
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.optimizer import default_adamw
from torchtitan.config import configs
from torchtitan.distributed import activation_checkpoint
from torchtitan.models import llama3
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.trainer import Trainer

import plimsoll.torchtitan

# Of the flavor "debugmodel" (torchtitan/models/llama3).
DEBUG_MODEL = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 16,
               "num_key_value_heads": 16, "intermediate_size": 768, "vocab_size": 2048, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "tie_word_embeddings": False}


def spec_of(flavor):
    """With the attention that has rows: without compilation, and without cuDNN, which torchtitan names among the backends of every call."""
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch._C._set_sdp_use_cudnn = lambda enabled: None
    llama3.get_attention_config = lambda backend: ScaledDotProductAttention.Config()
    return llama3.model_registry(flavor, attn_backend="sdpa")


def trainer_of(flavor):
    spec = spec_of(flavor)
    return Trainer.Config(
        model_spec=spec,
        dump_folder=tempfile.mkdtemp(),
        checkpoint=CheckpointManager.Config(enable=False),
        training=configs.TrainingConfig(local_batch_size=4, seq_len=2048, steps=4, disable_cuda_graphs=True),
        activation_checkpoint=activation_checkpoint.SelectiveAC.Config(),
        optimizer=default_adamw(lr=1e-4),
        loss=ChunkedLossWrapper.Config(loss_fn=CrossEntropyLoss.Config(global_vocab_size=spec.model.vocab_size), num_chunks=8),
    ).build()


def main():
    assert plimsoll.torchtitan.model_of_spec(spec_of("8B")) == "llama-3.1-8b"
    trainer = trainer_of("debugmodel")
    trainer.metrics_processor.should_log = lambda step: False
    with plimsoll.torchtitan.watch(trainer, model=DEBUG_MODEL, steps=2, attention="flash") as watched:
        batches = trainer.batch_generator(trainer.dataloader)
        for _ in range(4):
            trainer.step += 1
            trainer.gc_handler.run(trainer.step)
            trainer.train_step(batches)
    seen = watched.comparison
    print(json.dumps({"predicted": int(seen.predicted.memory.allocated), "measured": int(seen.allocated)}), file=sys.stderr)
    return 0 if abs(seen.predicted.memory.allocated / seen.allocated - 1) < 0.01 else 1


if __name__ == "__main__":
    sys.exit(main())
