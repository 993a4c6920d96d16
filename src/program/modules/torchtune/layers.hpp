/// The layers that all of torchtune's models are made of (torchtune/modules of 0.3 to 0.6).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"
#include "program/module.hpp"
#include "program/modules/adapters/fake_quantized.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// How a recipe builds and runs its model, beyond what the model says.
struct TuneRun {
  DType type = DType::bf16;
  /// Where queries that share a key get copies of it: as the projection leaves it (0.3), behind its rotation (0.4), by heads (from 0.5).
  enum class KeyCopies : std::uint8_t { before_rotation, behind_rotation, by_head } key_copies = KeyCopies::by_head;
  bool composed_norm = false;      ///< RMSNorm's own arithmetic, before 0.5; else F.rms_norm of a widened input
  bool own_unembed = true;         ///< from 0.5 norm and head are a method of their own: the caller holds the last hidden state
  bool packed = false;             ///< samples are packed: their positions and a mask come with the batch
  bool flex = false;               ///< flex_attention over block masks; else a mask of bools
  bool checkpointed = false;       ///< every layer in a CheckpointWrapper
  bool compiled = false;           ///< torch.compile of every layer
  bool keeps_rotary_rows = false;  ///< compiled layers keep the rotary rows that they gathered: Inductor's choice in 2024
  std::int64_t positions = 0;      ///< rows of the rotary table: the builder's max_seq_len
  int output_chunks = 0;           ///< parts of the sequence whose logits are tensors of their own; 0: all at once, in fp32
  std::optional<Lora> lora;
  bool nf4 = false;  ///< the layers' projections are NF4 (QLoRA)
  /// Linears whose rows are whole groups of so many elements have torchao's fake quantizers; beside adapters those that are adapted. 0: none.
  std::int64_t qat_group = 0;
  bool adapters_off = false;  ///< disable_adapter: adapted linears are their frozen ones; changes between passes
};

/// A block mask of flex_attention: which blocks of keys each block of queries sees.
struct BlockMask {
  std::vector<Tensor> tables;  ///< counts and indices, by queries and by keys, of partly and wholly seen blocks
  Tensor documents;            ///< [batch, length]: the sample that each position belongs to
};

/// One micro-batch on the device.
struct TuneBatch {
  Tensor tokens, labels;  ///< [batch, length]
  Tensor positions;       ///< [batch, length] of packed samples; undefined otherwise
  Tensor mask;            ///< [batch, length, length] bools, of packed samples without flex_attention
  std::shared_ptr<BlockMask> block_mask;
};

/// What layers are built with.
struct TuneContext {
  const TuneRun& run;
  Tape& tape;
};

Module& add_tune_module(Module& parent, const std::string& name, Tape& tape);

/// nn.Linear, LoRALinear, DoRALinear, FrozenNF4Linear, or torchao's FakeQuantizedLinear and QATLoRALinear, as the run says.
class TuneLinear {
 public:
  struct Shape {
    std::int64_t in = 0, out = 0;
    bool bias = false;
  };
  /// `target`: the name that a list of adapted modules has for it ("q_proj", "w1").
  TuneLinear(Module& parent, const std::string& name, const std::string& target, const Shape& shape, const TuneContext& context);
  Tensor operator()(const Tensor& x) const;

  bool adapted() const { return adapted_; }
  bool quantized() const { return quantized_; }
  Module& module() const { return *module_; }
  const Shape& shape() const { return shape_; }

 private:
  struct FakeQuantizers {
    FakeQuantizer input, weight;
    std::int64_t group = 0;
  };

  Tensor base(const Tensor& x) const;
  Tensor low_rank(const Tensor& x, const Tensor& out) const;
  Tensor decomposed(const Tensor& x, const Tensor& out) const;

  Module* module_;
  Tape* tape_;
  const TuneRun* run_;
  Shape shape_;
  bool adapted_ = false, quantized_ = false, decomposed_ = false;
  double dropout_ = 0;
  std::unique_ptr<FakeQuantizers> quantizers_;  ///< none: the weight as it is
};

/// RMSNorm and GemmaRMSNorm.
class TuneNorm {
 public:
  TuneNorm(Module& parent, const std::string& name, std::int64_t width, bool unit_offset, const TuneContext& context);
  Tensor operator()(const Tensor& x) const;
  const Tensor& weight() const { return module_->tensor("scale"); }

 private:
  Module* module_;
  Tape* tape_;
  bool unit_offset_, composed_;
};

/// Rotary positions: a family's own arithmetic over one table that all layers share.
class TuneRope {
 public:
  enum class Kind : std::uint8_t {
    neighbours,      ///< RotaryPositionalEmbeddings, Llama3ScaledRoPE: pairs of neighbours in fp32
    halves,          ///< Qwen2RotaryPositionalEmbeddings: halves, tables in the type of what is turned
    halves_in_fp32,  ///< Phi3RotaryPositionalEmbeddings: halves, times tables in fp32
  };
  TuneRope(Kind kind, std::int64_t rows, std::int64_t dim, Tape& tape) : kind_(kind), rows_(rows), dim_(dim), tape_(tape) {}
  /// rope_init: the table and what computing it takes.
  void materialize();
  /// x [batch, length, heads, dim]; positions may be undefined.
  Tensor operator()(const Tensor& x, const Tensor& positions) const;

 private:
  Tensor rows_of(const Tensor& x, const Tensor& positions) const;
  Tensor turn_neighbours(const Tensor& x, const Tensor& rows) const;
  Tensor turn_halves(const Tensor& x, const Tensor& rows) const;

  Kind kind_;
  std::int64_t rows_, dim_;
  Tape& tape_;
  Tensor frequencies_, table_;
};

}  // namespace plimsoll::program
