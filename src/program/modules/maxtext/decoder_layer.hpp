/// A decoder layer of MaxText (llama2.LlamaDecoderLayer of December 2024) as XLA runs it on a GPU: products by cuBLASLt, attention by
/// cuDNN, what lies between them in fusions. Layers run in a scan, so that what backward needs of each lies in stacks over all layers.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/maxtext.hpp"
#include "program/modules/maxtext/linear.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

struct MaxtextSizes {
  std::int64_t layers = 0, batch = 0, length = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0;
  std::int64_t rows() const { return batch * length; }
  std::int64_t query_width() const { return heads * head_dim; }
  std::int64_t key_width() const { return kv_heads * head_dim; }
};

/// RMSNorm: the mean of squares of each row by a reduction; the rest is a part of the fusion that makes what reads it.
Tensor rms_statistic(Tape& tape, const Tensor& x);
/// The gradient of its input, with `residual` added where it is defined, behind that of its weight.
Tensor rms_norm_backward(Tape& tape, const Tensor& gradient, const Tensor& x, const Tensor& statistic, const Tensor& residual);

class MaxtextLayer {
 public:
  MaxtextLayer(Tape& tape, const MaxtextSizes& sizes, const framework::MaxtextKept& kept, bool eight_bits);

  const std::vector<MaxtextLinear>& linears() const { return linears_; }
  /// Makes the stacks: once, before the first layer.
  void open_stacks();
  void close_stacks() { stacks_ = {}; }
  /// [rows, hidden] → [rows, hidden].
  Tensor forward(const Tensor& x);
  /// The gradient of the layer's input from that of its output; what was not kept is computed first.
  Tensor backward(const Tensor& gradient);

 private:
  enum Linear : std::uint8_t { query, key, value, out, gate, up, down };

  /// [layers, rows, ·]; undefined: not kept.
  struct Stacks {
    Tensor inputs, query, key, value, context, statistics, out, gate, up;
  };
  struct Activations {
    Tensor input, statistic;
    Tensor query, key, value, context, statistics, out;
    Tensor sum, sum_statistic;  ///< behind the attention's residual connection
    Tensor gate, up;
  };

  const MaxtextLinear& at(Linear linear) const { return linears_[linear]; }
  Tensor row_tensor(std::int64_t width) const { return tape_.empty({sizes_.rows(), width}, DType::bf16); }
  Tensor stack(std::int64_t width, DType type = DType::bf16) const;
  void keep(const Tensor& stack, const Tensor& result) const;
  Tensor kept_slice(const Tensor& stack, std::int64_t width) const;

  void project(Activations& a) const;
  void attend(Activations& a) const;
  /// The gradients of queries, keys and values before the rotary positions.
  Activations attend_backward() const;
  void add_attention(Activations& a) const;
  void multiply_in(Activations& a) const;
  Activations again() const;
  Tensor mlp_backward(const Activations& a, const Tensor& gradient) const;
  Tensor attention_backward(const Activations& a, const Tensor& gradient) const;
  /// The operands of linears that read what the fusion of `reads` makes; in 16 bits one tensor for all.
  std::vector<Tensor> operands(const std::vector<Linear>& readers, const std::vector<Tensor>& reads, bool of_backward) const;
  void products(const std::vector<Linear>& which, const std::vector<Tensor>& operands, const std::vector<Tensor>& results) const;
  Tensor gradients(const std::vector<Linear>& which, const std::vector<Tensor>& operands, const std::vector<Tensor>& of_results) const;

  Tape& tape_;
  MaxtextSizes sizes_;
  framework::MaxtextKept kept_;
  std::vector<MaxtextLinear> linears_;
  Stacks stacks_;
};

}  // namespace plimsoll::program
