// The keys of what a step runs: recomputation, attention, losses, compilation, experts, the allocator.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <string>
#include <string_view>

#include "strategy/options.hpp"

namespace plimsoll::strategy {
namespace {

const Names<Recompute::Method>& method_names() {
  using Method = Recompute::Method;
  static const Names<Method> names = {{"none", Method::none}, {"uniform", Method::uniform}, {"block", Method::block}};
  return names;
}

/// The number between `before` and `after`, of which the text is made; nothing where it is made otherwise.
std::optional<int> number_between(std::string_view text, std::string_view before, std::string_view after) {
  if (text.size() <= before.size() + after.size() || text.substr(0, before.size()) != before ||
      text.substr(text.size() - after.size()) != after)
    return {};
  const std::string_view digits = text.substr(before.size(), text.size() - before.size() - after.size());
  int number = 0;
  const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (problem != std::errc() || end != digits.data() + digits.size() || number < 0) return {};
  return number;
}

/// "full-block-21-of-80-layers": the first number of a stage's, the second of the model's.
bool set_full_block(Setting& x) {
  const std::string_view text = x.value.text();
  const std::size_t of = text.find("-of-");
  if (of == std::string_view::npos) return false;
  const std::optional<int> n = number_between(text.substr(0, of), "full-block-", ""), layers = number_between(text.substr(of), "-of-", "-layers");
  if (!n || !layers || *n > *layers) return false;
  x.s.recompute.kind = Recompute::Kind::full;
  x.s.recompute.method = Recompute::Method::block;
  x.s.recompute.layers = *n;
  x.s.recompute.of_layers = *layers;
  return true;
}

/// true | none | full | selective | selective:a,b | selective-ac-op | selective-layer | every-4-layers | full-block-21-of-80-layers
void set_recompute(Setting& x) {
  Recompute& recompute = x.s.recompute;
  if (const std::optional<bool> on = x.perhaps_truth()) {  // as programs call it: gradient checkpointing, or none
    recompute.kind = *on ? Recompute::Kind::full : Recompute::Kind::none;
    return;
  }
  const std::string& text = x.value.text();
  if (set_full_block(x)) return;
  if (const std::optional<int> n = number_between(text, "every-", "-layers"); n && *n >= 1) {
    recompute.kind = Recompute::Kind::alternate;
    recompute.every = *n;
  } else if (text.rfind("selective:", 0) == 0) {
    recompute.kind = Recompute::Kind::selective;
    recompute.modules.clear();
    for (std::size_t at = 10, comma = 0; comma != std::string::npos; at = comma + 1) {
      comma = text.find(',', at);
      recompute.modules.push_back(text.substr(at, comma == std::string::npos ? comma : comma - at));
    }
  } else {
    recompute.kind = x.named(recompute_names());
    if (recompute.kind == Recompute::Kind::alternate) recompute.every = 2;  // torchtitan's selective_ac_option "2"
  }
}

/// A switch, "blocks", "model", or the remarks of the measured rows.
void set_compile(Setting& x) {
  using Compile = Strategy::Compile;
  static const Names<Compile> names = {{"blocks", Compile::blocks},
                                       {"every block, model.compile()", Compile::blocks},
                                       {"model", Compile::model},
                                       {"jit-fusers", Compile::jit_fusers},
                                       {"the jit_fuser functions only", Compile::jit_fusers}};
  if (const std::optional<bool> on = x.perhaps_truth())
    x.s.compile = *on ? Compile::own : Compile::no;
  else
    x.s.compile = x.named(names, "true, false, \"blocks\", \"model\" or \"jit-fusers\"");
}

/// Megatron's --cuda-graph-impl with the scopes of --cuda-graph-scope: "transformer_engine:['attn', 'moe_router']", or which layers or
/// whole iteration a recipe names.
void set_cuda_graph(Setting& x) {
  if (const std::optional<bool> on = x.perhaps_truth()) {
    x.s.cuda_graph = *on ? "true" : "";
    return;
  }
  const std::string text = x.value.text();
  if (text == "none") return x.s.cuda_graph.clear();
  const std::string which = text.substr(0, text.find(':'));
  const auto is_among = [](const std::string& word, std::initializer_list<const char*> words) {
    return std::any_of(words.begin(), words.end(), [&](const char* each) { return word == each; });
  };
  constexpr const char* kValid =
      "false, true, mcore, local, layer, full_iteration or transformer_engine, with scopes of attn, mlp, moe, moe_router, moe_preprocess, "
      "mamba behind a colon";
  if (!is_among(which, {"mcore", "local", "layer", "full_iteration", "transformer_engine"}) || text.back() == ',')
    x.value.expected(kValid);
  std::string scope;
  for (const char c : which.size() < text.size() ? text.substr(which.size() + 1) + "," : std::string()) {
    if (std::isalpha(static_cast<unsigned char>(c)) || c == '_') {
      scope += c;
      continue;
    }
    if (!scope.empty() && !is_among(scope, {"attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba"})) x.value.expected(kValid);
    if (std::string_view("[]', ").find(c) == std::string_view::npos) x.value.expected(kValid);
    scope.clear();
  }
  x.s.cuda_graph = text;
}

void set_cross_entropy_fusion(Setting& x) {
  static const Names<LossKernel> names = {{"te", LossKernel::te}, {"native", LossKernel::fused_vocab_parallel}};
  x.put(x.s.loss, x.named(names));
}

void set_dispatcher(Setting& x) {
  static const Names<const char*> names = {{"alltoall", "alltoall"}, {"all-to-all", "alltoall"}, {"allgather", "allgather"},
                                           {"flex", "deepep"},       {"deepep", "deepep"},       {"hybridep", "hybridep"},
                                           {"local", "local"}};
  x.put(x.s.moe.dispatcher, std::string(x.named(names)));
}

void set_max_split(Setting& x) { x.s.allocator.max_split_size = Bytes(x.whole(1, 1 << 24) << 20); }

}  // namespace

const std::vector<Entry>& kernel_entries() {
  static const std::vector<Entry> table = {
      {"recompute", "none, full, selective, selective:modules, selective-ac-op, selective-layer, every-N-layers", "", set_recompute},
      {"recompute_modules", "core_attn, layernorm, moe_act, mla_up_proj, mlp, moe, shared_experts, context, mlpwi, out_proj, qkv_proj",
       "of selective; the last four of MaxText", [](Setting& x) { x.list(x.s.recompute.modules); }},
      {"recompute_method", "uniform, block", "Megatron", [](Setting& x) { x.s.recompute.method = x.named(method_names()); }},
      {"recompute_num_layers", "layers", "of the method", [](Setting& x) { x.s.recompute.layers = static_cast<int>(x.whole(0, 1 << 20)); }},
      {"recompute_reentrant", "true, false", "torch.utils.checkpoint's use_reentrant", [](Setting& x) { x.flag(x.s.recompute.reentrant); }},
      {"attention", "eager, unfused, sdpa, flash, flash-3, flash-4, flash-varlen, flex, memory-efficient, cudnn, te", "",
       [](Setting& x) { x.choice(x.s.attention, attention_names()); }},
      {"loss", "ce, chunked-ce, vocab-parallel cross entropy, native, te, liger, liger-fused-linear, cut-cross-entropy", "",
       [](Setting& x) { x.choice(x.s.loss, loss_names()); }},
      {"tf32", "true, false", "fp32 products in tf32 (torch.backends.cuda.matmul.allow_tf32)", [](Setting& x) { x.flag(x.s.tf32); }},
      {"cudnn_attention", "true, false", "cuDNN's kernels in scaled_dot_product_attention (torch.backends.cuda.enable_cudnn_sdp)",
       [](Setting& x) { x.flag(x.s.cudnn_attention); }},
      {"cudnn", "true, false", "convolutions by the vendor's library (torch.backends.cudnn.enabled)", [](Setting& x) { x.flag(x.s.cudnn); }},
      {"liger_kernel", "true, false", "Liger's modules in transformers (use_liger_kernel)", [](Setting& x) { x.flag(x.s.liger_kernel); }},
      {"liger", "true, false", "the same", [](Setting& x) { x.flag(x.s.liger_kernel); }},
      {"liger_rope", "true, false", "whether its rotation is among them", [](Setting& x) { x.flag(x.s.liger_modules.rope); }},
      {"liger_rms_norm", "true, false", "whether its norms are", [](Setting& x) { x.flag(x.s.liger_modules.rms_norm); }},
      {"liger_glu", "true, false", "whether its gated units are", [](Setting& x) { x.flag(x.s.liger_modules.glu); }},
      {"loss_chunks", "chunks", "of chunked-ce", [](Setting& x) { x.count(x.s.loss_chunks); }},
      {"loss_parallel", "true, false", "torchtitan: logits stay cut over tp", [](Setting& x) { x.flag(x.s.loss_parallel); }},
      {"cross_entropy_fusion", "native, te", "Megatron", set_cross_entropy_fusion},
      {"compile", "true, false, blocks, model, jit-fusers",
       "torch.compile of every block, or of the whole model; true: as the framework's own switch", set_compile},
      {"cuda_graph", "false or which", "", set_cuda_graph},
      {"async_tp", "true, false", "tensor-parallel collectives overlap", [](Setting& x) { x.flag(x.s.async_tp); }},
      {"tp_async", "true, false", "the same", [](Setting& x) { x.flag(x.s.async_tp); }},
      {"comm_overlap", "true, false", "", [](Setting& x) { x.flag(x.s.comm_overlap); }},
      {"autograd_threads", "threads", "", [](Setting& x) { x.count(x.s.autograd_threads); }},
      {"spmd_backend", "spmd_types, partial_dtensor", "torchtitan",
       [](Setting& x) { x.word(x.s.titan.spmd_backend, {"spmd_types", "partial_dtensor"}); }},
      {"fused_qkv", "true, false", "torchtitan", [](Setting& x) { x.flag(x.s.titan.fused_qkv); }},
      {"compiled_loss", "true, false", "torchtitan 0.3: the loss under torch.compile", [](Setting& x) { x.flag(x.s.titan.compiled_loss); }},
      {"rope_positions_given", "true, false", "torchtitan", [](Setting& x) { x.flag(x.s.titan.rope_positions_given); }},
      {"rope_cache", "'complex64, one per layer', 'fp32 cos and sin, one per layer'", "torchtitan",
       [](Setting& x) { x.word(x.s.titan.rope_cache, {"complex64, one per layer", "fp32 cos and sin, one per layer"}); }},
      {"moe_dispatcher", "alltoall, allgather, deepep, hybridep, local", "", set_dispatcher},
      {"moe.moe_token_dispatcher_type", "alltoall, allgather, flex", "", set_dispatcher},
      {"moe_forced_balance", "true, false", "", [](Setting& x) { x.flag(x.s.moe.forced_balance); }},
      {"moe_imbalance", "factor", "fullest expert rank over the mean", [](Setting& x) { x.s.moe.imbalance = x.value.number(1, 1e6); }},
      {"moe_a2a_overlap", "true, false", "exchanges of experts run beside another micro-batch",
       [](Setting& x) { x.flag(x.s.moe.a2a_overlap); }},
      {"delay_wgrad_compute", "true, false", "Megatron: so do gradients of weights", [](Setting& x) { x.flag(x.s.moe.delay_wgrad); }},
      {"moe_grouped_gemm", "true, false", "Megatron: false computes expert after expert", [](Setting& x) { x.flag(x.s.moe.grouped_gemm); }},
      {"moe_permute_fusion", "true, false", "Megatron: Transformer Engine's permutations of tokens",
       [](Setting& x) { x.flag(x.s.moe.permute_fusion); }},
      {"moe_fused_mlp", "true, false", "Megatron: use_transformer_engine_op_fuser, each expert product with what lies around it",
       [](Setting& x) { x.flag(x.s.moe.fused_mlp); }},
      {"moe.moe_expert_capacity_factor", "factor", "", [](Setting& x) { x.s.moe.capacity_factor = x.value.number(0, 1e6); }},
      {"moe.moe_pad_expert_input_to_capacity", "true, false", "", [](Setting& x) { x.flag(x.s.moe.pad_to_capacity); }},
      {"moe.moe_router_load_balancing_type", "aux_loss, seq_aux_loss, global_aux_loss, sinkhorn, none", "",
       [](Setting& x) { x.word(x.s.moe.load_balancing, {"aux_loss", "seq_aux_loss", "global_aux_loss", "sinkhorn", "none"}); }},
      {"moe.moe_aux_loss_coeff", "", "", [](Setting& x) { x.s.moe.aux_loss_coeff = x.value.number(0, 1e6); }},
      {"moe.moe_router_topk", "experts", "", nullptr},
      {"launch_blocking", "true, false", "the host waits for each launch to end (CUDA_LAUNCH_BLOCKING=1)", [](Setting& x) { x.flag(x.s.launch_blocking); }},
      {"allocator.expandable_segments", "true, false", "PYTORCH_CUDA_ALLOC_CONF",
       [](Setting& x) { x.flag(x.s.allocator.expandable_segments); }},
      {"allocator.max_split_size_mb", "MiB", "", set_max_split},
      {"allocator.roundup_power2_divisions", "", "",
       [](Setting& x) { x.s.allocator.roundup_power2_divisions = static_cast<int>(x.whole(0, 64)); }},
      {"allocator.garbage_collection_threshold", "0 … 1", "",
       [](Setting& x) { x.s.allocator.garbage_collection_threshold = x.value.number(0, 1); }},
  };
  return table;
}

}  // namespace plimsoll::strategy
