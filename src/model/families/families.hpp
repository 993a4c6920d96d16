// The family functions: each builds a Model from a config of its model types. Their table is registry.cpp.
#pragma once

#include "model/config.hpp"
#include "plimsoll/model.hpp"

namespace plimsoll::model {

// Text decoders.
Model build_llama(const Config& config);
Model build_jais2(const Config& config);
Model build_mistral(const Config& config);
Model build_ministral(const Config& config);
Model build_cwm(const Config& config);
Model build_helium(const Config& config);
Model build_apertus(const Config& config);
Model build_nanochat(const Config& config);
Model build_hunyuan_v1_dense(const Config& config);
Model build_ernie4_5(const Config& config);
Model build_ernie4_5_moe(const Config& config);
Model build_seed_oss(const Config& config);
Model build_arcee(const Config& config);
Model build_smollm3(const Config& config);
Model build_llama4_text(const Config& config);
Model build_qwen2(const Config& config);
Model build_qwen3(const Config& config);
Model build_qwen2_moe(const Config& config);
Model build_qwen3_moe(const Config& config);
Model build_mixtral(const Config& config);
Model build_minimax_m2(const Config& config);
Model build_phimoe(const Config& config);
Model build_gemma(const Config& config);
Model build_gemma2(const Config& config);
Model build_vaultgemma(const Config& config);
Model build_gemma3_text(const Config& config);
Model build_phi(const Config& config);
Model build_phi3(const Config& config);
Model build_gpt2(const Config& config);
Model build_gpt_bigcode(const Config& config);
Model build_gpt_neo(const Config& config);
Model build_gptj(const Config& config);
Model build_codegen(const Config& config);
Model build_gpt_neox(const Config& config);
Model build_opt(const Config& config);
Model build_bloom(const Config& config);
Model build_falcon(const Config& config);
Model build_mpt(const Config& config);
Model build_stablelm(const Config& config);
Model build_starcoder2(const Config& config);
Model build_nemotron(const Config& config);
Model build_nemotron_h(const Config& config);
Model build_olmo(const Config& config);
Model build_olmo2(const Config& config);
Model build_olmo3(const Config& config);
Model build_olmoe(const Config& config);
Model build_flex_olmo(const Config& config);
Model build_exaone4(const Config& config);
Model build_granite(const Config& config);
Model build_hyperclovax(const Config& config);
Model build_granitemoe(const Config& config);
Model build_cohere(const Config& config);
Model build_cohere2(const Config& config);
Model build_deepseek_v2(const Config& config);
Model build_deepseek_v3(const Config& config);
Model build_glm4_moe_lite(const Config& config);
Model build_youtu(const Config& config);
Model build_dots1(const Config& config);
Model build_gpt_oss(const Config& config);
Model build_glm(const Config& config);
Model build_glm4(const Config& config);
Model build_glm4_moe(const Config& config);
Model build_solar_open(const Config& config);

// Encoders.
Model build_bert(const Config& config);
Model build_roberta(const Config& config);
Model build_electra(const Config& config);
Model build_mpnet(const Config& config);
Model build_distilbert(const Config& config);
Model build_albert(const Config& config);
Model build_deberta_v2(const Config& config);
Model build_modernbert(const Config& config);

// Sequence to sequence.
Model build_t5(const Config& config);
Model build_bart(const Config& config);

// Speech.
Model build_whisper(const Config& config);
Model build_wav2vec2(const Config& config);

// State spaces.
Model build_mamba(const Config& config);
Model build_mamba2(const Config& config);
Model build_jamba(const Config& config);

// Images and text.
Model build_clip(const Config& config);
Model build_clip_text(const Config& config);
Model build_siglip(const Config& config);
Model build_llava(const Config& config);
Model build_gemma3(const Config& config);
Model build_qwen2_vl(const Config& config);
Model build_qwen2_5_vl(const Config& config);

// Vision.
Model build_vit(const Config& config);
Model build_dinov2(const Config& config);
Model build_swin(const Config& config);
Model build_resnet(const Config& config);

// Diffusion.
Model build_dit(const Config& config);
Model build_label_dit(const Config& config);
Model build_pixart(const Config& config);
Model build_sd3(const Config& config);
Model build_flux(const Config& config);
Model build_autoencoder_kl(const Config& config);

}  // namespace plimsoll::model
