/// MS-AMP's ZeRO stages 1 and 2 over DeepSpeed's: FP8Linears' weights are kept in 8 bits on every rank, each with an fp16 master on one of
/// them. Source: msamp/deepspeed/runtime/zero/fp8_stage_1_and_2.py of MS-AMP 0.4, over DeepSpeed 0.13.1.
#pragma once

#include <memory>
#include <vector>

#include "program/wrappers/deepspeed/zero12.hpp"
#include "program/wrappers/msamp/model.hpp"
#include "program/wrappers/msamp/optimizer.hpp"

namespace plimsoll::program::msamp {

/// The rank that the most elements of weights are dealt out to.
int fullest_rank(const Model& model, int ranks);

/// FP8DeepSpeedZeroOptimizer: whole weights of FP8Linears are dealt out to the ranks by size, their gradients reduced in 8-bit buckets
/// beside those of the other parameters, which are DeepSpeed's own. One optimizer of MS-AMP's steps both.
class ScaledZero final : public ZeroStage12 {
 public:
  /// Throws Error (refused): a weight that is larger than a bucket.
  ScaledZero(Tape& tape, Model& model, const DeepSpeedSettings& settings, States states);

  void before_backward(bool boundary) override;
  void step() override;

 private:
  /// An FP8Linear's weight and the rank that steps it; its master there.
  struct Share {
    ScaledLinear* linear = nullptr;
    std::int64_t elements = 0, rank = 0;
    std::unique_ptr<ScaledLinear> master = {};
  };

  // ---- setting up ----
  void deal_out();
  void narrow(Share& share);
  void flatten_shares();
  std::unique_ptr<Optimizer> make_lb_adam(States states);

  // ---- gradients ----
  void reduce_gradients() override;
  void epilogue() override;
  void into_bucket(Share& share);
  void reduce_shares();
  void keep_or_clear(const Share& share);
  std::vector<Tensor> collect_shares();
  std::vector<Tensor> collect_pieces();

  // ---- the step ----
  void check_overflow();
  void norm();
  void assign_gradients();
  void write_shares();
  void gather_shares();
  void gather_scales();

  bool is_own(const Share& share) const { return share.rank == settings_.rank; }

  Model& model_;
  std::vector<Share> shares_;    ///< in the order of the model
  std::vector<Share*> dealt_;    ///< the same, the largest first, as they were dealt out
  std::int64_t share_size_ = 0;  ///< elements of the fullest rank's weights, to which all are padded
  Tensor flat_;                  ///< all weights, rank by rank

  std::vector<Tensor> buckets_;  ///< two with overlap_comm
  std::size_t bucket_ = 0;       ///< the one that fills
  std::vector<Share*> bucketed_;
  std::int64_t bucketed_elements_ = 0;
  Tensor kept_;                    ///< fp8_grads_in_partition
  std::vector<Tensor> gradients_;  ///< fp8_averaged_gradients: of the rank's weights, as they were dealt out
};

}  // namespace plimsoll::program::msamp
