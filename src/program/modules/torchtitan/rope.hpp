/// TorchTitan's rotary embeddings (torchtitan/models/common/rope.py): a table per layer, rows of it by position.
#pragma once

#include <cstdint>
#include <utility>

#include "program/module.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

struct RopeShape {
  bool complex = true;    ///< ComplexRoPE; else CosSinRoPE
  bool low = false;       ///< cosines and sines are cast to the type of queries and keys, which are turned in it; else all is fp32
  bool positions = true;  ///< rows are gathered by position ids; else the table's first rows are viewed
  std::int64_t dim = 0, length = 0;
};

/// The buffer of the module "rope".
inline constexpr const char* kRopeTable = "rope_cache";

class Rope {
 public:
  Rope() = default;
  Rope(Module& module, const RopeShape& shape, Tape& tape) : module_(&module), tape_(&tape), shape_(shape) {}
  /// Query and key [batch, length, heads, dim], turned.
  std::pair<Tensor, Tensor> operator()(const Tensor& query, const Tensor& key, const Tensor& positions) const;
  /// One of them alone.
  Tensor turn(const Tensor& x, const Tensor& positions) const;

 private:
  Tensor rows(const Tensor& query, const Tensor& positions) const;
  Module* module_ = nullptr;
  Tape* tape_ = nullptr;
  RopeShape shape_;
};

/// Adds the module "rope" with its table.
Rope add_rope(Module& parent, const RopeShape& shape, Tape& tape);
/// Adds the table that all layers share to the root, a buffer of its own.
void add_shared_table(Module& root, const RopeShape& shape);

}  // namespace plimsoll::program
