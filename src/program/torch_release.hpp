/// What of PyTorch depends on its release.
///
/// Between 2.11 and 2.15 stand releases that nobody looked at: what the one does and the other does not is taken to have come with 2.12.
#pragma once

#include "plimsoll/release.hpp"

namespace plimsoll::program {

/// A release of PyTorch.
class TorchRelease {
 public:
  /// The newest that was read.
  TorchRelease() = default;
  explicit TorchRelease(const Release& release) : release_(release) {}

  bool since(int major, int minor) const { return release_.since(major, minor); }
  /// Its cuBLAS multiplies batches of 16-bit matrices on matrix units whatever their addresses: 1.13's of CUDA 11.7 does, 1.11's of 11.3 did not
  /// (program/kernels.cpp).
  bool batches_need_no_alignment() const { return release_.since(1, 13); }
  /// Wheels are built for CUDA 13, whose cuBLAS has other kernels (nvjet).
  bool has_cuda_13() const { return release_.since(2, 9); }

  /// Kernels of multi_tensor_apply take 32 KB of arguments instead of 4 (MultiTensorApply.cuh).
  bool large_kernel_arguments() const { return after_2_11(); }
  /// zero_() sets memory by the driver; before, by a kernel that fills (fill_).
  bool zeroes_by_driver() const { return after_2_11(); }
  /// A BLAS workspace is taken from the allocator for each product; before, the first product of each handle and stream made one for good
  /// (CublasHandlePool.cpp).
  bool takes_workspaces_anew() const { return after_2_11(); }
  /// cuBLAS has as large a workspace on Blackwell as on Hopper (CublasHandlePool.cpp, pytorch#175344).
  bool large_blackwell_workspaces() const { return after_2_11(); }
  /// cuBLASLt's workspace is one of each handle and stream as well, beside cuBLAS's; in 2.6 it was scratch of each product (CUDABlas.cpp).
  bool keeps_lt_workspace() const { return release_.since(2, 7) && !after_2_11(); }

  /// Gradients of FSDP2's gathered parameters stay in the type that autograd gives them in until they are reduced (grad_dtype = None,
  /// _set_unsharded_grad_dtypes); before, they are cast to the type of the gathered parameter.
  bool fsdp_reduces_gradients_as_they_come() const { return after_2_11(); }

  /// Whoever asks a collective for its future waits for it on the current stream (c10d::nccl2, the backend "nccl" from 2.15 on:
  /// WorkNCCL::getFuture calls synchronize): DDP's buckets do not overlap with the rest of backward. Before, the future was waited for.
  bool futures_wait_for_collectives() const { return release_.since(2, 15); }

  /// A checkpoint's second run (use_reentrant=False) ends with the last tensor that was saved; before, a block's last product was run again
  /// for nothing (utils/checkpoint.py, set_checkpoint_early_stop).
  bool checkpoints_stop_early() const { return release_.since(2, 1); }

  /// A pipeline's stage makes a receive buffer for each micro-batch's input and gradient once, keeps what it sent until its backward, and
  /// learns shapes by a forward pass alone (pipelining/stage.py); later it receives into new ones, keeps an edge of the graph, and learns by
  /// both passes.
  bool stages_keep_buffers() const { return !after_2_11(); }

  // ---- scaled_dot_product_attention (sdp_utils.cpp) ----
  /// It has the argument enable_gqa.
  bool takes_grouped_heads() const { return release_.since(2, 5); }
  /// The memory-efficient kernels take fewer key heads than query heads (enable_gqa).
  bool efficient_takes_grouped_heads() const { return after_2_11(); }
  /// All fused kernels take one key head for all query heads without being told (multi-query attention).
  bool takes_multi_query() const { return after_2_11(); }
  /// Tensors [heads, length, dim] are a batch of one (pytorch#187266 tells of releases in which they were written out).
  bool fuses_three_dimensions() const { return release_.since(2, 15); }
  /// cuDNN takes only dropout in sixteenths.
  bool cudnn_dropout_in_sixteenths() const { return after_2_11(); }
  /// cuDNN's backward takes a gradient whatever its strides, but for the innermost; before cuDNN 9.5.1, of the output's strides alone (MHA.cpp).
  bool cudnn_takes_any_gradient() const { return release_.since(2, 7); }

 private:
  bool after_2_11() const { return release_.since(2, 12); }

  Release release_{2, 15};
};

}  // namespace plimsoll::program
