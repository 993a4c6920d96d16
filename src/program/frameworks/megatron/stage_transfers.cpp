#include "program/frameworks/megatron/stage_transfers.hpp"

namespace plimsoll::program {

Dims StageTransfers::hidden_state() const {
  const std::int64_t length = rank_.length / (rank_.runtime.sequence_parallel() ? rank_.runtime.tp() : 1);
  return {length, rank_.micro_batch, rank_.config.hidden};
}

Tensor StageTransfers::receive_buffer() {
  const LabelScope label(tape_, tape_.intern("pipeline receive"));
  const Dims sizes = parts() > 1 ? Dims{hidden_state().product() / parts()} : hidden_state();
  Tensor buffer = tape_.empty(sizes, rank_.config.type, Category::communication_buffer);
  buffer.set_requires_grad(true);
  return buffer;
}

/// gather_split_1d_tensor: what came to the tensor-parallel ranks in parts.
Tensor StageTransfers::whole(const Tensor& part) {
  if (!part || parts() == 1) return part;
  const LabelScope label(tape_, tape_.intern("pipeline receive"));
  Tensor gathered = tape_.empty(hidden_state(), part.dtype(), Category::communication_buffer);
  rank_.runtime.collective(CollectiveKind::all_gather, gathered.bytes(), gathered.dtype());
  gathered.set_requires_grad(true);
  return gathered;
}

void StageTransfers::send(int peer, const Tensor& tensor) {
  if (!tensor) return;
  rank_.batched->begin();
  rank_.batched->send(peer, {tensor.bytes() / parts(), tensor.dtype()});
}

/// A receive within the open group, where it is wanted.
Tensor StageTransfers::post_receive(int peer, bool wanted) {
  if (!wanted) return {};
  Tensor buffer = receive_buffer();
  rank_.batched->begin();
  rank_.batched->receive(peer, message_of(buffer));
  return buffer;
}

Tensor StageTransfers::receive(int peer, bool wanted) {
  const Tensor buffer = post_receive(peer, wanted);
  end_group();
  return whole(buffer);
}

StageTransfers::Received StageTransfers::communicate(const Tensor& output, const Tensor& input_gradient, bool from_previous,
                                                     bool from_next) {
  send(behind(), output);
  const Tensor input = post_receive(before(), from_previous);
  send(before(), input_gradient);
  const Tensor gradient = post_receive(behind(), from_next);
  end_group();
  return {whole(input), whole(gradient)};
}

void StageTransfers::end_group() {
  if (!rank_.batched->open()) return;
  rank_.batched->end(true);
  tape_.synchronize();
}

void StageTransfers::issue(Way way, const Tensor& tensor) {
  if (!tensor) return;
  const bool sends = way == kToNext || way == kToPrevious, even = rank_.rank % 2 == 0;
  const int peer = way == kToNext || way == kFromNext ? behind() : before();
  // Two ranks take the world's communicator for one of the directions, so that both can be under way.
  const char* communicator = rank_.stages == 2 && even != sends ? "world" : "pipeline";
  const StreamId stream =
      rank_.paired->issue(sends ? CollectiveKind::send : CollectiveKind::receive, peer, message_of(tensor), communicator);
  if (!handles_[way]) handles_[way] = tape_.new_event();
  tape_.record_event(*handles_[way], stream);
  pending_[way] = true;
}

void StageTransfers::await(Way way) {
  if (pending_[way]) tape_.wait_event(kComputeStream, *handles_[way]);
  pending_[way] = false;
}

Tensor StageTransfers::exchange(Way to, const Tensor& sent, Way from, bool receives) {
  Tensor buffer = receives ? receive_buffer() : Tensor();
  await(to);
  if (rank_.rank % 2 == 0) {
    issue(to, sent);
    issue(from, buffer);
  } else {
    issue(from, buffer);
    issue(to, sent);
  }
  return buffer;
}

Tensor StageTransfers::exchange_and_wait(Way to, const Tensor& sent, Way from, bool receives) {
  Tensor buffer = exchange(to, sent, from, receives);
  await(to);
  await(from);
  return buffer;
}

}  // namespace plimsoll::program
