// Lines of diffusers' scripts for DreamBooth. Each value is what parse_args and main of the script do with it (0.42).
#include "wild.hpp"

namespace plimsoll {
namespace {

class DiffusersLines : public testing::TestWithParam<Wild> {};

TEST_P(DiffusersLines, AreReadTrulyOrRefused) { expect_read_truly(GetParam()); }

Wild line(const std::string& what, const std::string& script, const std::string& model, const std::string& flags, Keys keys, const std::string& refusal = {}) {
  return {"diffusers, " + what, "t.sh",
          "accelerate launch --num_processes 8 train_dreambooth_" + script + ".py --pretrained_model_name_or_path " + model + " --instance_data_dir d --instance_prompt p " +
              flags + "\n",
          "", std::move(keys), refusal};
}

const std::string kFlux = "black-forest-labs/FLUX.1-dev", kSd3 = "stabilityai/stable-diffusion-3-medium-diffusers";

const Wild kLines[] = {
    line("FLUX with adapters", "lora_flux", kFlux, "--mixed_precision bf16 --resolution 1024 --train_batch_size 1 --gradient_checkpointing --rank 16",
         {{"framework", "diffusers"}, {"seq_len", "4096"}, {"text_tokens", "512"}, {"micro_batch", "1"}, {"recompute", "full"}, {"lora.r", "16"},
          {"precision", "amp-bf16"}, {"param_dtype", "bf16"},
          {"optimizer", "adamw"}, {"clip_grad_norm", "1.0"}}),
    line("its defaults", "lora_flux", kFlux, "", {{"seq_len", "1024"}, {"micro_batch", "4"}, {"lora.r", "4"}, {"precision", "fp32"}, {"recompute", "none"}}),
    line("latents that are kept", "lora_flux", kFlux, "--cache_latents --mixed_precision bf16", {{"vae", "cached"}}),
    line("captions", "lora_sd3", kSd3, "--dataset_name a --caption_column text --mixed_precision fp16",
         {{"text_encoders", "device"}, {"text_tokens", "154"}, {"param_dtype", "fp16"}}),
    line("one prompt", "lora_sd3", kSd3, "--max_sequence_length 256 --mixed_precision bf16", {{"text_tokens", "333"}}),
    line("all weights", "sd3", kSd3, "--mixed_precision bf16 --use_8bit_adam", {{"param_dtype", "fp32"}, {"precision", "amp-bf16"}, {"optimizer", "adamw-8bit"}}),
    line("images of the class", "flux", kFlux, "--with_prior_preservation --class_data_dir c --class_prompt q --train_batch_size 2", {{"micro_batch", "4"}}),
    line("kept latents of a wide autoencoder", "lora_sd3", kSd3, "--cache_latents --mixed_precision bf16", {}, "stops there"),
    line("a flag of another script", "flux", kFlux, "--rank 16", {}, "has no argument --rank"),
    line("a misspelt flag", "lora_flux", kFlux, "--gradient_checkpoint", {}, "did you mean 'gradient_checkpointing'?"),
    line("encoders that are trained", "lora_flux", kFlux, "--train_text_encoder", {}, "encoders of prompts that are trained"),
    line("another optimizer", "lora_flux", kFlux, "--optimizer prodigy", {}, "Prodigy"),
    line("an odd image", "lora_flux", kFlux, "--resolution 1000", {}, "a multiple of 16"),
};

INSTANTIATE_TEST_SUITE_P(Wild, DiffusersLines, testing::ValuesIn(kLines));

}  // namespace
}  // namespace plimsoll
