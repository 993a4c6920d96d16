#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "framework/peft.hpp"
#include "framework/resolver.hpp"
#include "plimsoll/flops.hpp"
#include "plimsoll/schedule.hpp"
#include "strategy/names.hpp"

namespace plimsoll::framework {
namespace {

std::string number(std::int64_t n) { return std::to_string(n); }

template <class List, class Value>
bool contains(const List& list, const Value& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

/// "1, 2, 4 or 8 do": the divisors of n up to `most` that are at most n.
std::string divisors(std::int64_t n, std::int64_t most) {
  std::string text;
  for (std::int64_t d = 1; d <= std::min(n, most); ++d)
    if (n % d == 0) text += (text.empty() ? "" : ", ") + number(d);
  return text;
}

std::int64_t experts_of(const Model& model) {
  std::int64_t experts = 0;
  for (const auto& block : model.blocks)
    if (block.moe) experts = std::max(experts, block.moe->experts);
  return experts;
}

void check_tensor(Resolver& r) {
  const Strategy& s = r.s;
  const Model& model = r.model;
  if (model.heads > 0 && model.heads % s.tp != 0)
    r.complaints.add("tp " + number(s.tp) + " does not divide the " + number(model.heads) + " attention heads",
                     "tp of " + divisors(model.heads, 64) + " does");
  else if (model.kv_heads > 0 && model.kv_heads % s.tp != 0 && s.tp % model.kv_heads != 0)
    r.complaints.add("tp " + number(s.tp) + " neither divides the " + number(model.kv_heads) + " key-value heads nor is a multiple of them",
                     "tp of " + divisors(model.kv_heads, 64) + " does");
  if (s.sequence_parallel.value_or(false) && s.tp > 1 && s.seq_len % (std::int64_t{s.tp} * s.cp) != 0)
    r.complaints.add("sequence parallelism cuts the sequence by tp · cp = " + number(std::int64_t{s.tp} * s.cp) +
                         ", which does not divide seq_len " + number(s.seq_len),
                     "pad the sequence or leave sequence_parallel out");
  if (s.cp > 1 && s.seq_len % s.cp != 0)
    r.complaints.add("cp " + number(s.cp) + " does not divide seq_len " + number(s.seq_len), "choose a cp that does");
}

void check_pipeline(Resolver& r) {
  const Strategy& s = r.s;
  const std::int64_t layers = r.model.layers, stages = std::int64_t{s.pp} * s.vp;
  if (layers > 0 && layers + r.profile().other_stage_modules < stages)
    r.complaints.add("pp · vp = " + number(stages) + " stages for " + number(layers) + " layers", "lower pp or vp");
  if (!s.pp_layers.empty()) {
    const std::int64_t sum = std::accumulate(s.pp_layers.begin(), s.pp_layers.end(), std::int64_t{0});
    if (static_cast<std::int64_t>(s.pp_layers.size()) != stages || sum != layers)
      r.complaints.add(
          "pp_layers lists " + number(static_cast<std::int64_t>(s.pp_layers.size())) + " stages with " + number(sum) + " layers",
          "list " + number(stages) + " stages with " + number(layers) + " layers in all");
  } else if (s.pp > 1 && layers >= stages && layers % stages != 0 && r.profile().stages == StageSplit::even) {
    r.complaints.add("pp · vp = " + number(stages) + " does not divide the " + number(layers) + " layers",
                     "give pp_layers, or a pp that divides them");
  }
  if (s.pp_rank && *s.pp_rank >= s.pp)
    r.complaints.add("pp_rank " + number(*s.pp_rank) + " of " + number(s.pp) + " pipeline ranks", "give one below pp");
  if (s.rank && *s.rank >= s.dp)
    r.complaints.add("rank " + number(*s.rank) + " of " + number(s.dp) + " data-parallel ranks", "give one below dp");
  if (s.pp == 1) return;
  const auto& known = r.profile().schedules;
  const std::int64_t per_run = std::max<std::int64_t>(1, s.micro_batches / std::max<std::int64_t>(1, s.grad_accum));
  if (contains(known, s.pp_schedule)) {
    const std::string refusal = schedule_refusal(s.pp_schedule, s.pp, static_cast<int>(std::min<std::int64_t>(per_run, INT32_MAX)), s.vp);
    if (!refusal.empty()) r.complaints.add("pp_schedule " + s.pp_schedule, refusal);
  } else if (!known.empty()) {
    std::string list;
    for (const auto& name : known) list += (list.empty() ? "" : ", ") + name;
    r.complaints.add(r.profile().name + " has no pp_schedule " + s.pp_schedule, "it has " + list);
  }
}

void check_experts(Resolver& r) {
  const Strategy& s = r.s;
  const std::int64_t experts = experts_of(r.model);
  if (s.ep > 1 && experts == 0) r.complaints.add("ep " + number(s.ep) + " for a model without experts", "leave ep out");
  if (experts > 0 && experts % s.ep != 0)
    r.complaints.add("ep " + number(s.ep) + " does not divide the " + number(experts) + " experts",
                     "ep of " + divisors(experts, 256) + " does");
  const std::int64_t ranks = std::int64_t{s.tp} * s.cp * s.dp;
  const std::int64_t of_experts = std::int64_t{s.ep} * s.etp;
  if (s.ep > 1 && ranks % of_experts != 0)
    r.complaints.add("ep · etp = " + number(of_experts) + " does not divide tp · cp · dp = " + number(ranks),
                     "choose an ep that does, or a multiple of " + number(std::lcm(of_experts, std::int64_t{s.tp} * s.cp) * s.pp) + " GPUs");
}

/// Rows of the text's learned position table that a sequence can use; 0: it has none. Vision towers have tables of their own.
std::int64_t learned_positions(const Model& model) {
  // RoBERTa's classes and OPT's begin behind the padding token's row and the one before it.
  static const std::set<std::string> behind_padding = {"roberta", "xlm-roberta", "camembert", "data2vec-text", "opt", "bart"};
  constexpr std::int64_t kBefore = 2;
  const std::int64_t unused = behind_padding.count(model.model_type) > 0 ? kBefore : 0;
  for (const Block& block : model.blocks)
    for (const Operator& op : block.operators) {
      if (op.kind != OperatorKind::position_embedding || op.parameters.empty()) continue;
      const std::int64_t rows = op.parameters.front().shape.front();
      if (rows >= model.max_positions && rows <= model.max_positions + kBefore) return rows - unused;
    }
  return 0;
}

/// The largest tensor that an operator makes of one micro-batch, on one rank, in bytes.
double largest_output(const Model& model, const Strategy& s) {
  const flops::Lengths lengths{s.seq_len, s.tgt_len > 0 ? s.tgt_len : s.text_tokens};
  double largest = 0;
  for (const Block& block : model.blocks)
    for (const Operator& op : block.operators) {
      double elements = static_cast<double>(s.micro_batch * s.sequences_per_sample()) * static_cast<double>(flops::positions(block, lengths));
      for (const std::int64_t extent : op.output_per_token) elements *= static_cast<double>(extent);
      largest = std::max(largest, 2 * elements / (static_cast<double>(s.tp) * s.cp));
    }
  return largest;
}

/// The largest parameter that an operator uses whole on one rank, in bytes, and its name. Sharded ones are gathered for that.
std::pair<double, std::string> largest_parameter(const Model& model, const Strategy& s) {
  std::pair<double, std::string> largest;
  for (const Block& block : model.blocks)
    for (const Operator& op : block.operators)
      for (const ParameterTensor& tensor : op.parameters) {
        const double ranks = tensor.expert ? static_cast<double>(s.ep) * std::max(s.tp, s.etp) : static_cast<double>(s.tp);
        double bytes = 2 / ranks;
        for (const std::int64_t extent : tensor.shape) bytes *= static_cast<double>(extent);
        if (bytes > largest.first) largest = {bytes, block.name + "." + tensor.name};
      }
  return largest;
}

/// Sizes that no step can have, before anything is made of them: a tensor, or a rank's share of the weights, of many times the device's
/// memory.
void check_sizes(Resolver& r) {
  constexpr double kMostOfOneTensor = 32, kMostOfAll = 256;  // devices' memories: a trillion parameters on one GPU of 16 GB are 125
  const auto complain = [&](const std::string& what, double bytes, double most, const std::string& hint) {
    if (bytes <= most * static_cast<double>(r.device.memory_usable.value.count)) return false;
    r.complaints.add(what + " takes " + to_string(Bytes(static_cast<std::int64_t>(std::min(bytes, 9e18)))) + ", and a GPU has " +
                         to_string(r.device.memory_usable.value),
                     hint);
    return true;
  };
  const std::string in_config = "look at the sizes in the model's config";
  const auto [parameter, name] = largest_parameter(r.model, r.s);
  const double weights = 2 * static_cast<double>(r.model.parameters()) / static_cast<double>(r.gpus);
  if (complain("the parameter " + name, parameter, kMostOfOneTensor, in_config)) return;
  if (complain("a GPU's share of the weights, dealt to all,", weights, kMostOfAll, in_config)) return;
  complain("one tensor of a micro-batch of " + number(r.s.micro_batch) + " × " + number(r.s.seq_len) + " positions",
           largest_output(r.model, r.s), kMostOfOneTensor, "lower micro_batch or seq_len");
}

/// What the architecture fixes of a sample's length.
void check_length(Resolver& r) {
  const Strategy& s = r.s;
  const bool images = r.model.task == Model::Task::image_classification;
  const bool as_fixed = s.seq_len == r.image_positions || s.seq_len == r.image_positions - 1;  // with or without DeiT's distillation token
  if (images && r.image_positions > 0 && !as_fixed)
    r.complaints.add(
        "seq_len " + number(s.seq_len) + " for " + r.model.name + ", whose images have " + number(r.image_positions) + " positions",
        "leave seq_len out; the image's size is in the config");
  const std::int64_t rows = images || r.model.task == Model::Task::diffusion ? 0 : learned_positions(r.model);
  if (rows > 0 && std::max(s.seq_len, s.tgt_len) > rows)
    r.complaints.add("seq_len " + number(std::max(s.seq_len, s.tgt_len)) + " is past the " + number(rows) +
                         " rows of the model's learned position table",
                     "shorten the sequence, or lengthen the table in a config.json of your own");
}

std::string word_for(Strategy::Task task) {
  for (const auto& entry : strategy::task_names())
    if (entry.value == task) return entry.name;
  return "automatic";
}

/// The classes that were said against those that the model has.
void check_labels(Resolver& r) {
  const bool classifies = r.model.task == Model::Task::classification || r.model.task == Model::Task::image_classification;
  const bool asked = r.s.num_labels == 0 || (classifies && r.s.task != Strategy::Task::qa && r.model.labels == r.s.num_labels);
  if (!asked)
    r.complaints.add("num_labels for " + r.model.name + ", which is trained as " + r.model.architecture, "set task cls, token-cls or image, or leave it out");
}

/// The task that was said against the head that the model has.
void check_task(Resolver& r) {
  using Task = Strategy::Task;
  using Head = Model::Task;
  const Task task = r.s.task;
  const Head head = r.model.task;
  if (head == Head::backbone && r.profile().code == ModelCode::transformers)
    r.complaints.add("the class " + r.model.architecture + " has no head, and so no loss to train on",
                     "name the class that is trained in the config's architectures, as LlamaForCausalLM is LlamaModel's");
  if (task == Task::automatic || head == Head::backbone) return;
  const bool images = head == Head::image_classification;
  const bool fits = task == Task::lm          ? head == Head::causal_lm || head == Head::masked_lm || head == Head::seq2seq
                    : task == Task::mlm       ? head == Head::masked_lm
                    : task == Task::cls       ? head == Head::classification || images
                    : task == Task::token_cls ? r.model.architecture.ends_with("ForTokenClassification")
                    : task == Task::qa        ? r.model.architecture.ends_with("ForQuestionAnswering")
                    : task == Task::seq2seq   ? head == Head::seq2seq
                    : task == Task::image     ? images || head == Head::diffusion
                    : task == Task::diffusion ? head == Head::diffusion
                                              : true;
  if (!fits)
    r.complaints.add("task " + word_for(task) + " for " + r.model.architecture + ", which has no such head",
                     "leave task out, or name the class in the config's architectures");
}

/// Who can take what to the host.
void check_offload(Resolver& r) {
  const Offload& offload = r.s.offload;
  const bool states = offload.params || offload.grads || offload.optimizer;
  if (!states) return;
  const Engine engine = engine_of(r.s);
  if ((engine == Engine::fsdp1 || engine == Engine::fsdp2) && !offload.params)
    r.complaints.add("FSDP takes parameters, gradients and optimizer states to the host together (CPUOffloadPolicy)",
                     "set offload params+grads+optimizer");
  if (engine == Engine::plain || engine == Engine::torch_ddp)
    r.complaints.add(
        std::string(engine == Engine::plain ? "one rank" : "DDP") + " of " + r.profile().name + " keeps its model states on the device",
        "set data_parallel fsdp or zero2, or leave the offload of states out");
}

/// Options of one way to recompute beside another, which would not read them.
void check_recompute(Resolver& r) {
  const Recompute& recompute = r.s.recompute;
  if (!recompute.modules.empty() && recompute.kind != Recompute::Kind::selective)
    r.complaints.add(fmt::format("recompute_modules {} without selective recomputation", fmt::join(recompute.modules, ", ")),
                     "set recompute selective or leave them out");
  if (recompute.of_layers > 0 && recompute.of_layers != r.model.layers)
    r.complaints.add(fmt::format("recompute of {} layers of {}: {} has {}", recompute.layers, recompute.of_layers, r.model.name, r.model.layers),
                     fmt::format("say full-block-N-of-{}-layers", r.model.layers));
  if (recompute.kind == Recompute::Kind::full) return;
  if (recompute.method != Recompute::Method::none)
    r.complaints.add("recompute_method without full recomputation", "set recompute full or leave it out");
  if (recompute.layers > 0) r.complaints.add("recompute_num_layers without full recomputation", "set recompute full or leave it out");
}

/// Lengths of what the model does not read.
void check_lengths_read(Resolver& r) {
  if (r.s.tgt_len > 0 && r.model.task != Model::Task::seq2seq)
    r.complaints.add("tgt_len for " + r.model.name + ", which reads one sequence", "give its length as seq_len");
  if (r.s.text_tokens > 0 && r.model.task != Model::Task::diffusion)
    r.complaints.add("text_tokens for " + r.model.name + ", which has no prompt beside an image", "leave it out");
}

/// What a framework has of a list of which "none" is one.
template <class List>
std::string offered(const List& list) {
  return list.size() > 1 ? "it has " + either(list) : "leave it out";
}

std::string listed(const std::vector<Recompute::Kind>& kinds) {
  std::vector<std::string_view> names;
  for (const Recompute::Kind kind : kinds) names.push_back(strategy::name_in(strategy::recompute_names(), kind));
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

void check_shapes(Resolver& r) {
  Strategy& s = r.s;
  check_sizes(r);
  check_task(r);
  check_labels(r);
  check_length(r);
  check_offload(r);
  check_recompute(r);
  check_lengths_read(r);
  if (s.sequence_parallel.value_or(false) && s.tp == 1) {
    // Megatron-core raises; the launchers over it switch it off.
    if (r.profile().name == "megatron-core") {
      r.complaints.add("sequence_parallel without tensor parallelism", "set tp above 1 or leave it out");
    } else {
      s.sequence_parallel = false;
      r.assume("sequence_parallel: false, since tp is 1");
    }
  }
  check_tensor(r);
  check_pipeline(r);
  check_experts(r);
  if (s.lora && s.lora->r == 0) r.complaints.add("lora.r, the adapters' rank, is missing", "give it, 8 to 64 are usual");
  if (s.base_weights != BaseWeights::as_trained && !s.lora && !s.peft)
    r.complaints.add("base_weights without adapters: quantised weights are frozen, and nothing else would be trained",
                     "give lora.r or leave it out");
  if (!s.trained_modules.empty() && (s.lora || s.peft))
    r.complaints.add("trained_modules beside adapters, which freeze everything else", "leave it out, or name them as lora.modules_to_save");
  if (s.optimizer == OptimizerKind::lora_fa && !s.lora)
    r.complaints.add("LoRA-FA trains adapters, and there are none", "give lora.r, or another optimizer");
  if (engine_of(s) == Engine::fsdp2 && s.fsdp.sharding == FsdpOptions::Sharding::no_shard)
    r.complaints.add("fully_shard (FSDP2) has no NO_SHARD", "set data_parallel ddp, or fsdp1");
  if (engine_of(s) == Engine::fsdp2 && s.fsdp.reshard == FsdpOptions::Reshard::number && s.dp_shard % s.fsdp.reshard_to != 0)
    r.complaints.add(fmt::format("fully_shard refuses reshard_after_forward {}, which does not divide the {} ranks that it shards over",
                                 s.fsdp.reshard_to, s.dp_shard),
                     "a factor of " + std::to_string(s.dp_shard));
  if (s.fsdp.root_unit == false && (engine_of(s) == Engine::fsdp1 || engine_of(s) == Engine::fsdp2))
    r.complaints.add("fsdp.root_unit false: a model whose root is no unit is not modelled", "leave it out");
  if (s.lora && s.lora->targets.empty() && r.profile().adapters) {
    const bool peft = r.profile().code == ModelCode::transformers;
    r.complaints.add("lora.target_modules is missing, and " +
                         (peft ? "PEFT has none for model type '" + r.model.model_type + "'" : r.profile().name + "'s recipes say which"),
                     "list the linears that get an adapter, of " + fmt::format("{}", fmt::join(linear_names(r.model), ", ")));
  }
}

/// Whether transformers' class says _supports_flash_attn (5.23); GPT-OSS takes kernels with sinks alone, which flash-attention 2 has not.
bool has_flash_attention(const std::string& model_type) {
  static const std::set<std::string> without = {"bloom",       "codegen", "deberta", "deberta-v2", "gpt_oss", "llama4",
                                                "llama4_text", "mpnet",   "mpt",     "mt5",        "swin",    "t5"};
  return without.count(model_type) == 0;
}

/// Where flash-attention's generations run (README.md and what each checks itself): 2 from Ampere on ("FlashAttention only supports Ampere
/// GPUs or newer") and, by Composable Kernel, on AMD; 3 on Hopper ("Requirements: H100 / H800 GPU"); 4, whose backward takes 9.x to 12.x
/// (flash_attn/cute/interface.py), from Hopper on.
bool runs_flash(AttentionKernel generation, const Accelerator& device) {
  constexpr int kAmpere = 80, kHopper = 90;
  if (device.is_amd()) return generation == AttentionKernel::flash;
  if (device.capability() == 0) return true;  // nothing is known of it
  if (generation == AttentionKernel::flash3) return device.capability() == kHopper;
  return device.capability() >= (generation == AttentionKernel::flash4 ? kHopper : kAmpere);
}

/// TorchTitan's and torchtune's flash attention is PyTorch's, which chooses by itself.
void check_flash_attention(Resolver& r) {
  const ModelCode code = r.profile().code;
  if (!is_flash(r.s.attention) || code == ModelCode::torchtitan || code == ModelCode::torchtune) return;
  if (code == ModelCode::transformers && !has_flash_attention(r.model.model_type))
    r.complaints.add("transformers' " + r.model.architecture + " has no flash_attention_2", "use attention sdpa or eager");
  if (!runs_flash(r.s.attention, r.device))
    r.complaints.add("attention " + std::string(name_of(r.s.attention)) + " does not run on " + r.device.title,
                     r.device.is_amd()             ? "use flash, which is Composable Kernel's there"
                     : r.device.capability() >= 80 ? "use flash"
                                                   : "use sdpa or eager");
}

/// Before 2.4 torch.cuda.is_bf16_supported asked for Ampere, and TrainingArguments and Accelerate asked it; tf32 they refuse to this day.
void check_arithmetic(Resolver& r) {
  constexpr int kAmpere = 80;
  const int capability = r.device.capability();
  if (capability == 0 || capability >= kAmpere || r.profile().code != ModelCode::transformers) return;
  const bool bf16 =
      r.s.precision == Precision::amp_bf16 || r.s.precision == Precision::pure_bf16 || r.s.precision == Precision::fsdp_mixed_bf16;
  if (bf16 && !r.s.releases.of(Package::torch).since(2, 4))
    r.complaints.add(
        "bf16 needs an Ampere GPU or a newer one before PyTorch 2.4 (torch.cuda.is_bf16_supported), which " + r.device.title + " is not",
        "use precision fp16, or PyTorch 2.4, which computes it in fp32");
  if (r.s.tf32) r.complaints.add("tf32 needs an Ampere GPU or a newer one, which " + r.device.title + " is not", "leave tf32 out");
}

void check_abilities(Resolver& r) {
  const Strategy& s = r.s;
  const FrameworkProfile& p = r.profile();
  auto lacks = [&](const std::string& what, const std::string& has) { r.complaints.add(p.name + " has no " + what, has); };
  auto unmodelled = [&](const std::string& what, const std::string& instead) {  // which the program may well have
    r.complaints.add(p.name + ": " + what + " is not modelled", instead);
  };
  if (!contains(p.kinds, s.data_parallel)) lacks("data_parallel " + std::string(name_of(s.data_parallel)), "it has " + either(p.kinds));
  if (!contains(p.attentions, s.attention)) unmodelled("attention " + std::string(name_of(s.attention)), "modelled are " + either(p.attentions));
  check_flash_attention(r);
  check_arithmetic(r);
  if (!contains(p.losses, s.loss)) lacks("loss " + std::string(name_of(s.loss)), "it has " + either(p.losses));
  if (!p.optimizers.empty() && !contains(p.optimizers, s.optimizer)) lacks("optimizer " + std::string(name_of(s.optimizer)), "it has " + either(p.optimizers));
  if (!contains(p.low_precisions, s.low_precision)) lacks(std::string(name_of(s.low_precision)) + " products", offered(p.low_precisions));
  if (!contains(p.recomputes, s.recompute.kind))
    lacks("recompute " + std::string(strategy::name_in(strategy::recompute_names(), s.recompute.kind)), "it has " + listed(p.recomputes));
  if (s.tp > 1 && !p.tensor) unmodelled("tensor parallelism", "use megatron-core, torchtitan or nanotron");
  if (s.pp > 1 && p.schedules.empty()) unmodelled("pipeline parallelism", "use megatron-core, torchtitan or nanotron");
  if (s.cp > 1 && !p.context) unmodelled("context parallelism", "use megatron-core or torchtitan");
  if (s.etp > 1 && s.etp != s.tp && !p.expert) lacks("tensor parallelism of its experts' own", "leave etp out");
  if (s.ep > 1 && !p.expert) unmodelled("expert parallelism", "use megatron-core or torchtitan");
  if (s.sequence_parallel.value_or(false) && !p.sequence_parallel) unmodelled("sequence parallelism", "leave it out");
  if (s.peft && p.name != "transformers" && p.name != "accelerate") lacks("PEFT's ways of fine-tuning", "use transformers");
  if (s.lora && !p.adapters) lacks("adapters", "use transformers, torchtune, nemo or megatron-bridge");
  if (s.liger_kernel && p.code != ModelCode::transformers) lacks("liger_kernel", "Liger patches transformers' modules; leave it out");
  if (s.quant_storage && p.code != ModelCode::transformers) lacks("bnb_4bit_quant_storage", "it is transformers'; leave it out");
  if (s.offload.activations && !p.offload_activations) unmodelled("activation offload", "use torchtune, nemo or megatron-bridge");
}

}  // namespace plimsoll::framework
