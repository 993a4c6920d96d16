/// What a pipeline stage sends to its neighbours and receives from them (megatron/core/pipeline_parallel/p2p_communication.py of
/// Megatron-core 0.16.1).
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "program/frameworks/megatron/schedule.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

class StageTransfers {
 public:
  explicit StageTransfers(MegatronRank& rank) : rank_(rank), tape_(rank.tape) {}

  int before() const { return static_cast<int>(rank_.rank) - 1; }
  int behind() const { return static_cast<int>(rank_.rank) + 1; }
  /// Sizes of what crosses stages.
  Dims hidden_state() const;

  // P2PCommunicator._communicate with batch_p2p_comm: what is sent and received together is one group.

  /// Sends, where there is something to send.
  void send(int peer, const Tensor& tensor);
  /// Receives where that is wanted, and ends the group.
  Tensor receive(int peer, bool wanted);
  struct Received {
    Tensor input, gradient;
  };
  /// All that a turn sends and receives in both directions, as one group.
  Received communicate(const Tensor& output, const Tensor& input_gradient, bool from_previous, bool from_next);
  /// All requests are waited for, and the host waits for the device (batch_p2p_sync).
  void end_group();

  // The same without it: isend and irecv one by one (_p2p_ops), each waited for where its handle is.

  enum Way : std::size_t { kToNext, kFromPrevious, kToPrevious, kFromNext, kWays };

  /// One call: sends, and receives into a new buffer; even ranks send first, odd ones receive first. The compute stream waits for what was
  /// sent that way before.
  Tensor exchange(Way to, const Tensor& sent, Way from, bool receives);
  /// The same, waited for.
  Tensor exchange_and_wait(Way to, const Tensor& sent, Way from, bool receives);
  void await(Way way);

 private:
  /// Tensor-parallel ranks that each bring a part of what crosses stages.
  std::int64_t parts() const { return rank_.cuts_transfers ? rank_.runtime.tp() : 1; }
  Tensor receive_buffer();
  Tensor whole(const Tensor& part);
  Tensor post_receive(int peer, bool wanted);
  void issue(Way way, const Tensor& tensor);

  MegatronRank& rank_;
  Tape& tape_;
  std::array<std::optional<EventId>, kWays> handles_;  ///< by way: behind what was last issued
  std::array<bool, kWays> pending_{};                  ///< and nobody has waited for it yet
};

}  // namespace plimsoll::program
