/// Megatron-core's DistributedDataParallel: contiguous parameter and gradient buffers. Sources: megatron/core/distributed/
/// distributed_data_parallel.py, param_and_grad_buffer.py, finalize_model_grads.py of Megatron-core 0.16.1.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "program/module.hpp"
#include "program/tape.hpp"
#include "program/wrappers/megatron/data_parallel.hpp"
#include "program/wrappers/megatron/fsdp_modules.hpp"

namespace plimsoll::program {

struct MegatronDdpOptions {
  bool distributed_optimizer = false;
  std::int64_t ranks = 1;         ///< data-parallel × context-parallel
  std::int64_t expert_ranks = 1;  ///< over which the gradients of expert parameters are reduced
  std::int64_t bucket_size = 0;   ///< elements; 0: one bucket
  bool overlap_grad_reduce = false;
  bool overlap_param_gather = false;  ///< of the distributed optimizer: buckets are gathered ahead of the modules that need them
  bool align_param_gather = false;    ///< the schedule starts gathering, all buckets of a chunk at once: modules start none but their own
  bool pad_for_high_nccl_busbw = false;
  bool check_for_nan_in_grad = false;
  DType grad_dtype = DType::fp32;
  /// Of weights in few bits: elements of one byte of their buffer, and whether they have none but are gathered in 16 bits through that of
  /// their gradients (reuse_grad_buf_for_mxfp8_param_ag).
  std::int64_t packed = 1;
  bool weights_apart = false;
  std::function<bool(const Tensor&)> already_added;  ///< whether a weight's gradient is in main_grad when it arrives (grad_added_to_main_grad)
};

/// A parameter's place in its buffer.
struct BufferedParameter {
  std::shared_ptr<Parameter> parameter;
  Tensor main_grad;
  std::int64_t begin = 0, end = 0;  ///< elements of the buffer
  std::size_t bucket = 0;
};

/// _ParamAndGradBuffer: the gradients of one kind of parameters, and with the distributed optimizer the parameters too.
struct MegatronParameterBuffer {
  struct Bucket {
    std::int64_t begin = 0, end = 0;
    std::size_t parameters = 0, pending = 0;
    enum class Weights : std::uint8_t { here, elsewhere, under_way } weights = Weights::here;
    EventId gathered = 0;  ///< overlap_param_gather: behind its gathering
  };
  bool expert = false;
  std::int64_t ranks = 1;
  std::int64_t elements = 0;
  bool weights_apart = false;                 ///< as in MegatronDdpOptions: param_data lies on grad_data
  std::int64_t packed = 1;                    ///< as there: elements of a byte of param_data
  std::vector<BufferedParameter> parameters;  ///< in the order of the buffer: reverse registration
  std::vector<Bucket> buckets;
  Tensor param_data, grad_data;
};

/// The wrapper of one model chunk.
class MegatronDdp : public MegatronDataParallel {
 public:
  /// Moves the parameters into buffers that are allocated on `side` (with the distributed optimizer) and registers the gradient hooks.
  /// `shared_embedding` may be null: the weight that two pipeline stages share gets a bucket of its own.
  MegatronDdp(Tape& tape, const std::vector<std::shared_ptr<Parameter>>& parameters, const Parameter* shared_embedding,
              const MegatronDdpOptions& options, StreamId side);

  void zero_grad_buffer() override;
  /// Outside of no_sync gradients of buckets that fill are reduced at once, if the reduction overlaps.
  void set_synchronizing(bool yes) override { synchronizing_ = yes; }
  void finish_grad_sync() override;
  /// The gathered parameters of the distributed optimizer; with overlap_param_gather the next forward pass gathers them.
  void gather_parameters() override;
  void start_param_sync() override;
  /// _make_forward_pre_hook of overlap_param_gather: a module waits for the buckets that its parameters lie in, and each of them starts the
  /// gathering of the one behind it.
  void hook_gathers(const MegatronFsdpModules& modules);
  std::int64_t gradient_elements(const Parameter& parameter) const override { return parameter.sizes.product(); }
  DType gradient_type() const override { return options_.grad_dtype; }

  const std::vector<std::unique_ptr<MegatronParameterBuffer>>& buffers() const { return buffers_; }

 private:
  void add_buffer(const std::vector<std::shared_ptr<Parameter>>& parameters, const Parameter* shared_embedding, bool expert, StreamId side);
  void register_hook(MegatronParameterBuffer& buffer, std::size_t index);
  void gradient_ready(MegatronParameterBuffer& buffer, BufferedParameter& entry);
  void start_grad_sync(const MegatronParameterBuffer& buffer, const MegatronParameterBuffer::Bucket& bucket);
  void check_grads(const MegatronParameterBuffer& buffer, const MegatronParameterBuffer::Bucket& bucket);
  void gather(const MegatronParameterBuffer& buffer, const MegatronParameterBuffer::Bucket& bucket);
  void start_gather(MegatronParameterBuffer& buffer, std::size_t bucket);
  void finish_gather(const Parameter& parameter);
  void take_weights(const MegatronParameterBuffer& buffer, const MegatronParameterBuffer::Bucket& bucket);

  Tape& tape_;
  MegatronDdpOptions options_;
  StreamId stream_;
  std::vector<std::unique_ptr<MegatronParameterBuffer>> buffers_;                         ///< dense first
  std::map<const Parameter*, std::pair<MegatronParameterBuffer*, std::size_t>> buckets_;  ///< where a parameter lies
  std::vector<NodeRef> accumulators_;
  bool synchronizing_ = true;
};

}  // namespace plimsoll::program
