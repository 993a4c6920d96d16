/// MS-AMP's FP8DistributedDataParallel: the gradients of FP8Linears are reduced in 8 bits, beside DDP's own buckets. Source:
/// msamp/nn/distributed.py of MS-AMP 0.4.
#pragma once

#include <vector>

#include "program/wrappers/msamp/model.hpp"

namespace plimsoll::program::msamp {

/// _ScalingTensorReducer: 16-bit gradients wait until their bucket is complete, are put into 8 bits in one buffer for all, and reduced
/// there. It knows no no_sync(): every micro-batch is reduced.
class Reducer {
 public:
  /// Takes over what happens to the model's gradients. `bucket_cap`: DDP's, in bytes, of 8-bit gradients. `collectives`: the process
  /// group's stream.
  Reducer(Tape& tape, Model& model, std::int64_t bucket_cap, StreamId collectives);
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  /// _DDPSink.forward: every bucket waits for its gradients anew.
  void reset();

 private:
  struct Bucket {
    std::vector<ScaledLinear*> linears;
    std::int64_t begin = 0, elements = 0;  ///< within the buffer
    std::size_t pending = 0;
  };

  void ready(ScaledLinear& linear);
  void reduce(const Bucket& bucket);
  void synchronize_scales(const Bucket& bucket);
  void fill(const Bucket& bucket);

  Tape& tape_;
  StreamId stream_, collectives_;
  std::vector<Bucket> buckets_;
  std::int64_t elements_ = 0;
  Tensor buffer_;
};

}  // namespace plimsoll::program::msamp
