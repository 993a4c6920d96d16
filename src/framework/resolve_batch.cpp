#include <algorithm>

#include "framework/resolver.hpp"

namespace plimsoll::framework {
namespace {

std::string number(std::int64_t n) { return std::to_string(n); }

/// Micro-batches, micro-batch and global batch: two of three decide the third.
void resolve_counts(Resolver& r) {
  Strategy& s = r.s;
  std::int64_t m = s.micro_batches != 0 ? s.micro_batches : s.grad_accum;
  if (s.micro_batch == 0 && s.global_batch != 0 && m != 0 && s.global_batch % (s.dp * m) == 0) s.micro_batch = s.global_batch / (s.dp * m);
  if (s.micro_batch == 0) {
    s.micro_batch = 1;
    r.assume("micro_batch: 1");
  }
  const std::int64_t per_round = s.micro_batch * s.dp;
  if (m == 0 && s.global_batch != 0 && s.global_batch % per_round != 0) {
    const std::int64_t next = std::max(per_round, s.global_batch / per_round * per_round);
    r.complaints.add("global_batch " + number(s.global_batch) + " is no multiple of micro_batch · dp = " + number(s.micro_batch) + " · " +
                         number(s.dp) + " = " + number(per_round),
                     "global_batch " + number(next) + " is");
    m = std::max<std::int64_t>(1, s.global_batch / per_round);
  } else if (m == 0) {
    m = s.global_batch != 0 ? s.global_batch / per_round : s.pp;
    if (s.global_batch == 0 && s.pp > 1) r.assume("grad_accum: " + number(m) + " micro-batches (one per pipeline rank)");
  } else if (s.global_batch != 0 && s.global_batch != per_round * m) {
    r.complaints.add("global_batch " + number(s.global_batch) + " is not micro_batch · dp · micro-batches = " + number(s.micro_batch) +
                         " · " + number(s.dp) + " · " + number(m) + " = " + number(per_round * m),
                     "leave one of them out");
  }
  constexpr std::int64_t kMostMicroBatches = 1 << 17;  // a schedule holds them all
  if (m > kMostMicroBatches) {
    r.complaints.add(number(m) + " micro-batches a step are more than are played, " + number(kMostMicroBatches),
                     "a larger micro_batch, or a smaller global_batch");
    m = kMostMicroBatches;
  }
  if (s.global_batch == 0) s.global_batch = per_round * m;
  s.micro_batches = m;
}

/// Without a pipeline every micro-batch is a backward pass. With one, the schedule runs once per step over all micro-batches; only
/// torchtitan runs it `grad_accum` times.
void resolve_accumulation(Resolver& r, bool both_given) {
  Strategy& s = r.s;
  const bool several_runs = both_given && s.framework == "torchtitan" && s.micro_batches % s.grad_accum == 0;
  if (s.pp == 1)
    s.grad_accum = s.micro_batches;
  else if (!several_runs)
    s.grad_accum = 1;
}

/// Rows of an image model's position table: its patches, and the class tokens before them; 0: it has none.
std::int64_t position_rows(const Model& model) {
  for (const Block& block : model.blocks)
    for (const Operator& op : block.operators)
      if (op.kind == OperatorKind::position_embedding && !op.parameters.empty())  // [rows, width], or [1, rows, width]
        return op.parameters.front().shape.at(op.parameters.front().shape.size() - 2);
  return 0;
}

/// What the architecture fixes; 0 where it leaves them open.
std::int64_t positions_of_image(const Model& model) {
  if (model.image_size == 0) return 0;
  if (model.patch_size == 0) return 1;  // a convolutional network: one position per image
  return model.task == Model::Task::image_classification ? position_rows(model) : 0;
}

std::int64_t usual_positions(const Model& model) {
  if (const std::int64_t fixed = positions_of_image(model); fixed > 0) return fixed;
  if (model.image_size == 0 || model.patch_size == 0) return 0;
  const std::int64_t side = model.image_size / model.patch_size;
  return side * side + (model.task == Model::Task::diffusion ? 0 : 1);  // a classifier has a class token beside its patches
}

void resolve_lengths(Resolver& r) {
  Strategy& s = r.s;
  const Model& model = r.model;
  r.image_positions = positions_of_image(model);
  if (s.seq_len == 0) s.seq_len = usual_positions(model);
  if (s.seq_len == 0) {
    constexpr std::int64_t kUsualLength = 4096;
    s.seq_len = model.max_positions > 0 ? std::min(model.max_positions, kUsualLength) : kUsualLength;
    r.assume("seq_len: " + number(s.seq_len));
  }
  if (model.task == Model::Task::seq2seq && s.tgt_len == 0) {
    s.tgt_len = s.seq_len;
    r.assume("tgt_len: " + number(s.tgt_len));
  }
  if (model.task == Model::Task::diffusion && s.text_tokens == 0) {
    const bool joined = model.model_type == "SD3Transformer2DModel";  // 77 tokens of CLIP and as many of T5 in diffusers' scripts
    s.text_tokens = joined ? 154 : 512;
    r.assume("text_tokens: " + number(s.text_tokens));
  }
  if (s.average_tokens <= 0) s.average_tokens = static_cast<double>(s.seq_len);
}

}  // namespace

void resolve_batch(Resolver& r) {
  const bool both_given = r.s.micro_batches != 0 && r.s.grad_accum != 0;
  resolve_counts(r);
  resolve_accumulation(r, both_given);
  resolve_lengths(r);
}

}  // namespace plimsoll::framework
