/// The description of a network: what a config.json says, resolved, as blocks of operators with their parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plimsoll/dtype.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll {

/// How tensor parallelism cuts a parameter of shape [rows, columns]; of an expert tensor [experts, rows, columns] likewise, behind its first
/// dimension.
enum class Cut : std::uint8_t {
  replicated,   ///< whole on every tensor-parallel rank: norms, biases of row-parallel linears, routers
  rows,         ///< dim 0 over the ranks: column-parallel linear and its bias
  columns,      ///< dim 1 over the ranks: row-parallel linear
  vocabulary,   ///< dim 0, after padding the vocabulary
};

/// One parameter tensor, in the framework's layout (a linear's weight is [out, in]), in registration order.
struct ParameterTensor {
  std::string name;                  ///< within the block: "self_attn.q_proj.weight"
  std::vector<std::int64_t> shape;
  Cut cut = Cut::replicated;
  std::int64_t kv_rows = 0;          ///< of the cut dimension: keys and values, cut over at most kv_heads ranks, which then hold copies
  std::int64_t kv_heads = 0;
  bool expert = false;               ///< dim 0 is the expert (or one tensor of one expert): expert parallelism cuts it
  bool trainable = true;
  std::optional<DType> type = {};    ///< its class makes it in this type, whatever that of the others
  std::string tied_to;               ///< full name of the tensor that holds the storage; counted once, there

  std::int64_t elements() const;
};

/// A tensor that is no parameter but lives on the device (rotary frequencies, running statistics, causal masks).
struct BufferTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  DType type = DType::fp32;
  bool persistent = false;           ///< part of the state dict
};

enum class OperatorKind : std::uint8_t {
  embedding, position_embedding, linear, layer_norm, rms_norm, rope, attention, activation, multiply, add, scale, dropout, router, experts,
  convolution, batch_norm, pool, patch_embedding, reshape, softmax, cross_entropy, modulation,
};
std::string_view name_of(OperatorKind kind);

/// One operator: a vertex of the layer graph. Dimensions that its kind does not have are 0.
struct Operator {
  OperatorKind kind;
  std::string name;                           ///< within the block: "self_attn.q_proj"
  std::vector<ParameterTensor> parameters;
  std::vector<BufferTensor> buffers;
  std::int64_t in_features = 0, out_features = 0;           ///< linear, norms (out), embedding (rows, width)
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0, v_head_dim = 0;   ///< attention, rope
  std::optional<std::int64_t> window;                       ///< attention: sliding window
  bool causal = false;
  bool side = false;                          ///< linear: runs over the other stream's positions; attention: its keys and values come from there
  bool joint = false;                         ///< attention: queries and keys are both streams' positions together (FLUX)
  std::int64_t experts = 0, top_k = 0;                      ///< experts, router
  std::int64_t kernel = 0, stride = 1, padding = 0, groups = 1;   ///< convolution, pool (square)
  std::string function;                                     ///< activation: "silu", "gelu_new", "relu2" …
  double flops_per_token = 0;                               ///< forward, without the attention product (it depends on the length)
  std::vector<std::int64_t> output_per_token;               ///< shape of the output behind [batch, sequence]
};

constexpr int kBlockInput = -1;   ///< an edge from the block's input
constexpr int kSideInput = -2;    ///< an edge from the block's first side input (the encoder's output for cross attention); -3: from the second …

/// Tensor flowing from operator `from` to operator `to` of the same block (indices, or kBlockInput, kSideInput …). The block's output is that of
/// its last operator.
struct Edge {
  int from, to;
};

// ---- what a lowering needs to know of a block beyond its operators -------------------------------------------------

enum class Positions : std::uint8_t { none, learned, rope, alibi, relative_bias, sinusoidal };
enum class NormPlacement : std::uint8_t {
  pre,            ///< x + f(norm(x))
  post,           ///< norm(x + f(x)): bert
  sandwich,       ///< x + norm(f(norm(x))): gemma2, glm4
  post_branch,    ///< x + norm(f(x)): olmo2, exaone4
  parallel,       ///< x + attn(norm(x)) + mlp(norm(x)), one norm: falcon-7b, phi, gptj, cohere
  parallel_two,   ///< the same with a norm each: gpt_neox, falcon-40b
};

struct NormSpec {
  enum class Kind : std::uint8_t { none, rms_norm, layer_norm } kind = Kind::rms_norm;
  bool weight = true, bias = false;
  bool unit_offset = false;          ///< gemma, nemotron: multiplies by 1 + weight, in fp32
  bool decomposed = false;           ///< cohere: LayerNorm written out in element-wise operators, in fp32
  std::int64_t width = 0;
};

/// Multi-head latent attention (DeepSeek).
struct MlaSpec {
  std::int64_t q_lora_rank = 0;      ///< 0: queries are projected directly
  std::int64_t kv_lora_rank = 0, qk_nope_head_dim = 0, qk_rope_head_dim = 0, v_head_dim = 0;
};

struct AttentionSpec {
  std::int64_t hidden = 0, heads = 0, kv_heads = 0, head_dim = 0;
  bool causal = true, cross = false;
  bool fused_qkv = false;            ///< one projection gives q, k and v (gpt2 c_attn, phi3 qkv_proj, neox query_key_value)
  bool qkv_bias = false, output_bias = false;
  enum class QkNorm : std::uint8_t { none, per_head, full_width, each_head } qk_norm = QkNorm::none;   ///< qwen3 | olmo2 | cohere, stablelm: a weight per head
  Positions positions = Positions::none;
  std::int64_t rotary_dim = 0;       ///< ≤ head_dim
  std::optional<std::int64_t> sliding_window;
  bool chunked = false;              ///< llama4: the window is a chunk, within which tokens attend
  bool tuned_scale = false;          ///< llama4: queries times a scale of their positions
  double softcap = 0;                ///< gemma2: tanh on the scores
  bool sinks = false;                ///< gpt_oss
  double clip = 0;                   ///< olmo: projections clamped to ± this
  double dropout = 0;
  std::optional<MlaSpec> mla;
};

struct MlpSpec {
  std::int64_t hidden = 0, intermediate = 0;
  bool gated = false;
  bool fused_gate_up = false;        ///< phi3, glm4: one projection for gate and up
  bool bias = false;
  std::string activation;            ///< as in the config: "silu", "gelu_new", "gelu_pytorch_tanh", "relu" …
  double dropout = 0;                ///< on the inner activations: t5, bart
};

struct MoeSpec {
  std::int64_t hidden = 0, experts = 0, top_k = 0, expert_intermediate = 0;
  std::int64_t latent = 0;                ///< LatentMoE: experts work in this width, behind a projection down and before one up; 0: in hidden
  std::int64_t shared_intermediate = 0;   ///< 0: no shared expert
  bool shared_gate = false;               ///< qwen2_moe
  bool router_bias = false, expert_bias = false;   ///< gpt_oss
  bool correction_bias = false;           ///< deepseek_v3, glm4_moe: a buffer of one value per expert
  bool wide_router = false;              ///< ernie4_5_moe: the router is made in fp32; its correction is a frozen parameter
  bool shared_bias = false;              ///< ernie4_5_moe: linears of the shared expert have biases
  bool normalized_top_k = false;          ///< the chosen experts' weights are divided by their sum
  std::int64_t groups = 0, chosen_groups = 0;   ///< deepseek_v3: experts are chosen within the best groups of experts; 0: among all
  bool transposed = false;                ///< gpt_oss: expert tensors are [experts, in, out]
  bool gated = true;
  std::string activation;

  /// What each expert reads and writes.
  std::int64_t width() const { return latent > 0 ? latent : hidden; }
};

/// A Mamba-2 mixer (Dao & Gu 2024): a state of head_dim × states per head, whose decay, input and output follow the sequence. One projection
/// gives gate, channels, both projections on the states (shared by the heads of a group) and steps.
struct MambaSpec {
  std::int64_t hidden = 0, heads = 0, head_dim = 0, groups = 0, states = 0, kernel = 0;   ///< kernel: places of the convolution

  std::int64_t inner() const { return heads * head_dim; }
  std::int64_t convolved() const { return inner() + 2 * groups * states; }
  std::int64_t projected() const { return inner() + convolved() + heads; }
};

/// Operators that repeat as one unit: an embedding, a run of equal decoder layers, a head.
struct Block {
  enum class Role : std::uint8_t { embedding, rotary, decoder, encoder, final_norm, pooler, head, other } role = Role::other;
  std::string name;                  ///< as the framework names it: "model.layers", "model.embed_tokens", "lm_head"
  std::int64_t first = 0;            ///< index of its first repeat within the stack of that name
  std::int64_t repeat = 1;
  bool numbered = false;             ///< its parameters are called name.index.parameter: a stack of layers
  std::int64_t tokens = 0;           ///< positions per sample where the architecture fixes them: an image's patches, 1 for a pooler; 0: the batch's
  std::optional<int> input;          ///< index of the block whose output it reads; without: the block before it
  std::vector<int> side_inputs;      ///< indices of the blocks whose outputs feed kSideInput, kSideInput − 1 …
  /// Whose positions the block works on: the batch's sequence; the second stream's (a decoder's, a diffusion model's text); both together.
  enum class Stream : std::uint8_t { main, second, joint } stream = Stream::main;
  std::vector<Operator> operators;   ///< in order of execution
  std::vector<Edge> edges;
  std::vector<int> registration;     ///< operators in the order in which the module registers their parameters; empty: as they are executed
  NormPlacement placement = NormPlacement::pre;
  NormSpec norm;
  std::optional<AttentionSpec> attention, cross_attention;
  std::optional<MlpSpec> mlp;
  std::optional<MoeSpec> moe;
  std::optional<MambaSpec> mamba;
  double hidden_dropout = 0;         ///< on the branches' outputs

  std::int64_t parameters() const;   ///< of one repeat, without tied tensors
  std::vector<const ParameterTensor*> parameter_list() const;   ///< of one repeat, in registration order
};

/// One of the stack's layers, not what stands before or after them.
inline bool is_layer(const Block& block) { return block.role == Block::Role::decoder || block.role == Block::Role::encoder; }

/// What makes and runs the modules of a network that is told by its own code; the rooms that run modules know what it is.
class ModelSource {
 public:
  virtual ~ModelSource() = default;
};

struct Model;

/// What a model was read from, to be read again as another class.
struct ModelConfig {
  std::string text, where;
  bool of_checkpoint = false;  ///< a file beside trained weights; else a class that is built
};

/// A model that stands frozen beside the one that is trained, because the training loop asks it: "text_encoder_2", "vae".
struct Neighbour {
  std::string part;                      ///< as the pipeline calls it
  std::shared_ptr<const Model> model;
};

/// A network, resolved from its config: dimensions, blocks, parameter tensors in registration order.
struct Model {
  std::string name;
  std::string model_type;            ///< Hugging Face's: "llama", "qwen3_moe", … or "graph"
  std::string architecture;          ///< the class: "LlamaForCausalLM"
  enum class Task : std::uint8_t { causal_lm, masked_lm, seq2seq, classification, backbone, image_classification, diffusion } task = Task::causal_lm;
  std::int64_t hidden_size = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, intermediate_size = 0, vocab_size = 0;
  std::int64_t max_positions = 0;
  std::int64_t image_size = 0, patch_size = 0, channels = 0, labels = 0;   ///< vision and classification
  std::int64_t decoder_layers = 0;                                        ///< seq2seq
  bool tied_embeddings = false;
  double logit_softcap = 0;
  double embedding_dropout = 0;
  bool activations_modelled = true;  ///< false: parameters are exact, but memory and time of a step are refused by name
  std::vector<Block> blocks;         ///< in order of execution
  std::vector<int> registration;     ///< blocks in registration order; empty: as they are executed
  /// Multi-token prediction (DeepSeek-AI 2024, section 2.2): blocks whose layers, one of each in order, a module that predicts one token more
  /// has; transformers' classes build no such module, so that none counts among the parameters. Empty: a layer like the last.
  std::vector<int> prediction_blocks;
  std::vector<std::string> unread_keys;   ///< keys of the config that nothing read
  std::vector<std::string> assumed;       ///< defaults taken, in words
  std::shared_ptr<const Model> teacher;   ///< whose answers this one learns from (PostTraining::teacher); none: it has none
  std::vector<Neighbour> neighbours;      ///< of a diffusion model: its pipeline's encoders of prompts, in order, and its autoencoder
  std::shared_ptr<const ModelConfig> config;   ///< none: a graph file, or code
  std::shared_ptr<const ModelSource> source;   ///< of a network that is told by its own code (code.hpp); the blocks are what that code built

  std::int64_t parameters() const;          ///< trainable and frozen, tied tensors once
  std::int64_t active_parameters() const;   ///< routed experts counted top_k of experts
  bool has_experts() const;                 ///< whether some layer routes tokens to experts
  std::vector<const Block*> registered_blocks() const;   ///< in registration order: the order of DDP's buckets and of state dicts
};

/// "model.layers.3.self_attn.q_proj.weight": the name of a block's parameter in repeat `index` (counted from 0 within the block).
std::string full_name(const Block& block, std::int64_t index, const ParameterTensor& parameter);

/// Reads a model by shipped name ("llama-3.1-8b"), by the path of a config.json, of a folder that holds one (or the model_index.json of one
/// of diffusers' pipelines), or of a graph file.
/// Throws Error: unknown name (nearest one given), unreadable file, unknown architecture, missing or absurd key.
/// `architecture` overrides the config's class ("LlamaModel": without a head).
Model load_model(const std::string& name_or_path, const std::string& architecture = {});

/// Reads a model from the text of a config.json. `where` names the text in errors. `architecture` overrides the config's class.
Model parse_model(const std::string& json, const std::string& where, const std::string& name, const std::string& architecture = {});

/// What one of transformers' Auto classes puts behind a body: AutoModelForSequenceClassification, …TokenClassification, …QuestionAnswering,
/// …MaskedLM, …ImageClassification.
enum class AutoHead : std::uint8_t { sequences, tokens, answers, words, images };

/// The model that such a class makes of the same config with num_labels=`labels` (0: the config's, else 2; answers and words have none); a
/// model that has this head with so many is answered as it is. Throws Error (refused): a type of which transformers has no such class.
Model with_auto_head(const Model& model, AutoHead head, std::int64_t labels = 0);

/// A config.json that is shipped.
struct ShippedConfig {
  std::string name;  ///< "gemma-4-31b"
  std::string text;
  std::string where;  ///< names it in messages: "models/code/gemma-4-31b/config.json"
};

/// That of a shipped model, or of a checkpoint whose model type has no family here and is played by transformers' own code (code.hpp), by
/// the shipped name or the one on Hugging Face's hub; nullopt: none is shipped of that name.
std::optional<ShippedConfig> shipped_config(const std::string& name);

/// Names of the shipped models that have a family, sorted.
std::vector<std::string> shipped_models();

}  // namespace plimsoll
