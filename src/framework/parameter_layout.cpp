#include "framework/parameter_layout.hpp"

#include <algorithm>
#include <numeric>

namespace plimsoll::framework {

std::vector<std::int64_t> ddp_buckets(const std::vector<std::int64_t>& registered_bytes, std::int64_t bucket_cap,
                                      std::int64_t first_bucket) {
  std::vector<std::int64_t> buckets;
  bool open = false;
  for (auto bytes = registered_bytes.rbegin(); bytes != registered_bytes.rend(); ++bytes) {
    if (!open) buckets.push_back(0);
    buckets.back() += *bytes;
    open = buckets.back() < (buckets.size() == 1 ? first_bucket : bucket_cap);
  }
  return buckets;
}

std::int64_t fsdp2_padded_rows(std::int64_t rows, std::int64_t ranks) { return ceil_div(rows, ranks); }

std::int64_t fsdp2_owned_rows(std::int64_t rows, std::int64_t ranks, std::int64_t rank) {
  const std::int64_t each = fsdp2_padded_rows(rows, ranks);
  return std::clamp<std::int64_t>(rows - rank * each, 0, each);
}

std::int64_t fsdp2_shard_elements(const ParameterTensor& tensor, std::int64_t ranks) {
  if (tensor.shape.empty()) return 1;
  const std::int64_t rows = tensor.shape[0];
  return rows == 0 ? 0 : fsdp2_padded_rows(rows, ranks) * (tensor.elements() / rows);
}

std::int64_t fsdp1_shard_elements(const std::vector<std::int64_t>& unit_elements, std::int64_t ranks) {
  return ceil_div(std::accumulate(unit_elements.begin(), unit_elements.end(), std::int64_t{0}), ranks);
}

std::int64_t megatron_bucket_size(std::int64_t ranks) { return std::max<std::int64_t>(40'000'000, 1'000'000 * ranks); }

MegatronBuffer megatron_buffer(const std::vector<std::int64_t>& elements, const MegatronBufferOptions& options,
                               const std::vector<bool>& own_bucket) {
  const std::int64_t start_quantum = options.distributed_optimizer ? 64 : 1;
  std::int64_t end_quantum = options.distributed_optimizer ? std::lcm(options.ranks, std::int64_t{128}) : 1;
  if (options.distributed_optimizer && options.pad_for_high_nccl_busbw) end_quantum = std::lcm(end_quantum, std::int64_t{65536});

  MegatronBuffer buffer;
  buffer.parameters.resize(elements.size());
  std::int64_t bucket_begin = 0, position = 0;
  const auto close = [&] {
    position = round_up(position, end_quantum);
    buffer.buckets.push_back({bucket_begin, position});
    bucket_begin = position;
  };
  for (std::size_t i = elements.size(); i-- > 0;) {
    const bool alone = i < own_bucket.size() && own_bucket[i];
    if (alone && position > bucket_begin) close();
    position = round_up(position, start_quantum);
    buffer.parameters[i] = {position, position + elements[i]};
    position += elements[i];
    if (alone || (options.bucket_size > 0 && position - bucket_begin >= options.bucket_size)) close();
  }
  if (position > bucket_begin) close();
  return buffer;
}

std::int64_t zero2_kept_gradients(const std::vector<std::int64_t>& elements, std::int64_t ranks, std::int64_t rank) {
  const std::int64_t total = std::accumulate(elements.begin(), elements.end(), std::int64_t{0});
  const std::int64_t partition = round_up(total, 2 * ranks) / ranks;
  const std::int64_t begin = rank * partition, end = begin + partition;
  std::int64_t position = 0, kept = 0;
  for (std::int64_t count : elements) {
    if (position < end && position + count > begin) kept += count;
    position += count;
  }
  return kept;
}

std::int64_t tensor_parallel_elements(const ParameterTensor& tensor, std::int64_t ranks, std::int64_t divisible_by) {
  const std::int64_t elements = tensor.elements();
  switch (tensor.cut) {
    case Cut::replicated:
      return elements;
    case Cut::rows:
    case Cut::columns:
      return elements / ranks;
    case Cut::vocabulary: {
      const std::int64_t rows = tensor.shape.at(0);
      return round_up(rows, divisible_by * ranks) / ranks * (elements / rows);
    }
  }
  return elements;
}

}  // namespace plimsoll::framework
