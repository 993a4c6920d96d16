// Programs over transformers' Trainer: Accelerate's and DeepSpeed's files, axolotl's, LLaMA-Factory's.
#include "formats/export/writer.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

Node text_node(const std::string& text) { return Node::scalar(text, {}, true); }
Node plain_node(const std::string& text) { return Node::scalar(text, {}); }
Node number_node(std::int64_t value) { return plain_node(std::to_string(value)); }

Node names_node(const std::string& joined) {
  Node list = Node::table({});
  list.kind = Node::Kind::list;
  for (std::size_t at = 0, comma = 0; comma != std::string::npos && !joined.empty(); at = comma + 1) {
    comma = joined.find(',', at);
    list.members.emplace_back("", text_node(joined.substr(at, comma == std::string::npos ? comma : comma - at)));
  }
  return list;
}

bool is_fsdp(const Writing& w) { return plimsoll::is_fsdp(w.s.data_parallel); }
bool is_deepspeed(const Writing& w) { return w.s.framework == "deepspeed"; }

/// "bf16", "fp16" or nothing: what the step computes in where the weights are held otherwise.
std::string half_of(const Writing& w) {
  switch (w.s.precision) {
    case Precision::amp_bf16:
    case Precision::mixed_bf16:
    case Precision::fsdp_mixed_bf16:
      return "bf16";
    case Precision::amp_fp16:
    case Precision::mixed_fp16:
    case Precision::fsdp_mixed_fp16:
      return "fp16";
    default:
      return {};
  }
}

/// FSDP's keys as Accelerate's file has them.
Node fsdp_node(const Writing& w, const std::string& prefix) {
  Node rows = write_rows(fsdp_rows(), w.s), tree = Node::table({});
  for (const auto& [name, value] : rows.members)
    if (name != "fsdp_size" && name != "tp_size" && name != "activation_checkpointing" && name != "cpu_offload")
      tree.set(prefix + name, value);
  const std::string least = w.value("fsdp.min_num_params"), units = w.value("fsdp.units");
  const bool whole = units == "none";
  tree.set(prefix + "auto_wrap_policy", text_node(!least.empty() ? "SIZE_BASED_WRAP" : whole ? "NO_WRAP" : "TRANSFORMER_BASED_WRAP"));
  if (!least.empty()) tree.set(prefix + "min_num_params", plain_node(least));
  if (w.s.data_parallel == DataParallel::fsdp2) {
    tree.set(prefix + "reshard_after_forward", plain_node(w.is("fsdp.reshard_after_forward", "never") ? "false" : "true"));
    std::erase_if(tree.members, [&](const auto& member) {
      return member.first == prefix + "sharding_strategy" || member.first == prefix + "forward_prefetch";
    });
  } else {
    for (const char* key : {"limit_all_gathers", "use_orig_params"})
      if (key != std::string_view("limit_all_gathers")) tree.set(prefix + key, plain_node(w.value(std::string("fsdp.") + key)));
    tree.set(prefix + "backward_prefetch", text_node(w.value("fsdp.backward_prefetch")));
  }
  tree.set(prefix + "state_dict_type", text_node("SHARDED_STATE_DICT"));
  std::erase_if(tree.members, [&](const auto& member) { return member.first == prefix + "transformer_layer_cls_to_wrap"; });
  if (!units.empty() && !whole && least.empty()) tree.set(prefix + "transformer_layer_cls_to_wrap", text_node(units));
  return tree;
}

Node deepspeed_node(const Writing& w) {
  Node tree = Node::table({});
  tree.set("train_micro_batch_size_per_gpu", number_node(w.s.micro_batch));
  tree.set("gradient_accumulation_steps", number_node(w.s.grad_accum));
  tree.set("train_batch_size", number_node(w.s.global_batch));
  tree.set("gradient_clipping", plain_node(*w.s.clip_grad_norm ? "1.0" : "0"));
  tree.set(half_of(w) == "fp16" ? "fp16.enabled" : "bf16.enabled", plain_node(half_of(w).empty() ? "false" : "true"));
  tree.set("zero_optimization.stage", plain_node(w.value("zero_stage")));
  constexpr std::string_view kOurs = "deepspeed.";
  for (const std::string& key : written_keys()) {
    if (key.compare(0, kOurs.size(), kOurs) != 0) continue;
    const auto value = value_of(w.s, key);
    if (value) tree.set(key.substr(kOurs.size()), plain_node(*value));
  }
  if (w.s.optimizer_impl == OptimizerImpl::fused || w.s.optimizer_impl == OptimizerImpl::cpu ||
      w.s.optimizer_impl == OptimizerImpl::foreach) {
    tree.set("optimizer.type", text_node(w.s.optimizer == OptimizerKind::adam ? "Adam" : "AdamW"));
    tree.set("optimizer.params.lr", plain_node("1e-5"));
    if (w.s.optimizer_impl == OptimizerImpl::foreach) tree.set("optimizer.params.torch_adam", plain_node("true"));
  }
  return tree;
}

Node arguments_node(const Writing& w) {
  Node tree = Node::table({});
  tree.set("model_name_or_path", text_node(w.model));
  const Node rows = write_rows(training_arguments_format().rows(), w.s);
  for (const auto& [name, value] : rows.members) tree.set(name, value);
  std::erase_if(tree.members, [](const auto& member) {  // every sequence is full; units stand in fsdp_config
    return member.first == "packing" || member.first == "fsdp_transformer_layer_cls_to_wrap";
  });
  tree.set("max_grad_norm", plain_node(*w.s.clip_grad_norm ? "1.0" : "0.0"));
  tree.set("output_dir", text_node("output"));
  tree.set("dtype", text_node(w.s.param_dtype == DType::bf16 || (is_deepspeed(w) && half_of(w) == "bf16") ? "bfloat16"
                              : w.s.param_dtype == DType::fp16                                            ? "float16"
                                                                                                          : "float32"));
  if (is_deepspeed(w)) {
    std::erase_if(tree.members, [](const auto& member) { return member.first == "optim" || member.first == "dtype"; });
    tree.set("deepspeed", text_node("ds_config.json"));
  }
  for (const char* type : {"bf16", "fp16"})
    if (half_of(w) == type && w.s.low_precision == LowPrecision::none) tree.set(type, plain_node("true"));
  if (w.s.lora) {
    tree.set("use_peft", plain_node("true"));
    tree.set("lora_r", number_node(w.s.lora->r));
    tree.set("lora_alpha", plain_node(w.value("lora.alpha")));
    tree.set("lora_dropout", plain_node(w.value("lora.dropout")));
    tree.set("lora_target_modules", names_node(w.value("lora.target_modules")));
    if (!w.s.lora->modules_to_save.empty()) tree.set("lora_modules_to_save", names_node(w.value("lora.modules_to_save")));
  }
  add_length(w, tree);
  tree.set("report_to", text_node("none"));
  return tree;
}

Node accelerate_node(const Writing& w) {
  Node tree = Node::table({});
  tree.set("compute_environment", text_node("LOCAL_MACHINE"));
  const bool alone = w.s.data_parallel == DataParallel::none;
  tree.set("distributed_type", text_node(is_deepspeed(w) ? "DEEPSPEED" : is_fsdp(w) ? "FSDP" : alone ? "NO" : "MULTI_GPU"));
  tree.set("num_machines", number_node(w.nodes()));
  tree.set("num_processes", number_node(w.plan.cluster.gpus()));
  tree.set("machine_rank", plain_node("0"));
  const bool fp8 = w.s.low_precision == LowPrecision::fp8;
  tree.set("mixed_precision", text_node(fp8 ? "fp8" : half_of(w).empty() ? "no" : half_of(w)));
  if (fp8) tree.set("fp8_config.backend", text_node(w.s.fp8_scaling == Fp8Scaling::delayed ? "TE" : "AO"));
  if (is_fsdp(w)) tree.set("fsdp_config", fsdp_node(w, "fsdp_"));
  if (is_deepspeed(w)) {
    tree.set("deepspeed_config.deepspeed_config_file", text_node("ds_config.json"));
    tree.set("deepspeed_config.zero3_init_flag", plain_node(w.s.deepspeed.zero_init.value_or(false) ? "true" : "false"));
    std::erase_if(tree.members,
                  [](const auto& member) { return member.first == "mixed_precision"; });  // Accelerate refuses it beside a file
  }
  return tree;
}

}  // namespace

void add_length(const Writing& w, Node& tree) {
  tree.set("max_steps", number_node(w.plan.length.steps));
  if (w.plan.length.save_every == 0) return;
  tree.set("save_strategy", text_node("steps"));
  tree.set("save_steps", number_node(w.plan.length.save_every));
}

void write_trainer(const Writing& w, bool with_accelerate) {
  if (is_deepspeed(w)) w.file("ds_config.json", json_of(deepspeed_node(w)));
  Node arguments = arguments_node(w);
  w.file("train.py", program_text(with_accelerate ? "trainer.py" : "loop.py"));
  if (with_accelerate) {
    if (is_deepspeed(w)) std::erase_if(arguments.members, [](const auto& member) { return member.first == "deepspeed"; });
    w.file("training_arguments.json", json_of(arguments));
    w.file("accelerate.yaml", w.head() + yaml_of(accelerate_node(w)));
    const std::string where = w.nodes() > 1 ? " --machine_rank \"${NODE_RANK:-0}\" --main_process_ip \"${MASTER_ADDR:-localhost}\" "
                                              "--main_process_port \"${MASTER_PORT:-29500}\""
                                            : "";
    write_script(w, "accelerate launch --config_file accelerate.yaml" + where + " train.py training_arguments.json");
    w.out.reads = {"accelerate.yaml", "training_arguments.json"};
    return;
  }
  std::erase_if(arguments.members,
                [](const auto& member) { return member.first == "use_liger_kernel" || member.first == "torch_compile"; });
  if (!is_deepspeed(w)) arguments.set(kOwnLoop, plain_node("true"));
  if (is_fsdp(w)) {
    arguments.set("fsdp", plain_node("true"));
    Node fsdp = fsdp_node(w, {});
    std::erase_if(fsdp.members, [](const auto& member) { return member.first == "sharding_strategy"; });
    if (w.s.data_parallel == DataParallel::fsdp1) fsdp.set("reshard_after_forward", text_node(w.value("fsdp.strategy")));
    arguments.set("fsdp_config", fsdp);
  }
  w.file("training_arguments.json", json_of(arguments));
  const std::string launcher = is_deepspeed(w) && w.nodes() == 1 ? "deepspeed --num_gpus " + std::to_string(w.per_node()) : torchrun_of(w);
  write_script(w, launcher + " train.py training_arguments.json");
  w.out.reads = {"training_arguments.json"};
}

namespace {

/// What brings Liger's kernels and cut cross entropy into axolotl.
std::string axolotl_plugins(const Writing& w) {
  const bool liger = w.s.liger_kernel || w.s.loss == LossKernel::liger || w.s.loss == LossKernel::liger_fused_linear;
  std::string list = liger ? "axolotl.integrations.liger.LigerPlugin" : "";
  if (w.s.loss == LossKernel::cut_cross_entropy)
    list += std::string(list.empty() ? "" : ",") + "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin";
  return list;
}

}  // namespace

void write_axolotl(const Writing& w) {
  Node tree = Node::table({});
  tree.set("base_model", text_node(w.model));
  const Node rows = write_rows(axolotl_format().rows(), w.s);
  for (const auto& [name, value] : rows.members) tree.set(name, value);
  const std::string half = half_of(w);
  std::erase_if(tree.members, [](const auto& member) { return member.first == "adapter" || member.first == "fp8"; });
  tree.set("bf16", plain_node(half == "bf16" ? "true" : "false"));
  tree.set("fp16", plain_node(half == "fp16" ? "true" : "false"));
  tree.set("max_grad_norm", plain_node(*w.s.clip_grad_norm ? "1.0" : "0.0"));
  if (w.s.lora) {
    tree.set("adapter", text_node(w.s.base_weights == BaseWeights::as_trained ? "lora" : "qlora"));
    for (const auto& [theirs, ours] : {std::pair{"lora_r", "lora.r"}, {"lora_alpha", "lora.alpha"}, {"lora_dropout", "lora.dropout"}})
      tree.set(theirs, plain_node(w.value(ours)));
    if (w.is("lora.target_modules", "all-linear")) {
      tree.set("lora_target_linear", plain_node("true"));
    } else {
      tree.set("lora_target_modules", names_node(w.value("lora.target_modules")));
    }
    for (const auto& [theirs, on] : {std::pair{"lora_mlp_kernel", w.s.lora->mlp_kernel}, {"lora_qkv_kernel", w.s.lora->qkv_kernel},
                                     {"lora_o_kernel", w.s.lora->o_kernel}})
      tree.set(theirs, plain_node(on ? "true" : "false"));  // axolotl turns them on by itself
  }
  if (const std::string plugins = axolotl_plugins(w); !plugins.empty()) tree.set("plugins", names_node(plugins));
  if (is_fsdp(w)) {
    tree.set("fsdp_version", plain_node(w.s.data_parallel == DataParallel::fsdp2 ? "2" : "1"));
    Node fsdp = fsdp_node(w, {});
    std::erase_if(fsdp.members, [](const auto& member) { return member.first == "version"; });
    tree.set("fsdp_config", fsdp);
  }
  if (is_deepspeed(w)) {
    tree.set("deepspeed", text_node("ds_config.json"));
    w.file("ds_config.json", json_of(deepspeed_node(w)));
  }
  Node data = Node::table({}), sets = Node::table({});
  data.set("path", text_node("allenai/c4"));
  sets.kind = Node::Kind::list;  // axolotl/utils/schemas/config.py: a list of at least one
  sets.members.emplace_back("", std::move(data));
  tree.set("pretraining_dataset", std::move(sets));
  tree.set("learning_rate", plain_node("1e-5"));
  add_length(w, tree);
  tree.set("output_dir", text_node("output"));
  w.file("axolotl.yaml", w.head() + yaml_of(tree));
  write_script(w, torchrun_of(w) + " -m axolotl.cli.train axolotl.yaml");
  w.out.reads = {"axolotl.yaml"};
}

void write_llama_factory(const Writing& w) {
  Node tree = Node::table({});
  tree.set("model_name_or_path", text_node(w.model));
  tree.set("stage", text_node("pt"));
  tree.set("do_train", plain_node("true"));
  tree.set("finetuning_type", text_node(w.s.lora ? "lora" : "full"));
  const Node own = write_rows(llama_factory_format().rows(), w.s), rest = write_rows(training_arguments_format().rows(), w.s);
  for (const Node* rows : {&own, &rest})
    for (const auto& [name, value] : rows->members)
      if (!tree.find(name)) tree.set(name, value);
  for (const char* key :
       {"block_size", "dtype", "torch_dtype", "gradient_checkpointing", "activation_checkpointing", "attn_implementation",
        "use_liger_kernel", "load_in_4bit", "load_in_8bit", "packing", "activation_checkpointing_kwargs", "gradient_checkpointing_kwargs"})
    std::erase_if(tree.members, [&](const auto& member) { return member.first == key; });
  for (const char* type : {"bf16", "fp16"})
    if (half_of(w) == type) tree.set(type, plain_node("true"));
  tree.set("max_grad_norm", plain_node(*w.s.clip_grad_norm ? "1.0" : "0.0"));
  if (w.s.lora) {
    tree.set("lora_rank", number_node(w.s.lora->r));
    tree.set("lora_alpha", plain_node(w.value("lora.alpha")));
    tree.set("lora_dropout", plain_node(w.value("lora.dropout")));
    tree.set("lora_target", text_node(w.is("lora.target_modules", "all-linear") ? "all" : w.value("lora.target_modules")));
  }
  if (is_fsdp(w)) {
    // LLaMA-Factory pins transformers below 5.10, where `fsdp: true` wraps nothing by itself; the words say the same in every release.
    tree.set("fsdp", text_node(w.is("fsdp.units", "none") ? "full_shard" : "full_shard auto_wrap"));
    tree.set("fsdp_config", fsdp_node(w, {}));
  }
  if (is_deepspeed(w)) {
    tree.set("deepspeed", text_node("ds_config.json"));
    std::erase_if(tree.members, [](const auto& member) { return member.first == "optim"; });
    w.file("ds_config.json", json_of(deepspeed_node(w)));
  }
  tree.set("dataset", text_node("c4_demo"));
  tree.set("template", text_node("default"));
  tree.set("output_dir", text_node("output"));
  add_length(w, tree);
  w.file("llama_factory.yaml", w.head() + yaml_of(tree));
  write_script(w, torchrun_of(w) + " -m llamafactory.launcher llama_factory.yaml");
  w.out.reads = {"llama-factory:llama_factory.yaml"};
}

}  // namespace plimsoll::formats
