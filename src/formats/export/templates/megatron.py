"""Trains a GPT with Megatron-core alone, told by the names that Megatron-LM's arguments have: the order of calls is that of its loop.

    torchrun --nproc-per-node 8 train.py --num-layers 16 --hidden-size 2048 ...

Weights start from scratch, and every token is the same: put your data in the place of `batch_of`. What is asked for and not known here ends in an
error of the parser.
"""

import argparse
import functools
import os

import torch
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.enums import ModelType
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec, get_gpt_layer_with_transformer_engine_spec
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.dot_product_attention import DotProductAttention
from megatron.core.transformer.module import Float16Module

COUNTS = (
    "num-layers hidden-size ffn-hidden-size num-attention-heads num-query-groups kv-channels max-position-embeddings vocab-size "
    "make-vocab-size-divisible-by num-experts moe-router-topk moe-ffn-hidden-size seq-length micro-batch-size global-batch-size "
    "tensor-model-parallel-size pipeline-model-parallel-size num-virtual-stages-per-pipeline-rank context-parallel-size "
    "expert-model-parallel-size expert-tensor-parallel-size decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers "
    "ddp-bucket-size recompute-num-layers train-iters"
).split()
TRUTHS = (
    "own-loop group-query-attention swiglu disable-bias-linear add-qkv-bias qk-layernorm untie-embeddings-and-output-weights "
    "sequence-parallel bf16 fp16 use-distributed-optimizer overlap-grad-reduce overlap-param-gather grad-reduce-in-bf16 "
    "use-precision-aware-optimizer no-gradient-accumulation-fusion no-masked-softmax-fusion no-rope-fusion no-bias-swiglu-fusion cross-entropy-loss-fusion "
    "tp-comm-overlap optimizer-cpu-offload fp8-param-gather"
).split()
NUMBERS = "attention-dropout hidden-dropout lr min-lr clip-grad".split()
WORDS = (
    "position-embedding-type normalization tokenizer-type moe-token-dispatcher-type cp-comm-type fp8-format fp8-recipe transformer-impl "
    "attention-backend cross-entropy-fusion-impl recompute-granularity recompute-method optimizer"
).split()


def arguments():
    parser = argparse.ArgumentParser()
    for name in COUNTS:
        parser.add_argument("--" + name, type=int)
    for name in TRUTHS:
        parser.add_argument("--" + name, action="store_true")
    for name in NUMBERS:
        parser.add_argument("--" + name, type=float)
    for name in WORDS:
        parser.add_argument("--" + name)
    parser.add_argument("--recompute-modules", nargs="+")
    return parser.parse_args()


class FlashCoreAttention(DotProductAttention):
    """PyTorch's flash attention in the place of the unfused core attention."""

    def forward(self, query, key, value, *arguments, **options):
        query, key, value = (each.contiguous().permute(1, 2, 0, 3) for each in (query, key, value))
        grouped = query.shape[1] != key.shape[1]
        output = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped).permute(2, 0, 1, 3)
        return output.reshape(output.shape[0], output.shape[1], -1)


def layers_of(config, said):
    experts = {"num_experts": config.num_moe_experts, "qk_layernorm": said.qk_layernorm}
    if said.transformer_impl != "local":
        return get_gpt_layer_with_transformer_engine_spec(**experts)
    spec = get_gpt_layer_local_spec(normalization=config.normalization, **experts)
    if said.attention_backend == "flash":
        spec.submodules.self_attention.submodules.core_attention = FlashCoreAttention
    return spec


def configuration(said):
    half = torch.bfloat16 if said.bf16 else torch.float16 if said.fp16 else torch.float32
    tp, pp, vp = said.tensor_model_parallel_size, said.pipeline_model_parallel_size, said.num_virtual_stages_per_pipeline_rank or 1
    given = {
        "num_query_groups": said.num_query_groups,
        "num_moe_experts": said.num_experts,
        "moe_router_topk": said.moe_router_topk,
        "moe_ffn_hidden_size": said.moe_ffn_hidden_size,
        "moe_token_dispatcher_type": said.moe_token_dispatcher_type,
        "expert_tensor_parallel_size": said.expert_tensor_parallel_size,
        "num_layers_in_first_pipeline_stage": said.decoder_first_pipeline_num_layers,
        "num_layers_in_last_pipeline_stage": said.decoder_last_pipeline_num_layers,
        "virtual_pipeline_model_parallel_size": vp if vp > 1 else None,
        "recompute_granularity": said.recompute_granularity,
        "recompute_method": said.recompute_method,
        "recompute_num_layers": said.recompute_num_layers,
        "recompute_modules": said.recompute_modules,
        "cp_comm_type": said.cp_comm_type,
        "fp8": said.fp8_format,
        "fp8_recipe": said.fp8_recipe,
    }
    return TransformerConfig(
        num_layers=said.num_layers,
        hidden_size=said.hidden_size,
        ffn_hidden_size=said.ffn_hidden_size,
        num_attention_heads=said.num_attention_heads,
        kv_channels=said.kv_channels,
        normalization=said.normalization,
        gated_linear_unit=said.swiglu,
        activation_func=torch.nn.functional.silu if said.swiglu else torch.nn.functional.gelu,
        add_bias_linear=not said.disable_bias_linear,
        add_qkv_bias=said.add_qkv_bias,
        qk_layernorm=said.qk_layernorm,
        attention_dropout=said.attention_dropout,
        hidden_dropout=said.hidden_dropout,
        tensor_model_parallel_size=tp,
        pipeline_model_parallel_size=pp,
        context_parallel_size=said.context_parallel_size,
        expert_model_parallel_size=said.expert_model_parallel_size or 1,
        sequence_parallel=said.sequence_parallel,
        params_dtype=half,
        pipeline_dtype=half,
        autocast_dtype=half,
        bf16=said.bf16,
        fp16=said.fp16,
        fp8_param=said.fp8_param_gather,
        tp_comm_overlap=said.tp_comm_overlap,
        masked_softmax_fusion=not said.no_masked_softmax_fusion,
        gradient_accumulation_fusion=not said.no_gradient_accumulation_fusion,
        apply_rope_fusion=not said.no_rope_fusion,
        cross_entropy_loss_fusion=said.cross_entropy_loss_fusion,
        cross_entropy_fusion_impl=said.cross_entropy_fusion_impl or "native",
        persist_layer_norm=said.transformer_impl != "local",
        bias_activation_fusion=not said.no_bias_swiglu_fusion,
        bias_dropout_fusion=True,
        deallocate_pipeline_outputs=pp > 1,
        batch_p2p_comm=vp == 1,
        overlap_p2p_comm=vp > 1,
        **{name: value for name, value in given.items() if value is not None},
    )


def chunk_of(config, said, stage):
    """The layers of one virtual stage of this rank; `stage`: none without virtual stages."""
    multiple = said.make_vocab_size_divisible_by * said.tensor_model_parallel_size
    which = {} if stage is None else {"vp_stage": stage}
    model = GPTModel(
        config=config,
        transformer_layer_spec=layers_of(config, said),
        vocab_size=-(-said.vocab_size // multiple) * multiple,
        max_sequence_length=said.max_position_embeddings,
        pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=False, **which),
        post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=False, **which),
        share_embeddings_and_output_weights=not said.untie_embeddings_and_output_weights,
        position_embedding_type=said.position_embedding_type,
        **which,
    )
    model.model_type = ModelType.encoder_or_decoder
    for parameter in model.parameters():
        tensor_parallel.set_defaults_if_not_set_tensor_model_parallel_attributes(parameter)
    model = model.cuda(torch.cuda.current_device())
    return Float16Module(config, model) if said.bf16 or said.fp16 else model


def wrapped(config, chunks, said):
    replicas = torch.distributed.get_world_size() // said.tensor_model_parallel_size // said.pipeline_model_parallel_size
    usual = max(40_000_000, 1_000_000 * replicas)
    settings = DistributedDataParallelConfig(
        grad_reduce_in_fp32=not said.grad_reduce_in_bf16,
        overlap_grad_reduce=said.overlap_grad_reduce,
        overlap_param_gather=said.overlap_param_gather,
        use_distributed_optimizer=said.use_distributed_optimizer,
        check_for_nan_in_grad=False,
        bucket_size=(said.ddp_bucket_size or usual) if said.overlap_grad_reduce else None,
        average_in_collective=False,
    )
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        chunks = [
            DistributedDataParallel(config=config, ddp_config=settings, module=chunk, disable_bucketing=at > 0) for at, chunk in enumerate(chunks)
        ]
    torch.cuda.current_stream().wait_stream(side)
    return chunks


def optimizer_of(config, chunks, said):
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            optimizer=said.optimizer,
            lr=said.lr,
            min_lr=said.min_lr,
            weight_decay=0.1,
            bf16=said.bf16,
            fp16=said.fp16,
            params_dtype=config.params_dtype,
            use_distributed_optimizer=said.use_distributed_optimizer,
            overlap_param_gather=said.overlap_param_gather,
            use_precision_aware_optimizer=said.use_precision_aware_optimizer,
            optimizer_cpu_offload=said.optimizer_cpu_offload,
            clip_grad=said.clip_grad,
        ),
        chunks,
        use_gloo_process_groups=False,
    )

    def each(method):
        functions = [getattr(chunk, method) for chunk in chunks]
        return functions[0] if len(functions) == 1 else functions

    config.grad_scale_func, config.finalize_model_grads_func = optimizer.scale_loss, finalize_model_grads
    if said.overlap_grad_reduce:
        config.no_sync_func = each("no_sync")
        config.grad_sync_func = each("start_grad_sync")
    config.calculate_per_token_loss = False
    return optimizer


def loss_of(mask, output):
    losses, mask = output.view(-1).float(), mask.view(-1).float()
    loss = torch.sum(losses * mask)
    tokens = mask.sum().clone().detach().to(torch.int)
    return loss, tokens, {"lm loss": torch.cat([loss.clone().detach().view(1), tokens.view(1)])}


def batch_of(said):
    """Tokens, labels, the mask of the loss and positions of a micro-batch; stages without an end of the model need the mask alone."""
    zeros = functools.partial(torch.zeros, (said.micro_batch_size, said.seq_length // said.context_parallel_size), device="cuda")
    if not (parallel_state.is_pipeline_first_stage() or parallel_state.is_pipeline_last_stage()):
        return None, None, zeros(), None
    return zeros(dtype=torch.long), zeros(dtype=torch.long), zeros(), zeros(dtype=torch.long)


def forward(iterator, model, *, said):
    tokens, labels, mask, positions = batch_of(said)
    output = model(tokens, positions, None, labels=labels, loss_mask=mask)
    return output, functools.partial(loss_of, mask)


def train(chunks, optimizer, said):
    schedule, step = get_forward_backward_func(), functools.partial(forward, said=said)
    parallel = said.tensor_model_parallel_size * said.pipeline_model_parallel_size * said.context_parallel_size
    replicas = torch.distributed.get_world_size() // parallel
    several = len(chunks) > 1
    for _ in range(said.train_iters):
        for chunk in chunks:
            chunk.zero_grad_buffer()
        optimizer.zero_grad()
        schedule(
            forward_step_func=step,
            data_iterator=[iter(()) for _ in chunks] if several else iter(()),
            model=chunks,
            num_microbatches=said.global_batch_size // said.micro_batch_size // replicas,
            seq_length=said.seq_length,
            micro_batch_size=said.micro_batch_size,
            decoder_seq_length=said.seq_length,
            forward_only=False,
        )
        optimizer.step()


def main():
    said = arguments()
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    torch.distributed.init_process_group("nccl")
    stages = said.num_virtual_stages_per_pipeline_rank or 1
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=said.tensor_model_parallel_size,
        pipeline_model_parallel_size=said.pipeline_model_parallel_size,
        virtual_pipeline_model_parallel_size=stages if stages > 1 else None,
        context_parallel_size=said.context_parallel_size,
        expert_model_parallel_size=said.expert_model_parallel_size or 1,
        expert_tensor_parallel_size=said.expert_tensor_parallel_size,
        create_gloo_process_groups=False,
    )
    tensor_parallel.model_parallel_cuda_manual_seed(1234)
    config = configuration(said)
    chunks = [chunk_of(config, said, stage if stages > 1 else None) for stage in range(stages)]
    chunks = wrapped(config, chunks, said)
    optimizer = optimizer_of(config, chunks, said)
    for chunk in chunks:
        chunk.train()
    train(chunks, optimizer, said)


main()
