// Megatron-LM's arguments (megatron/training/arguments.py), as flags of a command or as names of a YAML file: Primus and NeMo carry the
// same.
#include "formats/foreign/megatron_arguments.hpp"
#include "formats/foreign/schema.hpp"

#include <algorithm>

#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

constexpr const char* kRelease = "Megatron-LM core_v0.16";
constexpr const char* kOverDeepSpeed = "Megatron-DeepSpeed 2024-12";

int recognises(const Node& tree) {
  return 3 * count_of(tree, {"tensor_model_parallel_size", "pipeline_model_parallel_size", "num_attention_heads", "ffn_hidden_size"}) +
         count_of(tree, {"micro_batch_size", "global_batch_size", "seq_length", "num_layers", "hidden_size"});
}

bool is_true(const Node& tree, const char* key) {
  const Node* value = tree.find(key);
  return is_on(value);
}

const Node* given(const Node& tree, const char* key) {
  const Node* value = stated(tree, key);
  return value && value->text != "None" ? value : nullptr;
}

// ---- the model --------------------------------------------------------------------------------------------------------

/// validate_args: 4 · hidden, for a gated MLP two thirds of it in multiples of 64.
void derive_widths(Reading& reading, bool gated) {
  const std::int64_t hidden = reading.count("model.hidden_size");
  if (hidden == 0) return;
  const std::int64_t plain = 4 * hidden, two_thirds = (4 * hidden * 2 / 3) / 64 * 64;
  reading.derive("model.intermediate_size", std::to_string(gated ? two_thirds : plain),
                 gated ? "⅔ · 4 · hidden_size in multiples of 64" : "4 · hidden_size");
}

void read_activation(Reading& reading, const Node& tree) {
  const bool layer_norm = reading.is("model.norm", "layernorm");
  std::string mlp = "gelu", why = "neither swiglu nor squared_relu";
  if (is_true(tree, "swiglu")) mlp = "swiglu", why = "swiglu";
  if (is_true(tree, "squared_relu")) mlp = "relu2", why = "squared_relu";
  if (is_true(tree, "quick_geglu") || is_true(tree, "openai_gelu") || is_true(tree, "onnx_safe"))
    refuse("this activation is not modelled", tree.where, "swiglu or GELU");
  reading.derive("model.mlp", mlp, why);
  const Node* centred = tree.find("apply_layernorm_1p");
  if (layer_norm && is_on(centred)) {
    reading.forget("model.norm");
    reading.say("model.norm", "layernorm1p", "apply_layernorm_1p", centred->where);
  }
}

/// Dropout is part of a model. What says none has Megatron's own, whose arguments take 0.1.
void read_dropout(Reading& reading, const Node& tree) {
  for (const char* key : {"attention_dropout", "hidden_dropout"}) {
    const std::string rate = std::string("model.") + key;
    if (const Node* value = given(tree, key))
      reading.say(rate, value->word(), key, value->where);
    else
      reading.derive(rate, "0.1", "Megatron's own where it is not said");
  }
}

void read_heads(Reading& reading, const Node& tree) {
  const Node *groups = given(tree, "num_query_groups"), *grouped = given(tree, "group_query_attention");
  const bool on = grouped ? grouped->text == "true" : groups != nullptr;
  if (on && groups) {
    reading.say("model.num_key_value_heads", groups->word(), "num_query_groups", groups->where);
  } else if (reading.has("model.num_attention_heads")) {
    reading.derive("model.num_key_value_heads", reading.value("model.num_attention_heads"), "every head has keys and values of its own");
  }
}

/// What a tokenizer's name tells of the vocabulary; Megatron asks the tokenizer itself. NullTokenizer has the end of a document beside the
/// tokens of --vocab-size (megatron/core/tokenizers/text/libraries/null_tokenizer.py).
void read_vocabulary(Reading& reading, const Node& tree) {
  const Node *type = given(tree, "tokenizer_type"), *model = given(tree, "tokenizer_model");
  if (reading.has("model.vocab_size")) {
    if (!type || type->word() != "NullTokenizer") return;
    const std::string tokens = std::to_string(reading.count("model.vocab_size") + 1);
    reading.forget("model.vocab_size");
    return reading.derive("model.vocab_size", tokens, "NullTokenizer: a token beside those of vocab_size");
  }
  constexpr const char* kGpt2 = "50257";
  if ((type && type->word() == "GPT2BPETokenizer") || given(tree, "merge_file"))
    return reading.derive("model.vocab_size", kGpt2, "GPT-2's byte pairs");
  if (type && type->word() == "Llama2Tokenizer") return reading.derive("model.vocab_size", "32000", "Llama 2's tokenizer");
  if (type && type->word() == "Llama3Tokenizer") return reading.derive("model.vocab_size", "128256", "Llama 3's tokenizer");
  if (!model) return;
  try {
    reading.derive("model.vocab_size", std::to_string(load_model(model->word()).vocab_size),
                   "the vocabulary of " + model->word().substr(0, 80));
  } catch (const Error&) {
    reading.say("checkpoint.tokenizer", model->word(), "tokenizer_model", model->where);  // asked for by name, where no MODEL is given
  }
}

/// "([0]*3+[1]*58)", "1", "[1,0,1]": moe_layer_freq as Megatron evaluates it.
std::string layer_pattern(const Node& value) {
  std::string text = value.is_list() ? "[" + value.word() + "]" : value.word();
  std::erase_if(text, [](char c) { return c == ' ' || c == '(' || c == ')' || c == '"' || c == '\''; });
  if (text.find('[') == std::string::npos) return text;
  std::string list;
  constexpr long kMostLayers = 100'000;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t close = text.find(']', at);
    if (text[at] != '[' || close == std::string::npos)
      fail("'" + value.word().substr(0, 60) + "' is no pattern of layers", value.where, "([0]*3+[1]*58)");
    const std::string items = text.substr(at + 1, close - at - 1);
    long times = 1;
    at = close + 1;
    if (at < text.size() && text[at] == '*') {
      char* end = nullptr;
      times = std::strtol(text.c_str() + at + 1, &end, 10);
      at = static_cast<std::size_t>(end - text.c_str());
    }
    if (times < 0 || times > kMostLayers || items.find_first_not_of("01,") != std::string::npos)
      fail("'" + value.word().substr(0, 60) + "' is no pattern of layers", value.where);
    for (long i = 0; i < times; ++i) list += (list.empty() ? "" : ",") + items;
    if (list.size() > static_cast<std::size_t>(kMostLayers)) fail("a pattern of too many layers", value.where);
    if (at < text.size() && text[at] == '+') ++at;
  }
  return "[" + list + "]";
}

void read_experts(Reading& reading, const Node& tree) {
  const Node* experts = given(tree, "num_experts");
  const bool dense = !experts || (experts->is_scalar() && (experts->text == "1" || experts->text == "0"));
  if (const ForeignKey* usual = reading.find("moe_dispatcher"); dense && usual && usual->kind == ForeignKey::Kind::by_default)
    reading.forget("moe_dispatcher");
  if (dense) return;
  if (experts->is_list()) refuse("layers with different numbers of experts are not modelled", experts->where, "one number");
  std::string json = "\"num_moe_experts\":" + experts->word();
  const auto add = [&](const char* ours, const char* theirs, const std::string& otherwise) {
    const Node* value = given(tree, theirs);
    const std::string text = value ? value->word() : otherwise;
    if (!text.empty() && text.find_first_not_of("0123456789") == std::string::npos) json += ",\"" + std::string(ours) + "\":" + text;
  };
  add("moe_router_topk", "moe_router_topk", "2");
  add("moe_ffn_hidden_size", "moe_ffn_hidden_size", reading.value("model.intermediate_size"));
  add("moe_shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", {});
  if (const Node* frequency = given(tree, "moe_layer_freq")) json += ",\"moe_layer_freq\":" + layer_pattern(*frequency);
  reading.say("model.megatron_config", "{" + json + "}", "num_experts", experts->where);
}

void read_latent_attention(Reading& reading, const Node& tree) {
  if (!is_true(tree, "multi_latent_attention")) return;
  struct Rank {
    const char *ours, *theirs, *usual;
  };
  constexpr Rank kRanks[] = {{"q_lora_rank", "q_lora_rank", ""},
                             {"kv_lora_rank", "kv_lora_rank", "32"},
                             {"qk_nope_head_dim", "qk_head_dim", "128"},
                             {"qk_rope_head_dim", "qk_pos_emb_head_dim", "64"},
                             {"v_head_dim", "v_head_dim", "128"}};
  std::string json;
  for (const Rank& rank : kRanks) {
    const Node* value = given(tree, rank.theirs);
    const std::string text = value ? value->word() : rank.usual;
    if (text.empty()) return reading.say("model.not_modelled", "latent attention without q_lora_rank", "multi_latent_attention", tree.where);
    json += (json.empty() ? "\"" : ",\"") + std::string(rank.ours) + "\":" + text;
  }
  const Node* flag = tree.find("multi_latent_attention");
  reading.say("model.attention_type", "mla", "multi_latent_attention", flag->where);
  reading.say("model.mla", "{" + json + "}", "kv_lora_rank", flag->where);
}

// ---- the pipeline -----------------------------------------------------------------------------------------------------

std::string joined(const std::vector<std::int64_t>& stages) {
  std::string text;
  for (const std::int64_t layers : stages) text += (text.empty() ? "[" : ",") + std::to_string(layers);
  return text + "]";
}

/// Layers of every stage: as many each, fewer at the ends where embedding and loss count as layers, or as the first and last are said to
/// have.
void read_stages(Reading& reading, const Node& tree) {
  const std::int64_t pp = reading.count("pp"), layers = reading.count("model.num_layers");
  if (pp <= 1 || layers == 0) return;
  const Node *per_chunk = given(tree, "num_layers_per_virtual_pipeline_stage"), *first = given(tree, "decoder_first_pipeline_num_layers"),
             *last = given(tree, "decoder_last_pipeline_num_layers");
  if (per_chunk) {
    const std::int64_t each = std::atoll(per_chunk->word().c_str());
    if (each < 1 || layers % (pp * each) != 0)
      fail("num_layers_per_virtual_pipeline_stage does not divide the layers of a rank", per_chunk->where);
    reading.derive("vp", std::to_string(layers / pp / each), "num_layers / pipeline ranks / num_layers_per_virtual_pipeline_stage");
  }
  const std::int64_t stages = pp * std::max<std::int64_t>(1, reading.count("vp"));
  constexpr std::int64_t kMostStages = 100'000;
  if (stages > kMostStages) fail("a pipeline of " + std::to_string(stages) + " stages", tree.where);
  std::vector<std::int64_t> cut(static_cast<std::size_t>(stages), 0);
  if (first || last) {
    if (stages != pp)
      refuse("decoder_first_pipeline_num_layers with several chunks per rank is not modelled", (first ? first : last)->where);
    const std::int64_t f = first ? std::atoll(first->word().c_str()) : 0, l = last ? std::atoll(last->word().c_str()) : 0;
    const std::int64_t between = stages - (first ? 1 : 0) - (last ? 1 : 0), rest = layers - f - l;
    if (f < 0 || l < 0 || rest < 0 || (between == 0 ? rest != 0 : rest % between != 0))
      fail("the layers between the first and the last stage cannot be cut evenly", (first ? first : last)->where);
    for (auto& stage : cut) stage = between > 0 ? rest / between : 0;
    if (first) cut.front() = f;
    if (last) cut.back() = l;
    return reading.derive("pp_layers", joined(cut), "decoder_first and decoder_last_pipeline_num_layers");
  }
  const bool embedding = is_true(tree, "account_for_embedding_in_pipeline_split"),
             loss = is_true(tree, "account_for_loss_in_pipeline_split");
  const std::int64_t counted = layers + (embedding ? 1 : 0) + (loss ? 1 : 0);
  if (counted % stages != 0)
    fail(std::to_string(counted) + " layers cannot be cut into " + std::to_string(stages) + " equal stages", tree.where);
  for (auto& stage : cut) stage = counted / stages;
  if (embedding) --cut.front();
  if (loss) --cut.back();
  reading.derive("pp_layers", joined(cut),
                 embedding || loss ? "stages of equal layers, embedding or loss counted as one" : "stages of equal layers");
}

/// Without what counts only beside a switch that is off: how CUDA graphs, Megatron-FSDP and torch's FSDP2 are made; and, beside the latter,
/// without what the buffers are asked for that there are not (TorchFullyShardedDataParallelConfig).
Node without_idle(Reading& reading, const Node& said) {
  const Node* graphs = given(said, "cuda_graph_impl");
  const bool captures = is_true(said, "enable_cuda_graph") || is_true(said, "external_cuda_graph") || (graphs && graphs->word() != "none");
  const bool fsdp = is_true(said, "use_megatron_fsdp") || is_true(said, "use_custom_fsdp"), torchs = is_true(said, "use_torch_fsdp2");
  static const std::vector<std::string> of_ddp = {"accumulate_allreduce_grads_in_fp32", "grad_reduce_in_bf16", "main_grads_dtype", "ddp_bucket_size",
                                                  "ddp_num_buckets", "check_for_nan_in_grad", "ddp_pad_buckets_for_high_nccl_busbw"};
  Node tree = said;
  std::erase_if(tree.members, [&](const auto& member) {
    const std::string& name = member.first;
    const bool of_graphs = name == "cuda_graph_scope" || name == "cuda_graph_modules";
    const bool of_fsdp =
        name == "data_parallel_sharding_strategy" || name == "suggested_communication_unit_size" || name == "fsdp_double_buffer";
    const bool of_torchs = name.rfind("torch_fsdp2_", 0) == 0, of_buffers = std::find(of_ddp.begin(), of_ddp.end(), name) != of_ddp.end();
    const bool idle = (of_graphs && !captures) || (of_fsdp && !fsdp) || (of_torchs && !torchs) || (of_buffers && torchs);
    if (idle && !member.second.is_null()) reading.leave_unread(name, member.second.where);
    return idle;
  });
  return tree;
}

// ---- the rest ----------------------------------------------------------------------------------------------------------

/// TorchFullyShardedDataParallel; validate_args wants no distributed optimizer beside it.
void read_torch_fsdp2(Reading& reading, const Node& tree) {
  const Node* flag = tree.find("use_torch_fsdp2");
  for (const char* other : {"use_distributed_optimizer", "use_megatron_fsdp", "use_custom_fsdp"})
    if (is_true(tree, other))
      fail(std::string("use_torch_fsdp2 beside ") + other + ", which Megatron refuses", flag->where, "set one of them to false");
  reading.say("data_parallel", "fsdp2", "use_torch_fsdp2", flag->where);
  const Node* never = tree.find("torch_fsdp2_no_reshard_after_forward");
  reading.derive("fsdp.reshard_after_forward", is_on(never) ? "never" : "always", "torch_fsdp2_no_reshard_after_forward");
}

void read_sharding(Reading& reading, const Node& tree) {
  const bool fsdp = is_true(tree, "use_megatron_fsdp") || is_true(tree, "use_custom_fsdp");
  const Node* distributed = tree.find("use_distributed_optimizer");
  if (is_true(tree, "use_torch_fsdp2")) return read_torch_fsdp2(reading, tree);
  if (fsdp) {
    const Node* flag = tree.find("use_megatron_fsdp") ? tree.find("use_megatron_fsdp") : tree.find("use_custom_fsdp");
    reading.say("data_parallel", "megatron-fsdp", "use_megatron_fsdp", flag->where);
    if (const Node* sharding = given(tree, "data_parallel_sharding_strategy"))
      reading.say("data_parallel_sharding_strategy", sharding->word(), "data_parallel_sharding_strategy", sharding->where);
    if (!given(tree, "data_parallel_sharding_strategy"))
      reading.assume("data_parallel_sharding_strategy", "no_shard", "data_parallel_sharding_strategy: no_shard", kRelease);
  } else if (distributed) {
    reading.say("data_parallel", distributed->text == "true" ? "megatron-distopt" : "ddp", "use_distributed_optimizer", distributed->where);
  }
}

void read_precision(Reading& reading, const Node& tree) {
  const Node *bf16 = tree.find("bf16"), *fp16 = tree.find("fp16"), *fp8 = given(tree, "fp8_format"), *fp4 = given(tree, "fp4_format");
  if (!fp8) fp8 = given(tree, "fp8");
  if (!fp4) fp4 = given(tree, "fp4");
  if (is_on(bf16)) reading.say("precision", "bf16", "bf16", bf16->where);
  if (is_on(fp16)) reading.say("precision", "fp16", "fp16", fp16->where);
  const Node* recipe = given(tree, "fp8_recipe");
  if (fp4 && fp4->word() != "false") reading.overriding([&] { reading.say("precision", "nvfp4", "fp4_format", fp4->where); });
  if (!fp8 || fp8->word() == "false") return;
  static const Row recipes = {"fp8_recipe", "fp8_recipe", "delayed=delayed,tensorwise=tensorwise,blockwise=blockwise,mxfp8=-,custom=!"};
  const bool micro = recipe && recipe->word() == "mxfp8";
  reading.overriding([&] { reading.say("precision", micro ? "mxfp8" : "fp8", "fp8_format", fp8->where); });
  const std::string scaling = to_ours(recipes, recipe ? recipe->word() : "delayed", recipe ? recipe->where : kRelease);
  if (!scaling.empty() && recipe) reading.say("fp8_recipe", scaling, "fp8_recipe", recipe->where);
  if (!scaling.empty() && !recipe) reading.assume("fp8_recipe", scaling, "fp8_recipe: delayed", kRelease);
}

/// How full recomputation deals with layers; without it Megatron reads neither.
void read_recomputed_layers(Reading& reading, const Node& tree) {
  for (const auto& [theirs, ours] : {std::pair{"recompute_method", "recompute_method"},
                                     {"activations_checkpoint_method", "recompute_method"},
                                     {"recompute_num_layers", "recompute_num_layers"}})
    if (const Node* value = given(tree, theirs); value && value->word() != "None") reading.say(ours, value->word(), theirs, value->where);
}

void read_recompute(Reading& reading, const Node& tree) {
  const Node *granularity = given(tree, "recompute_granularity"), *modules = given(tree, "recompute_modules");
  if (is_true(tree, "recompute_activations"))
    reading.say("recompute", "selective", "recompute_activations", tree.find("recompute_activations")->where);
  if (is_true(tree, "checkpoint_activations"))
    reading.say("recompute", "full", "checkpoint_activations", tree.find("checkpoint_activations")->where);
  if (const Node* method = given(tree, "activations_checkpoint_method"); method && method->word() != "None")
    reading.say("recompute", "full", "activations_checkpoint_method", method->where);
  static const Row kinds = {"recompute_granularity", "recompute", "full=full,selective=selective,None=-"};
  const std::string kind = granularity ? to_ours(kinds, granularity->word(), granularity->where) : std::string();
  if (!kind.empty()) reading.say("recompute", kind, "recompute_granularity", granularity->where);
  if (!reading.has("recompute")) reading.assume("recompute", "none", "recompute_granularity: none", kRelease);
  if (modules && reading.is("recompute", "selective"))
    reading.say("recompute_modules", modules->word(), "recompute_modules", modules->where);
  if (reading.is("recompute", "full")) read_recomputed_layers(reading, tree);
}

/// --use-flash-attn is read by legacy/model/transformer.py, which Megatron-DeepSpeed has; of Megatron-core's layers attention_backend
/// decides.
void read_flash_attention(Reading& reading, const Node& tree) {
  const Node* flash = tree.find("use_flash_attn");
  if (!is_on(flash)) return;
  if (reading.is("framework", "megatron-deepspeed")) return reading.say("attention", "flash", "use_flash_attn", flash->where);
  reading.leave_unread("use_flash_attn", flash->where);
}

void read_loss(Reading& reading, const Node& tree) {
  if (!is_true(tree, "cross_entropy_loss_fusion")) return;
  const Node* implementation = given(tree, "cross_entropy_fusion_impl");
  reading.say("cross_entropy_fusion", implementation ? implementation->word() : "native", "cross_entropy_loss_fusion",
              tree.find("cross_entropy_loss_fusion")->where);
}

}  // namespace

void read_megatron(Reading& reading, const Node& said, const ReadRelease& release, Unknown unknown) {
  const Node tree = without_idle(reading, said);
  if (unknown == Unknown::unread) {
    read_rows(reading, megatron_rows(), tree);
  } else {
    read_rows(reading, megatron_rows(), *Schema::of("megatron"), tree, unknown);
  }
  take_defaults(reading, megatron_rows(), release);
  if (const Node* without = tree.find("no_position_embedding"); is_on(without) && !reading.is("model.positions", "rope"))
    refuse("not modelled: a model without positions", without->where, "--position-embedding-type rope");
  read_activation(reading, tree);
  derive_widths(reading, reading.is("model.mlp", "swiglu"));
  read_dropout(reading, tree);
  read_heads(reading, tree);
  read_vocabulary(reading, tree);
  read_experts(reading, tree);
  read_latent_attention(reading, tree);
  read_stages(reading, tree);
  read_sharding(reading, tree);
  read_precision(reading, tree);
  read_recompute(reading, tree);
  read_loss(reading, tree);
  read_flash_attention(reading, tree);
  if (!reading.has("precision")) reading.assume("precision", "fp32", "neither bf16 nor fp16", release);
  if (reading.count("tp") <= 1 && reading.is("sequence_parallel", "true")) reading.forget("sequence_parallel");  // validate_args
}

namespace {

void read(Reading& reading, const Node& tree) {
  const bool alone = is_true(tree, kOwnLoop);
  reading.assume("framework", alone ? "megatron-core" : "megatron-lm", alone ? "Megatron-core in a loop of its own" : "Megatron-LM",
                 kRelease);
  read_megatron(reading, tree, reading.is("framework", "megatron-deepspeed") ? kOverDeepSpeed : kRelease);
  if (!reading.has("data_parallel") && !reading.has("zero_stage"))
    reading.assume("data_parallel", "ddp", "use_distributed_optimizer: false", kRelease);
}

}  // namespace

Format megatron_format() { return {"megatron", "Megatron-LM's arguments", kRelease, megatron_rows, recognises, read}; }

}  // namespace plimsoll::formats
