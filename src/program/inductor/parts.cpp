#include "program/inductor/parts.hpp"

#include <algorithm>
#include <utility>

namespace plimsoll::program::inductor {

GraphParts::GraphParts(Tape& tape, Graph whole, int parts, const std::function<bool(int part, Value input)>& may_write)
    : whole_(std::move(whole)) {
  for (int i = 0; i < parts; ++i) parts_.emplace_back(tape, whole_.buffers_.size());
  std::vector<int> own_ids;  // of the whole graph's operations in their parts
  for (std::size_t id = 0; id < whole_.operations_.size(); ++id) copy_operation(static_cast<int>(id), may_write, own_ids);
  copy_groups(own_ids);
  copy_workspaces(own_ids);
  note_results();
}

/// The part's buffer for one that it did not make.
int GraphParts::imported(Part& part, int buffer, bool writes) {
  int& own = part.own[static_cast<std::size_t>(buffer)];
  if (own >= 0) return own;
  own = static_cast<int>(part.graph.buffers_.size());
  Graph::Buffer copy = whole_.at(buffer);
  copy.name = "in" + std::to_string(own);
  copy.owner = writes ? Graph::Owner::forward : Graph::Owner::caller;
  copy.result = false;
  copy.maker = -1;
  copy.readers.clear();
  part.graph.buffers_.push_back(std::move(copy));
  part.inputs.push_back({buffer});
  return own;
}

void GraphParts::copy_operation(int id, const std::function<bool(int part, Value input)>& may_write, std::vector<int>& own_ids) {
  Graph::Operation operation = whole_.operations_[static_cast<std::size_t>(id)];
  Part& part = at(operation.part);
  const int own_id = static_cast<int>(part.graph.operations_.size());
  own_ids.push_back(own_id);
  for (int& read : operation.reads) {
    const bool writes = whole_.at(read).maker < 0 && may_write(operation.part, {read});
    read = imported(part, read, writes);
    part.graph.at(read).readers.push_back(own_id);
  }
  std::vector<int> replaced;
  for (const int candidate : operation.may_replace) {
    if (part.own[static_cast<std::size_t>(candidate)] >= 0) replaced.push_back(part.own[static_cast<std::size_t>(candidate)]);
  }
  operation.may_replace = std::move(replaced);
  Graph::Buffer output = whole_.at(operation.output);
  const int own_output = static_cast<int>(part.graph.buffers_.size());
  part.own[static_cast<std::size_t>(operation.output)] = own_output;
  operation.output = own_output;
  output.maker = own_id;
  output.readers.clear();
  part.graph.buffers_.push_back(std::move(output));
  part.graph.operations_.push_back(std::move(operation));
}

/// Kernels, as far as their operations are of one part.
void GraphParts::copy_groups(const std::vector<int>& own_ids) {
  const auto copy = [&](const std::vector<std::vector<int>>& groups, std::vector<std::vector<int>> Graph::*to) {
    for (const std::vector<int>& group : groups) {
      std::map<int, std::vector<int>> by_part;
      for (const int id : group)
        by_part[whole_.operations_[static_cast<std::size_t>(id)].part].push_back(own_ids[static_cast<std::size_t>(id)]);
      for (auto& [part, members] : by_part) (at(part).graph.*to).push_back(std::move(members));
    }
  };
  copy(whole_.fused_, &Graph::fused_);
  copy(whole_.ordered_, &Graph::ordered_);
}

void GraphParts::copy_workspaces(const std::vector<int>& own_ids) {
  for (const Graph::Mixed& mixed : whole_.mixed_) {
    Part& part = at(whole_.operations_[static_cast<std::size_t>(mixed.operation)].part);
    const auto own = [&](int buffer) { return part.own[static_cast<std::size_t>(buffer)]; };
    Graph::Mixed copy{own_ids[static_cast<std::size_t>(mixed.operation)], static_cast<int>(part.graph.buffers_.size()), mixed.columns, {}};
    Graph::Buffer workspace = whole_.at(mixed.workspace);
    workspace.name = "workspace_" + std::to_string(part.graph.mixed_.size());
    workspace.maker = copy.operation;
    part.graph.buffers_.push_back(std::move(workspace));
    for (const int buffer : mixed.parts) {
      copy.parts.push_back(own(buffer));
      Graph::Operation& sum = part.graph.operations_[static_cast<std::size_t>(part.graph.at(own(buffer)).maker)];
      sum.total = own(sum.total);
    }
    part.graph.mixed_.push_back(std::move(copy));
  }
}

/// What others read, and the whole graph's results.
void GraphParts::note_results() {
  for (std::size_t buffer = 0; buffer < whole_.buffers_.size(); ++buffer) {
    const int maker = whole_.part_of({static_cast<int>(buffer)});
    const bool read = std::any_of(parts_.begin(), parts_.end(),
                                  [&](const Part& part) { return part.own[buffer] >= 0 && part.graph.at(part.own[buffer]).maker < 0; });
    if (maker < 0 || !(read || whole_.buffers_[buffer].result)) continue;
    at(maker).graph.at(at(maker).own[buffer]).result = true;
    at(maker).outputs.push_back({static_cast<int>(buffer)});
  }
}

bool GraphParts::reads(int part, Value value) const {
  const std::vector<Value>& all = inputs(part);
  return std::any_of(all.begin(), all.end(), [&](Value input) { return input.index == value.index; });
}

bool GraphParts::returns(int part, Value value) const {
  const std::vector<Value>& all = outputs(part);
  return std::any_of(all.begin(), all.end(), [&](Value output) { return output.index == value.index; });
}

void GraphParts::result(int part, Value value) {
  Part& of = at(part);
  of.graph.at(imported(of, value.index, false)).result = true;
  if (!returns(part, value)) of.outputs.push_back(value);
}

void GraphParts::give(int part, Value value, Tensor tensor) {
  at(part).graph.at(at(part).own[static_cast<std::size_t>(value.index)]).tensor = std::move(tensor);
}

Tensor GraphParts::take(int part, Value value) { return at(part).graph.take({at(part).own[static_cast<std::size_t>(value.index)]}); }

}  // namespace plimsoll::program::inductor
