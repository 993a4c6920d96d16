#include "program/known_passes.hpp"

#include <algorithm>

#include "program/written_tensor.hpp"

namespace plimsoll::program {

void KnownPasses::learn(Tape& tape, const std::vector<Tensor>& leaves) {
  *this = {};
  const std::vector<Instruction>& passes = tape.program().first_step;
  if (tape.part() == Tape::Part::first_step && find_survivors(tape, passes) && find_gradients(leaves)) length_ = passes.size();
}

namespace {

/// Whether what stands on both sides is work of the host that would have been noted as one.
bool parts_equal_work(const std::vector<Instruction>& passes, std::size_t at) {
  if (at == 0 || at + 1 == passes.size()) return false;
  const Instruction &before = passes[at - 1], &after = passes[at + 1];
  return before.kind == InstructionKind::host && after.kind == InstructionKind::host && before.id == after.id;
}

}  // namespace

std::size_t KnownPasses::place_of(std::size_t first) const {
  return first - static_cast<std::size_t>(std::lower_bound(kept_.begin(), kept_.end(), first) - kept_.begin());
}

/// False where the passes free what they did not allocate.
bool KnownPasses::find_survivors(const Tape& tape, const std::vector<Instruction>& passes) {
  constexpr std::size_t kDead = ~std::size_t{0};
  std::vector<std::size_t> births;
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const Instruction& each = passes[i];
    if (each.kind == InstructionKind::alloc) {
      if (each.id >= births.size()) births.resize(2 * (each.id + std::size_t{1}), kDead);
      births[each.id] = i;
    } else if (each.kind == InstructionKind::free) {
      if (each.id >= births.size() || std::exchange(births[each.id], kDead) == kDead) return false;
    }
  }
  for (TensorId id = 0; id < births.size(); ++id) {
    if (births[id] == kDead) continue;
    if (tape.keeps_workspace(id))
      kept_.push_back(births[id]);
    else
      survivors_.push_back({id, births[id], passes[births[id]].stream, passes[births[id]].bytes});
  }
  std::sort(kept_.begin(), kept_.end());
  return std::none_of(kept_.begin(), kept_.end(), [&](std::size_t at) { return parts_equal_work(passes, at); });
}

/// The survivor of that name; kNone where there is none.
std::size_t KnownPasses::find(TensorId id) const {
  const auto below = [](const Survivor& survivor, TensorId name) { return survivor.id < name; };
  const auto found = std::lower_bound(survivors_.begin(), survivors_.end(), id, below);
  return found != survivors_.end() && found->id == id ? static_cast<std::size_t>(found - survivors_.begin()) : kNone;
}

/// The survivor that holds a tensor's elements, now with one holder more; kNone where that is older than the passes.
std::size_t KnownPasses::hold(const TensorImpl& tensor) {
  const Storage& storage = *tensor.storage;
  const std::size_t at = find(storage.id);
  if (!storage.resident || at == kNone || survivors_[at].birth != storage.at) return kNone;
  Survivor& survivor = survivors_[at];
  ++survivor.holders;
  survivor.others = storage.references - survivor.holders;
  return at;
}

/// False where somebody else holds on to a gradient, or anything but gradients survives.
bool KnownPasses::find_gradients(const std::vector<Tensor>& leaves) {
  std::vector<std::uint32_t> views;  // of each base
  for (std::size_t leaf = 0; leaf < leaves.size(); ++leaf) {
    const TensorImpl* gradient = leaves[leaf].grad().impl();
    if (!gradient) continue;
    const std::size_t survivor = hold(*gradient);
    if (survivor == kNone || gradient->references != 1 || gradient->requires_grad) return false;
    std::size_t base = kNone;
    if (const TensorImpl* viewed = gradient->base.get()) {
      base = bases_.size();  // from the last on: a unit's gradients follow one another
      while (base > 0 && bases_[base - 1].first != viewed) --base;
      if (base-- == 0) {
        if (viewed->base || viewed->requires_grad || hold(*viewed) != survivor) return false;
        base = bases_.size();
        bases_.push_back({viewed, {viewed->sizes, viewed->strides, viewed->dtype, survivor}});
        views.push_back(viewed->references);
      }
      --views[base];
    }
    gradients_.push_back({leaf, {gradient->sizes, gradient->strides, gradient->dtype, survivor}, base});
  }
  const auto none = [](std::uint32_t left) { return left == 0; };
  if (!std::all_of(views.begin(), views.end(), none)) return false;
  return std::all_of(survivors_.begin(), survivors_.end(), [](const Survivor& each) { return each.holders > 0 && each.others == 0; });
}

bool KnownPasses::record(Tape& tape, const std::vector<Tensor>& leaves) const {
  if (length_ == 0 || tape.recorded() != 0) return false;
  for (const Tensor& leaf : leaves)
    if (leaf.grad()) return false;
  const std::vector<Instruction>& first = tape.program().first_step;
  std::size_t gone = 0;
  for (std::size_t i = length_; i < first.size(); ++i)
    if (first[i].kind == InstructionKind::free && find(first[i].id) != kNone) ++gone;
  if (gone != survivors_.size()) return false;
  std::vector<Instruction>& step = tape.program().step;
  std::size_t from = 0;
  for (const std::size_t to : kept_) {
    step.insert(step.end(), first.begin() + static_cast<std::ptrdiff_t>(from), first.begin() + static_cast<std::ptrdiff_t>(to));
    from = to + 1;
  }
  step.insert(step.end(), first.begin() + static_cast<std::ptrdiff_t>(from), first.begin() + static_cast<std::ptrdiff_t>(length_));
  give_gradients(tape, leaves);
  return true;
}

void KnownPasses::give_gradients(Tape& tape, const std::vector<Tensor>& leaves) const {
  std::vector<StorageRef> storages;
  for (const Survivor& each : survivors_)
    storages.push_back(written_storage(tape, each.id, each.bytes, each.stream, &tape.program().step, place_of(each.birth)));
  const auto tensor = [&](const Form& form) {
    return written_tensor(tape, storages[form.survivor], form.sizes, form.strides, form.type);
  };
  std::vector<Ref<TensorImpl>> bases;
  for (const auto& [unused, form] : bases_) bases.push_back(tensor(form));
  for (const Gradient& each : gradients_) {
    Ref<TensorImpl> gradient = tensor(each.form);
    if (each.base != kNone) gradient->base = bases[each.base];
    leaves[each.leaf].grad() = Tensor(std::move(gradient));
  }
}

}  // namespace plimsoll::program
