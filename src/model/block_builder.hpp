// Puts a block together: operators in the order of execution, joined by the tensors that flow between them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "model/operators/operators.hpp"
#include "plimsoll/model.hpp"

namespace plimsoll::model {

/// Each method appends one operator that reads the outputs of the operators `from` and answers its index.
class BlockBuilder {
 public:
  BlockBuilder(Block::Role role, std::string name, std::int64_t repeat = 1, std::int64_t first = 0) {
    block_.role = role;
    block_.name = std::move(name);
    block_.repeat = repeat;
    block_.first = first;
    block_.numbered = role == Block::Role::decoder || role == Block::Role::encoder;
  }

  int add(Operator op, const std::vector<int>& from);
  int linear(const std::string& name, int from, const LinearSpec& spec) { return add(model::linear(name, spec), {from}); }
  int norm(const std::string& name, int from, const NormSpec& spec) { return add(model::norm(name, spec), {from}); }
  int activation(const std::string& name, int from, const std::string& function, std::int64_t width) {
    return add(model::activation(name, function, width), {from});
  }
  int multiply(const std::string& name, int a, int b, std::int64_t width) { return add(model::multiply(name, width), {a, b}); }
  int sum(const std::string& name, int a, int b, std::int64_t width) { return add(model::add(name, width), {a, b}); }
  int scale(const std::string& name, int from, std::int64_t width) { return add(model::scale(name, width), {from}); }
  /// A dropout of rate 0 is no operator: answers `from`.
  int dropout(const std::string& name, int from, double rate, std::int64_t width) {
    return rate > 0 ? add(model::dropout(name, width), {from}) : from;
  }

  /// Lets an operator read the block's first side input too.
  void read_side_input(int index) { block_.edges.push_back({kSideInput, index}); }

  /// The description that a lowering reads; the operators stay as they are.
  Block& block() { return block_; }

  /// Finishes the block. `registration` lists name prefixes in the order in which the module registers its children; the longest
  /// prefix decides, and operators under the same one keep their order. Empty: parameters are registered as they are executed. Throws Error
  /// (internal) for an unlisted parameter.
  Block build(const std::vector<std::string>& registration = {});

 private:
  Block block_;
};

}  // namespace plimsoll::model
