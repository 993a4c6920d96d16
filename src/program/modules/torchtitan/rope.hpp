/// TorchTitan's rotary embeddings (torchtitan/models/common/rope.py): a table per layer, rows of it by position.
#pragma once

#include <cstdint>
#include <utility>

#include "program/module.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

struct RopeShape {
  bool complex = true;    ///< ComplexRoPE; else CosSinRoPE
  bool positions = true;  ///< rows are gathered by position ids; else the table's first rows are viewed
  std::int64_t dim = 0, length = 0;
  const char* table = "cache";  ///< name of the table among its module's buffers
};

class Rope {
 public:
  Rope() = default;
  Rope(Module& module, const RopeShape& shape, Tape& tape) : module_(&module), tape_(&tape), shape_(shape) {}
  /// Query and key [batch, length, heads, dim], turned.
  std::pair<Tensor, Tensor> operator()(const Tensor& query, const Tensor& key, const Tensor& positions) const;

 private:
  Tensor rows(const Tensor& query, const Tensor& positions) const;
  Module* module_ = nullptr;
  Tape* tape_ = nullptr;
  RopeShape shape_;
};

/// Adds the module "rope" with its table.
Rope add_rope(Module& parent, const RopeShape& shape, Tape& tape);
/// A rotary embedding over a table of `owner` that is shared.
Rope shared_rope(Module& owner, const char* table, const RopeShape& shape, Tape& tape);

}  // namespace plimsoll::program
