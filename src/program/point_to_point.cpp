#include "program/point_to_point.hpp"

#include <utility>

namespace plimsoll::program {

namespace {

Collective transfer(CollectiveKind kind, int peer, int ranks, const Message& message) {
  return {.kind = kind, .group = Group::pipeline, .bytes = message.bytes, .type = message.type, .peer = (peer + ranks) % ranks};
}

}  // namespace

BatchedTransfers::BatchedTransfers(Tape& tape, int ranks)
    : tape_(tape), ranks_(ranks), sends_(tape.add_stream("pipeline sends")), receives_(tape.add_stream("pipeline receives")) {}

void BatchedTransfers::begin() {
  if (open_) return;
  open_ = true;
  tape_.wait(sends_, receives_);
  tape_.wait(receives_, sends_);
}

void BatchedTransfers::issue(CollectiveKind kind, StreamId stream, int peer, const Message& message) {
  tape_.wait(stream, kComputeStream);
  tape_.collective(transfer(kind, peer, ranks_, message), stream);
}

void BatchedTransfers::end(bool waits) {
  if (open_ && waits) {
    tape_.wait(kComputeStream, sends_);
    tape_.wait(kComputeStream, receives_);
  }
  open_ = false;
}

StreamId PairedTransfers::issue(CollectiveKind kind, int peer, const Message& message, const std::string& communicator) {
  const Collective collective = transfer(kind, peer, ranks_, message);
  auto [stream, is_new] = streams_.try_emplace({collective.peer, communicator}, kComputeStream);
  if (is_new) stream->second = tape_.add_stream(communicator + " " + std::to_string(collective.peer));
  tape_.wait(stream->second, kComputeStream);
  tape_.collective(collective, stream->second);
  if (kind == CollectiveKind::send) {
    const auto [event, is_first] = sent_.try_emplace(stream->second, EventId{0});
    if (is_first) event->second = tape_.new_event();
    tape_.record_event(event->second, stream->second);
  }
  return stream->second;
}

void PairedTransfers::await_sends() {
  for (const auto& [stream, event] : sent_) tape_.wait_event(kComputeStream, event);
}

}  // namespace plimsoll::program
