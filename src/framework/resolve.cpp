#include <algorithm>
#include <set>
#include <string>

#include "framework/megatron.hpp"
#include "framework/model_classes.hpp"
#include "framework/neighbours.hpp"
#include "framework/post_training.hpp"
#include "framework/resolver.hpp"
#include "framework/torchtitan.hpp"
#include "framework/transformers.hpp"
#include "framework/verl.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/schedule.hpp"

namespace plimsoll {
namespace framework {
namespace {

/// The framework that people run such a strategy with.
std::string usual_framework(const Strategy& s, const Model& model) {
  switch (s.data_parallel) {
    case DataParallel::zero0:
    case DataParallel::zero1:
    case DataParallel::zero2:
    case DataParallel::zero3:
      return "deepspeed";
    case DataParallel::megatron_distopt:
    case DataParallel::megatron_fsdp:
      return "megatron-core";
    default:
      break;
  }
  const bool many_ways = std::max({s.tp, s.pp, s.vp, s.cp, s.ep}) > 1;
  if (many_ways) return is_fsdp(s.data_parallel) ? "torchtitan" : "megatron-core";
  if (s.post_training) return "accelerate";
  return model.task == Model::Task::diffusion ? "diffusers" : "transformers";
}

}  // namespace

void resolve_framework(Resolver& r) {
  Strategy& s = r.s;
  if (s.framework.empty()) {
    s.framework = usual_framework(s, r.model);
    r.assume("framework: " + s.framework);
  }
  s.framework = r.profile().name;
  resolve_releases(r);
  if (s.framework == "megatron-deepspeed" && s.data_parallel == DataParallel::ddp) {
    // Its copy of Megatron-LM, that of 2021 until July 2023 at least (microsoft/Megatron-DeepSpeed, megatron/arguments.py).
    s.framework = "megatron-lm";
    if (!s.releases.says(Package::megatron_lm)) s.releases.put(Package::megatron_lm, *Release::parse("2021-08"), Releases::Origin::assumed, "Megatron-DeepSpeed's copy");
    r.assume("framework: megatron-lm of " + s.releases.of(Package::megatron_lm).text() +
             " (Megatron-DeepSpeed with Megatron's own data parallelism)");
  }
  const FrameworkProfile& profile = r.profile();
  s.framework = profile.name;
  if (!profile.refused.empty()) refuse(profile.title + " is not modelled: " + profile.refused);
  if (s.megatron.layer_spec.empty()) s.megatron.layer_spec = megatron_layer_spec(s, profile.layer_spec);
  complete_releases(r);
  if (profile.code == ModelCode::transformers) check_classes(Package::transformers, s, r.model);
  if (profile.code == ModelCode::torchtitan) check_classes(Package::torchtitan, s, r.model);
  if (profile.code == ModelCode::torchtune) {
    assume_release_with_classes(Package::torchtune, s, r.model);
    check_classes(Package::torchtune, s, r.model);
  }
}

AttentionKernel usual_attention(const Strategy& s, const Resolver& r) {
  const bool megatron = !r.profile().layer_spec.empty();
  if (megatron && s.megatron.layer_spec == "local") return AttentionKernel::unfused;
  if (r.profile().code == ModelCode::transformers && !has_sdpa(r.model.model_type, s.releases.of(Package::transformers))) return AttentionKernel::eager;
  return s.framework == "torchtitan" ? torchtitan_attention(s, r.model) : r.profile().attention;
}

/// MODEL_TYPE_TO_APPLY_LIGER_FN of liger-kernel 0.8.5.
bool has_liger_kernels(const std::string& model_type) {
  static const std::set<std::string> with = {
      "deepseek_v2", "deepseek_v3", "deepseek_v4", "exaone4", "falcon_h1", "gemma", "gemma2", "gemma3", "gemma3_text", "gemma4", "gemma4_text",
      "glm4", "glm4v", "glm4v_moe", "gpt_oss", "granite", "hunyuan_v1_dense", "hunyuan_v1_moe", "internvl", "llama", "llama4", "llama4_text", "llava",
      "ministral", "mistral", "mixtral", "mllama", "mllama_text_model", "muse_glimmer", "nemotron", "olmo2", "olmo3", "paligemma", "phi3", "pixtral",
      "qwen2", "qwen2_5_vl", "qwen2_5_vl_text", "qwen2_vl", "qwen2_vl_text", "qwen3", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text",
      "qwen3_moe", "qwen3_next", "qwen3_vl", "qwen3_vl_moe", "qwen3_vl_moe_text", "qwen3_vl_text", "smollm3", "smolvlm"};
  return with.count(model_type) > 0;
}

/// _apply_liger_kernel_to_instance passes by a model type that Liger has no row for.
void drop_absent_liger(Resolver& r) {
  if (!r.s.liger_kernel || has_liger_kernels(r.model.model_type)) return;
  r.s.liger_kernel = false;
  r.assume("liger_kernel: Liger has none for model type '" + r.model.model_type + "', which runs as without");
}

/// The Trainer patches the model that is there, whose forward Liger's fused loss replaces, whatever its head is.
void refuse_liger_of_classifier(const Resolver& r) {
  const bool scores =
      r.model.task == Model::Task::classification || (r.s.post_training && r.s.post_training->kind == PostTraining::Kind::reward);
  const bool by_trainer = r.s.framework == "accelerate" || r.s.trainer_optimizer;
  if (r.s.liger_kernel && scores && by_trainer && !r.model.source)
    fail(
        "the program stops in its first step: Liger's forward, put in the place of a sequence classifier's, asks for an lm_head, which "
        "that has not",
        "liger_kernel", "false");
}

LossKernel usual_loss(const Strategy& s, const Resolver& r) {
  if (s.post_training) return LossKernel::cross_entropy;  // of logits or of a fused head, by the trainer itself
  if (r.model.task == Model::Task::classification) return LossKernel::cross_entropy;  // Liger patches the forward of language models alone
  // The defaults of apply_liger_kernel_to_…: only Granite has no fused one.
  if (s.liger_kernel) return r.model.model_type == "granite" ? LossKernel::liger : LossKernel::liger_fused_linear;
  if (s.framework == "torchtitan") return torchtitan_loss(s);
  return s.loss_chunks > 0 ? LossKernel::chunked : r.profile().loss;
}

/// What `compile: true` compiles. torchtitan's and torchtune's switches take every block; the Trainer's, Accelerate's and a loop's own
/// torch.compile(model) the whole model, which the hooks of sharded blocks cut: FSDP2's into the blocks and the functions between them, others
/// into blocks.
void resolve_compile(Resolver& r) {
  using Compile = Strategy::Compile;
  Strategy& s = r.s;
  const bool gathers = is_fsdp(s.data_parallel) || s.data_parallel == DataParallel::zero3;  // by hooks, of one rank too
  const bool whole_copies = s.data_parallel == DataParallel::none || s.data_parallel == DataParallel::ddp || (s.dp == 1 && !gathers);
  const bool framed = s.data_parallel == DataParallel::fsdp2 && !r.model.source;  // code runs its layers compiled, and nothing between them
  const bool whole = r.profile().code == ModelCode::transformers && (whole_copies || framed);
  s.compile = whole ? Compile::model : Compile::blocks;
  if (r.profile().code == ModelCode::transformers)
    r.assume(!whole         ? "compile: blocks (a whole model's graph is cut at each)"
             : whole_copies ? "compile: model (torch.compile of the whole model with its loss)"
                            : "compile: model (torch.compile of the whole model, whose layers and functions FSDP2's hooks tell apart)");
}

void resolve_kernels(Resolver& r) {
  Strategy& s = r.s;
  const FrameworkProfile& profile = r.profile();
  if (s.compile == Strategy::Compile::own) resolve_compile(r);
  if (s.attention == AttentionKernel::automatic) {
    s.attention = usual_attention(s, r);
    r.assume("attention: " + std::string(name_of(s.attention)));
  }
  // The same thing under two names: Megatron calls the model's own expression unfused.
  const bool names_eager =
      std::find(profile.attentions.begin(), profile.attentions.end(), AttentionKernel::eager) != profile.attentions.end();
  if (s.attention == AttentionKernel::unfused && names_eager) s.attention = AttentionKernel::eager;
  if (s.attention == AttentionKernel::eager && !names_eager) s.attention = AttentionKernel::unfused;
  drop_absent_liger(r);
  refuse_liger_of_classifier(r);
  if (s.loss == LossKernel::automatic) {
    s.loss = usual_loss(s, r);
    if (!s.post_training) r.assume("loss: " + std::string(name_of(s.loss)));
  }
  if (s.loss == LossKernel::chunked && s.loss_chunks == 0) {
    s.loss_chunks = 8;
    r.assume("loss_chunks: 8");
  }
  if (s.recompute.kind == Recompute::Kind::automatic) {
    s.recompute.kind = profile.recompute;
    if (profile.code != ModelCode::maxtext)  // whose remat policy its own file tells
      r.assume(std::string("recompute: ") + (profile.recompute == Recompute::Kind::operators ? "selective-ac-op" : "none"));
  }
  const bool transformers = profile.code == ModelCode::transformers;
  if (!s.recompute.reentrant) s.recompute.reentrant = profile.recompute_reentrant || (transformers && checkpoints_reentrantly(s));
  if (s.compile == Strategy::Compile::automatic)
    s.compile = profile.layer_spec.empty() ? Strategy::Compile::no : Strategy::Compile::jit_fusers;
  if (s.autograd_threads == 0) s.autograd_threads = 1;
  if (!s.moe.a2a_overlap) s.moe.a2a_overlap = false;
  // User buffers hold 16 and 8 bits: recipes of 4 bits switch them off (tp_comm_overlap = False if precision == "nvfp4").
  if (!s.async_tp)
    s.async_tp = profile.tensor_overlap && s.tp > 1 && s.sequence_parallel.value_or(false) && s.comm_overlap.value_or(true) &&
                 s.low_precision != LowPrecision::nvfp4;
  if (!s.comm_overlap) s.comm_overlap = true;
}

/// The task that the model's head was made for.
void resolve_task(Resolver& r) {
  Strategy& s = r.s;
  if (s.task != Strategy::Task::automatic) return;
  using Task = Strategy::Task;
  switch (r.model.task) {
    case Model::Task::classification:
      s.task = Task::cls;
      break;
    case Model::Task::seq2seq:
      s.task = Task::seq2seq;
      break;
    case Model::Task::image_classification:
      s.task = Task::image;
      break;
    case Model::Task::diffusion:
      s.task = Task::diffusion;
      break;
    default:
      s.task = Task::lm;
  }
}

/// The module of a classifier's head: the last parameters are its own.
std::string head_module_of(const Model& model) {
  const Block& head = model.blocks.back();
  if (!head.name.empty()) return head.name.substr(0, head.name.find('.'));
  const auto owner = std::find_if(head.operators.rbegin(), head.operators.rend(), [](const Operator& each) { return !each.parameters.empty(); });
  return owner == head.operators.rend() ? std::string() : owner->name.substr(0, owner->name.find('.'));
}

/// PEFT trains the head whole (PeftModelForSequenceClassification and …TokenClassification: "classifier" and "score";
/// PeftModelForQuestionAnswering: "qa_outputs").
void train_classifiers_head(Resolver& r) {
  const bool rewards = r.s.post_training && r.s.post_training->kind == PostTraining::Kind::reward;
  const std::string& architecture = r.model.architecture;
  const bool classifies = r.model.task == Model::Task::classification &&
                          (architecture.ends_with("ForSequenceClassification") || architecture.ends_with("ForTokenClassification") ||
                           architecture.ends_with("ForQuestionAnswering"));
  if (!r.s.lora || !(rewards || classifies)) return;
  const std::string head = rewards ? "score" : head_module_of(r.model);
  std::vector<std::string>& whole = r.s.lora->modules_to_save;
  if (std::find(whole.begin(), whole.end(), head) != whole.end()) return;
  whole.push_back(head);
  r.assume("lora.modules_to_save: " + head + " (the head of a classifier, task type SEQ_CLS, TOKEN_CLS or QUESTION_ANS)");
}

/// sdp_utils.cpp, check_prefer_cudnn_attention: on Hopper and data-centre Blackwell from cuDNN 9.15.1 on, which 2.11 is the first to ship.
static bool torch_prefers_cudnn_attention(const Accelerator& device, const Release& torch) {
  return torch.since(2, 11) && (device.capability() == 90 || device.capability() == 100 || device.capability() == 103);
}

/// Whether scaled_dot_product_attention takes cuDNN's kernels first: by the framework's own order where it has one, else by PyTorch's.
static bool prefers_cudnn_attention(const Strategy& s, const Accelerator& device) {
  const std::optional<int> from = profile_of(s).cudnn_attention_from;
  if (from) return s.attention != AttentionKernel::flash && device.capability() > 0 && device.capability() >= *from;
  return torch_prefers_cudnn_attention(device, s.releases.of(Package::torch));
}

}  // namespace framework

Model beside_teacher(Model model, const Strategy& said) {
  if (said.post_training && !said.post_training->teacher.empty())
    model.teacher = std::make_shared<const Model>(load_model(said.post_training->teacher));
  return model;
}

Model as_task_has_it(Model model, const Strategy& said) {
  using Task = Strategy::Task;
  const bool of_images = model.image_size > 0;
  switch (said.task) {
    case Task::cls:
      return with_auto_head(model, of_images ? AutoHead::images : AutoHead::sequences, said.num_labels);
    case Task::token_cls:
      return with_auto_head(model, AutoHead::tokens, said.num_labels);
    case Task::qa:
      return with_auto_head(model, AutoHead::answers);
    case Task::mlm:
      return with_auto_head(model, AutoHead::words);
    case Task::image:
      return said.num_labels > 0 ? with_auto_head(model, AutoHead::images, said.num_labels) : model;
    default:
      return beside_teacher(std::move(model), said);
  }
}

Strategy resolve(const Strategy& said, const Model& model, const Cluster& cluster) {
  using namespace framework;
  Resolver r{said, model, cluster.gpus(), cluster.gpus_per_node, cluster.accelerator, {}};
  begin_verl(r);
  resolve_framework(r);
  resolve_ranks(r);
  resolve_data_parallel(r);
  resolve_stages(r);
  resolve_batch(r);
  resolve_precision(r);
  resolve_optimizer(r);
  resolve_kernels(r);
  if (!r.s.cudnn_attention) r.s.cudnn_attention = prefers_cudnn_attention(r.s, cluster.accelerator);
  resolve_task(r);
  const Entry& entry = entry_of(r.s.framework);
  complete_adapters_of_trl(r);
  if (entry.complete != nullptr) entry.complete(r.s, model);
  complete_post_training(r);
  train_classifiers_head(r);
  complete_neighbours(r);
  for (std::optional<bool>* cut : {&r.s.loss_parallel, &r.s.sequence_parallel})
    if (!*cut) *cut = false;  // unless the framework's own rule has decided
  check_shapes(r);
  check_abilities(r);
  if (entry.check != nullptr) entry.check(r.s, model, r.complaints);
  r.complaints.raise();
  return r.s;
}

}  // namespace plimsoll
