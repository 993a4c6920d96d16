/// A graph that is cut into subgraphs, each compiled by itself (torch/fx/passes/split_module.py): every operation belongs to a part; what
/// another part made is an input of the caller's, and what others read is a result. Operations of several parts are never one kernel.
#pragma once

#include <functional>
#include <vector>

#include "program/inductor/graph.hpp"

namespace plimsoll::program::inductor {

/// Values are those of the whole graph.
class GraphParts {
 public:
  /// `may_write` says of the whole graph's inputs which ones a part may write into (a donated buffer).
  GraphParts(Tape& tape, Graph whole, int parts, const std::function<bool(int part, Value input)>& may_write);

  /// What the part reads of others and of the whole graph's inputs, and gives to others or as results, each in the order of its first use.
  const std::vector<Value>& inputs(int part) const { return at(part).inputs; }
  const std::vector<Value>& outputs(int part) const { return at(part).outputs; }
  bool reads(int part, Value value) const;
  bool returns(int part, Value value) const;
  /// The part returns the value: what it made, or an input that it hands through.
  void result(int part, Value value);

  const Graph& whole() const { return whole_; }
  void give(int part, Value value, Tensor tensor);
  void run(int part) { at(part).graph.run(); }
  Tensor take(int part, Value value);

 private:
  struct Part {
    explicit Part(Tape& tape, std::size_t buffers) : graph(tape), own(buffers, -1) {}
    Graph graph;
    std::vector<int> own;  ///< by the whole graph's buffers; -1: none of the part's
    std::vector<Value> inputs, outputs;
  };

  const Part& at(int part) const { return parts_[static_cast<std::size_t>(part)]; }
  Part& at(int part) { return parts_[static_cast<std::size_t>(part)]; }
  void copy_operation(int id, const std::function<bool(int part, Value input)>& may_write, std::vector<int>& own_ids);
  int imported(Part& part, int buffer, bool writes);
  void copy_groups(const std::vector<int>& own_ids);
  void copy_workspaces(const std::vector<int>& own_ids);
  void note_results();

  Graph whole_;
  std::vector<Part> parts_;
};

}  // namespace plimsoll::program::inductor
