/// What causal language models of transformers share: positions, masks, attention interfaces, checkpointed layers, the head and its loss.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "program/modules/bare.hpp"
#include "program/modules/layers.hpp"
#include "program/modules/network.hpp"

namespace plimsoll::program {

/// torch.arange(length) + past_seen_tokens, unsqueezed: [1, length].
Tensor position_ids(Tape& tape, std::int64_t length);

/// masking_utils._is_packed_sequence of position ids that a mask is made with: whether positions start anew is read on the host, which
/// waits.
void find_packed_sequences(Tape& tape);

/// masking_utils.create_causal_mask: nothing for SDPA where its is_causal flag does, nor for flash attention, else [batch, 1, length,
/// length].
Tensor causal_mask(Tape& tape, const RunOptions& options, const Tensor& embeddings, std::optional<std::int64_t> window);
/// The same behind `find_packed_sequences` for a model that makes its mask of `positions`: a frame of its own where those are compiled.
Tensor model_mask(Tape& tape, const RunOptions& options, const Tensor& embeddings, const Tensor& positions,
                  std::optional<std::int64_t> window);

/// masking_utils.create_chunked_causal_mask: tokens attend within chunks of so many; nothing for SDPA while the sequence is shorter.
Tensor chunked_causal_mask(Tape& tape, const RunOptions& options, const Tensor& embeddings, std::int64_t chunk);

/// create_causal_mask(allow_is_causal_skip=False): for SDPA a mask of bools, for eager attention an additive one.
Tensor materialized_causal_mask(Tape& tape, const RunOptions& options, const Tensor& embeddings);

/// create_bidirectional_mask without padding: none.
Tensor bidirectional_mask(Tape& tape, const RunOptions& options, const Tensor& embeddings);

/// create_bidirectional_sliding_window_mask of keys at most `window` away: none while the sequence is shorter.
Tensor bidirectional_window_mask(Tape& tape, const RunOptions& options, const Tensor& embeddings, std::int64_t window);

/// The slopes of ALiBi, fp32: one power per head, in two parts where the heads are no power of two.
Tensor alibi_slopes(Tape& tape, std::int64_t heads);

struct AttentionCall {
  RunOptions::Attention kind = RunOptions::Attention::sdpa;
  bool causal = true;
  double dropout = 0;
  bool softcap = false;
  std::int64_t window = 0;            ///< flash: keys that a query sees at most; 0: all. The others read it off the mask
  const Tensor* positions = nullptr;  ///< flash: the position ids that the layer was given
  std::int64_t packed_length = 0;     ///< flash: RunOptions'
  HfRelease release = {};
  Tensor* weights = nullptr;    ///< eager: gets the probabilities, which the caller's tuple keeps until its layer returns
  bool softmax_in_fp32 = true;  ///< eager: softmax(…, dtype=torch.float32).to(query.dtype), as llama; bert: in the scores' type
};
/// The call of a causal layer that hands its attention the position ids; `weights` may be null.
AttentionCall causal_call(const RunOptions& options, const AttentionSpec& spec, const Tensor& positions, Tensor* weights);
/// The attention interface of the model's `attn_implementation` on [batch, heads, length, dim]; answers [batch, length, heads, dim].
Tensor attend(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, const AttentionCall& call);

/// GradientCheckpointingLayer: hooks of `module` around the region, the region checkpointed as the options say. `keywords` are what
/// `forward` holds beside the hidden states: a wrapper's hooks may replace them (FSDP casts a layer's floating inputs).
Tensor run_layer(Module& module, Tape& tape, const RunOptions& options, const Tensor& hidden,
                 const std::function<Tensor(const Tensor&)>& forward, const std::vector<Tensor*>& keywords = {});

/// ForCausalLMLoss, or what a class had before it: logits in fp32, labels one further, mean cross entropy. A frame of its own where those
/// are compiled. `hidden` is what forward holds where looking for the loss warns, which breaks its graph.
Tensor model_loss(const RunOptions& options, const Tensor& hidden, const Tensor& logits, const Tensor& labels,
                  const HfRelease::CausalLoss& code);
/// The function itself.
Tensor causal_lm_loss(const Tensor& logits, const Tensor& labels, const HfRelease::CausalLoss& code);

/// apply_lce of axolotl's cut_cross_entropy (transformers/utils.py): the head's own weight is read, not its module called. Throws Error
/// (refused): a head that is adapted or gathered by hooks.
Tensor cut_causal_lm_loss(const Tensor& hidden, Module& head, const Tensor& labels, bool softcap);

/// Whether forward ends at its head or before: for a trainer with a loss of its own.
inline bool answers_no_loss(const RunOptions& options) {
  return options.loss == RunOptions::Loss::logits || options.loss == RunOptions::Loss::token_scores ||
         options.loss == RunOptions::Loss::sequence_scores;
}
/// hidden_states[:, slice_indices, :]: the positions whose logits forward answers (logits_to_keep).
Tensor predicting(const RunOptions& options, const Tensor& hidden);
/// forward of a model with TRL's fused head (trl/trainer/utils.py, add_fused_lm_head): log-probabilities [batch, length - 1] of the labels,
/// 0 where one does not count. The metrics are held.
Tensor token_scores(const RunOptions& options, const Tensor& hidden, Module& head, const Tensor& labels);

/// What stands behind a decoder's last norm: the projection on the vocabulary, or a head of classes (modeling_layers.py:
/// GenericForSequenceClassification, GenericForTokenClassification, GenericForQuestionAnswering, and the classes of before them).
class DecoderHead {
 public:
  DecoderHead(const Model& model, Module& root, Tape& tape);
  Tensor operator()(const Tensor& hidden) const { return linear_(hidden); }
  Module& module() const { return linear_.module(); }
  bool classifies() const { return kind_ != Kind::words; }
  /// forward of a head of classes with its loss. `call` is the model's; a trainer with a loss of its own is answered the scores of sequences.
  Tensor classify(const RunOptions& options, ModuleCall& call, const Tensor& hidden, const Batch& batch) const;

 private:
  enum class Kind : std::uint8_t { words, sequences, tokens, answers };

  static Kind kind_of(const Model& model);
  Tensor classify_tokens(const RunOptions& options, ModuleCall& call, const Tensor& hidden, const Tensor& labels) const;
  Tensor find_answers(const RunOptions& options, ModuleCall& call, const Tensor& hidden, const Batch& batch) const;

  Kind kind_;
  Linear linear_;
  std::optional<Dropout> dropout_;
};

/// Puts tensors into the output object, where somebody holds it.
void hold(const RunOptions& options, std::initializer_list<Tensor> outputs);

}  // namespace plimsoll::program
