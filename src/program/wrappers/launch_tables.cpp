#include "program/wrappers/launch_tables.hpp"

#include <algorithm>
#include <cmath>

#include "plimsoll/units.hpp"

namespace plimsoll::program {

namespace {

constexpr std::int64_t kThreads = 128;               // BLOCK_SIZE
constexpr std::int64_t kBlockBytes = kThreads * 16;  // of BYTES_PER_THREAD

Tensor table(Tape& tape, std::int64_t numbers) {
  Tensor packed = tape.empty({numbers}, DType::int64, Category::workspace);
  tape.copy({Copy::Direction::host_to_device, packed.bytes()}, tape.stream);
  return packed;
}

}  // namespace

Tensor copy_out_table(Tape& tape, const std::vector<std::int64_t>& chunk_bytes, std::int64_t ranks) {
  std::int64_t blocks = 0;
  for (const std::int64_t bytes : chunk_bytes) blocks += ceil_div(bytes, kBlockBytes);
  const std::int64_t most_blocks = tape.device.units * tape.device.threads_per_unit / kThreads * 2;  // twice what is resident
  const std::int64_t iterations = ceil_div(blocks * ranks, most_blocks);
  const auto chunks_per_block = std::min(ranks, static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(iterations)))));
  const std::int64_t block_bytes = kBlockBytes * ceil_div(iterations, chunks_per_block);
  // Addresses of source and destination and the bytes of each chunk, the chunk of each block, and the blocks before each chunk.
  auto numbers = 4 * static_cast<std::int64_t>(chunk_bytes.size()) + 1;
  for (const std::int64_t bytes : chunk_bytes) numbers += ceil_div(bytes, block_bytes);
  return table(tape, numbers);
}

Tensor chunk_cat_table(Tape& tape, const std::vector<std::int64_t>& chunk_bytes) {
  // The address, the actual and the padded bytes and the blocks of each tensor, the bytes and the blocks before it, the tensor of each
  // block.
  auto numbers = 6 * static_cast<std::int64_t>(chunk_bytes.size()) + 2;
  for (const std::int64_t bytes : chunk_bytes) numbers += ceil_div(bytes, kBlockBytes);
  return table(tape, numbers);
}

}  // namespace plimsoll::program
