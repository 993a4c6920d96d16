#include "program/pipeline_passes.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "plimsoll/error.hpp"
#include "program/left_behind.hpp"
#include "program/pass_order.hpp"
#include "program/tensor_names.hpp"

namespace plimsoll::program {
namespace {

constexpr std::size_t kPrologue = static_cast<std::size_t>(-1), kEpilogue = static_cast<std::size_t>(-2),
                      kElsewhere = static_cast<std::size_t>(-3);

/// Where a tensor was born: the `ordinal`th allocation of a pass, or of what stands before or behind the passes, or in another part.
struct Birth {
  std::size_t pass = kElsewhere;
  std::uint32_t ordinal = 0;
};

/// A tensor as a pass names it, independent of which micro-batch it is.
struct Reference {
  enum class To : std::uint8_t {
    same_pass,
    same_micro_batch,
    last_back,
    from_start,
    earlier_pass,
    prologue,
    epilogue,
    elsewhere
  };
  To to = To::elsewhere;
  PassKind kind = PassKind::forward;
  int chunk = 0;
  std::int64_t distance =
      0;  ///< last_back: micro-batches behind that of the last backward pass; from_start, earlier_pass: passes of the row
  std::uint32_t ordinal = 0;  ///< of elsewhere: the tensor's own id

  friend bool operator==(const Reference& a, const Reference& b) {
    return a.to == b.to && a.kind == b.kind && a.chunk == b.chunk && a.distance == b.distance && a.ordinal == b.ordinal;
  }
};

bool is_of_an_event(const Instruction& instruction) {
  return instruction.kind == InstructionKind::record_event || instruction.kind == InstructionKind::wait_event;
}

/// One recorded part, cut into passes.
class Part {
 public:
  Part(const std::vector<Instruction>& instructions, const PassMarks& marks, const Passes& order, TensorId ids)
      : instructions_(instructions), marks_(marks), order_(order) {
    std::vector<Birth> alive(ids);
    references_.resize(instructions.size());
    for (std::size_t pass = kPrologue, i = 0, next = 0; i <= instructions.size(); ++i) {
      while (next < marks.at.size() && marks.at[next] == i) pass = next++, ordinal_ = 0;
      if (i == marks.end) pass = kEpilogue, ordinal_ = 0;
      if (i == instructions.size()) break;
      refer(pass, i, alive);
    }
    for (std::size_t pass = 0; pass < marks.at.size(); ++pass) forms_.push_back(form_of(pass));
    for (TensorId id = 0; id < ids; ++id)
      if (alive[id].pass != kElsewhere) survivors_.emplace_back(id, reference_to(alive[id], kEpilogue));
    find_sweeps();
  }

  std::size_t begin(std::size_t pass) const { return marks_.at[pass]; }
  std::size_t end(std::size_t pass) const { return pass + 1 < marks_.at.size() ? marks_.at[pass + 1] : marks_.end; }
  std::size_t prologue_end() const { return marks_.at.front(); }
  std::size_t epilogue_begin() const { return marks_.end; }
  const std::vector<Instruction>& instructions() const { return instructions_; }
  const Reference& reference(std::size_t instruction) const { return references_[instruction]; }

  /// What is to be named anew where a pass is copied.
  struct Form {
    struct Own {
      std::uint32_t at, ordinal;  ///< instruction of the pass; of its tensors, the one that it names
    };
    std::vector<Own> own;
    std::vector<std::uint32_t> others;  ///< instructions that name tensors of other passes, or an event
    std::uint32_t births = 0;
    std::vector<std::uint32_t> kept;  ///< its tensors that live when it ends
  };
  const Form& form(std::size_t pass) const { return forms_[pass]; }
  /// Instructions that the part's end repeats for every micro-batch from `first` on, `length` for each.
  struct Sweep {
    std::size_t begin = 0, length = 0;
    std::int64_t first = 0;
    std::size_t end = 0;
  };
  const std::vector<Sweep>& sweeps() const { return sweeps_; }
  /// Where the tensor that an instruction of a sweep names was born.
  const PipelinePass& birthplace(std::size_t instruction) const {
    return order_.passes()[births_at_end_[instruction - epilogue_begin()].pass];
  }
  std::uint32_t birth_ordinal(std::size_t instruction) const { return births_at_end_[instruction - epilogue_begin()].ordinal; }

  /// How many tensors are alive behind the part that were not before.
  std::int64_t left() const { return left_; }

  /// The tensors of the part that outlive it, by their names in it and as its end names them.
  const std::vector<std::pair<TensorId, Reference>>& survivors() const { return survivors_; }

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

  /// Whether two passes of a row give birth to the same tensors in the same order, so that others can name them alike.
  bool born_alike(std::size_t a, std::size_t b) const { return births(a) == births(b); }

 private:
  Form form_of(std::size_t pass) const {
    Form form;
    std::vector<char> lives;
    for (std::size_t i = begin(pass); i < end(pass); ++i) {
      const Instruction& instruction = instructions_[i];
      const auto at = static_cast<std::uint32_t>(i - begin(pass));
      if (names_a_tensor(instruction) && references_[i].to == Reference::To::same_pass) {
        form.own.push_back({at, references_[i].ordinal});
        if (instruction.kind == InstructionKind::alloc) lives.push_back(1);
        if (instruction.kind == InstructionKind::free) lives[references_[i].ordinal] = 0;
      } else if (names_a_tensor(instruction) || is_of_an_event(instruction)) {
        form.others.push_back(at);
      }
    }
    form.births = static_cast<std::uint32_t>(lives.size());
    for (std::uint32_t ordinal = 0; ordinal < form.births; ++ordinal)
      if (lives[ordinal]) form.kept.push_back(ordinal);
    return form;
  }

  std::vector<std::int64_t> births(std::size_t pass) const {
    std::vector<std::int64_t> sizes;
    for (std::size_t i = begin(pass); i < end(pass); ++i)
      if (instructions_[i].kind == InstructionKind::alloc) sizes.push_back(instructions_[i].bytes);
    return sizes;
  }

  /// Micro-batch of the tensor that an instruction of the part's end drops; -1 where it is not of one.
  std::int64_t dropped(std::size_t i) const {
    const Birth& birth = births_at_end_[i - epilogue_begin()];
    if (instructions_[i].kind != InstructionKind::free || birth.pass >= order_.size()) return -1;
    return is_of_a_micro_batch(birthplace(i).kind) ? birthplace(i).micro_batch : -1;
  }

  /// Whether instruction `b` of the part's end drops for the next micro-batch what `a` does for its own.
  bool drops_the_next(std::size_t a, std::size_t b) const {
    if (b >= instructions_.size() || dropped(a) < 0 || dropped(b) != dropped(a) + 1) return false;
    return birthplace(a).kind == birthplace(b).kind && birthplace(a).chunk == birthplace(b).chunk && birth_ordinal(a) == birth_ordinal(b) &&
           instructions_[a].stream == instructions_[b].stream;
  }

  /// What every micro-batch left (its loss, what was sent) dies with the lists that held it, micro-batch by micro-batch.
  void find_sweeps() {
    for (std::size_t i = epilogue_begin(); i < instructions_.size(); ++i) {
      const std::int64_t first = dropped(i);
      if (first < 0 || first >= kFirst) continue;
      std::size_t length = 1;
      while (i + length < instructions_.size() && dropped(i + length) == first) ++length;
      std::size_t same = 0;  // instructions that are repeated `length` further on
      while (drops_the_next(i + same, i + same + length)) ++same;
      const std::size_t end = i + same + length;
      if (same < 2 * length || same % length != 0 || dropped(end - 1) + 1 != order_.micro_batches()) continue;
      sweeps_.push_back({i, length, first, end});
      i = end - 1;
    }
  }

  void refer(std::size_t pass, std::size_t i, std::vector<Birth>& alive) {
    const Instruction& instruction = instructions_[i];
    if (pass == kEpilogue) births_at_end_.emplace_back();
    if (!names_a_tensor(instruction)) return;
    left_ += (instruction.kind == InstructionKind::alloc) - (instruction.kind == InstructionKind::free);
    if (pass == kEpilogue && instruction.kind == InstructionKind::free) births_at_end_.back() = alive[instruction.id];
    if (instruction.kind == InstructionKind::alloc) alive[instruction.id] = {pass, ordinal_++};
    const Birth& birth = alive[instruction.id];
    references_[i] =
        birth.pass == kElsewhere ? Reference{Reference::To::elsewhere, PassKind::forward, 0, 0, instruction.id} : reference_to(birth, pass);
    if (instruction.kind == InstructionKind::free) alive[instruction.id] = {};
  }

  Reference reference_to(const Birth& birth, std::size_t pass) const {
    using To = Reference::To;
    if (birth.pass == pass) return {To::same_pass, PassKind::forward, 0, 0, birth.ordinal};
    if (birth.pass == kPrologue) return {To::prologue, PassKind::forward, 0, 0, birth.ordinal};
    if (birth.pass == kEpilogue) return {To::epilogue, PassKind::forward, 0, 0, birth.ordinal};
    const PipelinePass& born = order_.passes()[birth.pass];
    const auto to = [&](To how, std::int64_t distance) { return Reference{how, born.kind, born.chunk, distance, birth.ordinal}; };
    const bool in_pass = pass < order_.size();
    const std::size_t now = in_pass ? pass : order_.size();
    const bool of_micro_batch = is_of_a_micro_batch(born.kind);
    if (in_pass && of_micro_batch && is_of_a_micro_batch(order_.passes()[pass].kind) &&
        born.micro_batch == order_.passes()[pass].micro_batch)
      return to(To::same_micro_batch, 0);
    // What a variable of the schedule still held is of the micro-batch that came back last, however many are under way.
    const auto back = order_.last_back(born.chunk, now);
    if (of_micro_batch && back && *back - born.micro_batch >= 0 && *back - born.micro_batch <= 1)
      return to(To::last_back, *back - born.micro_batch);
    const std::int64_t lag = order_.lag(birth.pass, now);
    if (order_.rank_in_row(birth.pass) < kFirst && lag > kRecent) return to(To::from_start, order_.rank_in_row(birth.pass));
    return to(To::earlier_pass, lag);
  }

  const std::vector<Instruction>& instructions_;
  const PassMarks& marks_;
  const Passes& order_;
  std::vector<Reference> references_;
  std::vector<std::pair<TensorId, Reference>> survivors_;
  std::vector<Birth> births_at_end_;  ///< of what the instructions behind the passes drop
  std::vector<Sweep> sweeps_;
  std::vector<Form> forms_;
  std::int64_t left_ = 0;
  std::uint32_t ordinal_ = 0;
};

/// All passes of a row give birth alike, the first aside: it fills caches, gathers weights and makes gradients, and who names those is a
/// first pass as well or names them from the start.
bool born_alike(const Part& part, const Passes& order) {
  std::map<std::pair<PassKind, int>, std::size_t> pattern;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order.rank_in_row(i) == 0) continue;
    const auto [known, is_first] = pattern.try_emplace({order.passes()[i].kind, order.passes()[i].chunk}, i);
    if (!is_first && !part.born_alike(known->second, i)) return false;
  }
  return true;
}

/// Which recorded pass stands for one in a given situation.
class Patterns {
 public:
  Patterns(const Passes& order, const Part& first_step, const Part& step) {
    std::map<std::pair<PassKind, int>, std::vector<std::size_t>> kinds;  // by row: one pass of each that differ
    const Situations situations(order);
    for (std::size_t i = 0; i < order.size(); ++i) {
      auto& known = kinds[{order.passes()[i].kind, order.passes()[i].chunk}];
      const auto same = std::find_if(known.begin(), known.end(), [&](std::size_t k) { return first_step.alike(k, i) && step.alike(k, i); });
      const std::size_t pattern = same == known.end() ? i : *same;
      if (same == known.end()) known.push_back(i);
      for (const Memory& memory : kMemories) {
        const auto [found, is_new] = patterns_.try_emplace(situations.of(i, memory), pattern);
        if (!is_new && found->second != pattern) found->second = kMixed;
      }
    }
  }

  /// Nothing where the recorded passes show no such situation, or several answers to it.
  std::optional<std::size_t> find(const Situations& situations, std::size_t pass) const {
    for (const Memory& memory : kMemories) {
      const auto found = patterns_.find(situations.of(pass, memory));
      if (found == patterns_.end()) continue;
      if (found->second == kMixed) return {};
      return found->second;
    }
    return {};
  }

 private:
  static constexpr std::size_t kMixed = static_cast<std::size_t>(-1);
  std::unordered_map<Situation, std::size_t, Situation::Hash> patterns_;
};

/// The tensors of the new program.
struct NewTensors {
  std::vector<char> alive;        ///< by name
  std::vector<TensorId> renamed;  ///< recorded → new, of what the next part may name

  TensorId next() const { return static_cast<TensorId>(alive.size()); }
};

/// Writes one part of the new program.
class Writer {
 public:
  Writer(const Part& part, const Passes& wanted, const std::vector<std::size_t>& patterns, const MicroBatchEvents& events,
         NewTensors& tensors)
      : part_(part), wanted_(wanted), patterns_(patterns), events_(events), tensors_(tensors), born_(wanted.size()) {}

  /// Writes into the memory of `out`. Nothing where a pass names what is not there or has died (one that a pattern was taken for without
  /// being its like: schedules that go back whole here and in halves there), or where more or less outlives the part than where it was
  /// recorded.
  std::optional<std::vector<Instruction>> write(std::vector<Instruction> out) {
    out_ = std::move(out);
    out_.clear();
    out_.reserve(size());
    copy(kPrologue, 0, part_.prologue_end());
    for (std::size_t pass = 0; pass < wanted_.size(); ++pass) {
      begins_.push_back(out_.size());
      copy_pass(pass, patterns_[pass]);
    }
    begins_.push_back(out_.size());
    write_end();
    for (const auto& [id, reference] : part_.survivors()) tensors_.renamed[id] = resolve(reference, kEpilogue);
    if (!known_ || left_ != part_.left()) return {};
    return std::move(out_);
  }

  /// Where pass `pass` begins in what was written.
  std::size_t begin(std::size_t pass) const { return begins_[pass]; }

 private:
  /// The tensors that a pass gave birth to, which are named one after the other.
  struct Born {
    TensorId first = 0;
    std::uint32_t count = 0;
  };

  std::size_t size() const {
    std::size_t size = part_.prologue_end() + part_.instructions().size() - part_.epilogue_begin();
    for (const std::size_t pattern : patterns_) size += part_.end(pattern) - part_.begin(pattern);
    return size;
  }

  Born& born_in(std::size_t pass) { return pass == kPrologue ? prologue_ : pass == kEpilogue ? epilogue_ : born_[pass]; }

  void copy_pass(std::size_t pass, std::size_t pattern) {
    const std::size_t from = part_.begin(pattern), at = out_.size();
    const Part::Form& form = part_.form(pattern);
    const TensorId first = tensors_.next();
    born_[pass] = {first, form.births};
    const Instruction* const recorded = part_.instructions().data();
    out_.insert(out_.end(), recorded + from, recorded + part_.end(pattern));
    Instruction* const written = out_.data() + at;
    for (const Part::Form::Own& own : form.own) written[own.at].id = first + own.ordinal;
    tensors_.alive.resize(tensors_.alive.size() + form.births);
    for (const std::uint32_t ordinal : form.kept) tensors_.alive[first + ordinal] = 1;
    left_ += static_cast<std::int64_t>(form.kept.size());
    for (const std::uint32_t other : form.others) {
      Instruction& instruction = written[other];
      if (names_a_tensor(instruction))
        name(instruction, resolve(part_.reference(from + other), pass));
      else if (is_of_a_micro_batch(instruction))
        instruction.id = event_of(instruction.id, pass);
    }
  }

  EventId event_of(EventId recorded, std::size_t pass) const {
    return events_.at((recorded - events_.first) / events_.period, wanted_.passes()[pass].micro_batch);
  }

  /// What stands before the passes or behind them.
  void copy(std::size_t pass, std::size_t from, std::size_t to) {
    Born& born = born_in(pass);
    if (born.count == 0) born.first = tensors_.next();
    const auto begin = part_.instructions().begin();
    auto written = out_.insert(out_.end(), begin + static_cast<std::ptrdiff_t>(from), begin + static_cast<std::ptrdiff_t>(to));
    for (std::size_t i = from; i < to; ++i, ++written) {
      Instruction& instruction = *written;
      if (instruction.kind == InstructionKind::alloc) {
        instruction.id = tensors_.next();
        tensors_.alive.push_back(1);
        ++born.count;
        ++left_;
      } else if (names_a_tensor(instruction)) {
        const Reference& reference = part_.reference(i);
        name(instruction, reference.to == Reference::To::same_pass ? at(born, reference.ordinal) : resolve(reference, pass));
      }
    }
  }

  bool is_of_a_micro_batch(const Instruction& instruction) const {
    return is_of_an_event(instruction) && instruction.id >= events_.first && instruction.id < events_.end;
  }

  /// What follows the passes: where it drops something of every micro-batch, of as many as there are here.
  void write_end() {
    std::size_t from = part_.epilogue_begin();
    const std::int64_t micro_batches = wanted_.micro_batches();
    for (const Part::Sweep& sweep : part_.sweeps()) {
      copy(kEpilogue, from, sweep.begin);
      for (std::int64_t micro_batch = sweep.first; micro_batch < micro_batches; ++micro_batch)
        for (std::size_t i = sweep.begin; i < sweep.begin + sweep.length; ++i) drop(i, micro_batch);
      from = sweep.end;
    }
    copy(kEpilogue, from, part_.instructions().size());
  }

  void drop(std::size_t i, std::int64_t micro_batch) {
    const PipelinePass& born = part_.birthplace(i);
    out_.push_back(part_.instructions()[i]);
    name(out_.back(), of(wanted_.of_micro_batch(born.kind, born.chunk, micro_batch), part_.birth_ordinal(i)));
  }

  /// Makes a tensor that lives the one that an instruction drops or marks.
  void name(Instruction& instruction, TensorId id) {
    instruction.id = id;
    const bool lives = id < tensors_.next() && tensors_.alive[id] != 0;
    known_ = known_ && lives;
    if (instruction.kind != InstructionKind::free) return;
    if (lives) tensors_.alive[id] = 0;
    --left_;
  }

  TensorId resolve(const Reference& reference, std::size_t pass) {
    const std::size_t now = pass < wanted_.size() ? pass : wanted_.size();
    switch (reference.to) {
      case Reference::To::same_pass:
        return at(born_in(pass), reference.ordinal);
      case Reference::To::prologue:
        return at(prologue_, reference.ordinal);
      case Reference::To::epilogue:
        return at(epilogue_, reference.ordinal);
      case Reference::To::same_micro_batch:
        return of(wanted_.of_micro_batch(reference.kind, reference.chunk, wanted_.passes()[pass].micro_batch), reference.ordinal);
      case Reference::To::last_back: {
        const auto back = wanted_.last_back(reference.chunk, now);
        return of(back ? wanted_.of_micro_batch(reference.kind, reference.chunk, *back - reference.distance) : std::nullopt,
                  reference.ordinal);
      }
      case Reference::To::from_start:
        return of(wanted_.with_rank(reference.kind, reference.chunk, reference.distance), reference.ordinal);
      case Reference::To::earlier_pass:
        return of(wanted_.with_lag(reference.kind, reference.chunk, reference.distance, now), reference.ordinal);
      case Reference::To::elsewhere:
        break;
    }
    return tensors_.renamed[reference.ordinal];
  }

  TensorId of(std::optional<std::size_t> pass, std::uint32_t ordinal) {
    if (pass) return at(born_[*pass], ordinal);
    known_ = false;
    return 0;
  }
  TensorId at(const Born& born, std::uint32_t ordinal) {
    if (ordinal < born.count) return born.first + ordinal;
    known_ = false;
    return 0;
  }

  const Part& part_;
  const Passes& wanted_;
  const std::vector<std::size_t>& patterns_;  ///< by pass: the recorded one that stands for it
  const MicroBatchEvents& events_;
  NewTensors& tensors_;
  std::vector<Born> born_;
  std::vector<std::size_t> begins_;  ///< per pass, in what is written; behind the last: where the passes end
  Born prologue_, epilogue_;
  std::vector<Instruction> out_;
  std::int64_t left_ = 0;  ///< tensors that were born and have not died, as Part::left
  bool known_ = true;
};

/// By name, which of the tensors of `init` live behind it.
std::vector<char> alive_behind(const std::vector<Instruction>& init) {
  std::vector<char> alive(names_in(init));
  for (const Instruction& instruction : init)
    if (names_a_tensor(instruction)) alive[instruction.id] = instruction.kind != InstructionKind::free;
  return alive;
}

/// The order of the recorded passes; throws Error (internal) where the two parts differ.
Passes order_of(const RecordedPipelineRank& recorded) {
  if (recorded.first_step.passes != recorded.step.passes || recorded.step.passes.empty())
    throw Error(ErrorCode::internal, "the steps of a recorded pipeline do not run the same passes", "pipeline passes");
  return Passes(recorded.step.passes);
}

}  // namespace

void move_peers(StepProgram& program, int by, int ranks) {
  for (Collective& collective : program.collectives)
    if (collective.peer != Collective::kNoPeer) collective.peer = ((collective.peer + by) % ranks + ranks) % ranks;
}

struct PipelinePatterns::Impl {
  explicit Impl(RecordedPipelineRank rank)
      : recorded(std::move(rank)),
        order(order_of(recorded)),
        ids(std::max({names_in(recorded.program.init), names_in(recorded.program.first_step), names_in(recorded.program.step)})),
        first_step(recorded.program.first_step, recorded.first_step, order, ids),
        step(recorded.program.step, recorded.step, order, ids),
        patterns(order, first_step, step),
        usable(born_alike(first_step, order) && born_alike(step, order)) {}

  /// The recorded passes that stand for those of `wanted`; nothing where one of them is not shown.
  std::optional<std::vector<std::size_t>> patterns_of(const Passes& wanted) const {
    const Situations situations(wanted);
    std::vector<std::size_t> found;
    for (std::size_t pass = 0; pass < wanted.size(); ++pass) {
      const auto pattern = patterns.find(situations, pass);
      if (!pattern) return {};
      found.push_back(*pattern);
    }
    return found;
  }

  RecordedPipelineRank recorded;
  Passes order;
  TensorId ids;
  Part first_step, step;
  Patterns patterns;
  bool usable;
};

PipelinePatterns::PipelinePatterns(RecordedPipelineRank recorded) : impl_(std::make_unique<Impl>(std::move(recorded))) {}
PipelinePatterns::~PipelinePatterns() = default;

std::optional<StepProgram> PipelinePatterns::compose(const PassOrder& order, StepProgram program) const {
  if (!impl_->usable) return {};
  const Passes wanted(order.passes);
  const auto patterns = impl_->patterns_of(wanted);
  if (!patterns) return {};
  const StepProgram& old = impl_->recorded.program;
  NewTensors tensors{alive_behind(old.init), std::vector<TensorId>(impl_->ids)};
  std::iota(tensors.renamed.begin(), tensors.renamed.end(), 0U);
  const MicroBatchEvents& events = impl_->recorded.events;
  Writer first_writer(impl_->first_step, wanted, *patterns, events, tensors), writer(impl_->step, wanted, *patterns, events, tensors);
  auto first_step = first_writer.write(std::move(program.first_step));
  auto step = writer.write(std::move(program.step));
  if (!first_step || !step) return {};
  program.init = old.init;
  program.second_step.clear();
  program.first_step = std::move(*first_step);
  program.step = std::move(*step);
  program.repeated = {};
  if (order.times > 1) program.repeated = {writer.begin(order.begin), writer.begin(order.end), order.times};
  if (order.times > 1 && order.leaves_alike) {
    TensorId next_id = tensors.next();
    Repeated in_first{first_writer.begin(order.begin), first_writer.begin(order.end), order.times};
    add_left_behind(program.first_step, in_first, first_writer.begin(wanted.size()), next_id);
    add_left_behind(program.step, program.repeated, writer.begin(wanted.size()), next_id);
  }
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
