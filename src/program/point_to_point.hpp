/// Sends and receives between the ranks of a pipeline, as torch.distributed hands them to NCCL (ProcessGroupNCCL.cpp).
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "program/tape.hpp"

namespace plimsoll::program {

/// What goes from one rank to another.
struct Message {
  std::int64_t bytes = 0;
  DType type = DType::bf16;

  explicit operator bool() const { return bytes > 0; }
};
inline Message message_of(const Tensor& tensor) { return tensor ? Message{tensor.bytes(), tensor.dtype()} : Message{}; }

/// torch.distributed.batch_isend_irecv: the transfers of a group run side by side in one kernel of the pipeline's communicator, which takes
/// one group after the other. Each direction has a stream of its own here, and a group begins when both have ended what came before.
class BatchedTransfers {
 public:
  /// `ranks` of the pipeline; peers are counted modulo them.
  BatchedTransfers(Tape& tape, int ranks);

  /// Opens a group behind everything issued so far; nothing where one is open.
  void begin();
  void send(int peer, const Message& message) { issue(CollectiveKind::send, sends_, peer, message); }
  void receive(int peer, const Message& message) { issue(CollectiveKind::receive, receives_, peer, message); }
  /// Ends the open group. `waits`: the compute stream waits for it, and so for all before it.
  void end(bool waits);
  bool open() const { return open_; }
  /// The compute stream waits for every send.
  void await_sends() { tape_.wait(kComputeStream, sends_); }
  StreamId receiving() const { return receives_; }

 private:
  void issue(CollectiveKind kind, StreamId stream, int peer, const Message& message);

  Tape& tape_;
  int ranks_;
  StreamId sends_, receives_;
  bool open_ = false;
};

/// torch.distributed.isend and irecv: a communicator and a stream for every pair of ranks, on which transfers of both directions run in the
/// order of the calls.
class PairedTransfers {
 public:
  PairedTransfers(Tape& tape, int ranks) : tape_(tape), ranks_(ranks) {}

  /// One transfer behind what the compute stream has been given; the pair's stream. `communicator`: of several that a pair may have.
  StreamId issue(CollectiveKind kind, int peer, const Message& message, const std::string& communicator = "pipeline");
  /// The compute stream waits for every send so far, not for receives behind them.
  void await_sends();

 private:
  Tape& tape_;
  int ranks_;
  std::map<std::pair<int, std::string>, StreamId> streams_;
  std::map<StreamId, EventId> sent_;  ///< behind the last send of a pair
};

/// Events that a pass records for a later one of the same micro-batch: those of a purpose go round with the micro-batches, `period` of
/// them, one purpose's behind another's.
struct MicroBatchEvents {
  EventId first = 0, end = 0;
  std::int64_t period = 1;

  EventId at(std::int64_t purpose, std::int64_t micro_batch) const {
    return first + static_cast<EventId>(purpose * period + micro_batch % period);
  }
};

}  // namespace plimsoll::program
