// Layers in a graph that is cut: what crosses from part to part.
#include <algorithm>

#include "plimsoll/error.hpp"
#include "program/modules/transformers/compiled/operator.hpp"

namespace plimsoll::program {

using inductor::Value;

namespace {

/// Where a product's input is kept that is a copy of its own part.
CompiledSlot input_slot(CompiledSlot weight) {
  switch (weight) {
    case kQ:
      return kQInput;
    case kK:
      return kKInput;
    case kV:
      return kVInput;
    case kGate:
      return kGateInput;
    case kUp:
      return kUpInput;
    default:
      return kQkvInput;  // of a head too
  }
}

}  // namespace

constexpr std::array kTraced{kInputNorm, kQkv, kQ, kQNorm, kK, kKNorm, kV, kOutput, kMlpNorm, kGate, kUp, kDown};

std::vector<std::pair<CompiledSlot, ParameterUse>> parameter_uses(const CompiledArguments& arguments) {
  std::vector<std::pair<CompiledSlot, ParameterUse>> uses;
  for (const CompiledSlot weight : kTraced) {
    if (!arguments[weight].defined()) continue;
    ParameterUse use{arguments[weight]};
    const bool has_bias_slot = weight != kQNorm && weight != kKNorm;
    if (has_bias_slot) use.push_back(arguments[weight + 1]);
    uses.emplace_back(weight, std::move(use));
  }
  return uses;
}

void put_into_parts(CompiledShape& shape, const CompiledArguments& arguments, std::span<const int> parts) {
  if (shape.checkpointed) return shape.part.fill(parts.front());  // a checkpoint is one operation
  std::size_t next = 0;
  int part = shape.in_model ? shape.part[kHidden] : parts.front();
  for (const CompiledSlot weight : kTraced) {
    const bool norm = weight == kInputNorm || weight == kQNorm || weight == kKNorm || weight == kMlpNorm;
    if (arguments[weight].defined()) {
      if (norm && parts[next] != part)
        refuse("a compiled graph that DDP's buckets cut at a norm is not modelled", "ddp.bucket_cap_mb", "another cap");
      part = parts[next++];
    }
    shape.part[weight] = part;
  }
  if (!arguments[kGate].defined()) shape.part[kGate] = shape.part[kUp];
  // Where the layer's input comes from another part, the sum behind attention is made again of it and of a product, if that is less to
  // keep than the sum, which no kernel must write and therefore counts twice: fp32 input and 16-bit product against an fp32 sum.
  shape.input_at_hand = shape.apart(kInputNorm, kOutput);
  const bool crosses = shape.apart(kOutput, kDown);
  if (shape.input_at_hand) shape.keeps_middle = !shape.casts();
  shape.keeps_middle = shape.keeps_middle || crosses;
  shape.middle_at_hand = crosses || (shape.input_at_hand && !shape.dropout);  // a dropout's product is not made again
}

void hand_back_all(CutGraphs& cut, const CompiledValues& given, const std::array<Value, kArguments>& gradients) {
  for (std::size_t slot = 0; slot < kArguments; ++slot) {
    if (!gradients[slot].defined()) continue;
    cut.backward().enter(cut.backward().part_of(gradients[slot]));
    cut.hand_back(given[slot], gradients[slot]);
  }
}

CompiledValues saved_values(CutGraphs& cut, const CompiledShape& shape, const CompiledValues& made) {
  CompiledValues kept{};
  for (std::size_t slot = 0; slot < kSlots; ++slot)
    if (is_saved(shape, slot)) kept[slot] = cut.saved(made[slot]);
  if (shape.adds_input_again) kept[kHidden] = {};
  return kept;
}

std::vector<CompiledSlot> CompiledLayer::readers(const Norm& norm) const {
  if (norm.weight == kMlpNorm) return s_.gated && !s_.fused_gate_up ? std::vector{kGate, kUp} : std::vector{kUp};
  if (v_[kQkv].defined()) return {kQkv};
  if (v_[kQ].defined()) return {kQ, kK, kV};
  return {kOutput};  // a model's head
}

bool CompiledLayer::is_read_apart(const Norm& norm) const {
  const std::vector<CompiledSlot> all = readers(norm);
  return std::any_of(all.begin(), all.end(), [&](CompiledSlot weight) { return s_.apart(weight, norm.weight); });
}

/// The norm's result for other parts, which get it in its own type.
void CompiledLayer::hand_on(const Norm& norm, const Values& reads) {
  if (!is_read_apart(norm) || v_[norm.out].defined()) return;
  Values all = reads;
  for (const Value value : {v_[norm.mean], v_[norm.scale], v_[norm.weight], v_[norm.bias]}) all.push_back(value);
  v_[norm.out] = g_.pointwise(stream_sizes(), s_.wide, all);
  statistics_.push_back(v_[norm.out]);
  g_.fuse(statistics_);
  if (!s_.casts()) v_[norm.normed] = v_[norm.out];
}

/// low_copy_and for a product behind the norm: in another part that reads what the norm's part hands on, or under autocast its part's copy.
void CompiledLayer::low_copy_and_norm(CompiledSlot weight, const Norm& norm, const Values& reads, std::int64_t in, std::int64_t out) {
  enter(norm.weight);
  hand_on(norm, reads);
  enter(weight);
  if (!s_.apart(weight, norm.weight)) return low_copy_and([&] { apply_norm(norm, reads); }, weight, in, out);
  const CompiledSlot input = input_slot(weight);
  const auto copy = [&] {
    if (!s_.casts()) return;
    for (const CompiledSlot other : readers(norm))
      if (!s_.apart(other, weight) && v_[input_slot(other)].defined()) v_[input] = v_[input_slot(other)];
    if (!v_[input].defined()) v_[input] = g_.pointwise(stream_sizes(), s_.low, {v_[norm.out]});
  };
  low_copy_and(copy, weight, in, out);
}

/// What the product of that weight reads of the norm.
Value CompiledLayer::input_of(CompiledSlot weight, const Norm& norm) const {
  const Value own = v_[input_slot(weight)];
  return own.defined() ? own : v_[norm.normed];
}

/// The slot of what the weight's product reads.
CompiledSlot CompiledLayer::source_of(CompiledSlot weight) const {
  if (weight == kDown) return v_[kActivatedOut].defined() ? kActivatedOut : kActivated;
  if (weight == kOutput) return kAttended;
  const bool of_mlp = weight == kGate || weight == kUp;
  return of_mlp ? kMlpNormedOut : kNormedOut;
}

CompiledLayer::Values CompiledLayer::input_stream() const {
  if (s_.adds_input_again) return {v_[kBefore], v_[kBeforeBranch]};
  return {v_[kHidden]};
}

/// The gradient of what the forward graph made in the slot, as the part that made it reads it.
Value CompiledLayer::hand_back(CompiledSlot made, Value gradient, bool other_strides) {
  if (cut_.graphs == nullptr) return gradient;
  return cut_.graphs->hand_back((*cut_.made)[made], gradient, other_strides);
}

/// The stream's gradient from behind what was made in the slot, which its norm's gradient is added to.
CompiledLayer::Values CompiledLayer::residual_of(CompiledSlot made, const Values& gradient) {
  if (cut_.graphs == nullptr) return gradient;
  const Value handed = hand_back(made, gradient.front());
  return handed.defined() ? Values{handed} : Values{};
}

}  // namespace plimsoll::program
