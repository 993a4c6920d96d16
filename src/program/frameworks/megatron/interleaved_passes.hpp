// The order of a rank's passes in Megatron's interleaved schedule (forward_backward_pipelining_with_interleaving).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "program/frameworks/megatron/schedule.hpp"

namespace plimsoll::program {

/// get_model_chunk_id over get_schedule_table with groups of as many micro-batches as stages.
inline std::int64_t interleaved_chunk(std::int64_t stages, std::int64_t chunks, std::int64_t micro_batches, std::int64_t pass,
                                      bool forward) {
  const std::int64_t at_all = pass % (micro_batches * chunks), group = stages * chunks, at = at_all / group;
  const std::int64_t size = std::min(stages, micro_batches - at * stages);
  const std::int64_t chunk = (at_all - at * group) / size;
  return forward ? chunk : chunks - 1 - chunk;
}

/// Passes forward before the first comes back.
inline std::int64_t interleaved_warm_up(std::int64_t stages, std::int64_t chunks, std::int64_t micro_batches, std::int64_t rank) {
  return std::min(micro_batches * chunks, 2 * (stages - rank - 1) + (chunks - 1) * stages);
}

/// One of those that a chunk runs.
struct MicroBatch {
  int chunk = 0;
  std::int64_t number = 0;

  bool operator==(const MicroBatch&) const = default;
};

/// The interleaved schedule of schedule.cpp without its tensors: the passes of a rank between the ends of the pipeline.
class InterleavedPasses {
 public:
  explicit InterleavedPasses(const InterleavedRank& of)
      : of_(of),
        run_(chunks()),
        done_(chunks()),
        inputs_(chunks()),
        gradients_(chunks()),
        passes_(of.micro_batches * of.chunks),
        warm_up_(interleaved_warm_up(of.stages, of.chunks, of.micro_batches, of.rank)),
        steady_(passes_ - warm_up_) {}

  PassOrder order(std::int64_t left_out) {
    receive_input(0);
    for (std::int64_t k = 0; k < warm_up_; ++k) warm_up_turn(k);
    const std::int64_t period = of_.stages * of_.chunks, first = (steady_ - period) / 2;
    for (std::int64_t k = 0; k < steady_; ++k) {
      if (k == first) order_.begin = order_.passes.size();
      if (k == first + period) order_.end = order_.passes.size();
      steady_turn(k);
    }
    if (first + period == steady_) order_.end = order_.passes.size();
    add(PassKind::release_output, forward_);
    for (std::int64_t k = steady_; k < passes_; ++k) cool_down_turn(k);
    order_.times = 1 + left_out / of_.stages;
    order_.leaves_alike = false;
    return std::move(order_);
  }

 private:
  std::size_t chunks() const { return static_cast<std::size_t>(of_.chunks); }
  std::size_t chunk_of(std::int64_t pass, bool forward) const {
    return static_cast<std::size_t>(interleaved_chunk(of_.stages, of_.chunks, of_.micro_batches, pass, forward));
  }
  MicroBatch next(std::size_t chunk, std::vector<std::int64_t>& count) { return {static_cast<int>(chunk), count[chunk]++}; }
  void add(PassKind kind, const MicroBatch& of) { order_.passes.push_back({kind, of.chunk, of.number}); }

  void forward(std::int64_t pass) {
    forward_ = next(chunk_of(pass, true), run_);
    add(PassKind::forward, forward_);
  }
  MicroBatch receive_input(std::int64_t for_pass) {
    const MicroBatch of = next(chunk_of(for_pass, true), inputs_);
    add(PassKind::receive_input, of);
    return of;
  }
  MicroBatch receive_gradient(std::int64_t for_pass) {
    const MicroBatch of = next(chunk_of(for_pass, false), gradients_);
    add(PassKind::receive_gradient, of);
    return of;
  }
  MicroBatch backward(std::int64_t pass, bool steady) {
    const MicroBatch own = next(chunk_of(pass, false), done_);
    add(PassKind::backward, own);
    if (steady) add(PassKind::release_gradient, own);
    add(PassKind::drop_output, own);
    if (own != held_) add(PassKind::release_input, own);
    return own;
  }
  void keep_sent(const MicroBatch& of) {
    if (sent_ && *sent_ != held_ && *sent_ != sent_last_) add(PassKind::release_sent, *sent_);
    sent_ = of;
  }

  void warm_up_turn(std::int64_t k) {
    forward(k);
    const MicroBatch input = receive_input(k + 1);
    if (k == warm_up_ - 1) {
      held_ = input;
      order_.held.forward = {PassKind::forward, input.chunk, input.number};
    }
    add(k == warm_up_ - 1 ? PassKind::release_early : PassKind::release_output, forward_);
    if (k == warm_up_ - 1) receive_gradient(0);
  }

  void steady_turn(std::int64_t k) {
    add(PassKind::release_output, forward_);
    forward(k + warm_up_);
    if (k < steady_ - 1) receive_input(k + warm_up_ + 1);
    const MicroBatch own = backward(k, true), gradient = receive_gradient(k + 1);
    if (k == steady_ - 1) {
      order_.held.backward = {PassKind::backward, gradient.chunk, gradient.number};
      order_.held.sent = {PassKind::backward, own.chunk, own.number};
      sent_last_ = own;
    }
    keep_sent(own);
  }

  void cool_down_turn(std::int64_t k) {
    keep_sent(backward(k, false));
    std::optional<MicroBatch> gradient;
    if (k < passes_ - 1) gradient = receive_gradient(k + 1);
    if (received_) add(PassKind::release_gradient, *received_);
    received_ = gradient;
  }

  InterleavedRank of_;
  std::vector<std::int64_t> run_, done_, inputs_, gradients_;  ///< by chunk
  std::int64_t passes_, warm_up_, steady_;
  MicroBatch forward_;
  std::optional<MicroBatch> held_, sent_, sent_last_, received_;
  PassOrder order_;
};

}  // namespace plimsoll::program
