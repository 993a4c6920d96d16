// The program: the parts of a record as init, first steps and the step that is played again.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "rehearse/program_builder.hpp"

namespace plimsoll::rehearse {

void ProgramBuilder::finish() {
  recording_.init_peak_allocated = parts_.front().totals.peak_allocated;
  recording_.peak_reserved_before = parts_.front().totals.peak_reserved;
  if (parts_.size() > 1) {
    // what was running when the program ended is no whole step, but its peaks were reached
    recording_.peak_reserved_before = std::max(recording_.peak_reserved_before, parts_.back().totals.peak_reserved);
    if (parts_.size() == 2) recording_.init_peak_allocated = std::max(recording_.init_peak_allocated, parts_.back().totals.peak_allocated);
  }
  for (const Part& each : parts_) recording_.launches += each.totals.work.launches;
  const std::size_t played = last_of_training();
  for (std::size_t i = 1; i + 1 < parts_.size(); ++i)
    if (i != played) recording_.steps.push_back(parts_[i].totals);
  if (parts_.size() > 2) recording_.steps.push_back(parts_[played].totals);
  if (played + 2 < parts_.size())
    recording_.notes.push_back(
        {fmt::format("step {} is the one that is played: those after it have passes without gradients in them", played), 1});
  name_categories();
  merge_parts();
  name_groups();
  point_collectives_at_groups();
  put_compute_first();
}

/// The last step, but where it has passes without gradients in it that most steps behind the first have not: those are no part of training, as
/// they are where half of the steps generate what they train on.
std::size_t ProgramBuilder::last_of_training() const {
  if (parts_.size() < 3) return 0;
  const std::size_t last = parts_.size() - 2;
  std::size_t validating = 0, training = last;
  for (std::size_t i = 2; i <= last; ++i) {
    validating += parts_[i].validates;
    if (!parts_[i].validates) training = i;
  }
  return 2 * validating < last - 1 ? training : last;
}

void ProgramBuilder::merge_parts() {
  StepProgram& program = recording_.program;
  program.init = std::move(parts_.front().instructions);
  if (parts_.size() < 3) return;  // no step was finished
  const std::size_t last = last_of_training();
  for (std::size_t i = 1; i < last; ++i)
    program.first_step.insert(program.first_step.end(), parts_[i].instructions.begin(), parts_[i].instructions.end());
  program.step = std::move(parts_[last].instructions);
  spread_host_work(program.step);
  close_the_step(program.step, last > 1 ? program.first_step : program.init, parts_[last].first_tensor);
}

/// Makes the step leave what it found, so that it can be played again: a tensor that outlives it takes the place of the one of that size
/// which it freed for an earlier step; what only grows or only shrinks moves to the end of what was before.
void ProgramBuilder::close_the_step(std::vector<Instruction>& step, std::vector<Instruction>& before, std::uint32_t first_own) {
  std::map<std::int64_t, std::vector<std::size_t>> freed_by_size;  // frees of earlier tensors, by size, in order
  std::vector<std::size_t> survivors;                              // allocations that are never freed in the step
  std::unordered_map<TensorId, std::size_t> births;
  for (std::size_t i = 0; i < step.size(); ++i) {
    const Instruction& instruction = step[i];
    if (instruction.kind == InstructionKind::alloc) births[instruction.id] = i;
    if (instruction.kind != InstructionKind::free) continue;
    if (instruction.id < first_own)
      freed_by_size[tensors_[instruction.id].bytes].push_back(i);
    else
      births.erase(instruction.id);
  }
  for (const auto& [id, at] : births) survivors.push_back(at);
  std::sort(survivors.begin(), survivors.end());
  std::vector<bool> gone(step.size(), false);
  for (const std::size_t birth : survivors) {
    auto& candidates = freed_by_size[step[birth].bytes];
    if (candidates.empty()) {
      before.push_back(step[birth]);
      gone[birth] = true;
      continue;
    }
    const std::size_t death = candidates.front();
    candidates.erase(candidates.begin());
    if (death < birth)
      step[birth].id = step[death].id;
    else
      step[death].id = step[birth].id;
  }
  for (const auto& [bytes, rest] : freed_by_size)
    for (const std::size_t death : rest) {
      before.push_back(step[death]);
      gone[death] = true;
    }
  std::vector<Instruction> kept;
  for (std::size_t i = 0; i < step.size(); ++i)
    if (!gone[i]) kept.push_back(step[i]);
  step = std::move(kept);
}

/// What a tensor is for, told by when it lived.
Category ProgramBuilder::category_of(const Tensor& tensor) const {
  const auto born = static_cast<Phase>(tensor.born_phase), died = static_cast<Phase>(tensor.died_phase);
  const bool same_part = tensor.dead && tensor.born_part == tensor.died_part;
  if (tensor.born_part == 0) return tensor.dead && tensor.died_part == 0 ? Category::temporary : Category::parameter;
  if (born == Phase::optimizer) return same_part && died == Phase::optimizer ? Category::temporary : Category::optimizer_state;
  if (same_part && born == died) return Category::temporary;
  if (born == Phase::forward) return same_part && died == Phase::backward ? Category::activation : Category::temporary;
  if (born == Phase::backward) return Category::gradient;
  return Category::temporary;
}

void ProgramBuilder::name_categories() {
  for (Part& each : parts_)
    for (Instruction& instruction : each.instructions)
      if (instruction.kind == InstructionKind::alloc) instruction.category = category_of(tensors_[instruction.id]);
}

/// Which parallel dimension a communicator is, for the report: the world by its size, pipelines and experts by their collectives, the
/// others by how far their members are apart.
void ProgramBuilder::name_groups() {
  std::vector<bool> sends(recording_.groups.size()), exchanges(recording_.groups.size());
  for (std::size_t i = 0; i < collective_groups_.size(); ++i) {
    const CollectiveKind kind = recording_.program.collectives[i].kind;
    if (kind == CollectiveKind::send || kind == CollectiveKind::receive) sends[collective_groups_[i]] = true;
    if (kind == CollectiveKind::all_to_all) exchanges[collective_groups_[i]] = true;
  }
  std::vector<Group> free_names{Group::tensor, Group::data_shard, Group::data_replicate, Group::context, Group::expert_data};
  std::vector<std::size_t> rest;
  for (std::size_t i = 0; i < recording_.groups.size(); ++i) {
    RecordedGroup& group = recording_.groups[i];
    if (sends[i])
      group.group = Group::pipeline;
    else if (exchanges[i])
      group.group = Group::expert;
    else if (group.size >= recording_.world)
      group.group = Group::world;
    else
      rest.push_back(i);
  }
  const auto stride = [&](std::size_t i) {
    const auto& ranks = recording_.groups[i].ranks;
    return ranks.size() > 1 ? ranks[1] - ranks[0] : std::int64_t{1};
  };
  std::stable_sort(rest.begin(), rest.end(), [&](std::size_t a, std::size_t b) { return stride(a) < stride(b); });
  const bool tensor_first = !rest.empty() && stride(rest.front()) == 1 && rest.size() > 1;
  std::size_t next = tensor_first ? 0 : 1;
  for (const std::size_t i : rest) {
    if (recording_.groups[i].size == 1) continue;
    recording_.groups[i].group = free_names[std::min(next, free_names.size() - 1)];
    ++next;
  }
}

void ProgramBuilder::point_collectives_at_groups() {
  for (std::size_t i = 0; i < collective_groups_.size(); ++i)
    recording_.program.collectives[i].group = recording_.groups[collective_groups_[i]].group;
}

/// The stream with most kernels of the step is the compute stream, number 0 of a program: of the device that is told of, if that has any.
void ProgramBuilder::put_compute_first() {
  StepProgram& program = recording_.program;
  recording_.elsewhere.assign(program.streams.size(), false);
  for (const auto& [key, id] : streams_)
    if (recording_.device && static_cast<int>(key >> 32U) != *recording_.device) recording_.elsewhere[id] = true;
  if (program.streams.size() < 2) return;
  constexpr std::size_t kOwn = std::size_t{1} << 48;  // more than launches
  std::vector<std::size_t> launches(program.streams.size());
  for (const Instruction& instruction : program.step)
    if (instruction.kind == InstructionKind::kernel) launches[instruction.stream] += recording_.elsewhere[instruction.stream] ? 1 : kOwn;
  const auto compute = static_cast<StreamId>(std::max_element(launches.begin(), launches.end()) - launches.begin());
  if (compute == kComputeStream) return;
  const auto swapped = [&](StreamId id) { return id == compute ? kComputeStream : id == kComputeStream ? compute : id; };
  for (auto* part : {&program.init, &program.first_step, &program.step})
    for (Instruction& instruction : *part) {
      instruction.stream = swapped(instruction.stream);
    }
  std::swap(program.streams[kComputeStream], program.streams[compute]);
  const bool was_elsewhere = recording_.elsewhere[compute];
  recording_.elsewhere[compute] = recording_.elsewhere[kComputeStream];
  recording_.elsewhere[kComputeStream] = was_elsewhere;
}

}  // namespace plimsoll::rehearse
