#include "program/tape.hpp"

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>
#include <vector>

#include "plimsoll/error.hpp"

namespace plimsoll::program {

// ---- Dims ---------------------------------------------------------------------------------------------------------------

Dims contiguous_strides(const Dims& sizes) {
  Dims strides = sizes;
  std::int64_t stride = 1;
  for (int i = sizes.rank() - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= sizes[i] > 0 ? sizes[i] : 1;
  }
  return strides;
}

// ---- Storage, TensorImpl, Tensor ----------------------------------------------------------------------------------------

void Storage::release() {
  if (resident) tape->emit_free(*this);
  delete this;
}

void Tensor::undefined() {
  throw Error(ErrorCode::internal, "the step of this model reads a tensor that none of its operators has made", {},
              "a defect of plimsoll: please report the command");
}

Tensor Tensor::detach() const {
  const TensorImpl& source = held();
  auto* impl = new TensorImpl;
  impl->tape = source.tape;
  impl->storage = source.storage;
  impl->sizes = source.sizes;
  impl->strides = source.strides;
  impl->dtype = source.dtype;
  return Tensor(Ref<TensorImpl>(impl));
}

void Tensor::register_hook(std::function<void(Tensor&)> hook) const {
  if (is_leaf()) {
    held().leaf_hooks.push_back(std::move(hook));
  } else {
    held().grad_fn->tensor_hooks.emplace_back(held().output, std::move(hook));
  }
}

void Tensor::register_post_accumulate_grad_hook(std::function<void(const Tensor&)> hook) const {
  held().post_accumulate.push_back(std::move(hook));
}

// ---- saved tensors ------------------------------------------------------------------------------------------------------

SavedTensor::SavedTensor(const Tensor& tensor, bool is_output) {
  if (!tensor) return;
  Tape& tape = tensor.tape();
  // An output is kept without its grad_fn, which would be a cycle.
  const Tensor kept = is_output && tensor.requires_grad() && !tensor.is_leaf() ? tensor.detach() : tensor;
  if (tape.saved_tensor_hooks.empty()) {
    if (!tape.in_backward() && tensor.impl()->storage->resident) Tape::categorize(tensor, Category::activation);
    tensor_ = kept;
    return;
  }
  tape.host(HostWork::saved_hook);
  hooks_ = tape.saved_tensor_hooks.back();
  packed_ = hooks_->pack(kept);
}

Tensor SavedTensor::unpack() const { return packed_ ? hooks_->unpack(*packed_) : tensor_; }

void SavedTensor::reset() {
  tensor_.reset();
  packed_.reset();
  hooks_.reset();
}

BackwardCall::BackwardCall(Tape& tape_in, Node& node_in, Gradients& inputs, Gradients& outputs)
    : tape(tape_in), node(node_in), in_(inputs), out_(outputs) {
  if (node.released)
    fail(
        "Trying to backward through the graph a second time: what it had saved is gone. Layers that are checkpointed re-entrantly share "
        "what was "
        "computed outside of them",
        "recompute_reentrant", "false");
  saved_.reserve(node.saved.size());
  for (const SavedTensor& tensor : node.saved) {
    if (tensor.has_hooks()) tape.host(HostWork::saved_hook);
    saved_.push_back(tensor.unpack());
  }
}

Tensor BackwardCall::take_saved(std::size_t index) {
  node.saved[index].reset();
  return std::move(saved_[index]);
}

bool BackwardCall::needs(std::size_t input) const { return node.should_compute(input); }

// ---- Node ---------------------------------------------------------------------------------------------------------------

/// Deletes without recursion: a graph is as deep as the network.
void Node::release() {
  Tape& owner = *tape;  // outlives this node
  owner.dying_.push_back(this);
  if (owner.burying_) return;
  owner.burying_ = true;
  while (!owner.dying_.empty()) {
    const Node* node = owner.dying_.back();
    owner.dying_.pop_back();
    delete node;
  }
  owner.burying_ = false;
}

void Node::release_saved() {
  released = released || std::any_of(saved.begin(), saved.end(), [](const SavedTensor& tensor) { return tensor.holds_something(); });
  for (SavedTensor& tensor : saved) tensor.reset();
}

// ---- Tape: recording ----------------------------------------------------------------------------------------------------

/// Room that is made before a step is recorded, by the tensors that lie on the device by then: a transformer takes about as much.
constexpr std::size_t kInstructionsPerTensor = 64, kKernelsPerTensor = 32;
/// An eighth of a gibibyte. Steps of a hundred layers have some hundred thousand; a million experts, or a kernel cut into parts of 2 GiB a
/// million times, are a slip in somebody's config.
constexpr std::size_t kMostInstructions = std::size_t{4} << 20;

namespace {

std::string labelled(const std::string& module, std::string_view operator_name) {
  if (module.empty()) return std::string(operator_name);
  std::string label;
  label.reserve(module.size() + 2 + operator_name.size());
  label += module;
  if (!operator_name.empty()) label.append(": ").append(operator_name);
  return label;
}

}  // namespace

Tape::Tape(const TargetDevice& on, TorchRelease release) : device(on), torch(release), blas(blas_workspaces(on, release)) {
  labels_.add(std::hash<std::string>{}(program_.labels.front()), 0);
  record_into(Part::init);
}

Tape::~Tape() {
  in_cycles.clear();
  autocast.cache.clear();
  saved_tensor_hooks.clear();
  workspaces_.clear();
}

void Tape::record_into(Part part) {
  in_cycles.clear();
  part_ = part;
  switch (part) {
    case Part::init:
      recording_ = &program_.init;
      break;
    case Part::first_step:
      recording_ = &program_.first_step;
      recording_->reserve(kInstructionsPerTensor * program_.init.size());
      program_.kernels.reserve(kKernelsPerTensor * program_.init.size());
      break;
    case Part::second_step:
      recording_ = &program_.second_step;
      break;
    case Part::step:
      recording_ = &program_.step;
      recording_->reserve(program_.first_step.size());  // a step is about as long as the one before
      break;
  }
}

StepProgram Tape::take() {
  recording_ = nullptr;
  return std::move(program_);
}

std::uint32_t Tape::intern(std::string label) {
  const std::size_t hash = std::hash<std::string>{}(label);
  if (const std::uint32_t* known = labels_.find(hash, [&](std::uint32_t id) { return program_.labels[id] == label; })) return *known;
  const auto id = static_cast<std::uint32_t>(program_.labels.size());
  program_.labels.push_back(std::move(label));
  labels_.add(hash, id);
  return id;
}

std::uint32_t Tape::label() {
  const std::uint64_t key = (reinterpret_cast<std::uintptr_t>(operator_name) << 20) ^ module_label;
  if (const std::uint32_t* known = operator_labels_.find(key, [](std::uint32_t) { return true; })) return *known;
  const std::uint32_t id = intern(labelled(program_.labels[module_label], operator_name));
  operator_labels_.add(key, id);
  return id;
}

void Tape::phase(Phase phase) {
  if (!phase_is_held) emit({.kind = InstructionKind::phase, .stream = stream, .id = static_cast<std::uint32_t>(phase)});
}

void Tape::work(InstructionKind kind, StreamId on, std::uint32_t id) {
  if (recording_ && recording_->size() > kMostInstructions)
    refuse("a step of more than " + std::to_string(kMostInstructions) + " operations is not played one by one");
  emit({.kind = kind, .stream = on, .id = id, .label = label(), .again = running_again});
}

LaunchMemo::Launch Tape::launch(const Kernel& kernel, std::int64_t times) {
  if (!recording_) return {};
  const LaunchMemo::Launch launch{known_kernel(kernel), times};
  relaunch(launch);
  return launch;
}

/// Equal kernels are one entry.
std::uint32_t Tape::known_kernel(const Kernel& kernel) {
  const std::size_t hash = hash_of(kernel);
  if (const std::uint32_t* known = kernels_.find(hash, [&](std::uint32_t id) { return program_.kernels[id] == kernel; })) return *known;
  const auto id = static_cast<std::uint32_t>(program_.kernels.size());
  program_.kernels.push_back(kernel);
  kernels_.add(hash, id);
  return id;
}

void Tape::host(HostWork work, std::int64_t pieces) {
  if (!recording_) return;
  const auto id = static_cast<std::uint32_t>(work);
  if (!recording_->empty() && recording_->back().kind == InstructionKind::host && recording_->back().id == id) {
    recording_->back().bytes += pieces;
    return;
  }
  emit({.kind = InstructionKind::host, .stream = stream, .id = id, .bytes = pieces});
}

namespace {

/// The index of an entry that is the same as one of the last few, or of a new one.
template <class Entry>
std::uint32_t known(std::vector<Entry>& list, const Entry& entry) {
  constexpr std::size_t kLookBack = 64;
  const std::size_t first = list.size() > kLookBack ? list.size() - kLookBack : 0;
  for (std::size_t i = list.size(); i-- > first;)
    if (list[i] == entry) return static_cast<std::uint32_t>(i);
  list.push_back(entry);
  return static_cast<std::uint32_t>(list.size() - 1);
}

}  // namespace

void Tape::collective(const Collective& collective, StreamId on) {
  if (!recording_) return;
  host(HostWork::collective);
  work(InstructionKind::collective, on, known(program_.collectives, collective));
}

void Tape::copy(const Copy& copy, StreamId on) {
  if (recording_) work(InstructionKind::copy, on, known(program_.copies, copy));
}

void Tape::wait(StreamId waiting, StreamId awaited) {
  if (stream_events_.size() <= awaited) stream_events_.resize(awaited + std::size_t{1}, kNoEvent);
  EventId& event = stream_events_[awaited];
  if (event == kNoEvent) event = new_event();
  record_event(event, awaited);
  wait_event(waiting, event);
}

void Tape::record_stream(const Tensor& tensor, StreamId on) {
  emit({.kind = InstructionKind::record_stream, .stream = on, .id = tensor.impl()->storage->id});
}

void Tape::empty_cache() { emit({.kind = InstructionKind::empty_cache, .stream = stream}); }

void Tape::stall() { emit({.kind = InstructionKind::stall, .stream = stream}); }

void Tape::read_back() { emit({.kind = InstructionKind::synchronize, .stream = stream, .id = 1}); }
void Tape::synchronize() { emit({.kind = InstructionKind::synchronize, .stream = stream}); }

StreamId Tape::add_stream(const std::string& name) {
  program_.streams.push_back(name);
  return static_cast<StreamId>(program_.streams.size() - 1);
}

// ---- Tape: tensors ------------------------------------------------------------------------------------------------------

void Tape::emit_alloc(Storage& storage, Category category) {
  if (!recording_) return;
  storage.id = next_id_++;
  storage.part = recording_;
  storage.at = recording_->size();
  storage.resident = true;
  emit({.kind = InstructionKind::alloc,
        .stream = storage.stream,
        .category = category,
        .id = storage.id,
        .bytes = storage.bytes,
        .label = label()});
}

void Tape::emit_free(Storage& storage) {
  storage.resident = false;
  emit({.kind = InstructionKind::free, .stream = storage.stream, .id = storage.id});
}

StorageRef Tape::new_storage(std::int64_t bytes, Category category) {
  auto* storage = new Storage;
  storage->tape = this;
  storage->bytes = bytes;
  storage->stream = stream;
  if (bytes > 0) emit_alloc(*storage, category);
  return StorageRef(storage);
}

Tensor Tape::empty(const Dims& sizes, DType dtype, Category category) {
  auto* impl = new TensorImpl;
  impl->tape = this;
  impl->sizes = sizes;
  impl->strides = contiguous_strides(sizes);
  impl->dtype = dtype;
  impl->storage = new_storage(sizes.product() * size_of(dtype), category);
  return Tensor(Ref<TensorImpl>(impl));
}

Tensor Tape::parameter(const Dims& sizes, DType dtype, bool requires_grad, Category category) {
  Tensor tensor = empty(sizes, dtype, category);
  tensor.set_requires_grad(requires_grad);
  return tensor;
}

Tensor Tape::view(const Tensor& of, const Dims& sizes, const Dims& strides) {
  auto* impl = new TensorImpl;
  impl->tape = this;
  impl->sizes = sizes;
  impl->strides = strides;
  impl->dtype = of.dtype();
  impl->storage = of.impl()->storage;
  impl->base = of.impl()->base ? of.impl()->base : Ref<TensorImpl>(of.impl());
  return Tensor(Ref<TensorImpl>(impl));
}

void Tape::free_storage(const Tensor& tensor) {
  Storage& storage = *tensor.impl()->storage;
  if (storage.resident) emit_free(storage);
}

void Tape::allocate_storage(const Tensor& tensor, Category category) {
  Storage& storage = *tensor.impl()->storage;
  if (storage.resident || storage.bytes == 0) return;
  storage.stream = stream;
  emit_alloc(storage, category);
}

void Tape::scratch(std::int64_t bytes) {
  if (bytes <= 0 || !recording_) return;
  const TensorId id = next_id_++;
  emit({.kind = InstructionKind::alloc, .stream = stream, .category = Category::workspace, .id = id, .bytes = bytes, .label = label()});
  emit({.kind = InstructionKind::free, .stream = stream, .id = id});
}

void Tape::product_workspace(BlasLibrary library) {
  const bool lt = library == BlasLibrary::cublas_lt || blas.lt_alone;
  if (blas.taken_anew) return scratch(lt ? blas.blas_lt : blas.blas);
  if (!recording_) return;
  if (workspaces_.size() <= stream) workspaces_.resize(stream + std::size_t{1});
  const auto make = [this](std::int64_t bytes) { return bytes > 0 ? empty({bytes}, DType::uint8, Category::workspace) : Tensor(); };
  KeptWorkspaces& kept = workspaces_[stream][in_backward() ? 1 : 0];
  Tensor scratch_of_lt;  // alive while the handle makes its own
  if (lt && !blas.keeps_lt) scratch_of_lt = make(blas.blas_lt);
  if (!kept.cublas && !(lt && blas.own_handle)) kept.cublas = make(blas.blas);
  if (lt && blas.keeps_lt && !kept.cublas_lt) kept.cublas_lt = make(blas.blas_lt);
}

bool Tape::keeps_workspace(TensorId id) const {
  for (const auto& of_stream : workspaces_)
    for (const KeptWorkspaces& of_thread : of_stream)
      for (const Tensor* kept : {&of_thread.cublas, &of_thread.cublas_lt})
        if (*kept && kept->impl()->storage->id == id) return true;
  return false;
}

Tensor Tape::workspace_for_good() {
  if (!blas.taken_anew) return {};
  return empty({std::exchange(blas.blas, 0)}, DType::uint8, Category::workspace);
}

void Tape::categorize(const Tensor& tensor, Category category) {
  const Storage& storage = *tensor.impl()->storage;
  if (!storage.resident || storage.part == nullptr) return;
  Category& old = (*storage.part)[storage.at].category;
  if (old == Category::temporary || (old == Category::activation && category == Category::gradient)) old = category;
}

// ---- Tape: the graph ----------------------------------------------------------------------------------------------------

bool Tape::records(const List<const Tensor*>& inputs) const {
  if (!grad_enabled) return false;
  for (const Tensor* input : inputs) {
    if (input->defined() && input->requires_grad()) return true;
  }
  return false;
}

void Tape::attach(Node& node, const char* name, const List<const Tensor*>& inputs) {
  node.tape = this;
  node.name = name;
  node.sequence = next_sequence();
  node.label = module_label;
  node.edges.reserve(inputs.size());
  for (const Tensor* input : inputs) node.edges.push_back(input->defined() && input->requires_grad() ? gradient_edge(*input) : Edge{});
}

void Tape::set_history(Tensor& output, const NodeRef& node) {
  if (!node) return;
  TensorImpl& impl = *output.impl();
  impl.grad_fn = node;
  impl.requires_grad = true;
  impl.output = static_cast<std::uint16_t>(node->outputs.size());
  node->outputs.push_back({impl.sizes, impl.dtype});
}

/// PyTorch drops its casts in the order of a hash table of addresses. Any order is as true as another, but a program must not depend on
/// where this process keeps its objects: the casts die in the order of their storages.
static void clear_casts(Autocast& autocast) {
  std::vector<std::pair<Tensor, Tensor>> casts;
  casts.reserve(autocast.cache.size());
  for (auto& entry : autocast.cache) casts.push_back(std::move(entry.second));
  autocast.cache.clear();
  const auto earlier = [](const auto& a, const auto& b) { return a.second.impl()->storage->id < b.second.impl()->storage->id; };
  std::sort(casts.begin(), casts.end(), earlier);
  for (auto& cast : casts) cast = {};
}

AutocastScope::AutocastScope(Tape& tape, bool enabled, DType type)
    : tape_(tape), enabled_before_(tape.autocast.enabled), type_before_(tape.autocast.type) {
  tape.autocast.enabled = enabled;
  tape.autocast.type = type;
  ++tape.autocast.nesting;
}

AutocastScope::~AutocastScope() {
  tape_.autocast.enabled = enabled_before_;
  tape_.autocast.type = type_before_;
  if (--tape_.autocast.nesting == 0) clear_casts(tape_.autocast);
}

}  // namespace plimsoll::program
