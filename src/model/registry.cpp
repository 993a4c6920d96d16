#include "model/registry.hpp"

#include <algorithm>
#include <cctype>

#include "model/families/families.hpp"

namespace plimsoll::model {

const std::vector<Family>& families() {
  static const std::vector<Family> table = {
      // Text decoders.
      {"llama", "Llama", "LlamaForCausalLM", build_llama},
      {"internlm3", "InternLM3", "LlamaForCausalLM", build_llama},
      {"iquestcoder", "IQuestCoder", "LlamaForCausalLM", build_llama},
      {"jais2", "Jais2", "Jais2ForCausalLM", build_jais2},
      {"mistral", "Mistral", "MistralForCausalLM", build_mistral},
      {"ministral", "Ministral", "MinistralForCausalLM", build_ministral},
      {"ministral3", "Ministral3", "Ministral3ForCausalLM", build_mistral},
      {"cwm", "Cwm", "CwmForCausalLM", build_cwm},
      {"hunyuan_v1_dense", "HunYuanDenseV1", "HunYuanDenseV1ForCausalLM", build_hunyuan_v1_dense},
      {"nanochat", "NanoChat", "NanoChatForCausalLM", build_nanochat},
      {"apertus", "Apertus", "ApertusForCausalLM", build_apertus},
      {"helium", "Helium", "HeliumForCausalLM", build_helium},
      {"ernie4_5", "Ernie4_5", "Ernie4_5ForCausalLM", build_ernie4_5},
      {"ernie4_5_moe", "Ernie4_5_Moe", "Ernie4_5_MoeForCausalLM", build_ernie4_5_moe},
      {"seed_oss", "SeedOss", "SeedOssForCausalLM", build_seed_oss},
      {"arcee", "Arcee", "ArceeForCausalLM", build_arcee},
      {"smollm3", "SmolLM3", "SmolLM3ForCausalLM", build_smollm3},
      {"llama4_text", "Llama4", "Llama4ForCausalLM", build_llama4_text},
      {"qwen2", "Qwen2", "Qwen2ForCausalLM", build_qwen2},
      {"qwen3", "Qwen3", "Qwen3ForCausalLM", build_qwen3},
      {"qwen2_moe", "Qwen2Moe", "Qwen2MoeForCausalLM", build_qwen2_moe},
      {"qwen3_moe", "Qwen3Moe", "Qwen3MoeForCausalLM", build_qwen3_moe},
      {"mixtral", "Mixtral", "MixtralForCausalLM", build_mixtral},
      {"minimax_m2", "MiniMaxM2", "MiniMaxM2ForCausalLM", build_minimax_m2},
      {"phimoe", "Phimoe", "PhimoeForCausalLM", build_phimoe},
      {"gemma", "Gemma", "GemmaForCausalLM", build_gemma},
      {"gemma2", "Gemma2", "Gemma2ForCausalLM", build_gemma2},
      {"vaultgemma", "VaultGemma", "VaultGemmaForCausalLM", build_vaultgemma},
      {"gemma3_text", "Gemma3", "Gemma3ForCausalLM", build_gemma3_text},
      {"phi", "Phi", "PhiForCausalLM", build_phi},
      {"phi3", "Phi3", "Phi3ForCausalLM", build_phi3},
      {"gpt2", "GPT2", "GPT2LMHeadModel", build_gpt2},
      {"gpt_bigcode", "GPTBigCode", "GPTBigCodeForCausalLM", build_gpt_bigcode},
      {"gpt_neo", "GPTNeo", "GPTNeoForCausalLM", build_gpt_neo},
      {"gptj", "GPTJ", "GPTJForCausalLM", build_gptj},
      {"codegen", "CodeGen", "CodeGenForCausalLM", build_codegen},
      {"gpt_neox", "GPTNeoX", "GPTNeoXForCausalLM", build_gpt_neox},
      {"opt", "OPT", "OPTForCausalLM", build_opt},
      {"bloom", "Bloom", "BloomForCausalLM", build_bloom},
      {"falcon", "Falcon", "FalconForCausalLM", build_falcon},
      {"mpt", "Mpt", "MptForCausalLM", build_mpt},
      {"stablelm", "StableLm", "StableLmForCausalLM", build_stablelm},
      {"starcoder2", "Starcoder2", "Starcoder2ForCausalLM", build_starcoder2},
      {"nemotron", "Nemotron", "NemotronForCausalLM", build_nemotron},
      {"olmo", "Olmo", "OlmoForCausalLM", build_olmo},
      {"olmo2", "Olmo2", "Olmo2ForCausalLM", build_olmo2},
      {"olmo3", "Olmo3", "Olmo3ForCausalLM", build_olmo3},
      {"olmoe", "Olmoe", "OlmoeForCausalLM", build_olmoe},
      {"flex_olmo", "FlexOlmo", "FlexOlmoForCausalLM", build_flex_olmo},
      {"exaone4", "Exaone4", "Exaone4ForCausalLM", build_exaone4},
      {"granite", "Granite", "GraniteForCausalLM", build_granite},
      {"hyperclovax", "HyperCLOVAX", "HyperCLOVAXForCausalLM", build_hyperclovax},
      {"granitemoe", "GraniteMoe", "GraniteMoeForCausalLM", build_granitemoe},
      {"cohere", "Cohere", "CohereForCausalLM", build_cohere},
      {"cohere2", "Cohere2", "Cohere2ForCausalLM", build_cohere2},
      {"deepseek_v2", "DeepseekV2", "DeepseekV2ForCausalLM", build_deepseek_v2},
      {"deepseek_v3", "DeepseekV3", "DeepseekV3ForCausalLM", build_deepseek_v3},
      {"youtu", "Youtu", "YoutuForCausalLM", build_youtu},
      {"dots1", "Dots1", "Dots1ForCausalLM", build_dots1},
      {"gpt_oss", "GptOss", "GptOssForCausalLM", build_gpt_oss},
      {"glm", "Glm", "GlmForCausalLM", build_glm},
      {"glm4", "Glm4", "Glm4ForCausalLM", build_glm4},
      {"glm4_moe", "Glm4Moe", "Glm4MoeForCausalLM", build_glm4_moe},
      {"glm4_moe_lite", "Glm4MoeLite", "Glm4MoeLiteForCausalLM", build_glm4_moe_lite},
      {"solar_open", "SolarOpen", "SolarOpenForCausalLM", build_solar_open},
      // Encoders, sequence to sequence.
      {"bert", "Bert", "BertModel", build_bert},
      {"ernie", "Ernie", "ErnieModel", build_bert},
      {"roberta", "Roberta", "RobertaModel", build_roberta},
      {"data2vec-text", "Data2VecText", "Data2VecTextModel", build_roberta},
      {"xlm-roberta", "XLMRoberta", "XLMRobertaModel", build_roberta},
      {"camembert", "Camembert", "CamembertModel", build_roberta},
      {"electra", "Electra", "ElectraModel", build_electra},
      {"mpnet", "MPNet", "MPNetModel", build_mpnet},
      {"distilbert", "DistilBert", "DistilBertModel", build_distilbert},
      {"albert", "Albert", "AlbertModel", build_albert},
      {"deberta-v2", "DebertaV2", "DebertaV2Model", build_deberta_v2},
      {"modernbert", "ModernBert", "ModernBertModel", build_modernbert},
      {"t5", "T5", "T5ForConditionalGeneration", build_t5},
      {"mt5", "MT5", "MT5ForConditionalGeneration", build_t5},
      {"bart", "Bart", "BartForConditionalGeneration", build_bart},
      {"mbart", "MBart", "MBartForConditionalGeneration", build_bart},
      {"pegasus", "Pegasus", "PegasusForConditionalGeneration", build_bart},
      // Speech, state spaces, images and text.
      {"whisper", "Whisper", "WhisperForConditionalGeneration", build_whisper},
      {"wav2vec2", "Wav2Vec2", "Wav2Vec2Model", build_wav2vec2},
      {"mamba", "Mamba", "MambaForCausalLM", build_mamba},
      {"mamba2", "Mamba2", "Mamba2ForCausalLM", build_mamba2},
      {"nemotron_h", "NemotronH", "NemotronHForCausalLM", build_nemotron_h},
      {"jamba", "Jamba", "JambaForCausalLM", build_jamba},
      {"clip", "CLIP", "CLIPModel", build_clip},
      {"clip_text_model", "CLIPText", "CLIPTextModel", build_clip_text},
      {"siglip", "Siglip", "SiglipModel", build_siglip},
      {"llava", "Llava", "LlavaForConditionalGeneration", build_llava},
      {"gemma3", "Gemma3", "Gemma3ForConditionalGeneration", build_gemma3},
      {"qwen2_vl", "Qwen2VL", "Qwen2VLForConditionalGeneration", build_qwen2_vl},
      {"qwen2_5_vl", "Qwen2_5_VL", "Qwen2_5_VLForConditionalGeneration", build_qwen2_5_vl},
      // The language models of the last two, without a head.
      {"qwen2_vl_text", "Qwen2VLText", "Qwen2VLTextModel", build_qwen2},
      {"qwen2_5_vl_text", "Qwen2_5_VLText", "Qwen2_5_VLTextModel", build_qwen2},
      // Vision, diffusion, convolution.
      {"vit", "ViT", "ViTForImageClassification", build_vit},
      {"deit", "DeiT", "DeiTForImageClassification", build_vit},
      {"dinov2", "Dinov2", "Dinov2ForImageClassification", build_dinov2},
      {"swin", "Swin", "SwinForImageClassification", build_swin},
      {"resnet", "ResNet", "ResNetForImageClassification", build_resnet},
      {"DiT", "DiT", "DiT", build_dit},
      {"DiTTransformer2DModel", "DiTTransformer2DModel", "DiTTransformer2DModel", build_label_dit},
      {"FluxTransformer2DModel", "FluxTransformer2DModel", "FluxTransformer2DModel", build_flux},
      {"PixArtTransformer2DModel", "PixArtTransformer2DModel", "PixArtTransformer2DModel", build_pixart},
      {"SD3Transformer2DModel", "SD3Transformer2DModel", "SD3Transformer2DModel", build_sd3},
      {"AutoencoderKL", "AutoencoderKL", "AutoencoderKL", build_autoencoder_kl},
  };
  return table;
}

const std::vector<RefusedType>& refused_types() {
  static const std::vector<RefusedType> table = {
      {"falcon_mamba", "a state-space layer (selective scan)"},
      {"bamba", "a state-space layer (selective scan)"},
      {"zamba2", "a state-space layer (selective scan)"},
      {"recurrent_gemma", "a gated linear recurrence"},
      {"rwkv", "a linear recurrence"},
      {"hubert", "a speech encoder"},
      {"mllama", "a vision tower beside the language model"},
      {"llama4", "a vision tower beside the language model"},
  };
  return table;
}

const Family* find_family(std::string_view model_type) {
  const auto& table = families();
  const auto found = std::find_if(table.begin(), table.end(), [&](const Family& family) { return family.model_type == model_type; });
  return found == table.end() ? nullptr : &*found;
}

bool is_class_of(std::string_view architecture, const Family& family) {
  if (architecture == family.default_class) return true;  // internlm3 has no class of its own
  // Repositories spell a prefix in more than one way: "MPTForCausalLM" and "MptForCausalLM" are one class.
  const auto same_letter = [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); };
  const std::string_view prefix = family.class_prefix;
  if (architecture.size() < prefix.size() || !std::equal(prefix.begin(), prefix.end(), architecture.begin(), same_letter)) return false;
  const std::string_view head = architecture.substr(prefix.size());
  const auto starts = [&](std::string_view word) { return head.substr(0, word.size()) == word; };
  return head.empty() || starts("For") || starts("Model") || starts("LMHeadModel") || starts("Text") || starts("EncoderModel");
}

std::optional<std::string> class_meant_by(const std::string& architecture, const Family& family) {
  if (is_class_of(architecture, family)) return architecture;
  if (architecture == "T5WithLMHeadModel") return "T5ForConditionalGeneration";  // its name before transformers 4
  const std::size_t head = architecture.rfind("For");
  if (head == std::string::npos || head == 0 || find_family_of_class(architecture)) return std::nullopt;
  return std::string(family.class_prefix) + architecture.substr(head);
}

const Family* find_family_of_class(std::string_view architecture) {
  const auto& table = families();
  const auto found = std::find_if(table.begin(), table.end(), [&](const Family& family) { return is_class_of(architecture, family); });
  return found == table.end() ? nullptr : &*found;
}

}  // namespace plimsoll::model
