"""Trains a GPT with Megatron-core as a measured row says (bench/corpus/allocator-megatron.json): the order of calls of Megatron-LM's loop."""

import argparse
import functools
import json
import os

os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
import torch
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    TorchFullyShardedDataParallel,
    TorchFullyShardedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.enums import ModelType
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.dot_product_attention import DotProductAttention
from megatron.core.transformer.module import Float16Module

ACTIVATIONS = {
    "swiglu": {"gated_linear_unit": True, "activation_func": torch.nn.functional.silu},
    "gelu": {"activation_func": torch.nn.functional.gelu},
}


class FlashCoreAttention(DotProductAttention):
    """PyTorch's flash attention in the place of the unfused core attention."""

    def forward(self, query, key, value, *arguments, **options):
        query, key, value = (each.contiguous().permute(1, 2, 0, 3) for each in (query, key, value))
        output = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=query.shape[1] != key.shape[1]
        ).permute(2, 0, 1, 3)
        return output.reshape(output.shape[0], output.shape[1], -1)


class ShardedByTorch(TorchFullyShardedDataParallel):
    def finish_grad_sync(self, *arguments, **options):
        """FSDP has reduced all; 0.16.1's base class does not take what finalize_model_grads hands over."""


def layers_of(config, training):
    spec = get_gpt_layer_local_spec(num_experts=config.num_moe_experts, normalization=config.normalization)
    if training["attention"].startswith("flash"):
        spec.submodules.self_attention.submodules.core_attention = FlashCoreAttention
    return spec


def model_of(row, training):
    given = dict(row["model"]["megatron_config"])
    vocabulary, positions = given.pop("vocab_size"), given.pop("max_sequence_length")
    kind, share, activation = given.pop("position_embedding_type"), given.pop("share", False), given.pop("activation", "swiglu")
    tp, pp = training["tp"], training["pp"]
    if training["recompute"] == "full":
        given["recompute_granularity"] = "full"
        given["recompute_method"], given["recompute_num_layers"] = training["recompute_method"], training["recompute_num_layers"]
    config = TransformerConfig(
        tensor_model_parallel_size=tp,
        pipeline_model_parallel_size=pp,
        expert_model_parallel_size=training.get("ep", 1),
        sequence_parallel=training["sequence_parallel"],
        transformer_impl="local",
        params_dtype=torch.bfloat16,
        pipeline_dtype=torch.bfloat16,
        bf16=True,
        autocast_dtype=torch.bfloat16,
        masked_softmax_fusion=False,
        gradient_accumulation_fusion=False,
        persist_layer_norm=False,
        apply_rope_fusion=False,
        bias_activation_fusion=True,
        bias_dropout_fusion=True,
        deallocate_pipeline_outputs=pp > 1,
        batch_p2p_comm=True,
        **given,
        **ACTIVATIONS[activation]
    )
    padded = -(-vocabulary // (128 * tp)) * 128 * tp  # make_vocab_size_divisible_by
    model = GPTModel(
        config=config,
        transformer_layer_spec=layers_of(config, training),
        vocab_size=padded,
        max_sequence_length=positions,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
        share_embeddings_and_output_weights=share,
        position_embedding_type=kind,
    )
    model.model_type = ModelType.encoder_or_decoder
    for parameter in model.parameters():
        tensor_parallel.set_defaults_if_not_set_tensor_model_parallel_attributes(parameter)
    return config, Float16Module(config, model.cuda(torch.cuda.current_device()))


def wrap(config, model, training):
    distributed = training["data_parallel"] == "megatron-distopt"
    settings = DistributedDataParallelConfig(
        grad_reduce_in_fp32=True,
        overlap_grad_reduce=False,
        overlap_param_gather=False,
        use_distributed_optimizer=distributed,
        check_for_nan_in_grad=False,
        bucket_size=None,
        average_in_collective=False,
    )
    if training["data_parallel"] == "fsdp2":
        parallel, settings = ShardedByTorch, TorchFullyShardedDataParallelConfig(reshard_after_forward=True)
    else:
        parallel = DistributedDataParallel
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        model = parallel(config=config, ddp_config=settings, module=model)
    torch.cuda.current_stream().wait_stream(side)
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            optimizer="adam",
            lr=1e-4,
            min_lr=1e-5,
            weight_decay=0.1,
            bf16=True,
            params_dtype=torch.bfloat16,
            use_distributed_optimizer=distributed,
            clip_grad=1.0,
        ),
        [model],
        use_gloo_process_groups=False,
    )
    config.grad_scale_func, config.finalize_model_grads_func = optimizer.scale_loss, finalize_model_grads
    config.calculate_per_token_loss = False
    return model, optimizer


def loss_of(mask, output):
    losses, mask = output.view(-1).float(), mask.view(-1).float()
    loss = torch.sum(losses * mask)
    tokens = mask.sum().clone().detach().to(torch.int)
    return loss, tokens, {"lm loss": torch.cat([loss.clone().detach().view(1), tokens.view(1)])}


def forward(iterator, model, *, shape, stages):
    zeros = functools.partial(torch.zeros, shape, device="cuda")
    ends = parallel_state.is_pipeline_first_stage() or parallel_state.is_pipeline_last_stage()
    tokens = labels = positions = None
    if ends or stages == 1:
        tokens, labels, mask, positions = zeros(dtype=torch.long), zeros(dtype=torch.long), zeros(), zeros(dtype=torch.long)
    else:
        mask = zeros()
    output = model(tokens, positions, None, labels=labels, loss_mask=mask)
    return output, functools.partial(loss_of, mask)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--row", required=True)
    row = json.loads(parser.parse_args().row)
    training = row["training"]
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    torch.distributed.init_process_group("nccl")
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=training["tp"],
        pipeline_model_parallel_size=training["pp"],
        expert_model_parallel_size=training.get("ep", 1),
        create_gloo_process_groups=False,
    )
    tensor_parallel.model_parallel_cuda_manual_seed(1234)
    config, model = model_of(row, training)
    model, optimizer = wrap(config, model, training)
    model.train()
    step = functools.partial(forward, shape=(training["micro_batch"], training["seq_len"]), stages=training["pp"])
    schedule = get_forward_backward_func()
    for _ in range(4):
        model.zero_grad_buffer()
        optimizer.zero_grad()
        schedule(
            forward_step_func=step,
            data_iterator=iter(()),
            model=[model],
            num_microbatches=training["micro_batches_per_step"],
            seq_length=training["seq_len"],
            micro_batch_size=training["micro_batch"],
            decoder_seq_length=training["seq_len"],
            forward_only=False,
        )
        optimizer.step()


main()
