// Nodes whose forward ran on another stream than the current one.
#pragma once

#include <type_traits>
#include <utility>

#include "program/tape.hpp"

namespace plimsoll::program {

/// Gradients that arrive for it from several nodes are summed on its own stream (InputBuffer::accumulate of
/// torch/csrc/autograd/input_buffer.cpp, PyTorch 2.15).
class StreamedNode : public Node {
 public:
  explicit StreamedNode(StreamId its_stream) : stream(its_stream) {}
  const StreamId stream;
};

/// A backward whose forward ran on `stream`, for Op::finish and its like.
template <class Function>
struct OnStream {
  StreamId stream;
  Function function;
};

template <class Function>
OnStream<std::decay_t<Function>> on_stream(StreamId stream, Function&& function) {
  return {stream, std::forward<Function>(function)};
}

template <class Function>
class FunctionNode<OnStream<Function>> final : public StreamedNode {
 public:
  explicit FunctionNode(OnStream<Function> it) : StreamedNode(it.stream), function_(std::move(it.function)) {}
  void apply(BackwardCall& call) override { function_(call); }

 private:
  Function function_;
};

}  // namespace plimsoll::program
