/// torch.autograd.graph.save_on_cpu: every saved tensor, parameters too, waits in host memory for its backward.
#pragma once

#include <memory>

#include "program/host_stay.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

class SaveOnCpu final : public SavedTensorHooks {
 public:
  /// `pinned`: host memory is pinned, and in rows whatever the tensor's strides are.
  SaveOnCpu(Tape& tape, bool pinned) : tape_(tape), pinned_(pinned), host_(tape, pinned) {}

  std::unique_ptr<Packed> pack(const Tensor& tensor) override;
  /// A new tensor each time: what two operators saved comes back twice.
  Tensor unpack(Packed& packed) override;

 private:
  struct Saved;
  bool copies_on_device(const Tensor& tensor) const;

  Tape& tape_;
  bool pinned_;
  HostStay host_;
};

}  // namespace plimsoll::program
