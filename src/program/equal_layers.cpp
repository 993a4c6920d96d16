#include "program/equal_layers.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "program/written_tensor.hpp"

namespace plimsoll::program {

EqualLayers::EqualLayers(Tape& tape, std::vector<Module*> layers, std::size_t first)
    : tape_(tape), layers_(std::move(layers)), first_(first) {
  const std::string& path = layers_.front()->path;
  front_ = path.substr(0, path.rfind('.') + 1);
  std::from_chars(path.data() + front_.size(), path.data() + path.size(), number_);
}

EqualLayers::Numbered EqualLayers::numbered(std::string_view text) const {
  if (text.substr(0, front_.size()) != front_) return {};
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(text.data() + front_.size(), text.data() + text.size(), number);
  const bool ends = end == text.data() + text.size() || *end == '.' || *end == ':';
  if (error != std::errc() || !ends || number < number_ || number >= number_ + layers_.size()) return {};
  return {number - number_, front_.size(), static_cast<std::size_t>(end - text.data())};
}

std::optional<std::size_t> EqualLayers::place_of(const Module& module) const {
  const Numbered found = numbered(module.path);
  if (found.layer == kNone || found.end != module.path.size()) return std::nullopt;
  return first_ + found.layer;
}

bool EqualLayers::leaves_out(const Module& module) const {
  const std::size_t layer = numbered(module.path).layer;
  return !forward_.empty() && layer != kNone && !runs(layer);
}

void EqualLayers::mark(std::size_t at, const Tensor& hidden) {
  if (at == 0) {
    forward_.assign(2 * kEdge + 1, kNone);
    backward_.assign(2 * kEdge + 1, kNone);
  }
  forward_[at] = tape_.recorded();
  if (hidden.requires_grad()) hidden.register_hook([this, at](Tensor&) { backward_[at] = tape_.recorded(); });
}

bool EqualLayers::enter(std::size_t layer, const Tensor& hidden) {
  if (!worthwhile(layers_.size()) || layer < first_) return true;
  const std::size_t place = layer - first_;
  if (place == layers_.size()) mark(2 * kEdge, hidden);
  if (place >= layers_.size()) return true;
  if (!runs(place)) return false;
  mark(place < kEdge ? place : place + 2 * kEdge - layers_.size(), hidden);
  return true;
}

void EqualLayers::leave(const Tensor& hidden) {
  if (!forward_.empty() && forward_.back() == kNone) mark(2 * kEdge, hidden);
}

/// The labels of layers, by layer: "model.layers.7.mlp.down_proj: linear" is what the eighth layer calls its own.
class LayerLabels {
 public:
  LayerLabels(const EqualLayers& run, Tape& tape) : run_(run), tape_(tape) {}

  /// The layer of the run that the label names; kNone where it names none.
  std::size_t layer_of(std::uint32_t label) { return split(label).layer; }

  /// Whether two labels are the same but for their layers.
  bool differ_by_layer_alone(std::uint32_t a, std::uint32_t b) {
    const EqualLayers::Numbered one = split(a), other = split(b);
    const std::string_view text_a = text(a), text_b = text(b);
    return text_a.substr(0, one.begin) == text_b.substr(0, other.begin) && text_a.substr(one.end) == text_b.substr(other.end);
  }

  /// The label with another layer in the place of its own.
  std::uint32_t of_layer(std::uint32_t label, std::size_t layer) {
    const EqualLayers::Numbered own = split(label);
    const std::string number = std::to_string(layer + run_.number_);
    const std::string_view all = text(label);
    std::string renamed;
    renamed.reserve(all.size() + number.size());
    renamed.append(all.substr(0, own.begin)).append(number).append(all.substr(own.end));
    return tape_.intern(std::move(renamed));
  }

 private:
  std::string_view text(std::uint32_t label) const { return tape_.program().labels[label]; }

  EqualLayers::Numbered split(std::uint32_t label) {
    if (splits_.size() <= label) splits_.resize(std::max<std::size_t>(tape_.program().labels.size(), label + std::size_t{1}));
    std::optional<EqualLayers::Numbered>& known = splits_[label];
    if (!known) known = run_.numbered(text(label));
    return *known;
  }

  const EqualLayers& run_;
  Tape& tape_;
  std::vector<std::optional<EqualLayers::Numbered>> splits_;  ///< by label
};

/// One writing down of what was left out.
class LayerWriter {
 public:
  explicit LayerWriter(EqualLayers& run)
      : run_(run), tape_(run.tape_), passes_(run.tape_.program().first_step), layers_(run.layers_.size()), labels_(run, run.tape_) {}

  bool write(const std::vector<Tensor>& leaves) {
    if (!find_lives() || !find_passes() || !find_between() || !are_alike() || !plan_copies()) return false;
    if (!write_whole() || !gradients_alone_survive(leaves) || !give_gradients(leaves)) return false;
    tape_.program().first_step = std::move(whole_);
    return true;
  }

 private:
  /// A layer's own: its forward pass, what of it is freed between the passes, its backward pass.
  enum class Pass : std::uint8_t { forward, between, backward, none };
  static constexpr std::array kPasses = {Pass::forward, Pass::between, Pass::backward};
  static constexpr std::size_t kNone = EqualLayers::kNone, kEdge = EqualLayers::kEdge, kRun = 2 * kEdge;
  static constexpr std::size_t kPattern = kEdge - 1;  ///< of the layers that ran, that whose passes the others are copies of

  /// Where an instruction stands: in which pass of which of the layers that ran, the how-manieth.
  struct Place {
    Pass pass = Pass::none;
    std::uint16_t layer = 0;
    std::uint32_t offset = 0;
  };
  struct Stretch {
    std::size_t begin = 0, end = 0;
    std::size_t size() const { return end - begin; }
  };
  /// An instruction of the pattern, as a copy of it is made.
  struct Step {
    Instruction instruction;
    std::uint32_t label = kNoLabel;  ///< in named_labels_, where it names a layer
    bool of_layer = false;           ///< a tensor that a layer allocates: where, how many tensors before it, and how many layers further on
    Place birth = {};
    std::uint32_t ordinal = 0;
    std::int32_t further = 0;
  };
  static constexpr std::uint32_t kNoLabel = ~std::uint32_t{0};

  template <class T>
  static T& of(std::array<T, kPasses.size()>& all, Pass pass) {
    return all[static_cast<std::size_t>(pass)];
  }
  template <class T>
  static const T& of(const std::array<T, kPasses.size()>& all, Pass pass) {
    return all[static_cast<std::size_t>(pass)];
  }

  /// Whether a layer that ran sees layers like itself on both sides.
  static bool within(std::size_t layer) { return layer >= EqualLayers::kOutermost && layer < kRun - EqualLayers::kOutermost; }
  /// The place in the run of a layer that ran.
  std::size_t whole(std::size_t layer) const { return layer < kEdge ? layer : layer + layers_ - kRun; }
  bool is_copy(std::size_t layer) const { return layer >= kEdge && layer < layers_ - kEdge; }
  /// Of the layers that ran, whose passes that layer of the run has.
  std::size_t source(std::size_t layer) const { return layer < kEdge ? layer : is_copy(layer) ? kPattern : layer + kRun - layers_; }
  const Stretch& stretch(Pass pass, std::size_t layer) const { return of(stretches_, pass)[layer]; }

  /// Where each tensor of the passes is allocated and freed.
  bool find_lives() {
    deaths_.assign(passes_.size(), kNone);
    for (std::size_t i = 0; i < passes_.size(); ++i) {
      const Instruction& each = passes_[i];
      if (each.kind == InstructionKind::alloc) {
        if (each.id >= births_.size()) births_.resize(2 * (each.id + std::size_t{1}), kNone);
        births_[each.id] = i;
      } else if (each.kind == InstructionKind::free) {
        if (birth_of(each.id) == kNone) return false;
        deaths_[births_[each.id]] = i;
      }
    }
    return true;
  }
  std::size_t birth_of(TensorId id) const { return id < births_.size() ? births_[id] : kNone; }

  void place(Pass pass, std::size_t layer, Stretch stretch) {
    of(stretches_, pass)[layer] = stretch;
    for (std::size_t i = stretch.begin; i < stretch.end; ++i)
      places_[i] = {pass, static_cast<std::uint16_t>(layer), static_cast<std::uint32_t>(i - stretch.begin)};
  }

  /// Where the backward pass of the first layer ends is not told: what stands behind the second one's is nobody's.
  bool find_passes() {
    const std::vector<std::size_t>&begins = run_.forward_, &ends = run_.backward_;
    places_.resize(passes_.size());
    for (std::size_t i = 0; i < kRun; ++i) {
      if (begins[i + 1] == kNone || ends[i + 1] == kNone || begins[i] > begins[i + 1]) return false;
      if (i > 0 && ends[i] < ends[i + 1]) return false;
      place(Pass::forward, i, {begins[i], begins[i + 1]});
      if (i > 0) place(Pass::backward, i, {ends[i + 1], ends[i]});
    }
    return begins[kRun] <= ends[kRun] && ends[1] <= passes_.size();
  }

  /// What is freed layer by layer, without anything else in between; nothing where no layer has any such.
  bool find_between() {
    const Stretch all{stretch(Pass::forward, kRun - 1).end, stretch(Pass::backward, kRun - 1).begin};
    std::size_t at = all.begin;
    while (at < all.end && !frees_of_layer(at, 0)) ++at;
    if (at == all.end) at = all.begin;  // nothing: wherever the copies' nothing stands
    for (std::size_t layer = 0; layer < kRun; ++layer) {
      const std::size_t begin = at;
      while (at < all.end && frees_of_layer(at, layer)) ++at;
      place(Pass::between, layer, {begin, at});
    }
    return true;
  }
  bool frees_of_layer(std::size_t at, std::size_t layer) const {
    if (passes_[at].kind != InstructionKind::free) return false;
    const Place& birth = places_[birth_of(passes_[at].id)];
    return birth.pass == Pass::forward && birth.layer == layer;
  }

  /// Whether two places are as far from two layers, and none is outside of them.
  bool as_far(std::size_t a, std::size_t from_a, std::size_t b, std::size_t from_b) const {
    const Place &one = places_[a], &other = places_[b];
    return one.pass != Pass::none && one.pass == other.pass && one.offset == other.offset && one.layer + from_b == other.layer + from_a;
  }

  /// Whether instruction `a` of layer `layer` is what `b` is of the next one.
  bool says_the_same(std::size_t a, std::size_t b, std::size_t layer) {
    const Instruction &one = passes_[a], &other = passes_[b];
    if (one.kind != other.kind || one.stream != other.stream || one.category != other.category || one.bytes != other.bytes ||
        one.again != other.again || !same_label(one.label, other.label))
      return false;
    switch (one.kind) {
      case InstructionKind::alloc:
        if (deaths_[a] == kNone || deaths_[b] == kNone) return deaths_[a] == deaths_[b];
        return as_far(deaths_[a], layer, deaths_[b], layer + 1);
      case InstructionKind::free:
      case InstructionKind::record_stream: {
        const std::size_t birth = birth_of(one.id), next = birth_of(other.id);
        if (birth == kNone || next == kNone) return one.id == other.id;
        return as_far(birth, layer, next, layer + 1);
      }
      default:
        return one.id == other.id;
    }
  }

  /// Whether a layer's label is what the other is of the next layer.
  bool same_label(std::uint32_t one, std::uint32_t other) {
    const std::size_t named = labels_.layer_of(one), next = labels_.layer_of(other);
    if (named == kNone || next == kNone) return one == other;
    return !is_copy(named) && !is_copy(next) && source(named) + 1 == source(next) && labels_.differ_by_layer_alone(one, other);
  }

  bool are_alike() {
    for (std::size_t layer = EqualLayers::kOutermost; within(layer + 1); ++layer)
      for (const Pass pass : kPasses) {
        const Stretch &one = stretch(pass, layer), &other = stretch(pass, layer + 1);
        if (one.size() != other.size()) return false;
        for (std::size_t i = 0; i < one.size(); ++i)
          if (!says_the_same(one.begin + i, other.begin + i, layer)) return false;
      }
    return true;
  }

  /// The pattern as copies are made of it, and names for what they allocate: each layer's in a row.
  bool plan_copies() {
    for (const Pass pass : kPasses)
      for (std::size_t i = stretch(pass, kPattern).begin; i < stretch(pass, kPattern).end; ++i) {
        of(ordinals_, pass).push_back(named_);
        if (passes_[i].kind == InstructionKind::alloc) ++named_;
      }
    names_ = tape_.take_names(named_ * (layers_ - kRun));
    for (const Pass pass : kPasses)
      for (std::size_t i = stretch(pass, kPattern).begin; i < stretch(pass, kPattern).end; ++i) {
        Step step{passes_[i]};
        if (!plan_tensor(step, i) || !plan_label(step)) return false;
        of(plan_, pass).push_back(step);
      }
    return true;
  }

  bool plan_tensor(Step& step, std::size_t at) {
    if (step.instruction.kind == InstructionKind::free || step.instruction.kind == InstructionKind::record_stream)
      at = birth_of(step.instruction.id);
    else if (step.instruction.kind != InstructionKind::alloc)
      return true;
    if (at == kNone || places_[at].pass == Pass::none) return true;
    step.of_layer = true;
    step.birth = places_[at];
    step.further = static_cast<std::int32_t>(step.birth.layer) - static_cast<std::int32_t>(kPattern);
    const Stretch& pattern = stretch(step.birth.pass, kPattern);
    if (!within(step.birth.layer) || step.birth.offset >= pattern.size()) return false;
    step.ordinal = of(ordinals_, step.birth.pass)[step.birth.offset];
    return passes_[pattern.begin + step.birth.offset].kind == InstructionKind::alloc;
  }

  bool plan_label(Step& step) {
    const std::uint32_t label = step.instruction.label;
    if (labels_.layer_of(label) == kNone) return true;
    if (is_copy(labels_.layer_of(label))) return false;
    if (planned_labels_.size() <= label) planned_labels_.resize(tape_.program().labels.size(), kNoLabel);
    if (planned_labels_[label] == kNoLabel) {
      planned_labels_[label] = static_cast<std::uint32_t>(named_labels_.size());
      named_labels_.push_back(label);
    }
    step.label = planned_labels_[label];
    return true;
  }

  /// The first tensor that a copy allocates.
  TensorId names_of(std::size_t copy) const { return names_ + static_cast<TensorId>(named_ * (copy - kEdge)); }

  /// The tensor that a layer of the run allocates at that place; false where it allocates none there.
  bool name_at(std::size_t layer, const Place& birth, TensorId& name) const {
    const std::size_t offset = birth.offset;
    if (is_copy(layer)) {
      if (offset >= of(plan_, birth.pass).size() || of(plan_, birth.pass)[offset].instruction.kind != InstructionKind::alloc) return false;
      name = names_of(layer) + of(ordinals_, birth.pass)[offset];
      return true;
    }
    const Stretch& own = stretch(birth.pass, source(layer));
    if (offset >= own.size() || passes_[own.begin + offset].kind != InstructionKind::alloc) return false;
    name = passes_[own.begin + offset].id;
    return true;
  }

  bool write_copy(Pass pass, std::size_t layer) {
    const std::vector<std::uint32_t>& labels = labels_of(layer);
    const Stretch& pattern = stretch(pass, kPattern);
    write(pattern.begin, pattern.end);
    Instruction* each = whole_.data() + whole_.size() - pattern.size();
    for (const Step& step : of(plan_, pass)) {
      if (step.label != kNoLabel) each->label = labels[step.label];
      if (step.of_layer) {
        const std::size_t meant = layer + static_cast<std::size_t>(step.further);
        if (is_copy(meant))
          each->id = names_of(meant) + step.ordinal;
        else if (!name_at(meant, step.birth, each->id))
          return false;
      }
      ++each;
    }
    return true;
  }

  /// The pattern's labels, as the layer says them.
  const std::vector<std::uint32_t>& labels_of(std::size_t layer) {
    std::vector<std::uint32_t>& labels = copied_labels_[layer];
    if (labels.empty())
      for (const std::uint32_t label : named_labels_)
        labels.push_back(labels_.of_layer(label, layer + source(labels_.layer_of(label)) - kPattern));
    return labels;
  }

  /// As it was said, but where it speaks of layers beyond the gap.
  bool write_as_run(Pass pass, std::size_t layer) {
    const Stretch& own = stretch(pass, source(layer));
    for (std::size_t i = own.begin; i < own.end; ++i) {
      Instruction each = passes_[i];
      if (!relabel(layer, each.label)) return false;
      const bool names = each.kind == InstructionKind::free || each.kind == InstructionKind::record_stream;
      if (names && !rename(layer, each.id)) return false;
      whole_.push_back(each);
    }
    return true;
  }

  bool rename(std::size_t layer, TensorId& id) const {
    const std::size_t birth = birth_of(id);
    if (birth == kNone || places_[birth].pass == Pass::none) return true;
    const Place& place = places_[birth];
    const std::size_t meant = layer + place.layer - source(layer);
    if (meant == whole(place.layer)) return true;
    return meant < layers_ && within(place.layer) && name_at(meant, place, id);
  }

  bool relabel(std::size_t layer, std::uint32_t& label) {
    const std::size_t named = labels_.layer_of(label);
    if (named == kNone) return true;
    const std::size_t meant = layer + source(named) - source(layer);
    if (is_copy(named) || meant >= layers_) return false;
    if (meant != named) label = labels_.of_layer(label, meant);
    return true;
  }

  bool write_layer(Pass pass, std::size_t layer) {
    of(begins_, pass)[layer] = whole_.size();
    return is_copy(layer) ? write_copy(pass, layer) : write_as_run(pass, layer);
  }

  void write_others(std::size_t begin, std::size_t end) {
    others_.push_back({begin, whole_.size()});
    write(begin, end);
  }
  void write(std::size_t begin, std::size_t end) {
    whole_.insert(whole_.end(), passes_.begin() + static_cast<std::ptrdiff_t>(begin), passes_.begin() + static_cast<std::ptrdiff_t>(end));
  }

  bool write_whole() {
    std::size_t copied = 0;
    for (const Pass pass : kPasses) copied += of(plan_, pass).size();
    whole_.reserve(std::max(passes_.capacity(), passes_.size() + copied * layers_));
    for (auto& begins : begins_) begins.assign(layers_, kNone);
    copied_labels_.resize(layers_);
    write_others(0, stretch(Pass::forward, 0).begin);
    for (std::size_t layer = 0; layer < layers_; ++layer)
      if (!write_layer(Pass::forward, layer)) return false;
    write_others(stretch(Pass::forward, kRun - 1).end, stretch(Pass::between, 0).begin);
    for (std::size_t layer = 0; layer < layers_; ++layer)
      if (!write_layer(Pass::between, layer)) return false;
    write_others(stretch(Pass::between, kRun - 1).end, stretch(Pass::backward, kRun - 1).begin);
    for (std::size_t layer = layers_; layer-- > 1;)
      if (!write_layer(Pass::backward, layer)) return false;
    write_others(stretch(Pass::backward, 1).end, passes_.size());
    return true;
  }

  /// Where what stood at `at` stands in the whole passes.
  std::size_t moved(std::size_t at) const {
    const Place& place = places_[at];
    if (place.pass != Pass::none) return of(begins_, place.pass)[whole(place.layer)] + place.offset;
    const auto behind = std::find_if(others_.rbegin(), others_.rend(), [&](const auto& each) { return each.first <= at; });
    return behind->second + at - behind->first;
  }

  /// Whether what outlives the passes is gradients, and workspaces that are kept for good.
  bool gradients_alone_survive(const std::vector<Tensor>& leaves) const {
    std::vector<TensorId> gradients;
    for (const Tensor& leaf : leaves) {
      if (!leaf.grad()) continue;
      const Storage& storage = *leaf.grad().impl()->storage;
      if (!storage.resident || storage.part != &passes_ || birth_of(storage.id) != storage.at) return false;
      gradients.push_back(storage.id);
    }
    std::sort(gradients.begin(), gradients.end());
    for (std::size_t i = 0; i < passes_.size(); ++i) {
      if (passes_[i].kind != InstructionKind::alloc || deaths_[i] != kNone) continue;
      const TensorId id = passes_[i].id;
      if (!std::binary_search(gradients.begin(), gradients.end(), id) && !tape_.keeps_workspace(id)) return false;
    }
    return true;
  }

  /// The gradients that the layers that did not run would have: as those of the pattern.
  bool give_gradients(const std::vector<Tensor>& leaves) {
    std::vector<std::vector<std::size_t>> of_layer(layers_);
    std::vector<Storage*> ran;
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      if (leaves[i].grad()) ran.push_back(leaves[i].grad().impl()->storage.get());
      if (run_.owners[i] != kNone) of_layer[run_.owners[i]].push_back(i);
    }
    for (std::size_t layer = 0; layer < layers_; ++layer)
      if (is_copy(layer) && !give_gradients(leaves, of_layer[kPattern], of_layer[layer], layer)) return false;
    // Those that are there already know where they are in the passes.
    std::sort(ran.begin(), ran.end());
    ran.erase(std::unique(ran.begin(), ran.end()), ran.end());
    for (Storage* storage : ran) storage->at = moved(storage->at);
    return true;
  }

  bool give_gradients(const std::vector<Tensor>& leaves, const std::vector<std::size_t>& pattern, const std::vector<std::size_t>& own,
                      std::size_t layer) {
    if (pattern.size() != own.size()) return false;
    std::map<const Storage*, StorageRef> storages;
    std::map<const TensorImpl*, Ref<TensorImpl>> bases;
    const auto copied = [&](const TensorImpl& like) {
      return written_tensor(tape_, storages[like.storage.get()], like.sizes, like.strides, like.dtype);
    };
    for (std::size_t i = 0; i < own.size(); ++i) {
      const Tensor &like = leaves[pattern[i]], &leaf = leaves[own[i]];
      if (like.sizes() != leaf.sizes() || like.dtype() != leaf.dtype() || leaf.grad()) return false;
      if (!like.grad()) continue;
      const TensorImpl& gradient = *like.grad().impl();
      StorageRef& storage = storages[gradient.storage.get()];
      if (!storage && !(storage = storage_of(*gradient.storage, layer))) return false;
      Ref<TensorImpl> made = copied(gradient);
      if (const TensorImpl* viewed = gradient.base.get()) {
        if (viewed->base || viewed->storage.get() != gradient.storage.get()) return false;
        Ref<TensorImpl>& base = bases[viewed];
        if (!base) base = copied(*viewed);
        made->base = base;
      }
      leaf.grad() = Tensor(std::move(made));
    }
    return true;
  }

  /// What the layer's own passes allocated where the pattern's did; none where the pattern's did not.
  StorageRef storage_of(const Storage& like, std::size_t layer) {
    const Place& place = places_[like.at];
    TensorId name = 0;
    if (place.pass == Pass::none || place.layer != kPattern || !name_at(layer, place, name)) return {};
    return written_storage(tape_, name, like.bytes, like.stream, like.part, of(begins_, place.pass)[layer] + place.offset);
  }

  EqualLayers& run_;
  Tape& tape_;
  const std::vector<Instruction>& passes_;
  std::size_t layers_;
  LayerLabels labels_;
  std::vector<std::size_t> births_, deaths_;  ///< by tensor; by its allocation
  std::array<std::array<Stretch, kRun>, kPasses.size()> stretches_{};
  std::vector<Place> places_;
  std::array<std::vector<Step>, kPasses.size()> plan_;
  std::array<std::vector<std::uint32_t>, kPasses.size()> ordinals_;  ///< how many tensors a layer allocates before each instruction
  std::uint32_t named_ = 0;                                          ///< tensors that a layer allocates
  TensorId names_ = 0;                                               ///< the first of the copies'
  std::vector<std::uint32_t> planned_labels_, named_labels_;         ///< a label's place among those of the pattern that name layers; these
  std::vector<std::vector<std::uint32_t>> copied_labels_;            ///< the same as each copy says them
  std::vector<Instruction> whole_;
  std::array<std::vector<std::size_t>, kPasses.size()> begins_;  ///< where each layer's passes begin in `whole_`
  std::vector<std::pair<std::size_t, std::size_t>> others_;      ///< where what no layer says begins, in the passes and in `whole_`
};

bool EqualLayers::write_out(const std::vector<Tensor>& leaves) {
  if (forward_.empty()) return true;  // no stack of layers asked
  const bool written = LayerWriter(*this).write(leaves);
  forward_.clear();
  return written;
}

}  // namespace plimsoll::program
