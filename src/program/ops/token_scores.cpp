#include "program/ops/token_scores.hpp"

#include <algorithm>
#include <vector>

#include "program/op.hpp"
#include "program/ops/choosing.hpp"
#include "program/ops/copying.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/pointwise.hpp"
#include "program/python_function.hpp"
#include "program/reduction.hpp"

namespace plimsoll::program {

namespace {

constexpr std::int64_t kTileTokens = 4096;    // TOKEN_CHUNK_SIZE
constexpr std::int64_t kTileClasses = 32768;  // _CHUNKED_LOGPROB_CHUNK_SIZE

/// The loop over tiles that forward and backward share.
class Tiles {
 public:
  Tiles(const Tensor& hidden, const Tensor& weight, const Tensor& bias, DType type)
      : hidden_(hidden), weight_(weight), bias_(bias), type_(type) {
    tile_ = hidden.tape().empty({std::min(hidden.size(0), kTileTokens), kTileClasses}, type);
  }

  /// Calls `fold(logits, hidden, weight, first token, first class)` with every tile's logits and what they are a product of.
  template <class Fold>
  void run(const Fold& fold) const {
    const std::int64_t tokens = hidden_.size(0), classes = weight_.size(0);
    for (std::int64_t token = 0; token < tokens; token += kTileTokens) {
      const std::int64_t rows = std::min(kTileTokens, tokens - token);
      const Tensor hidden = to(slice(hidden_, 0, token, token + rows), type_);
      for (std::int64_t first = 0; first < classes; first += kTileClasses) {
        const std::int64_t columns = std::min(kTileClasses, classes - first);
        const Tensor weight = to(slice(weight_, 0, first, first + columns), type_);
        const Tensor logits = slice(slice(tile_, 0, 0, rows), 1, 0, columns);
        gemm(hidden.tape(), matrix(hidden), matrix(weight).t(), matrix(logits));
        if (bias_) {
          const Tensor low = to(slice(bias_, 0, first, first + columns), type_);
          in_place(logits, {&logits, &low});
        }
        fold(logits, hidden, weight, token, first);
      }
    }
  }

 private:
  const Tensor &hidden_, &weight_, &bias_;
  DType type_;
  Tensor tile_;  ///< mm_buf
};

/// _addmm_fp32: added to fp32 numbers, from 16 bits since PyTorch 2.8 without a copy of either factor in fp32.
void add_product(const Tensor& sum, const Matrix& a, const Matrix& b) {
  gemm(sum.tape(), a, b, matrix(sum), {.accumulates = true});
}

/// The seven running numbers of each token (running_max to target_logit).
std::vector<Tensor> running_statistics(Tape& tape, std::int64_t tokens) {
  std::vector<Tensor> statistics;
  for (const bool filled_with_infinity : {true, false, false, false, false, true, false})
    statistics.push_back(filled_with_infinity ? filled(tape, {tokens}, DType::fp32) : zeros(tape, {tokens}, DType::fp32));
  return statistics;
}

/// Each tile's logits are computed again and become their gradient where they lie.
void chunked_backward(BackwardCall& b, DType type) {
  const Tensor hidden = b.saved(0), weight = b.saved(1), bias = b.saved(2);
  Tensor of_hidden, of_weight, of_bias;
  if (b.needs(0)) of_hidden = zeros(b.tape, hidden.sizes(), DType::fp32);
  if (b.needs(1)) of_weight = zeros(b.tape, weight.sizes(), DType::fp32);
  if (bias && b.needs(2)) of_bias = zeros(b.tape, bias.sizes(), DType::fp32);
  const Tiles tiles(hidden, weight, bias, type);  // mm_buf, which lives until the function returns
  const Tensor gradient = contiguous(b.grad());
  tiles.run([&](const Tensor& logits, const Tensor& low_hidden, const Tensor& low_weight, std::int64_t token, std::int64_t first) {
    pointwise(Pointwise::Form::fused, {&logits, &gradient}, {&logits});
    if (of_hidden) {
      const Tensor part = slice(of_hidden, 0, token, token + logits.size(0));
      add_product(part, matrix(logits), matrix(low_weight));
    }
    if (of_weight) {
      const Tensor part = slice(of_weight, 0, first, first + logits.size(1));
      add_product(part, matrix(logits).t(), matrix(low_hidden));
    }
    if (of_bias) {
      const Tensor part = slice(of_bias, 0, first, first + logits.size(1));
      const Tensor sum = reduce(logits, {true, false}, false, DType::fp32);
      in_place(part, {&part, &sum});
    }
  });
  if (of_hidden) b.give(0, to(of_hidden, hidden.dtype()));
  if (of_weight) b.give(1, to(of_weight, weight.dtype()));
  if (of_bias) b.give(2, to(of_bias, bias.dtype()));
}

}  // namespace

TokenScores chunked_token_scores(const Tensor& hidden, const Tensor& weight, const Tensor& bias, const Tensor& targets, TokenMetrics metrics) {
  PythonFunction op("ChunkedLogProb", {&hidden, &weight, &bias});
  Tape& tape = op.tape();
  const DType type = tape.autocast.enabled ? tape.autocast.type : hidden.dtype();
  const std::int64_t tokens = hidden.size(0);
  TokenScores scores;
  Tensor log_z;
  {
    const GradMode no_grad(tape, false);
    const std::vector<Tensor> running = running_statistics(tape, tokens);
    const Tensor whole = hidden.detach(), all = weight.detach(), offset = bias ? bias.detach() : Tensor();
    const Tiles tiles(whole, all, offset, type);
    tiles.run([&](const Tensor& logits, const Tensor&, const Tensor&, std::int64_t, std::int64_t) {
      row_wise(RowWise::Function::cross_entropy, logits.size(0), logits.size(1), {&logits, &targets}, {&running[1]});
    });
    const auto made = [&](std::initializer_list<const Tensor*> from, DType of = DType::fp32) { return elementwise(tape, from, of); };
    const Tensor &most = running[0], &sum = running[1], &weighted = running[2], &total = running[4], &before = running[5], &target = running[6];
    {
      const Tensor logarithm = made({&sum});
      log_z = made({&most, &logarithm});
    }
    scores.log_probs = made({&target, &log_z});
    if (metrics.entropy) {
      const Tensor mean = made({&weighted, &sum});
      scores.entropy = made({&log_z, &mean});
    }
    if (metrics.mean_logits) scores.mean_logits = made({&total});
    if (metrics.is_top1) {
      const Tensor most_likely = made({&target, &most}, DType::boolean), first = made({&target, &before}, DType::boolean);
      scores.is_top1 = made({&most_likely, &first}, DType::boolean);
    }
  }
  op.save(hidden);
  op.save(weight);
  op.save(bias);
  op.save(targets);
  op.save(log_z);
  if (metrics.entropy) op.save_output(scores.entropy);
  const auto backward = [type](BackwardCall& b) { chunked_backward(b, type); };
  if (metrics.entropy)
    op.finish({&scores.log_probs, &scores.entropy}, backward);
  else
    op.finish({&scores.log_probs}, backward);
  return scores;
}

Tensor selective_log_softmax(const Tensor& logits, const Tensor& labels) {
  const Tensor places = unsqueeze(labels, -1);
  if (logits.dtype() == DType::fp32) {
    const Tensor selected = gather_last(logits, places);
    Tensor sums;
    {
      std::vector<Tensor> each;
      for (const Tensor& sequence : unbind(logits, 0)) each.push_back(log_sum_exp(sequence, {1}, false));
      sums = stack(each, 0);
    }
    return squeeze(subtract(selected, unsqueeze(sums, -1)), -1);
  }
  std::vector<Tensor> each;
  const std::vector<Tensor> sequences = unbind(logits, 0), rows = unbind(places, 0);
  Tensor log_probs;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    log_probs = log_softmax(sequences[i], logits.dtype());
    each.push_back(gather_last(log_probs, rows[i]));
  }
  return squeeze(stack(each, 0), -1);
}

Tensor kernel_log_probs(const Tensor& logits, const Tensor& labels) {
  PythonFunction op("LogProbEntropy", {&logits});
  const auto numbers = [&] { return op.tape().empty(labels.sizes(), DType::fp32); };
  Tensor log_probs = numbers(), entropy = numbers();
  const Tensor log_z = numbers(), expected = numbers();
  const std::int64_t rows = labels.elements();
  row_wise(RowWise::Function::cross_entropy, rows, logits.size(-1), {&logits, &labels}, {&log_probs, &entropy, &log_z, &expected});
  op.save(logits);
  op.save(labels);
  op.save(log_z);
  op.save(expected);
  op.finish({&log_probs, &entropy}, [rows](BackwardCall& b) {
    const Tensor whole = b.saved(0), targets = b.saved(1);
    Tensor gradient = b.tape.empty(whole.sizes(), whole.dtype());
    const Tensor of_each = contiguous(b.grad());
    row_wise(RowWise::Function::cross_entropy, rows, whole.size(-1), {&whole, &targets, &of_each}, {&gradient});
    b.give(0, std::move(gradient));
  });
  return log_probs;
}

Tensor flash_log_probs(const Tensor& logits, const Tensor& labels, bool in_place) {
  PythonFunction op("CrossEntropyLoss", {&logits});
  const auto numbers = [&] { return op.tape().empty(labels.sizes(), DType::fp32); };
  Tensor losses = numbers();
  const Tensor log_sums = numbers();
  const std::int64_t rows = labels.elements();
  {
    const Tensor z_losses = numbers();
    row_wise(RowWise::Function::cross_entropy, rows, logits.size(-1), {&logits, &labels}, {&losses, &log_sums, &z_losses});
  }
  for (const Tensor* kept : {&logits, &log_sums, &labels}) op.save(*kept);
  losses = op.done(losses, [rows, in_place](BackwardCall& b) {
    const Tensor whole = b.saved(0), sums = b.saved(1), targets = b.saved(2);
    Tensor gradient = in_place ? whole : b.tape.empty(whole.sizes(), whole.dtype());
    row_wise(RowWise::Function::cross_entropy, rows, whole.size(-1), {&whole, &targets, &sums, &b.grad()}, {&gradient});
    b.give(0, std::move(gradient));
  });
  return negate(losses);
}

Tensor compiled_entropy(const Tensor& logits) {
  Op op("entropy", {&logits});
  const Dims rows{logits.size(0)};
  Tensor entropy = op.tape().empty(rows, DType::fp32);
  const Tensor largest = op.tape().empty({rows[0], 1}, DType::fp32), sums = op.tape().empty({rows[0], 1}, DType::fp32);
  row_wise(RowWise::Function::softmax, rows[0], logits.size(-1), {&logits}, {&entropy, &largest, &sums});
  for (const Tensor* kept : {&logits, &largest, &sums}) op.save(*kept);
  return op.done(entropy, [](BackwardCall& b) {
    const Tensor whole = b.saved(0), most = b.saved(1), total = b.saved(2);
    Tensor gradient = b.tape.empty(whole.sizes(), whole.dtype());
    row_wise(RowWise::Function::softmax, whole.size(0), whole.size(1), {&whole, &most, &total, &b.grad()}, {&gradient});
    b.give(0, std::move(gradient));
  });
}

Tensor scale_part(const Tensor& base, const Tensor& part) {
  Op op("copy_slices", {&base});
  in_place(part.detach(), {&part});
  Tensor y = base.detach();
  return op.done(y, [sizes = part.sizes(), strides = part.strides()](BackwardCall& b) {
    Tensor whole = b.tape.empty(b.grad().sizes(), b.grad().dtype());
    copy_into(whole, b.grad());
    const Tensor place = b.tape.view(whole, sizes, strides);
    const Tensor piece = b.tape.empty(sizes, b.grad().dtype());
    copy_into(piece, place);
    const Tensor scaled = elementwise(b.tape, {&piece}, piece.dtype());
    copy_into(place, scaled);
    b.give(0, std::move(whole));
  });
}

Tensor entropy_of_logits(const Tensor& logits) {
  constexpr std::int64_t kTokens = 128;
  const Tensor flat = reshape(logits, {-1, logits.size(-1)});
  std::vector<Tensor> entropies;
  Tensor log_probs;
  for (std::int64_t first = 0; first < flat.size(0); first += kTokens) {
    log_probs = log_softmax(slice(flat, 0, first, std::min(first + kTokens, flat.size(0))), flat.dtype());
    Tensor weighted;
    {
      const Tensor probabilities = exponential(log_probs);
      weighted = multiply(probabilities, log_probs);
    }
    const Tensor total = sum(weighted, {1}, false);
    weighted.reset();
    entropies.push_back(negate(total));
  }
  return reshape(cat(entropies, 0), {logits.size(0), logits.size(1)});
}

}  // namespace plimsoll::program
