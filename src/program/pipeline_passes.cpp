#include "program/pipeline_passes.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "plimsoll/error.hpp"
#include "program/tensor_names.hpp"

namespace plimsoll::program {
namespace {

enum class Stage : std::uint8_t { warm_up, steady, cool_down };

/// A pass by its place in the schedule: the `index`th of `count` of its kind and stage.
struct Place {
  PassKind kind;
  Stage stage;
  std::int64_t index, count, micro_batch;
};

/// The passes of 1F1B in order (Megatron-core schedules.py, forward_backward_pipelining_without_interleaving).
std::vector<Place> places_of(std::int64_t warm_up, std::int64_t steady) {
  std::vector<Place> places;
  const auto add = [&](PassKind kind, Stage stage, std::int64_t index, std::int64_t count, std::int64_t micro_batch) {
    places.push_back({kind, stage, index, count, micro_batch});
  };
  for (std::int64_t i = 0; i < warm_up; ++i) {
    add(PassKind::receive_input, Stage::warm_up, i, warm_up + 1, i);
    add(PassKind::forward, Stage::warm_up, i, warm_up, i);
    add(PassKind::release_output, Stage::warm_up, i, warm_up, i);
  }
  add(PassKind::receive_input, Stage::warm_up, warm_up, warm_up + 1, warm_up);
  for (std::int64_t i = 0; i < steady; ++i) {
    add(PassKind::forward, Stage::steady, i, steady, warm_up + i);
    add(PassKind::receive_gradient, Stage::steady, i, steady, i);
    add(PassKind::release_output, Stage::steady, i, steady, warm_up + i);
    add(PassKind::backward, Stage::steady, i, steady, i);
    if (i + 1 < steady) add(PassKind::receive_input, Stage::steady, i, steady - 1, warm_up + i + 1);
  }
  for (std::int64_t i = 0; i < warm_up; ++i) {
    add(PassKind::receive_gradient, Stage::cool_down, i, warm_up, steady + i);
    add(PassKind::backward, Stage::cool_down, i, warm_up, steady + i);
  }
  return places;
}

/// Passes of a part and how to find them.
class Order {
 public:
  explicit Order(std::vector<Place> places) : places_(std::move(places)) {
    for (auto& list : by_kind_) list.clear();
    for (std::size_t i = 0; i < places_.size(); ++i) {
      auto& list = by_kind_[static_cast<std::size_t>(places_[i].kind)];
      rank_in_kind_.push_back(list.size());
      list.push_back(i);
      by_micro_batch_[key(places_[i].kind, places_[i].micro_batch)] = i;
      before_.push_back(counts());
    }
    before_.push_back(counts());
  }

  const std::vector<Place>& places() const { return places_; }
  std::size_t size() const { return places_.size(); }

  /// How many passes of `kind` ran after pass `pass` and before or as `now` (`now` = size(): all of them).
  std::int64_t lag(std::size_t pass, std::size_t now) const {
    const auto kind = static_cast<std::size_t>(places_[pass].kind);
    return static_cast<std::int64_t>(ran(kind, now)) - static_cast<std::int64_t>(rank_in_kind_[pass]) - 1;
  }
  std::optional<std::size_t> with_lag(PassKind kind, std::int64_t lag, std::size_t now) const {
    const auto of = static_cast<std::size_t>(kind);
    const std::int64_t rank = static_cast<std::int64_t>(ran(of, now)) - 1 - lag;
    if (rank < 0 || rank >= static_cast<std::int64_t>(by_kind_[of].size())) return {};
    return by_kind_[of][static_cast<std::size_t>(rank)];
  }
  /// The micro-batch of the last backward pass up to and with `now`; nothing before the first.
  std::optional<std::int64_t> last_back(std::size_t now) const {
    const auto& backward = by_kind_[static_cast<std::size_t>(PassKind::backward)];
    const std::size_t count = ran(static_cast<std::size_t>(PassKind::backward), now);
    if (count == 0) return {};
    return places_[backward[count - 1]].micro_batch;
  }
  std::optional<std::size_t> of_micro_batch(PassKind kind, std::int64_t micro_batch) const {
    const auto found = by_micro_batch_.find(key(kind, micro_batch));
    if (found == by_micro_batch_.end()) return {};
    return found->second;
  }

 private:
  using Counts = std::array<std::size_t, kPassKinds>;
  static std::int64_t key(PassKind kind, std::int64_t micro_batch) { return micro_batch * kPassKinds + static_cast<std::int64_t>(kind); }
  Counts counts() const {
    Counts counts{};
    for (std::size_t kind = 0; kind < counts.size(); ++kind) counts[kind] = by_kind_[kind].size();
    return counts;
  }
  /// Passes of a kind up to and with pass `now`.
  std::size_t ran(std::size_t kind, std::size_t now) const { return before_[std::min(now, size())][kind]; }

  std::vector<Place> places_;
  std::array<std::vector<std::size_t>, kPassKinds> by_kind_;
  std::vector<std::size_t> rank_in_kind_;
  std::vector<Counts> before_;  ///< per pass: how many of each kind ran up to and with it
  std::unordered_map<std::int64_t, std::size_t> by_micro_batch_;
};

/// Passes of a kind at the start of a stage that are patterns of their own: the first, and the second, which drops what the first left.
constexpr std::int64_t kOwn = 2;

constexpr std::size_t kPrologue = static_cast<std::size_t>(-1), kEpilogue = static_cast<std::size_t>(-2),
                      kElsewhere = static_cast<std::size_t>(-3);

/// Where a tensor was born: the `ordinal`th allocation of a pass, or of what stands before or behind the passes, or in another part.
struct Birth {
  std::size_t pass = kElsewhere;
  std::uint32_t ordinal = 0;
};

/// A tensor as a pass names it, independent of which micro-batch it is.
struct Reference {
  enum class To : std::uint8_t { same_pass, same_micro_batch, last_back, earlier_pass, prologue, epilogue, elsewhere } to = To::elsewhere;
  PassKind kind = PassKind::forward;
  std::int64_t lag = 0;  ///< of last_back: micro-batches behind that of the last backward pass; of earlier_pass: passes of `kind` since
  std::uint32_t ordinal = 0;  ///< of elsewhere: the tensor's own id

  friend bool operator==(const Reference& a, const Reference& b) {
    return a.to == b.to && a.kind == b.kind && a.lag == b.lag && a.ordinal == b.ordinal;
  }
};

/// One recorded part, cut into passes.
class Part {
 public:
  Part(const std::vector<Instruction>& instructions, const PassMarks& marks, const Order& order, TensorId ids)
      : instructions_(instructions), marks_(marks), order_(order) {
    std::vector<Birth> alive(ids);
    references_.resize(instructions.size());
    for (std::size_t pass = kPrologue, i = 0, next = 0; i <= instructions.size(); ++i) {
      while (next < marks.passes.size() && marks.passes[next].at == i) pass = next++, ordinal_ = 0;
      if (i == marks.end) pass = kEpilogue, ordinal_ = 0;
      if (i == instructions.size()) break;
      refer(pass, i, alive);
    }
  }

  std::size_t begin(std::size_t pass) const { return marks_.passes[pass].at; }
  std::size_t end(std::size_t pass) const { return pass + 1 < marks_.passes.size() ? marks_.passes[pass + 1].at : marks_.end; }
  std::size_t prologue_end() const { return marks_.passes.front().at; }
  std::size_t epilogue_begin() const { return marks_.end; }
  const std::vector<Instruction>& instructions() const { return instructions_; }
  const Reference& reference(std::size_t instruction) const { return references_[instruction]; }

  /// Whether two passes do the same, each with tensors of its own.
  bool alike(std::size_t a, std::size_t b) const {
    const std::size_t count = end(a) - begin(a);
    if (count != end(b) - begin(b)) return false;
    for (std::size_t i = 0; i < count; ++i) {
      const Instruction &x = instructions_[begin(a) + i], &y = instructions_[begin(b) + i];
      if (x.kind != y.kind || x.stream != y.stream || x.bytes != y.bytes || x.category != y.category) return false;
      if (names_a_tensor(x) && !(references_[begin(a) + i] == references_[begin(b) + i])) return false;
    }
    return true;
  }

  /// Whether two passes of a kind give birth to the same tensors in the same order, so that others can name them alike.
  bool born_alike(std::size_t a, std::size_t b) const { return births(a) == births(b); }

 private:
  std::vector<std::int64_t> births(std::size_t pass) const {
    std::vector<std::int64_t> sizes;
    for (std::size_t i = begin(pass); i < end(pass); ++i)
      if (instructions_[i].kind == InstructionKind::alloc) sizes.push_back(instructions_[i].bytes);
    return sizes;
  }

  void refer(std::size_t pass, std::size_t i, std::vector<Birth>& alive) {
    const Instruction& instruction = instructions_[i];
    if (!names_a_tensor(instruction)) return;
    if (instruction.kind == InstructionKind::alloc) alive[instruction.id] = {pass, ordinal_++};
    const Birth& birth = alive[instruction.id];
    references_[i] =
        birth.pass == kElsewhere ? Reference{Reference::To::elsewhere, PassKind::forward, 0, instruction.id} : reference_to(birth, pass);
  }

  Reference reference_to(const Birth& birth, std::size_t pass) const {
    if (birth.pass == pass) return {Reference::To::same_pass, PassKind::forward, 0, birth.ordinal};
    if (birth.pass == kPrologue) return {Reference::To::prologue, PassKind::forward, 0, birth.ordinal};
    if (birth.pass == kEpilogue) return {Reference::To::epilogue, PassKind::forward, 0, birth.ordinal};
    const Place& born = order_.places()[birth.pass];
    const bool in_pass = pass < order_.size();
    if (in_pass && born.micro_batch == order_.places()[pass].micro_batch)
      return {Reference::To::same_micro_batch, born.kind, 0, birth.ordinal};
    // What a variable of the schedule still held is of the micro-batch that came back last, however many are under way.
    const auto back = order_.last_back(in_pass ? pass : order_.size());
    if (back && *back - born.micro_batch >= 0 && *back - born.micro_batch <= 1)
      return {Reference::To::last_back, born.kind, *back - born.micro_batch, birth.ordinal};
    return {Reference::To::earlier_pass, born.kind, order_.lag(birth.pass, in_pass ? pass : order_.size()), birth.ordinal};
  }

  const std::vector<Instruction>& instructions_;
  const PassMarks& marks_;
  const Order& order_;
  std::vector<Reference> references_;
  std::uint32_t ordinal_ = 0;
};

bool marks_are(const PassMarks& marks, const Order& order) {
  if (marks.passes.size() != order.size()) return false;
  for (std::size_t i = 0; i < order.size(); ++i)
    if (marks.passes[i].kind != order.places()[i].kind || marks.passes[i].micro_batch != order.places()[i].micro_batch) return false;
  return true;
}

/// The first two and the last passes of a kind and stage may be their own; those between are alike. All give birth alike, those of the
/// first micro-batch aside: in the first step it fills caches, and whoever names its tensors is a first pass as well.
bool repeats(const Part& part, const Order& order) {
  std::array<std::optional<std::size_t>, kPassKinds> of_kind;
  std::unordered_map<int, std::size_t> of_stage;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Place& place = order.places()[i];
    if (place.micro_batch == 0) continue;
    auto& first = of_kind[static_cast<std::size_t>(place.kind)];
    if (!first) first = i;
    if (!part.born_alike(*first, i)) return false;
    if (place.index < kOwn || place.index + 1 == place.count) continue;
    const int stage = static_cast<int>(place.kind) * 4 + static_cast<int>(place.stage);
    const auto [pattern, is_first] = of_stage.try_emplace(stage, i);
    if (!is_first && !part.alike(pattern->second, i)) return false;
  }
  return true;
}

/// The recorded pass that stands for `place`.
std::size_t pattern_of(const Place& place, const std::vector<Place>& recorded) {
  std::size_t found = 0;
  for (std::size_t i = 0; i < recorded.size(); ++i) {
    const Place& other = recorded[i];
    if (other.kind != place.kind || other.stage != place.stage) continue;
    const bool last = place.index + 1 == place.count;
    const std::int64_t wanted = last ? other.count - 1 : std::min(place.index, kOwn);
    if (other.index == wanted) found = i;
  }
  return found;
}

/// Writes one part of the new program.
class Writer {
 public:
  Writer(const Part& part, const Order& recorded, const Order& wanted, TensorId& next_id, std::vector<TensorId>& renamed)
      : part_(part), recorded_(recorded), wanted_(wanted), next_id_(next_id), renamed_(renamed), born_(wanted.size()) {}

  std::optional<std::vector<Instruction>> write() {
    copy(kPrologue, 0, part_.prologue_end());
    for (std::size_t pass = 0; pass < wanted_.size(); ++pass) {
      begins_.push_back(out_.size());
      const std::size_t pattern = pattern_of(wanted_.places()[pass], recorded_.places());
      copy(pass, part_.begin(pattern), part_.end(pattern));
    }
    copy(kEpilogue, part_.epilogue_begin(), part_.instructions().size());
    if (!known_) return {};
    return std::move(out_);
  }

  /// The middle turn of the steady state, run `times` times.
  Repeated repeated(std::int64_t times) const {
    Repeated repeated{.times = times};
    for (std::size_t pass = 0; pass < wanted_.size(); ++pass) {
      const Place& place = wanted_.places()[pass];
      if (place.kind != PassKind::forward || place.stage != Stage::steady) continue;
      if (place.index == (place.count - 1) / 2) repeated.begin = begins_[pass];
      if (place.index == (place.count - 1) / 2 + 1) repeated.end = begins_[pass];
    }
    return repeated;
  }

 private:
  std::vector<TensorId>& born_in(std::size_t pass) { return pass == kPrologue ? prologue_ : pass == kEpilogue ? epilogue_ : born_[pass]; }

  void copy(std::size_t pass, std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) {
      Instruction instruction = part_.instructions()[i];
      if (instruction.kind == InstructionKind::alloc) {
        renamed_[instruction.id] = next_id_;
        born_in(pass).push_back(instruction.id = next_id_++);
      } else if (names_a_tensor(instruction)) {
        instruction.id = resolve(part_.reference(i), pass);
      }
      out_.push_back(instruction);
    }
  }

  TensorId resolve(const Reference& reference, std::size_t pass) {
    const bool in_pass = pass < wanted_.size();
    switch (reference.to) {
      case Reference::To::same_pass:
        return at(born_in(pass), reference.ordinal);
      case Reference::To::prologue:
        return at(prologue_, reference.ordinal);
      case Reference::To::epilogue:
        return at(epilogue_, reference.ordinal);
      case Reference::To::same_micro_batch:
        return of(wanted_.of_micro_batch(reference.kind, wanted_.places()[pass].micro_batch), reference.ordinal);
      case Reference::To::last_back: {
        const auto back = wanted_.last_back(in_pass ? pass : wanted_.size());
        return of(back ? wanted_.of_micro_batch(reference.kind, *back - reference.lag) : std::nullopt, reference.ordinal);
      }
      case Reference::To::earlier_pass:
        return of(wanted_.with_lag(reference.kind, reference.lag, in_pass ? pass : wanted_.size()), reference.ordinal);
      case Reference::To::elsewhere:
        break;
    }
    return renamed_[reference.ordinal];
  }

  TensorId of(std::optional<std::size_t> pass, std::uint32_t ordinal) {
    if (pass) return at(born_[*pass], ordinal);
    known_ = false;
    return 0;
  }
  TensorId at(const std::vector<TensorId>& born, std::uint32_t ordinal) {
    if (ordinal < born.size()) return born[ordinal];
    known_ = false;
    return 0;
  }

  const Part& part_;
  const Order &recorded_, &wanted_;
  TensorId& next_id_;
  std::vector<TensorId>& renamed_;  ///< recorded → new, the youngest of each pattern: what the next part may name
  std::vector<std::vector<TensorId>> born_;
  std::vector<std::size_t> begins_;         ///< per pass, in what is written
  std::vector<TensorId> prologue_, epilogue_;
  std::vector<Instruction> out_;
  bool known_ = true;
};

/// The order of the recorded passes; throws Error (internal) where they stand otherwise.
Order order_of(const RecordedPipelineRank& recorded) {
  Order order(places_of(recorded.warm_up, recorded.steady));
  if (!marks_are(recorded.first_step, order) || !marks_are(recorded.step, order))
    throw Error(ErrorCode::internal, "a recorded pipeline's passes are not those of 1F1B", "pipeline passes");
  return order;
}

}  // namespace

struct PipelinePatterns::Impl {
  explicit Impl(RecordedPipelineRank rank)
      : recorded(std::move(rank)),
        order(order_of(recorded)),
        ids(std::max(names_in(recorded.program.first_step), names_in(recorded.program.step))),
        first_step(recorded.program.first_step, recorded.first_step, order, ids),
        step(recorded.program.step, recorded.step, order, ids),
        usable(repeats(first_step, order) && repeats(step, order)) {}

  RecordedPipelineRank recorded;
  Order order;
  TensorId ids;
  Part first_step, step;
  bool usable;
};

PipelinePatterns::PipelinePatterns(RecordedPipelineRank recorded) : impl_(std::make_unique<Impl>(std::move(recorded))) {}
PipelinePatterns::~PipelinePatterns() = default;

std::optional<StepProgram> PipelinePatterns::compose(std::int64_t warm_up, std::int64_t steady, std::int64_t left_out) const {
  if (!impl_->usable) return {};
  const Order wanted(places_of(warm_up, steady));
  const StepProgram& old = impl_->recorded.program;
  TensorId next_id = names_in(old.init);
  std::vector<TensorId> renamed(std::max(impl_->ids, next_id));
  std::iota(renamed.begin(), renamed.end(), 0U);
  auto first_step = Writer(impl_->first_step, impl_->order, wanted, next_id, renamed).write();
  Writer writer(impl_->step, impl_->order, wanted, next_id, renamed);
  auto step = writer.write();
  if (!first_step || !step) return {};
  StepProgram program;
  program.init = old.init;
  program.first_step = std::move(*first_step);
  program.step = std::move(*step);
  program.repeated = writer.repeated(1 + left_out);
  program.kernels = old.kernels;
  program.collectives = old.collectives;
  program.copies = old.copies;
  program.labels = old.labels;
  program.streams = old.streams;
  program.host_pinned = old.host_pinned;
  program.host_pageable = old.host_pageable;
  return program;
}

}  // namespace plimsoll::program
