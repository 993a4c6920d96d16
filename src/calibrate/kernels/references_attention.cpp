// References of attention: of the table's kernels, and of whole passes as a vendor's library runs them.
#include "calibrate/kernels/reference_parts.hpp"

namespace plimsoll::calibrate {
namespace {

constexpr std::int64_t kMostBackRows = 64;

struct AttentionShape {
  std::int64_t heads, kv_heads, sequence, width;
  bool causal;
  DType type;

  AttentionShape(const Answer& answer, DType of, std::int64_t head_width)
      : heads(answer.sizes[0]),
        kv_heads(answer.sizes[1]),
        sequence(answer.sizes[2]),
        width(head_width),
        causal(answer.sizes[3] != 0),
        type(of) {}
  /// The first row of the keys that a query head sees.
  std::int64_t keys_of(std::int64_t head) const { return head / (heads / kv_heads) * sequence; }
  std::int64_t seen(std::int64_t position) const { return causal ? position + 1 : sequence; }
};

void compare_attention_row(Comparison& compare, const Reader& read, const AttentionShape& shape, std::int64_t row) {
  const View q = read.before(0, shape.type), k = read.before(1, shape.type), v = read.before(2, shape.type);
  const std::int64_t kv_row = shape.keys_of(row / shape.sequence), keys = shape.seen(row % shape.sequence), width = shape.width;
  std::vector<double> weight(static_cast<std::size_t>(keys));
  double maximum = -std::numeric_limits<double>::infinity(), sum = 0;
  for (std::int64_t key = 0; key < keys; ++key) {
    const double score = dot(q, row, k, kv_row + key, width).sum / std::sqrt(static_cast<double>(width));
    weight[static_cast<std::size_t>(key)] = score;
    maximum = std::max(maximum, score);
  }
  for (double& w : weight) sum += w = std::exp(w - maximum);
  for (std::int64_t column = 0; column < width; ++column) {
    double expected = 0, magnitude = 0;
    for (std::int64_t key = 0; key < keys; ++key) {
      const double part = weight[static_cast<std::size_t>(key)] / sum * v[(kv_row + key) * width + column];
      expected += part;
      magnitude += std::fabs(part);
    }
    // Both the weights and the result are rounded to the operands' type.
    compare("out", row * width + column, read.after(3, shape.type)[row * width + column], expected,
            1.01 * rounding(shape.type) * (std::fabs(expected) + magnitude));
  }
  const double log_sum = maximum + std::log(sum);
  compare("log_sum", row, read.after(4, DType::fp32)[row], log_sum, 1e-5 * (1 + std::fabs(log_sum)));
}

/// P and dS / √width of one pair of a query and a key.
struct PairGradients {
  double weight, score;
};

/// Where a backward pass's operands are among a row's buffers, behind Q, K and V. The table's kernels are given δ and add to dQ in fp32; a
/// library's pass is given the output and sets dQ in the operands' type.
struct BackwardBuffers {
  std::size_t output, log_sum, gradient, delta, dq, dk, dv;
  bool whole;
};
constexpr BackwardBuffers kTableKernel{0, 4, 3, 5, 6, 7, 8, false}, kWholePass{3, 4, 5, 0, 6, 7, 8, true};

class BackwardReference {
 public:
  BackwardReference(const Reader& read, const AttentionShape& shape, const BackwardBuffers& buffers)
      : read_(read), shape_(shape), at_(buffers) {}

  PairGradients of(std::int64_t query, std::int64_t key) const {
    const View q = read_.before(0, shape_.type), k = read_.before(1, shape_.type), v = read_.before(2, shape_.type);
    const double root = std::sqrt(static_cast<double>(shape_.width));
    const double weight = std::exp(dot(q, query, k, key, shape_.width).sum / root - read_.before(at_.log_sum, DType::fp32)[query]);
    const double product = dot(gradient(), query, v, key, shape_.width).sum;
    return {weight, weight * (product - delta(query)) / root};
  }

  void compare_query(Comparison& compare, std::int64_t query) const {
    const std::int64_t keys = shape_.keys_of(query / shape_.sequence);
    std::vector<Dot> sums(static_cast<std::size_t>(shape_.width));
    for (std::int64_t key = 0; key < shape_.seen(query % shape_.sequence); ++key)
      add(sums, of(query, keys + key).score, read_.before(1, shape_.type), keys + key);
    const DType type = at_.whole ? shape_.type : DType::fp32;
    const View before = read_.before(at_.dq, type), after = read_.after(at_.dq, type);
    for (std::int64_t i = 0, at = query * shape_.width; i < shape_.width; ++i, ++at) {
      const Dot& sum = sums[static_cast<std::size_t>(i)];
      compare("dq", at, after[at], (at_.whole ? 0 : before[at]) + sum.sum, tolerance(sum, at_.whole ? rounding(type) : 64 * kFp32));
    }
  }

  /// dK and dV of one key, summed over the heads that share it.
  void compare_key(Comparison& compare, std::int64_t key) const {
    const std::int64_t group = shape_.heads / shape_.kv_heads, kv_head = key / shape_.sequence, position = key % shape_.sequence;
    std::vector<Dot> of_key(static_cast<std::size_t>(shape_.width)), of_value = of_key;
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
      for (std::int64_t i = shape_.causal ? position : 0; i < shape_.sequence; ++i) {
        const std::int64_t query = head * shape_.sequence + i;
        const PairGradients pair = of(query, key);
        add(of_key, pair.score, read_.before(0, shape_.type), query);
        add(of_value, pair.weight, gradient(), query);
      }
    for (std::int64_t i = 0, at = key * shape_.width; i < shape_.width; ++i, ++at) {
      const Dot &dk = of_key[static_cast<std::size_t>(i)], &dv = of_value[static_cast<std::size_t>(i)];
      compare("dk", at, read_.after(at_.dk, shape_.type)[at], dk.sum, key_tolerance(dk));
      compare("dv", at, read_.after(at_.dv, shape_.type)[at], dv.sum, key_tolerance(dv));
    }
  }

 private:
  View gradient() const { return read_.before(at_.gradient, shape_.type); }
  double delta(std::int64_t query) const {
    if (at_.whole) return dot(gradient(), query, read_.before(at_.output, shape_.type), query, shape_.width).sum;
    return read_.before(at_.delta, DType::fp32)[query];
  }
  void add(std::vector<Dot>& sums, double factor, const View& rows, std::int64_t row) const {
    for (std::int64_t i = 0; i < shape_.width; ++i) {
      const double part = factor * rows[row * shape_.width + i];
      sums[static_cast<std::size_t>(i)].sum += part;
      sums[static_cast<std::size_t>(i)].magnitude += std::fabs(part);
    }
  }
  /// Weights and gradients of scores are rounded to the operands' type before they are multiplied, and the result once more; dO·Vᵀ − δ
  /// loses digits where both are alike.
  double tolerance(const Dot& sum, double result) const {
    return 1.01 * (result * std::fabs(sum.sum) + rounding(shape_.type) * sum.magnitude) + 1e-5;
  }
  /// A library rounds the gradients of every query head before it adds up those that share a key head.
  double key_tolerance(const Dot& sum) const {
    const bool rounds_heads = at_.whole && shape_.heads > shape_.kv_heads;
    return tolerance(sum, rounding(shape_.type)) + (rounds_heads ? rounding(shape_.type) * sum.magnitude : 0);
  }

  const Reader& read_;
  const AttentionShape& shape_;
  const BackwardBuffers& at_;
};

Check check_backward(const Answer& answer, const AttentionShape& shape, const BackwardBuffers& buffers) {
  const Reader read(answer, 0);
  const BackwardReference reference(read, shape, buffers);
  Comparison compare;
  visit_sample(shape.heads * shape.sequence, kMostBackRows, [&](std::int64_t query) { reference.compare_query(compare, query); });
  visit_sample(shape.kv_heads * shape.sequence, kMostBackRows, [&](std::int64_t key) { reference.compare_key(compare, key); });
  return compare.result();
}

}  // namespace

Check check_attention(const Answer& answer, DType type, std::int64_t width) {
  const AttentionShape shape(answer, type, width);
  const Reader read(answer, 0);
  Comparison compare;
  visit_sample(shape.heads * shape.sequence, kMostRows, [&](std::int64_t row) { compare_attention_row(compare, read, shape, row); });
  return compare.result();
}

Check check_attention_delta(const Answer& answer, std::int64_t width) {
  const Reader read(answer, 0);
  const View gradient = read.before(0, DType::bf16), output = read.before(1, DType::bf16);
  Comparison compare;
  visit_sample(answer.sizes[0], kMostDots, [&](std::int64_t row) {
    const Dot expected = dot(gradient, row, output, row, width);
    compare("delta", row, read.after(2, DType::fp32)[row], expected.sum, 16 * kFp32 * expected.magnitude);
  });
  return compare.result();
}

Check check_attention_backward(const Answer& answer, std::int64_t width) {
  return check_backward(answer, AttentionShape(answer, DType::bf16, width), kTableKernel);
}

Check check_attention_pass_backward(const Answer& answer, DType type, std::int64_t width) {
  return check_backward(answer, AttentionShape(answer, type, width), kWholePass);
}

}  // namespace plimsoll::calibrate
