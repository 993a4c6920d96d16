#include "program/inductor/frame.hpp"

#include <algorithm>
#include <utility>

namespace plimsoll::program::inductor {

std::size_t OperatorCount::of(const OperatorTrace& trace) {
  if (trace.recomputes) {
    if (std::exchange(checkpoint_, trace.checkpoints) != trace.checkpoints) ++next_;
    return next_ - 1;
  }
  if (!std::exchange(awaited_, trace.casts)) ++next_;
  return next_ - 1;
}

// ---- graphs -----------------------------------------------------------------------------------------------------------

TracedFrame::TracedFrame(Tape& tape, std::vector<Tensor> resident, Checkpointing checkpointing, std::set<std::size_t> cuts)
    : tape_(tape), resident_(std::move(resident)), checkpointing_(std::move(checkpointing)), cuts_(std::move(cuts)) {
  recomputes = checkpointing_.on;
  begin_graph();
}
TracedFrame::~TracedFrame() { tape_.trace = nullptr; }

void TracedFrame::begin_graph() {
  traces_.push_back(std::make_unique<Trace>(tape_, resident_, checkpointing_));
  live_.emplace_back();
  tape_.trace = this;
}

void TracedFrame::ran(const char* name, const List<const Tensor*>& inputs, const ToldNumbers& told, const std::vector<Tensor>& outputs) {
  if (cuts_.erase(count_.of(*this)) > 0) begin_graph();
  traces_.back()->recomputes = recomputes;
  traces_.back()->checkpoint = checkpoints;
  traces_.back()->ran(name, inputs, told, outputs);
}

void TracedFrame::breaks(const std::vector<Tensor>& live) {
  live_.back() = live;
  broken_ = true;
  begin_graph();
}

std::vector<FrameGraph> TracedFrame::graphs(const std::vector<Tensor>& results) {
  std::vector<FrameGraph> all(traces_.size());
  const auto give = [&](std::size_t maker, const Tensor& tensor) {
    std::vector<Tensor>& given = all[maker].results;
    const bool known = std::any_of(given.begin(), given.end(), [&](const Tensor& each) { return each.impl() == tensor.impl(); });
    if (!known && traces_[maker]->made(tensor)) given.push_back(tensor);
  };
  for (std::size_t reader = 0; reader < traces_.size(); ++reader) {
    all[reader].inputs = traces_[reader]->inputs();
    for (const Tensor& input : all[reader].inputs)
      for (std::size_t maker = 0; maker < reader; ++maker) give(maker, input);
  }
  for (std::size_t maker = 0; maker < traces_.size(); ++maker) {
    for (const Tensor& result : results) give(maker, result);
    for (const Tensor& held : live_[maker]) give(maker, held);
    all[maker].joint = traces_[maker]->joint(all[maker].results);
    all[maker].inputs = traces_[maker]->inputs();
  }
  return all;
}

// ---- cuts -------------------------------------------------------------------------------------------------------------

ParameterUses::ParameterUses(Tape& tape, const std::vector<Tensor>& parameters) : tape_(tape) {
  for (const Tensor& parameter : parameters) parameters_.insert(parameter.impl());
  tape_.trace = this;
}
ParameterUses::~ParameterUses() { tape_.trace = nullptr; }

void ParameterUses::ran(const char*, const List<const Tensor*>& inputs, const ToldNumbers&, const std::vector<Tensor>&) {
  const std::size_t number = count_.of(*this);
  uses_.resize(std::max(uses_.size(), number + 1));
  for (const Tensor* input : inputs)
    if (input->defined() && parameters_.contains(input->impl())) uses_[number].push_back(*input);
}

void ParameterUses::breaks(const std::vector<Tensor>&) {}

std::set<std::size_t> bucket_cuts(const std::vector<std::vector<Tensor>>& uses, const BucketLimits& limits) {
  std::set<std::size_t> cuts;
  std::int64_t bytes = 0;
  for (std::size_t i = uses.size(); i-- > 0;) {
    if (bytes >= (cuts.empty() ? limits.first : limits.rest)) {
      cuts.insert(i + 1);
      bytes = 0;
    }
    for (const Tensor& parameter : uses[i])
      if (parameter.defined() && parameter.requires_grad()) bytes += parameter.bytes();
  }
  if (bytes == 0 && !cuts.empty()) cuts.erase(cuts.begin());  // what uses none belongs to the part behind it
  return cuts;
}

}  // namespace plimsoll::program::inductor
