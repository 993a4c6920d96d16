/// torchtune's and TRL's OffloadActivations: saved tensors wait in host memory for their backward, copied on a stream of their own.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "program/host_stay.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

class OffloadActivations final : public SavedTensorHooks, public std::enable_shared_from_this<OffloadActivations> {
 public:
  struct Options {
    bool streams = true;              ///< copies on a stream of their own (from torch 2.5); else on the computing one
    std::size_t kept_in_forward = 5;  ///< saved tensors that stay until their copy is surely done (max_fwd_stash_size)
    std::int64_t least_bytes = 1024;  ///< smaller tensors stay
    std::vector<Tensor> parameters;   ///< which stay, too
  };
  OffloadActivations(Tape& tape, Options options);

  std::unique_ptr<Packed> pack(const Tensor& tensor) override;
  Tensor unpack(Packed& packed) override;

 private:
  struct Saved;
  using Id = std::size_t;

  bool stays(const Tensor& tensor) const;
  void copy_to_host(const Tensor& tensor);
  Tensor bring_back(const Saved& saved);
  void after_node(Node& node, Id id, bool brought_back, std::vector<Id> done, const Tensor& tensor);
  void begin_backward();

  Tape& tape_;
  Options options_;
  StreamId stream_;
  HostStay host_;
  std::unordered_set<const TensorImpl*> parameters_;
  Id next_ = 0;
  std::deque<std::pair<Id, Tensor>> leaving_;  ///< fwd_stash
  std::unordered_map<Id, Tensor> returned_;    ///< bwd_tensor_stash
  const Node* node_ = nullptr;                 ///< the last node that took something back
  bool in_backward_ = false;
};

}  // namespace plimsoll::program
