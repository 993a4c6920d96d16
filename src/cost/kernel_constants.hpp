// What the laws of kernels hold in common on all devices (hardware/kernels.json; docs/hardware.md describes it).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plimsoll/hardware.hpp"
#include "plimsoll/kernel.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll::cost {

/// The start of a kernel, and the lane instructions that an element costs beside its bytes.
struct KernelLaw {
  Seconds start;
  double instructions = 0;
};

/// Rows share the last-level cache with what was touched since they were written.
struct CacheLaw {
  double bytes_per_clock = 0;  ///< of a compute unit, out of the cache
  double held = 0, gone = 0;   ///< as shares of the cache: kernels of fewer bytes find all of them there, of more none
};

struct PointwiseLaws {
  KernelLaw contiguous, casting, walking, concatenating, random, fused;
  std::map<std::string, KernelLaw> rocm_cast_transpose;  ///< by target: Transformer Engine's casts to rows and columns of 8 bits on AMD
  double casting_per_operand = 0, walking_per_operand = 0, walking_per_dimension = 0, walking_cast = 0;
  Bytes sector;        ///< moved for an element of a transposed operand
  Bytes fused_sector;  ///< the same of a generated kernel
};

struct ReductionLaws {
  KernelLaw inner, all;
  Seconds inner_element;                        ///< of a result's chain
  std::int64_t longest_chain = 0;               ///< elements of a result after which more of them run side by side
  double inner_result = 0, outer_result = 0;    ///< instructions of a result, beside those of its elements
  double inner_strided = 0, outer_strided = 0;  ///< instructions of an element that does not follow its neighbour
  Seconds outer_start, outer_element, outer_part, outer_block;
};

/// Kernels of one block a row.
struct RowLaw {
  Seconds start;
  double instructions_per_row = 0;
};

struct RowWiseLaws {
  Seconds softmax_start;
  double softmax_instructions = 0, softmax_instructions_16_bit = 0;
  Bytes row_in_shared_memory;
  std::int64_t blocks_per_unit = 0;
  RowLaw layer_norm, norm_backward, rms_norm, fused;
  Seconds quantization_start;
  double hadamard_greatest = 0, hadamard_columns = 0, hadamard_both_ways = 0;  ///< quantization behind a transform: of an element
  Seconds weight_gradient_start, weight_gradient_row;
  std::int64_t weight_gradient_columns = 0;
};

struct MultiTensorLaws {
  Seconds start, chunk_start, chunk_per_operand;
  std::int64_t chunk = 0;  ///< elements of one tensor that one block works through
  double copy_instructions = 0, fused_instructions = 0;
};

/// How the fused attention of one library runs on the devices of one family.
struct AttentionLaw {
  AttentionLibrary library{};
  bool backward = false;
  DType type = DType::bf16;  ///< bf16 stands for both 16-bit types
  std::string family;
  Tile tile{};             ///< rows that a block owns (queries; of a backward pass keys) × columns that it takes at a time
  double prologue = 0;     ///< of a block, in tiles
  double tail = 0;         ///< of causal work: the share of the longest block that runs when the others are done
  double dropout = 1;      ///< factor of a tile's time
  double mask = 1;         ///< the same where a bias of every pair is read
  bool windows = true;     ///< tiles outside of a window are left out
  bool power = true;       ///< it draws what the device's file says of attention, else what the board has
  double matrix = 1;       ///< the share of the peak that its instructions reach when they do nothing else
  bool of_device = false;  ///< rates are shares of what the device's file says of its attention, not of its peak
  Seconds start;
  struct Rate {
    std::int64_t head_dim;  ///< the widest head of this kernel
    double share;           ///< of the peak rate, FLOPs of whole tiles
  };
  std::vector<Rate> rates;
};

struct AttentionHelpers {
  KernelLaw delta, convert, sum_heads;
};

struct KernelConstants {
  double nvidia_lanes = 0, amd_lanes = 0;
  CacheLaw cache;
  Seconds gap, gap_in_graph;      ///< between two kernels of one stream, and where a CUDA graph replays them
  KernelLaw fill;                 ///< of memory that nothing is read for
  KernelLaw depthwise;            ///< convolution of each channel by itself: of a place of its window
  double generated_products = 1;  ///< share of streaming kernels' rate at which those that Triton makes of small products move memory
  PointwiseLaws pointwise;
  ReductionLaws reduction;
  RowWiseLaws row_wise;
  std::vector<KernelLaw> gather;  ///< by Gather::Function
  MultiTensorLaws multi_tensor;
  std::vector<AttentionLaw> attention;
  AttentionHelpers attention_helpers;
};

/// Those of the shipped file, read once.
const KernelConstants& kernel_constants();

}  // namespace plimsoll::cost
