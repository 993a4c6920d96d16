/// torch.nn's layers, and those that all Hugging Face models share.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "program/module.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// nn.Linear; with a base_layer, lora_A and lora_B below it, PEFT's lora.Linear.
class Linear {
 public:
  Linear() = default;
  Linear(Module& module, Tape& tape) : module_(&module), tape_(&tape) {}
  Tensor operator()(const Tensor& x) const;
  Module& module() const { return *module_; }

 private:
  Module* module_ = nullptr;
  Tape* tape_ = nullptr;
};

class Embedding {
 public:
  Embedding(Module& module, Tape& tape) : module_(&module), tape_(&tape) {}
  Tensor operator()(const Tensor& indices) const;

 private:
  Module* module_;
  Tape* tape_;
};

/// A norm of any family: nn.LayerNorm, the eager RMSNorm of llama (fp32 inside), or gemma's (weight + 1, in fp32).
class Norm {
 public:
  /// When the eager RMSNorm goes back to the input's type: llama before the product with the weight, olmo2 after it, helium after it with
  /// the weight in fp32 as well; llama4 before it, whose fp32 parts live in a function of their own.
  enum class Rounding : std::uint8_t { before_weight, after_weight, after_wide_weight, within };
  Norm(Module& module, Tape& tape, const NormSpec& spec, Rounding rounding = Rounding::before_weight);
  Tensor operator()(const Tensor& x) const;

 private:
  Module* module_;
  Tape* tape_;
  NormSpec spec_;
  Rounding rounding_;
};

/// _norm(x.float()).type_as(x) of Llama4TextRMSNorm, Llama4TextL2Norm and NanoChatRMSNorm.
Tensor normed_in_fp32(const Tensor& x);

/// gpt-oss' gate: neighbouring columns of [rows, 2 · width] are gate and up, both clamped; gate · sigmoid(1.702 · gate), and up.
struct ClampedGate {
  Tensor gated, up;
};
ClampedGate clamped_gate(const Tensor& rows);

/// An activation function by its name in a config ("silu", "gelu_new", "gelu_pytorch_tanh", "relu" …).
Tensor activate(std::string_view function, const Tensor& x);

/// Cosines and sines of rotary positions, [1, length, rotary_dim] each.
struct RotaryTables {
  Tensor cosine, sine;
};
/// A rotary module of transformers: fp32 products of positions and inverse frequencies (a buffer of the module), cast to `type`.
RotaryTables rotary_tables(Module& rotary, Tape& tape, const Tensor& position_ids, DType type, const char* frequencies_name = "inv_freq");
/// apply_rotary_pos_emb of one of q and k, [batch, heads, length, dim]; `neighbours`: of adjacent elements instead of halves.
Tensor rotate(const Tensor& x, const Tensor& cosine, const Tensor& sine, bool neighbours = false);
/// How a family rotates queries and keys: whole heads (llama); a part of each head, joined with the rest at once (phi3, even when there is
/// no rest) or after both were rotated (gpt_neox, phi); whole heads in fp32, neighbours in pairs (cohere); the same,
/// widened behind the turn, with tables interleaved in every layer (ernie4_5);
/// neighbours of a part, with tables interleaved, joined after both were rotated (glm); of whole heads (helium).
enum class Rotation : std::uint8_t {
  whole,
  join_each,
  join_last,
  neighbours_in_fp32,
  neighbours_then_fp32,
  neighbours_join_last,
  neighbours
};
/// apply_rotary_pos_emb of both: the unrotated tensors are dropped after both results exist. `parts` gets the rotated parts and the rests
/// of join_last, for a family whose attention rotates in its own frame and keeps them until it returns (phi, stablelm).
void rotate_pair(Tensor& query, Tensor& key, const RotaryTables& tables, Rotation rotation, std::vector<Tensor>* parts = nullptr);
/// torch.cat((-x2, x1), -1) of the halves of the last dimension.
Tensor rotate_half(const Tensor& x);

/// [batch, kv heads, length, dim] → every kv head `times` times: a copy when times > 1.
Tensor repeat_kv(const Tensor& x, std::int64_t times);

}  // namespace plimsoll::program
