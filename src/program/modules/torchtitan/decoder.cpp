#include "program/modules/torchtitan/decoder.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "plimsoll/error.hpp"
#include "program/attention_library.hpp"
#include "program/checkpoint.hpp"
#include "program/inductor/module_graphs.hpp"
#include "program/modules/float8_linear.hpp"
#include "program/modules/torchtitan/attention.hpp"
#include "program/modules/torchtitan/compiled.hpp"
#include "program/modules/torchtitan/layers.hpp"
#include "program/modules/torchtitan/moe.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

/// SelectiveAC's policy: attention is kept, but cuDNN's where the release does not list it, and of the products every second is computed again.
class EverySecondProduct final : public SelectivePolicy {
 public:
  explicit EverySecondProduct(bool keeps_cudnn_attention) : keeps_cudnn_attention_(keeps_cudnn_attention) {}

  bool keeps(const char* name) override {
    if (std::string_view(name) == "cudnn_attention") return keeps_cudnn_attention_;
    if (std::string_view(name) != "mm") return true;
    return ++products_ % 2 == 1;
  }

 private:
  bool keeps_cudnn_attention_;
  int products_ = 0;
};

std::vector<const Block*> blocks_of_layers(const Model& model) {
  std::vector<const Block*> blocks;
  for (const Block& block : model.blocks) {
    if (block.role != Block::Role::decoder) continue;
    for (std::int64_t i = 0; i < block.repeat; ++i) blocks.push_back(&block);
  }
  return blocks;
}

void check_family(const Model& model) {
  static const std::array<const char*, 6> kKnown = {"llama", "qwen3", "qwen3_moe", "deepseek_v2", "deepseek_v3", "gpt_oss"};
  if (std::find(kKnown.begin(), kKnown.end(), model.model_type) == kKnown.end())
    refuse("TorchTitan's modules of model type '" + model.model_type + "' are not modelled");
}

void check_compiled(const Model& model, const TitanRun& run) {
  if (!run.early_blocks && run.tensor_parallel.on() && run.tensor_parallel.asynchronous)
    refuse("TorchTitan 0.3's compiled blocks with asynchronous tensor parallelism are not modelled", "compile", "false");
  for (const Block& block : model.blocks) {
    if (block.moe || (block.attention && (block.attention->mla || block.attention->sinks)))
      refuse("TorchTitan's compiled blocks are modelled for those of Llama and Qwen3 without experts", "compile", "false");
  }
}

}  // namespace

/// Llama3TransformerBlock and Qwen3TransformerBlock; DeepSeekV3TransformerBlock and GptOssTransformerBlock, which register their norms in
/// front of the feed-forward.
class TitanLayer {
 public:
  TitanLayer(Module& module, const Block& block, const TitanRun& run, Module& root, Tape& tape)
      : module_(module),
        block_(block),
        kind_(&block),
        tape_(tape),
        float8_(run.float8_rowwise),
        attention_(make_titan_attention(module, *block.attention, {run, root, tape})) {
    const bool norms_first = block.attention->mla || block.attention->sinks;
    if (norms_first) add_norms(run);
    feed_forward_ = make_feed_forward(module, block, {run, root, tape});
    if (block.moe) moe_ = make_titan_mixture(module, *block.moe, {run, root, tape});
    if (!norms_first) add_norms(run);
  }

  Tensor operator()(const Tensor& input, const Tensor& positions) const {
    Tensor x = input;
    Tensor ids = positions;
    ModuleCall call(module_, tape_, {&x, &ids});
    return call.done(forward(x, ids));
  }

  /// The layer under torch.compile, as `run` has it; `checkpointed` as a whole.
  Tensor compiled(const Tensor& input, const Tensor& positions, const TitanRun& run, bool checkpointed, inductor::ModuleGraphs& graphs) const;

  /// The layer under torch.compile, as releases before 0.3 wrote it.
  Tensor compiled_early(const Tensor& input, const TitanRun& run, bool four_bits) const {
    Tensor x = input;
    ModuleCall call(module_, tape_, {&x});
    return call.done(run_compiled(tape_,
                                  {.module = &module_,
                                   .attention = *block_.attention,
                                   .intermediate = block_.mlp->intermediate,
                                   .tensor_parallel = run.tensor_parallel,
                                   .pieces = run.pieces,
                                   .attention_library = run.cudnn_attention ? AttentionLibrary::cudnn : torch_flash(tape_.device),
                                   .context_ranks = run.context_ranks,
                                   .recomputed = run.checkpointing == TitanRun::Checkpointing::full,
                                   .attends_again = run.checkpointing == TitanRun::Checkpointing::operators && run.cudnn_attention &&
                                                    !run.keeps_cudnn_attention,
                                   .scaling = four_bits ? Scaling::nvfp4 : run.product_scaling,
                                   .four_bits = four_bits},
                                  x));
  }

  Tensor checkpointed(const Tensor& input, const Tensor& positions, const CheckpointOptions& options) const {
    Tensor x = input;
    Tensor ids = positions;
    ModuleCall call(module_, tape_, {&x, &ids});
    const auto region = [this](const std::vector<Tensor>& arguments) {
      tape_.host(HostWork::module);  // what CheckpointWrapper wraps
      return forward(arguments[0], arguments[1]);
    };
    return call.done(checkpoint(tape_, region, {x, ids}, options));
  }

 private:
  Tensor forward(const Tensor& x, const Tensor& positions) const {
    const Float8Scope float8(tape_, float8_);
    Tensor branch = attended(x, positions);
    const Tensor hidden = add(x, branch);
    branch.reset();
    branch = fed_forward(hidden);
    return add(hidden, branch);
  }
  Tensor attended(const Tensor& x, const Tensor& positions) const {
    const Tensor normed = (*attention_norm_)(x);
    return (*attention_)(normed, positions);
  }
  Tensor fed_forward(const Tensor& x) const {
    const Tensor normed = (*mlp_norm_)(x);
    return moe_ ? (*moe_)(normed) : (*feed_forward_)(normed);
  }
  void add_norms(const TitanRun& run) {
    const std::int64_t hidden = block_.attention->hidden;
    attention_norm_.emplace(module_, "attention_norm", hidden, run.fused_norm, tape_);
    mlp_norm_.emplace(module_, "ffn_norm", hidden, run.fused_norm, tape_);
  }
  static std::unique_ptr<TitanFeedForward> make_feed_forward(Module& module, const Block& block, const TitanContext& context) {
    if (block.moe) return nullptr;
    return std::make_unique<TitanFeedForward>(module, "feed_forward", block.attention->hidden, block.mlp->intermediate, context);
  }

  Module& module_;
  Block block_;
  const void* kind_;
  Tape& tape_;
  bool float8_;
  std::unique_ptr<TitanAttention> attention_;
  std::unique_ptr<TitanFeedForward> feed_forward_;
  std::unique_ptr<TitanMixture> moe_;
  std::optional<TitanNorm> attention_norm_, mlp_norm_;
};

Tensor TitanLayer::compiled(const Tensor& input, const Tensor& positions, const TitanRun& compiled_run, bool checkpointed,
                            inductor::ModuleGraphs& graphs) const {
  Tensor x = input, ids = positions;
  ModuleCall call(module_, tape_, {&x, &ids});
  TitanRun run = compiled_run;
  run.compiled = false;
  const bool selective = run.checkpointing == TitanRun::Checkpointing::operators;
  Module root;
  const auto checkpointing = [&] {
    inductor::Checkpointing all{.on = checkpointed || selective};
    if (selective) all.policy = std::make_unique<EverySecondProduct>(run.keeps_cudnn_attention);
    return all;
  };
  const auto equal_layer = [&](Module& twin, Tape& tape) -> inductor::CompiledForward::Eager {
    twin.children.clear();  // a layer adds its modules itself
    const auto layer = std::make_shared<TitanLayer>(twin, block_, run, root, tape);
    for (const std::shared_ptr<Parameter>& parameter : twin.all_parameters()) parameter->type = x.dtype();
    materialize(twin, tape);
    return [layer](const std::vector<Tensor>& arguments) { return std::vector<Tensor>{(*layer)(arguments[0], arguments[1])}; };
  };
  return call.done(graphs.run({"compiled_block", kind_, checkpointed, checkpointing, equal_layer}, module_, {x, ids}).front());
}

TitanDecoder::TitanDecoder(const Model& model, const TitanRun& run, const TitanStage& stage, Tape& tape)
    : tape_(tape), run_(run), block_graphs_(std::make_unique<inductor::ModuleGraphs>()) {
  check_family(model);
  if (run.compiled) check_compiled(model, run);
  const TensorParallel& tp = run.tensor_parallel;
  if (run.compiled && tp.on() && tp.asynchronous) run_.pieces = tape.add_stream("tensor parallel pieces");
  attention_sizes_ = {model.heads * model.head_dim, model.kv_heads * model.head_dim};
  const std::vector<const Block*> blocks = blocks_of_layers(model);
  if (run.shared_table) add_shared_table(root_, shape_of_rope(run, *blocks.front()->attention));
  const Dims table{tp.share(model.vocab_size), model.hidden_size};
  if (stage.embedding) add_titan_parameter(add_titan_module(root_, "tok_embeddings", tape), "weight", table);
  Module& layers = add_titan_module(root_, "layers", tape);
  for (std::int64_t index : stage.layers) {
    Module& module = add_titan_module(layers, std::to_string(index), tape);
    layer_modules_.push_back(&module);
    layers_.push_back(std::make_unique<TitanLayer>(module, *blocks[static_cast<std::size_t>(index)], run_, root_, tape));
  }
  let_go_of_pieces();
  if (!stage.head) return;
  add_titan_parameter(add_titan_module(root_, "norm", tape), "weight", {model.hidden_size});
  Module& head = add_titan_module(root_, "lm_head", tape);
  if (run.one_table) {
    head.parameters.push_back(embedding()->parameters.front());
  } else {
    add_titan_parameter(head, "weight", table);  // a tied table is gathered twice: only the shards are the same tensor
  }
}

TitanDecoder::~TitanDecoder() = default;

/// The first layer's input is waited for behind its unit's own hook, which gathers the weights.
void TitanDecoder::let_go_of_pieces() {
  if (layer_modules_.empty()) return;
  layer_modules_.front()->pre_forward.push_back([this](Module&, std::vector<Tensor*>&) { embedding_pieces_.reset(); });
}

std::vector<Module*> TitanDecoder::mixtures() {
  std::vector<Module*> found;
  for (Module* layer : layer_modules_)
    if (Module* mixture = layer->find_child("moe")) found.push_back(mixture);
  return found;
}

namespace {

/// Embedding.forward over a vocabulary cut by rows: ids of other ranks give zeros, the partial sums are reduced.
Tensor embed_part(const TensorParallel& group, const Tensor& table, const Tensor& ids, Tensor& pieces) {
  Tape& tape = ids.tape();
  tape.operator_name = "own_rows";
  Tensor masked;
  {
    Tensor own, local;
    {
      const Tensor above = elementwise(tape, {&ids}, DType::boolean), below = elementwise(tape, {&ids}, DType::boolean);
      own = elementwise(tape, {&above, &below}, DType::boolean);
    }
    {
      const Tensor shifted = elementwise(tape, {&ids}, DType::int64);
      local = elementwise(tape, {&shifted}, DType::int64);
    }
    const Tensor rows = embedding(table, local);
    const Tensor mask = to(unsqueeze(own, -1), rows.dtype());
    masked = multiply(rows, mask);
  }
  return group.sequence ? scatter_sequence(group, masked, &pieces) : reduce_partial(group, masked);
}

}  // namespace

Tensor TitanDecoder::operator()(const Tensor& input, const Tensor& positions) {
  Tensor x = input;
  Tensor ids = positions;
  ModuleCall call(root_, tape_, {&x, &ids});
  Tensor hidden = embedding() ? embed(x) : x;
  if (layers_.empty()) embedding_pieces_.reset();
  for (std::size_t i = 0; i < layers_.size(); ++i) hidden = run_layer(i, hidden, ids);
  if (Module* final_norm = norm()) {
    Tensor normed = hidden;
    ModuleCall norm_call(*final_norm, tape_, {&normed});
    normed = apply_rms_norm(run_.fused_norm, normed, final_norm->tensor("weight"));
    const TensorParallel& tp = run_.tensor_parallel;
    if (tp.on()) normed = tp.sequence ? gather_sequence(tp, normed) : replicate_input(tp, normed);
    hidden = norm_call.done(normed);
  }
  if (head() && !run_.skip_head) hidden = apply_head(hidden);
  return call.done(hidden);
}

Tensor TitanDecoder::apply_head(const Tensor& hidden) { return Linear(*head(), tape_)(hidden); }

Tensor TitanDecoder::embed(const Tensor& tokens) {
  Tensor ids = tokens;
  Module& module = *embedding();
  ModuleCall call(module, tape_, {&ids});
  const Tensor& table = module.tensor("weight");
  if (!run_.tensor_parallel.on()) return call.done(program::embedding(table, ids));
  return call.done(embed_part(run_.tensor_parallel, table, ids, embedding_pieces_));
}

Tensor TitanDecoder::run_layer(std::size_t index, const Tensor& hidden, const Tensor& positions) {
  const TitanLayer& layer = *layers_[index];
  const bool whole = run_.checkpointing == TitanRun::Checkpointing::full && (index + 1) % static_cast<std::size_t>(run_.every) == 0;
  if (run_.compiled && run_.early_blocks)
    return layer.compiled_early(hidden, run_, static_cast<std::int64_t>(index) < run_.four_bit_layers);
  if (run_.compiled) return layer.compiled(hidden, positions, run_, whole, *block_graphs_);
  if (run_.checkpointing == TitanRun::Checkpointing::operators) {
    const auto policy = [keeps_cudnn = run_.keeps_cudnn_attention] { return std::make_unique<EverySecondProduct>(keeps_cudnn); };
    return layer.checkpointed(hidden, positions, {.early_stop = run_.early_stop, .policy = policy});
  }
  return whole ? layer.checkpointed(hidden, positions, {.early_stop = run_.early_stop, .policy = {}}) : layer(hidden, positions);
}

}  // namespace plimsoll::program
