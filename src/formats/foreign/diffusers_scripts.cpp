// parse_args and main of examples/dreambooth/train_dreambooth_flux.py, train_dreambooth_lora_flux.py and the same of sd3 (0.30 to 0.42).
#include "formats/foreign/diffusers_scripts.hpp"

#include <algorithm>
#include <string_view>

#include "formats/foreign/format.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/suggestion.hpp"

namespace plimsoll::formats {
namespace {

constexpr const char* kRelease = "diffusers 0.42";

/// All four scripts'; whose they are alone, `scripts_of` says.
const Rows& rows() {
  static const Rows table = {
      {"pretrained_model_name_or_path", kCode, "", nullptr, "model: a pipeline's folder, or a name on the hub"},
      {"resolution", kCode, "", "512", "seq_len: 16 pixels of a side are a token's"},
      {"train_batch_size", "micro_batch", "", "4", "twice as many images with with_prior_preservation"},
      {"gradient_accumulation_steps", "grad_accum", "", "1"},
      {"gradient_checkpointing", "recompute", "true=full,false=none", "false"},
      {"max_sequence_length", kCode, "", nullptr, "text_tokens: T5's, and 77 of CLIP for sd3; 512 of flux, 77 of sd3"},
      {"mixed_precision", kCode, "", nullptr, "precision; accelerate's where it is absent"},
      {"optimizer", kCode, "", "AdamW", "adamw or prodigy"},
      {"use_8bit_adam", kCode, "", "false", "optimizer adamw-8bit"},
      {"max_grad_norm", "clip_grad_norm", "", "1.0"},
      {"allow_tf32", "tf32", "true=true,false=-"},
      {"rank", "lora.r", "", "4"},
      {"lora_alpha", "lora.alpha", "", "4"},
      {"lora_dropout", "lora.dropout", "", "0.0"},
      {"lora_layers", kCode, "", nullptr, "lora.target_modules"},
      {"lora_blocks", kRefused, "null", nullptr, "adapters in some blocks alone"},
      {"cache_latents", kCode, "", "false", "vae cached"},
      {"caption_column", kCode, "", nullptr, "text_encoders device: a prompt for each image"},
      {"with_prior_preservation", kCode, "", "false", "images of the class beside each of the instance"},
      {"train_text_encoder", kRefused, "false", nullptr, "encoders of prompts that are trained"},
      {"enable_npu_flash_attention", kRefused, "false", nullptr, "another vendor's device"},
      {"precondition_outputs", kRefused, "1,true,True", nullptr, "a loss without preconditioned outputs"},
      {"validation_prompt", kCode, "", nullptr, "images between epochs; with it the autoencoder stays"},
      {"local_rank", kNothing},
      {"guidance_scale", kNothing},
      {"image_interpolation_mode", kNothing},
      {"upcast_before_saving", kNothing, "", nullptr, "when the run is over"},
      {"adam_beta1", kNothing},
      {"adam_beta2", kNothing},
      {"adam_epsilon", kNothing},
      {"adam_weight_decay", kNothing},
      {"adam_weight_decay_text_encoder", kNothing},
      {"prodigy_beta3", kNothing},
      {"prodigy_decouple", kNothing},
      {"prodigy_safeguard_warmup", kNothing},
      {"prodigy_use_bias_correction", kNothing},
      {"learning_rate", kNothing},
      {"text_encoder_lr", kNothing},
      {"scale_lr", kNothing},
      {"lr_num_cycles", kNothing},
      {"lr_power", kNothing},
      {"lr_scheduler", kNothing},
      {"lr_warmup_steps", kNothing},
      {"logit_mean", kNothing},
      {"logit_std", kNothing},
      {"mode_scale", kNothing},
      {"weighting_scheme", kNothing},
      {"prior_loss_weight", kNothing},
      {"prior_generation_precision", kNothing, "", nullptr, "images of the class are made before training"},
      {"sample_batch_size", kNothing},
      {"num_class_images", kNothing},
      {"class_data_dir", kNothing},
      {"class_prompt", kNothing},
      {"instance_data_dir", kNothing},
      {"instance_prompt", kNothing},
      {"dataset_name", kNothing},
      {"dataset_config_name", kNothing},
      {"image_column", kNothing},
      {"cache_dir", kNothing},
      {"center_crop", kNothing},
      {"random_flip", kNothing},
      {"repeats", kNothing},
      {"revision", kNothing},
      {"variant", kNothing},
      {"checkpointing_steps", kNothing},
      {"checkpoints_total_limit", kNothing},
      {"resume_from_checkpoint", kNothing},
      {"dataloader_num_workers", kNothing},
      {"hub_model_id", kNothing},
      {"hub_token", kNothing},
      {"push_to_hub", kNothing},
      {"logging_dir", kNothing},
      {"report_to", kNothing},
      {"output_dir", kNothing},
      {"max_train_steps", kNothing},
      {"num_train_epochs", kNothing},
      {"num_validation_images", kNothing},
      {"validation_epochs", kNothing},
      {"skip_final_inference", kNothing},
      {"seed", kNothing},
  };
  return table;
}

bool has_lora(DiffusersScript script) { return script == DiffusersScript::lora_flux || script == DiffusersScript::lora_sd3; }
bool is_flux(DiffusersScript script) { return script == DiffusersScript::lora_flux || script == DiffusersScript::flux; }

/// Whether a script's parser has a key of the table.
bool has_key(DiffusersScript script, std::string_view key) {
  constexpr std::string_view kLora[] = {"rank", "lora_dropout", "lora_layers", "cache_latents", "upcast_before_saving"};
  if (std::find(std::begin(kLora), std::end(kLora), key) != std::end(kLora)) return has_lora(script);
  if (key == "lora_alpha") return script == DiffusersScript::lora_flux;
  if (key == "lora_blocks") return script == DiffusersScript::lora_sd3;
  if (key == "image_interpolation_mode") return script == DiffusersScript::flux;
  if (key == "precondition_outputs") return !is_flux(script);
  if (key == "guidance_scale" || key == "enable_npu_flash_attention") return is_flux(script);
  return true;
}

const char* name_of_script(DiffusersScript script) {
  switch (script) {
    case DiffusersScript::lora_flux:
      return "train_dreambooth_lora_flux.py";
    case DiffusersScript::flux:
      return "train_dreambooth_flux.py";
    case DiffusersScript::lora_sd3:
      return "train_dreambooth_lora_sd3.py";
    default:
      return "train_dreambooth_sd3.py";
  }
}

/// argparse ends the script at a flag that it does not have.
void check_flags(const Node& flags, DiffusersScript script) {
  std::vector<std::string> known;
  for (const Row& row : rows())
    if (has_key(script, row.foreign)) known.emplace_back(row.foreign);
  for (const auto& [name, value] : flags.members) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    fail(std::string(name_of_script(script)) + " has no argument --" + name.substr(0, 60), value.where, suggest(name, known));
  }
}

std::int64_t whole(const Node& value, std::int64_t least) {
  const std::string word = value.word();
  const bool digits = !word.empty() && word.size() < 10 && word.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || std::stoll(word) < least) fail("expected a whole number of at least " + std::to_string(least) + ", found '" + word.substr(0, 40) + "'", value.where);
  return std::stoll(word);
}

void read_images(Reading& reading, const Node& flags) {
  constexpr std::int64_t kPixels = 16;  // of a side: 8 are a place of the latents, of which 2 x 2 are a token
  const Node* const resolution = stated(flags, "resolution");
  const std::int64_t side = resolution ? whole(*resolution, kPixels) : 512;
  if (side % kPixels != 0) fail("images of " + std::to_string(side) + " pixels a side are no whole number of tokens", resolution->where, "a multiple of 16");
  const std::string tokens = std::to_string(side / kPixels * (side / kPixels));
  if (resolution)
    reading.say("seq_len", tokens, "resolution", resolution->where);
  else
    reading.assume("seq_len", tokens, "resolution: 512", kRelease);
}

void read_prompts(Reading& reading, const Node& flags, DiffusersScript script) {
  constexpr std::int64_t kClip = 77;
  const Node* const length = stated(flags, "max_sequence_length");
  const std::int64_t t5 = length ? whole(*length, 1) : is_flux(script) ? 512 : 77;
  if (t5 > 512) fail("max_sequence_length " + std::to_string(t5) + " is more than the script takes", length->where, "at most 512");
  const std::string tokens = std::to_string(t5 + (is_flux(script) ? 0 : kClip));
  if (length)
    reading.say("text_tokens", tokens, "max_sequence_length", length->where);
  else
    reading.assume("text_tokens", tokens, "max_sequence_length", kRelease);
  if (const Node* captions = stated(flags, "caption_column")) reading.say("text_encoders", "device", "caption_column", captions->where);
}

void read_autoencoder(Reading& reading, const Node& flags, DiffusersScript script) {
  const Node* const caches = stated(flags, "cache_latents");
  if (!is_on(caches)) return;
  if (const Node* prompt = stated(flags, "validation_prompt"))
    refuse("not modelled: an autoencoder that stays for validation beside cached latents", prompt->where, "without validation_prompt");
  if (script == DiffusersScript::lora_sd3 && !reading.is("precision", "fp32"))
    fail("train_dreambooth_lora_sd3.py hands 16-bit images to an autoencoder in fp32 where it caches latents, and stops there", caches->where,
         "leave cache_latents out, or mixed_precision no");
  reading.say("vae", "cached", "cache_latents", caches->where);
}

/// Accelerator(mixed_precision=args.mixed_precision), and the type that frozen weights are cast to.
void read_precision(Reading& reading, const Node& flags, DiffusersScript script) {
  const Node* const mixed = stated(flags, "mixed_precision");
  const std::string word = mixed ? mixed->word() : reading.value("mixed_precision", "no");  // Accelerate's own
  const char* const ours = word == "bf16" ? "amp-bf16" : word == "fp16" ? "amp-fp16" : word == "no" ? "fp32" : nullptr;
  if (!ours) fail("expected no, fp16 or bf16, found '" + word.substr(0, 40) + "'", mixed ? mixed->where : flags.where);
  reading.forget("mixed_precision");
  reading.say("precision", ours, "mixed_precision", mixed ? mixed->where : flags.where);
  const bool casts = has_lora(script) && word != "no";
  reading.derive("param_dtype", casts ? word : "fp32", casts ? "the script casts frozen weights" : "from_pretrained loads fp32");
}

void read_optimizer(Reading& reading, const Node& flags) {
  const Node* const named = stated(flags, "optimizer");
  std::string word = named ? named->word() : "adamw";
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (word == "prodigy") refuse("not modelled: Prodigy's optimizer", named->where, "optimizer AdamW");
  const Node* const bits = stated(flags, "use_8bit_adam");
  const Node& said = is_on(bits) ? *bits : named ? *named : flags;
  reading.say("optimizer", is_on(bits) ? "adamw-8bit" : "adamw", is_on(bits) ? "use_8bit_adam" : "optimizer", said.where);  // others become AdamW
}

void read_adapters(Reading& reading, const Node& flags, DiffusersScript script) {
  constexpr const char* kFlux =
      "attn.to_k,attn.to_q,attn.to_v,attn.to_out.0,attn.add_k_proj,attn.add_q_proj,attn.add_v_proj,attn.to_add_out,ff.net.0.proj,ff.net.2,"
      "ff_context.net.0.proj,ff_context.net.2";
  constexpr const char* kSd3 =
      "attn.add_k_proj,attn.add_q_proj,attn.add_v_proj,attn.to_add_out,attn.to_k,attn.to_out.0,attn.to_q,attn.to_v";
  if (const Node* layers = stated(flags, "lora_layers"))
    reading.say("lora.target_modules", layers->word(), "lora_layers", layers->where);
  else
    reading.assume("lora.target_modules", is_flux(script) ? kFlux : kSd3, "lora_layers", kRelease);
}

/// Images of the class stand beside each of the instance in one batch.
void double_batch(Reading& reading, const Node& flags) {
  const Node* const prior = stated(flags, "with_prior_preservation");
  if (!is_on(prior)) return;
  const std::int64_t images = reading.count("micro_batch");
  reading.forget("micro_batch");
  reading.say("micro_batch", std::to_string(2 * images), "with_prior_preservation", prior->where);
}

}  // namespace

DiffusersScript diffusers_script_of(const std::string& program) {
  for (const auto script : {DiffusersScript::lora_flux, DiffusersScript::flux, DiffusersScript::lora_sd3, DiffusersScript::sd3})
    if (program.ends_with(name_of_script(script))) return script;
  return DiffusersScript::none;
}

void read_diffusers_script(Reading& reading, const Node& flags, DiffusersScript script) {
  reading.note_format("diffusers");
  check_flags(flags, script);
  const Node* const model = stated(flags, "pretrained_model_name_or_path");
  if (!model) fail(std::string(name_of_script(script)) + " needs --pretrained_model_name_or_path", flags.where);
  say_model(reading, *model, "pretrained_model_name_or_path");
  if (reading.is("framework", "deepspeed") || reading.is("framework", "megatron-lm"))
    refuse("not modelled: diffusers' scripts under DeepSpeed or Megatron", flags.where, "a plain accelerate launch");
  reading.forget("framework");
  reading.say("framework", "diffusers", name_of_script(script), flags.where);
  read_rows(reading, rows(), flags, {}, Unknown::refused);
  Rows own;  // defaults of what this script has
  for (const Row& row : rows())
    if (has_key(script, row.foreign)) own.push_back(row);
  take_defaults(reading, own, kRelease);
  if (script == DiffusersScript::lora_sd3) reading.derive("lora.alpha", reading.value("lora.r"), "the script's lora_alpha is its rank");
  read_images(reading, flags);
  read_prompts(reading, flags, script);
  read_precision(reading, flags, script);
  read_autoencoder(reading, flags, script);
  read_optimizer(reading, flags);
  if (has_lora(script)) read_adapters(reading, flags, script);
  double_batch(reading, flags);
  reading.derive("recompute_reentrant", "false", "diffusers checkpoints without re-entrance");
  reading.derive("ddp.find_unused_parameters", "true", "the script's DistributedDataParallelKwargs");
  reading.derive("ddp.no_sync", "true", "accelerator.accumulate");
}

/// The table for docs/formats, and files of such keys.
Format diffusers_format() {
  const auto recognises = [](const Node&) { return 0; };  // no file of theirs: they are told by a command's line
  const auto read = [](Reading&, const Node& tree) {
    fail("the keys of diffusers' scripts stand in a command's line", tree.where, "accelerate launch train_dreambooth_lora_flux.py --…");
  };
  return {"diffusers", "diffusers' scripts for DreamBooth: FLUX and Stable Diffusion 3", kRelease, rows, recognises, read};
}

}  // namespace plimsoll::formats
