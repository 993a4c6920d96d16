#include "program/carried.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plimsoll/error.hpp"

namespace plimsoll::program {

namespace {

bool allocates(const Instruction& instruction) { return instruction.kind == InstructionKind::alloc; }
bool frees(const Instruction& instruction) { return instruction.kind == InstructionKind::free; }

constexpr std::uint32_t kNone = UINT32_MAX;

/// Of a part: which of its tensors it leaves behind, and where it drops those of parts before it.
class Lives {
 public:
  explicit Lives(const std::vector<Instruction>& part) : part_(part) {
    const auto last = std::find_if(part.rbegin(), part.rend(), allocates);  // names rise
    if (last != part.rend()) states_.resize(last->id + std::size_t{1}, kUnknown);
    const Instruction* const all = part.data();
    for (std::uint32_t i = 0, count = static_cast<std::uint32_t>(part.size()); i < count; ++i) {
      if (allocates(all[i]))
        born(all[i].id, i);
      else if (frees(all[i]))
        died(all[i].id, i);
      else if (all[i].kind == InstructionKind::record_stream)
        marks_.push_back(i);
    }
  }

  /// Of a tensor that it leaves behind.
  std::uint32_t birth(TensorId id) const { return states_[id]; }
  /// Whether it drops a tensor that was there before it, and where.
  bool drops(TensorId id) const { return id < states_.size() && states_[id] == kDropped; }
  std::uint32_t death(TensorId id) const { return deaths_.at(id); }
  /// Instructions that name a tensor and neither make nor drop it.
  const std::vector<std::uint32_t>& marks() const { return marks_; }

  /// The allocations that no instruction of the part frees, in order.
  std::vector<const Instruction*> left_behind() const {
    std::vector<const Instruction*> left;
    for (std::size_t id = first_born_; id < states_.size(); ++id)
      if (states_[id] < kDropped) left.push_back(&part_[states_[id]]);
    std::sort(left.begin(), left.end());
    return left;
  }

 private:
  /// Of a tensor, behind the instructions so far; any other: it was born there and lives.
  static constexpr std::uint32_t kUnknown = UINT32_MAX, kFreed = kUnknown - 1, kDropped = kFreed - 1;

  std::uint32_t& state(TensorId id) {
    if (id >= states_.size()) states_.resize(std::max<std::size_t>(id + std::size_t{1}, 2 * states_.size()), kUnknown);
    return states_[id];
  }
  void born(TensorId id, std::uint32_t at) {
    std::uint32_t& state = this->state(id);
    if (state == kUnknown) state = at;
    first_born_ = std::min(first_born_, id);
  }
  void died(TensorId id, std::uint32_t at) {
    std::uint32_t& state = this->state(id);
    state = state == kUnknown || state == kDropped ? kDropped : kFreed;
    if (state == kDropped) deaths_[id] = at;
  }

  const std::vector<Instruction>& part_;
  std::vector<std::uint32_t> states_, marks_;
  std::unordered_map<TensorId, std::uint32_t> deaths_;  ///< of the few that it drops
  TensorId first_born_ = kUnknown;
};

/// The allocations of a part that it does not free and that `step` drops, in order.
std::vector<const Instruction*> left_to(const Lives& step, const std::vector<Instruction>& part) {
  std::unordered_map<TensorId, std::uint32_t> births;  // of what the part frees: kNone
  const Instruction* const all = part.data();
  for (std::uint32_t i = 0, count = static_cast<std::uint32_t>(part.size()); i < count; ++i) {
    if (!(allocates(all[i]) || frees(all[i])) || !step.drops(all[i].id)) continue;
    if (frees(all[i]))
      births[all[i].id] = kNone;
    else if (const auto [birth, fresh] = births.emplace(all[i].id, i); !fresh && birth->second != kNone)
      birth->second = i;
  }
  std::vector<const Instruction*> left;
  for (const auto& [id, birth] : births)
    if (birth != kNone) left.push_back(&part[birth]);
  std::sort(left.begin(), left.end());
  return left;
}

/// What `step` leaves behind, and what it drops in its place.
std::vector<std::pair<TensorId, TensorId>> successors(const StepProgram& program, const Lives& step) {
  std::vector<const Instruction*> before;
  for (const std::vector<Instruction>* part : {&program.first_step, &program.second_step})
    for (const Instruction* birth : left_to(step, *part)) before.push_back(birth);
  const std::vector<const Instruction*> after = step.left_behind();
  bool match = before.size() == after.size();
  std::vector<std::pair<TensorId, TensorId>> pairs;
  for (std::size_t i = 0; match && i < after.size(); ++i) {
    match = before[i]->bytes == after[i]->bytes && before[i]->stream == after[i]->stream;
    pairs.emplace_back(after[i]->id, before[i]->id);
  }
  if (!match) throw Error(ErrorCode::internal, "a step does not leave behind what it found");
  return pairs;
}

/// What happens at a place of a part: `before` comes before it, or else it is left out.
struct Edit {
  std::size_t at;
  std::optional<Instruction> before;
};

/// Edits a part in its place, from the end: all that is left out lies behind what comes in its stead.
void edit(std::vector<Instruction>& part, const std::vector<Edit>& edits, Repeated& repeated) {
  std::size_t end = part.size(), to = part.size();
  const auto move_from = [&](std::size_t begin) {
    const auto at = [&](std::size_t place) { return part.begin() + static_cast<std::ptrdiff_t>(place); };
    if (to != end) std::move_backward(at(begin), at(end), at(to));
    to -= end - begin;
  };
  for (auto edit = edits.rbegin(); edit != edits.rend(); ++edit) {
    move_from(edit->before ? edit->at : edit->at + 1);
    if (edit->before) part[--to] = *edit->before;
    end = edit->at;
  }
  const auto stands_at = [&](std::size_t place) {
    auto now = static_cast<std::ptrdiff_t>(place);
    for (const Edit& edit : edits)
      if (edit.at < place) now += edit.before ? 1 : -1;
    return static_cast<std::size_t>(now);
  };
  repeated.begin = stands_at(repeated.begin);
  repeated.end = stands_at(repeated.end);
}

}  // namespace

void carry_across_steps(StepProgram& program) {
  const Lives lives(program.step);
  const auto pairs = successors(program, lives);
  if (pairs.empty()) return;
  std::vector<Edit> edits;
  for (const auto& [after, before] : pairs) {
    const std::uint32_t birth = lives.birth(after), death = lives.death(before);
    program.step[birth].id = before;
    if (death < birth) continue;
    edits.push_back({birth, program.step[death]});  // born before its predecessor dies, which dies in time
    edits.push_back({death, {}});
  }
  const std::unordered_map<TensorId, TensorId> renamed(pairs.begin(), pairs.end());
  for (const std::uint32_t mark : lives.marks())
    if (const auto found = renamed.find(program.step[mark].id); found != renamed.end()) program.step[mark].id = found->second;
  std::sort(edits.begin(), edits.end(), [](const Edit& a, const Edit& b) { return a.at < b.at; });
  edit(program.step, edits, program.repeated);
}

}  // namespace plimsoll::program
