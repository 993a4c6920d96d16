/// The eager tape: a symbolic PyTorch.
///
/// Running a module on a Tape records exactly what eager PyTorch would allocate, free and launch, in order, into a StepProgram.
/// No data is stored: a tensor is a shape on a reference-counted storage. C++ scopes mirror the lifetimes of Python variables, the
/// autograd engine mirrors torch/csrc/autograd/engine.cpp, so a storage dies where it dies in PyTorch.
///
/// Everything hangs on one Tape and one thread; tensors must not outlive their tape.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plimsoll/dtype.hpp"
#include "plimsoll/program.hpp"
#include "program/blas_workspaces.hpp"
#include "program/hash_index.hpp"
#include "program/launch_memo.hpp"
#include "program/pool.hpp"
#include "program/target_device.hpp"
#include "program/torch_release.hpp"

namespace plimsoll::program {

class Tape;
class Node;
class TensorImpl;
class EqualLayers;

/// A few dimensions, inline.
class Dims {
 public:
  static constexpr int kMost = 8;
  Dims() = default;
  Dims(std::initializer_list<std::int64_t> sizes) {
    for (const std::int64_t size : sizes) push_back(size);
  }

  int rank() const { return rank_; }
  std::int64_t operator[](int i) const { return sizes_[static_cast<std::size_t>(i < 0 ? i + rank_ : i)]; }
  std::int64_t& operator[](int i) { return sizes_[static_cast<std::size_t>(i < 0 ? i + rank_ : i)]; }
  void push_back(std::int64_t size) { sizes_[static_cast<std::size_t>(rank_++)] = size; }
  std::int64_t product() const {
    std::int64_t product = 1;
    for (int i = 0; i < rank_; ++i) product *= sizes_[static_cast<std::size_t>(i)];
    return product;
  }
  friend bool operator==(const Dims& a, const Dims& b) {
    if (a.rank_ != b.rank_) return false;
    for (std::size_t i = 0; i < static_cast<std::size_t>(a.rank_); ++i)
      if (a.sizes_[i] != b.sizes_[i]) return false;
    return true;
  }
  friend bool operator!=(const Dims& a, const Dims& b) { return !(a == b); }

 private:
  std::array<std::int64_t, kMost> sizes_{};
  int rank_ = 0;
};

/// Strides of a row-major tensor of these sizes.
Dims contiguous_strides(const Dims& sizes);

/// An intrusive reference: the pointee counts, and `release` destroys it when the count reaches zero.
template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* object) : object_(object) {
    if (object_) ++object_->references;
  }
  Ref(const Ref& other) : Ref(other.object_) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(const Ref& other) { return *this = Ref(other); }
  Ref& operator=(Ref&& other) noexcept {
    if (this != &other) drop(std::exchange(object_, std::exchange(other.object_, nullptr)));
    return *this;
  }
  ~Ref() { drop(object_); }

  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }
  void reset() { drop(std::exchange(object_, nullptr)); }
  friend bool operator==(const Ref& a, const Ref& b) { return a.object_ == b.object_; }

 private:
  static void drop(T* object) {
    if (object && --object->references == 0) object->release();
  }
  T* object_ = nullptr;
};

/// Device memory of one or more tensors: an alloc Instruction when it is made, a free when its last reference dies.
struct Storage : Pooled {
  Tape* tape = nullptr;
  TensorId id = 0;
  std::int64_t bytes = 0;  ///< 0 while resized away (FSDP frees a parameter's memory and keeps its tensor)
  std::uint32_t references = 0;
  StreamId stream = kComputeStream;
  bool resident = false;                     ///< an alloc without its free is on the program
  std::vector<Instruction>* part = nullptr;  ///< where its alloc stands, so that its category can still be told
  std::size_t at = 0;

  void release();
};

using NodeRef = Ref<Node>;
using StorageRef = Ref<Storage>;

/// A tensor: a reference to a TensorImpl, as a Python variable or an at::Tensor is. Undefined when default-constructed.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(Ref<TensorImpl> impl) : impl_(std::move(impl)) {}

  bool defined() const { return static_cast<bool>(impl_); }
  explicit operator bool() const { return defined(); }
  TensorImpl* impl() const { return impl_.get(); }
  void reset() { impl_.reset(); }

  inline const Dims& sizes() const;
  inline const Dims& strides() const;
  std::int64_t size(int dimension) const { return sizes()[dimension]; }
  int rank() const { return sizes().rank(); }
  std::int64_t elements() const { return sizes().product(); }
  inline DType dtype() const;
  inline std::int64_t bytes() const;  ///< of its elements; its storage may be larger
  inline Tape& tape() const;
  inline bool requires_grad() const;
  inline bool is_leaf() const;
  inline bool is_contiguous() const;
  inline bool is_view() const;

  /// A tensor that shares the storage and takes no part in autograd.
  Tensor detach() const;
  /// The gradient of a leaf; undefined when there is none.
  inline Tensor& grad() const;
  inline void set_requires_grad(bool yes) const;
  /// Called with the gradient when it arrives (torch.Tensor.register_hook); may replace it.
  void register_hook(std::function<void(Tensor&)> hook) const;
  /// Called after a leaf's gradient was accumulated (register_post_accumulate_grad_hook).
  void register_post_accumulate_grad_hook(std::function<void(const Tensor&)> hook) const;

 private:
  /// What it refers to; a module that reads a tensor which nobody made ends with an internal Error instead of a crash.
  TensorImpl& held() const {
    if (!impl_) [[unlikely]]
      undefined();
    return *impl_.get();
  }
  [[noreturn]] static void undefined();

  Ref<TensorImpl> impl_;
};

using TensorHook = std::function<void(Tensor&)>;
using LeafHook = std::function<void(const Tensor&)>;

class TensorImpl : public Pooled {
 public:
  std::uint32_t references = 0;
  Tape* tape = nullptr;
  StorageRef storage;
  Dims sizes, strides;
  DType dtype = DType::fp32;
  bool requires_grad = false;
  std::uint16_t output = 0;  ///< which output of grad_fn
  NodeRef grad_fn;
  Ref<TensorImpl> base;         ///< of a view: PyTorch keeps the base alive, which forbids accumulating in place
  Node* accumulator = nullptr;  ///< of a leaf: not owned, the graph owns it
  Tensor grad;
  std::optional<DType> grad_dtype;  ///< of a leaf: the type that arriving gradients are cast to; none: its own (torch.Tensor.grad_dtype)
  bool any_grad_dtype = false;      ///< of a leaf: arriving gradients are not cast (grad_dtype = None)
  std::vector<LeafHook> post_accumulate;
  std::vector<TensorHook> leaf_hooks;  ///< a leaf's tensor hooks: run before accumulation

  void release() { delete this; }
};

inline const Dims& Tensor::sizes() const { return held().sizes; }
inline const Dims& Tensor::strides() const { return held().strides; }
inline DType Tensor::dtype() const { return held().dtype; }
inline std::int64_t Tensor::bytes() const { return elements() * size_of(dtype()); }
inline Tape& Tensor::tape() const { return *held().tape; }
inline bool Tensor::requires_grad() const { return held().requires_grad; }
inline bool Tensor::is_leaf() const { return !held().grad_fn; }
inline bool Tensor::is_view() const { return static_cast<bool>(held().base); }
inline Tensor& Tensor::grad() const { return held().grad; }
inline void Tensor::set_requires_grad(bool yes) const { held().requires_grad = yes; }

inline bool Tensor::is_contiguous() const {
  const Dims &sizes = held().sizes, &strides = held().strides;
  std::int64_t expected = 1;
  for (int i = sizes.rank() - 1; i >= 0; --i) {
    if (sizes[i] == 1) continue;
    if (strides[i] != expected) return false;
    expected *= sizes[i];
  }
  return true;
}

/// Hooks on tensors that autograd saves (torch.autograd.graph.saved_tensors_hooks).
class SavedTensorHooks {
 public:
  /// What stands in a node for a packed tensor.
  class Packed {
   public:
    virtual ~Packed() = default;
  };
  virtual ~SavedTensorHooks() = default;
  virtual std::unique_ptr<Packed> pack(const Tensor& tensor) = 0;
  virtual Tensor unpack(Packed& packed) = 0;
};

/// Operators whose outputs a selective checkpoint keeps, instead of computing them again (torch.utils.checkpoint's dispatch modes).
class SelectiveOutputs {
 public:
  virtual ~SelectiveOutputs() = default;
  /// While the region runs again: the outputs kept of this call of `name` (a literal), or nothing where it is computed again.
  virtual std::vector<Tensor> kept(const char* name) = 0;
  /// While the region runs first: told the outputs of the call.
  virtual void computed(const char* name, const std::vector<Tensor>& outputs) = 0;
};

/// What the shapes of an operator's tensors do not tell.
struct ToldNumbers {
  std::int64_t number = 0;  ///< where a slice begins, in which dimension tensors are joined, an exponent; of attention whether it is causal
  double rate = 0;          ///< of a dropout within it
};

/// Who is told of the operators that run (inductor/trace.hpp).
class OperatorTrace {
 public:
  virtual ~OperatorTrace() = default;
  /// An operator's name (a literal), its arguments, what their shapes do not tell and what it gave. Operators that run within another are
  /// not told.
  virtual void ran(const char* name, const List<const Tensor*>& inputs, const ToldNumbers& told, const std::vector<Tensor>& outputs) = 0;
  /// The code does what cannot be traced, while its variables hold `live`: a graph ends here.
  virtual void breaks(const std::vector<Tensor>& live) = 0;
  int running = 0;          ///< operators that have begun and not ended
  bool recomputes = false;  ///< what runs now is a checkpoint's: its backward computes it again
  int checkpoints = 0;      ///< that have begun
  bool casts = false;       ///< what runs now is autocast's cast of an operator's argument
};

class SavedTensor {
 public:
  SavedTensor() = default;
  SavedTensor(const Tensor& tensor, bool is_output);
  Tensor unpack() const;
  /// Whether hooks packed it.
  bool has_hooks() const { return packed_ != nullptr; }
  bool holds_something() const { return tensor_.defined() || has_hooks(); }
  void reset();

 private:
  Tensor tensor_;
  std::shared_ptr<SavedTensorHooks> hooks_;
  std::unique_ptr<SavedTensorHooks::Packed> packed_;
};

struct Edge {
  NodeRef function;
  std::uint16_t input = 0;
};

using Gradients = List<Tensor>;

/// What a gradient must look like: the engine reduces and casts to it (validate_outputs).
struct TensorMeta {
  Dims sizes;
  DType type;
  bool any_type = false;  ///< gradients stay in the type that they arrive in

  bool takes(DType arriving) const { return any_type || arriving == type; }
};

/// What a node's backward sees.
class BackwardCall {
 public:
  /// Unpacks all saved tensors, as a generated apply() does first of all.
  BackwardCall(Tape& tape, Node& node, Gradients& inputs, Gradients& outputs);
  Tape& tape;
  Node& node;
  /// Gradient of forward output `output`; undefined when none arrived.
  const Tensor& grad(std::size_t output = 0) const { return in_[output]; }
  /// The same, given up by the engine: it dies as soon as the caller drops it.
  Tensor take_grad(std::size_t output = 0) { return std::move(in_[output]); }
  const Tensor& saved(std::size_t index) const { return saved_[index]; }
  /// A saved tensor that the node and this call give up: it dies as soon as the caller drops it (a compiled backward clears its arguments).
  Tensor take_saved(std::size_t index);
  /// Whether forward input `input` needs a gradient.
  bool needs(std::size_t input) const;
  void give(std::size_t input, Tensor gradient) { out_[input] = std::move(gradient); }
  /// Drops the incoming gradients: a torch.autograd.Function written in Python lets them go before the engine casts its results.
  void drop_gradients() {
    for (Tensor& gradient : in_) gradient.reset();
  }

 private:
  Gradients& in_;
  Gradients& out_;
  List<Tensor> saved_;
};

/// A vertex of the autograd graph.
class Node : public Pooled {
 public:
  virtual ~Node() = default;
  virtual void apply(BackwardCall& call) = 0;
  /// What an arriving gradient of output `output` must look like.
  virtual TensorMeta wanted(std::uint16_t output) const { return outputs[output]; }

  /// Whether the running task needs the gradient of forward input `input`.
  bool should_compute(std::size_t input) const;
  void release();
  void release_saved();

  std::uint32_t references = 0;
  Tape* tape = nullptr;
  std::uint64_t sequence = 0;  ///< later forward operators run earlier backward; gradients of leaves accumulate first
  std::uint32_t label = 0;
  const char* name = "";
  List<Edge> edges;          ///< one per forward input
  List<SavedTensor> saved;   ///< in the order in which PyTorch releases them
  List<TensorMeta> outputs;  ///< of the forward outputs: arriving gradients are reduced and cast to these
  std::vector<std::pair<std::uint16_t, TensorHook>> tensor_hooks;         ///< on the gradient of forward output `first`
  std::vector<std::function<void(const Gradients& outputs)>> post_hooks;  ///< after apply: Node::add_post_hook
  std::vector<std::function<void(Gradients& inputs)>> pre_hooks;          ///< before apply
  bool is_accumulator = false;
  bool released = false;      ///< it has run, and what it had saved is gone
  int transposed_input = -1;  ///< forward input that the operator saw through weight.t(): its gradient is cast behind that view's backward

  // The engine's state for the graph task that runs this node.
  std::int32_t dependencies = 0;
  std::uint32_t visited = 0, needed = 0;  ///< stamps of the tasks that last reached it, and that need what it computes
  Gradients buffer;
};

/// A node whose backward is a callable `void(BackwardCall&)`.
template <class Function>
class FunctionNode final : public Node {
 public:
  explicit FunctionNode(Function function) : function_(std::move(function)) {}
  void apply(BackwardCall& call) override { function_(call); }

 private:
  Function function_;
};

/// torch.autocast: operators of its lists cast their inputs; a leaf that requires grad is cast once per region.
struct Autocast {
  bool enabled = false;
  DType type = DType::bf16;
  int nesting = 0;
  std::unordered_map<TensorImpl*, std::pair<Tensor, Tensor>> cache;  ///< leaf → (leaf, its cast)
};

/// The limits of DDP's buckets of gradients, in bytes.
struct BucketLimits {
  std::int64_t first = 0;  ///< of the bucket whose gradients come first
  std::int64_t rest = 0;
};

/// The recorder of one rank's program and the state of its eager framework.
class Tape {
 public:
  /// PyTorch on that device; no release is the newest.
  explicit Tape(const TargetDevice& device, TorchRelease torch = {});
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // ---- recording ----
  enum class Part { init, first_step, second_step, step };
  void record_into(Part part);
  Part part() const { return part_; }
  /// Instructions in the part that is recorded.
  std::size_t recorded() const { return recording_->size(); }
  StepProgram& program() { return program_; }
  /// The finished program; the tape records nothing after it (tensors that die later leave no trace).
  StepProgram take();
  void phase(Phase phase);
  bool phase_is_held = false;  ///< by a PhaseScope
  void kernel(const Kernel& kernel) { launch(kernel, 1); }
  /// Launches the kernel so often; what it is in the program, for `relaunch`.
  LaunchMemo::Launch launch(const Kernel& kernel, std::int64_t times);
  /// The same launch again.
  void relaunch(const LaunchMemo::Launch& launch) {
    for (std::int64_t i = 0; i < launch.times; ++i) work(InstructionKind::kernel, stream, launch.kernel);
  }
  /// Whether what runs is recorded: not any more once the program was taken.
  bool is_recording() const { return recording_ != nullptr; }
  LaunchMemo pointwise_launches;  ///< by the tensors that they read and write
  void collective(const Collective& collective, StreamId stream);
  void copy(const Copy& copy, StreamId stream);
  /// `waiting` waits for everything issued so far on `awaited`.
  void wait(StreamId waiting, StreamId awaited);
  /// An event of its own, for what is waited for later than it is recorded.
  EventId new_event() { return next_event_++; }
  void record_event(EventId event, StreamId on) { emit({.kind = InstructionKind::record_event, .stream = on, .id = event}); }
  void wait_event(StreamId waiting, EventId event) { emit({.kind = InstructionKind::wait_event, .stream = waiting, .id = event}); }
  /// The host does `pieces` of such work here.
  void host(HostWork work, std::int64_t pieces = 1);
  void record_stream(const Tensor& tensor, StreamId stream);
  void empty_cache();
  void stall();
  /// The host waits for the whole device (torch.cuda.synchronize).
  void synchronize();
  /// The host reads what the current stream computes (Tensor.item, tolist): it waits for that stream alone.
  void read_back();
  StreamId add_stream(const std::string& name);
  /// That many names of tensors in a row, for a part that is put together from what is recorded; the first of them.
  TensorId take_names(std::size_t count) { return std::exchange(next_id_, next_id_ + static_cast<TensorId>(count)); }
  EqualLayers* equal_layers = nullptr;  ///< who decides which of equal layers run; null: all do

  // ---- tensors ----
  /// A new tensor on a new storage, on the current stream.
  Tensor empty(const Dims& sizes, DType dtype, Category category = Category::temporary);
  /// A leaf that requires grad or not: a parameter.
  Tensor parameter(const Dims& sizes, DType dtype, bool requires_grad, Category category = Category::parameter);
  /// Another view of `of`'s storage.
  Tensor view(const Tensor& of, const Dims& sizes, const Dims& strides);
  /// Frees a storage's memory and keeps its tensors (storage.resize_(0)), or gives it memory again.
  void free_storage(const Tensor& tensor);
  void allocate_storage(const Tensor& tensor, Category category);
  /// Scratch taken and given back at once.
  void scratch(std::int64_t bytes);
  enum class BlasLibrary : std::uint8_t { cublas, cublas_lt };
  /// The workspace of a product: scratch, or where the release keeps one that of the current stream and thread (the engine's has a handle
  /// of its own), made by the first product. A product of cuBLASLt asks for cuBLAS's handle, and so for its workspace, too.
  void product_workspace(BlasLibrary library);
  /// Whether that tensor is a workspace that a handle keeps to the end of the process.
  bool keeps_workspace(TensorId id) const;
  /// The first library's workspace made now and kept by the caller, as releases did that kept them, where this one takes it anew.
  Tensor workspace_for_good();
  /// Tells what the tensor turned out to be for.
  static void categorize(const Tensor& tensor, Category category);

  // ---- autograd ----
  bool grad_enabled = true;
  bool adapters_off = false;  ///< PEFT's disable_adapter(): base layers answer alone
  std::uint64_t next_sequence() { return sequence_++; }
  bool records(const List<const Tensor*>& inputs) const;
  void attach(Node& node, const char* name, const List<const Tensor*>& inputs);
  /// Makes `output` the next output of `node` (nothing when node is null).
  static void set_history(Tensor& output, const NodeRef& node);
  /// Edge to the producer of a tensor that requires grad (its grad_fn, or its gradient accumulator).
  Edge gradient_edge(const Tensor& tensor);
  /// loss.backward(): runs the graph from `root` with `gradient` (ones when undefined).
  void backward(const Tensor& root, Tensor gradient = {});
  void backward(const std::vector<Tensor>& roots, std::vector<Tensor> gradients);
  /// torch.autograd.grad: the gradients that arrive at `inputs`, of what `root_gradients` give at `roots`. Only nodes on a way from these
  /// to those run; nothing is accumulated. `retain_graph`: saved tensors stay for another pass.
  std::vector<Tensor> gradients(const std::vector<Edge>& roots, std::vector<Tensor> root_gradients, const std::vector<Edge>& inputs,
                                bool retain_graph);
  /// Runs at the end of the running backward (Variable._execution_engine.queue_callback).
  void queue_callback(std::function<void()> callback);
  bool in_backward() const { return !tasks_.empty(); }

  std::vector<std::shared_ptr<SavedTensorHooks>> saved_tensor_hooks;  ///< innermost last
  std::shared_ptr<SelectiveOutputs> selective_outputs;                ///< of the selective checkpoint that runs; null outside one
  OperatorTrace* trace = nullptr;                                     ///< of torch.compile; null: nobody is told
  Autocast autocast;
  /// Of the DDP within whose forward the model runs (DistributedDataParallel._active_ddp_module); none outside of one. Graphs that
  /// torch.compile compiles there are cut where the buckets end.
  std::optional<BucketLimits> ddp_buckets;
  /// In cycles of Python's, which its collector ends behind the part that is recorded.
  std::vector<Tensor> in_cycles;

  /// What a framework has put in the place of torch.nn.functional.linear; none: PyTorch's own.
  Tensor (*patched_linear)(const Tensor& x, const Tensor& weight, const Tensor& bias) = nullptr;

  // ---- attribution ----
  bool running_again = false;      ///< what is launched was run before: a checkpointed region's second run
  std::uint32_t module_label = 0;  ///< index into program().labels: the module that runs
  const char* operator_name = "";  ///< a literal: the operator that runs; instructions are labelled "module: operator"
  std::uint32_t intern(std::string label);
  std::uint32_t label();  ///< of what is recorded now
  StreamId stream = kComputeStream;  ///< the current stream

  // ---- where it runs ----
  TargetDevice device;
  TorchRelease torch;
  BlasWorkspaces blas;
  bool tf32 = false;             ///< products of fp32 operands are rounded to tf32 (torch.backends.cuda.matmul.allow_tf32)
  bool cudnn_attention = false;  ///< scaled_dot_product_attention may take cuDNN's kernels, before all others
  bool cudnn = false;            ///< convolutions run in cuDNN or MIOpen, else in ATen's own kernels

 private:
  friend struct Storage;
  friend class TensorImpl;
  friend class Node;
  struct GraphTask;

  StorageRef new_storage(std::int64_t bytes, Category category);
  std::uint32_t known_kernel(const Kernel& kernel);
  void work(InstructionKind kind, StreamId on, std::uint32_t id);
  void emit_alloc(Storage& storage, Category category);
  void emit_free(Storage& storage);
  void emit(const Instruction& instruction) {
    if (recording_) recording_->push_back(instruction);
  }
  void start(GraphTask& task, const std::vector<Edge>& roots, std::vector<Tensor> gradients);
  void run(GraphTask& task);
  void evaluate(GraphTask& task, const NodeRef& node);
  void call(Node& node, Gradients inputs, Gradients& outputs);
  void accumulate_into(Gradients& buffer, std::size_t position, Tensor gradient);
  std::vector<Node*> count_dependencies(const std::vector<Edge>& roots);
  void keep_to(GraphTask& task, std::vector<Node*> reached, const std::vector<Edge>& inputs);
  static void capture(GraphTask& task, Node& node);

  StepProgram program_;
  std::vector<Instruction>* recording_ = nullptr;
  Part part_ = Part::init;
  TensorId next_id_ = 0;
  static constexpr EventId kNoEvent = ~EventId{0};
  EventId next_event_ = 0;
  std::vector<EventId> stream_events_;  ///< per stream: the event of `wait`
  HashIndex kernels_;                   ///< by their hashes
  std::uint64_t sequence_ = 0;
  std::uint32_t visit_ = 0;
  std::uint32_t restricted_ = 0;  ///< stamp of the running task where it computes the gradients of some inputs only; 0: of all
  HashIndex labels_;              ///< by their texts' hashes
  HashIndex operator_labels_;     ///< by module label and operator name
  struct KeptWorkspaces {
    Tensor cublas, cublas_lt;
  };
  std::vector<std::array<KeptWorkspaces, 2>> workspaces_;  ///< kept ones by stream, of forward's thread and of the engine's
  std::vector<GraphTask*> tasks_;
  std::vector<Node*> dying_;
  bool burying_ = false;
};

// ---- scopes, as Python's with statements ------------------------------------------------------------------------------

/// torch.no_grad() or torch.enable_grad() for the scope.
class GradMode {
 public:
  GradMode(Tape& tape, bool enabled) : tape_(tape), before_(std::exchange(tape.grad_enabled, enabled)) {}
  ~GradMode() { tape_.grad_enabled = before_; }
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  Tape& tape_;
  bool before_;
};

/// All that runs in the scope is of one phase: where modules say another (a head, where its loss begins) that is passed over.
class PhaseScope {
 public:
  PhaseScope(Tape& tape, Phase phase) : tape_(tape) {
    tape.phase(phase);
    before_ = std::exchange(tape.phase_is_held, true);
  }
  ~PhaseScope() { tape_.phase_is_held = before_; }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  Tape& tape_;
  bool before_ = false;
};

/// torch.autocast(enabled, dtype) for the scope; the cache of casts is cleared when the outermost ends.
class AutocastScope {
 public:
  AutocastScope(Tape& tape, bool enabled, DType type);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  Tape& tape_;
  bool enabled_before_;
  DType type_before_;
};

/// Saved-tensor hooks for the scope.
class SavedTensorHooksScope {
 public:
  SavedTensorHooksScope(Tape& tape, std::shared_ptr<SavedTensorHooks> hooks) : tape_(tape) {
    tape_.saved_tensor_hooks.push_back(std::move(hooks));
  }
  ~SavedTensorHooksScope() { tape_.saved_tensor_hooks.pop_back(); }
  SavedTensorHooksScope(const SavedTensorHooksScope&) = delete;
  SavedTensorHooksScope& operator=(const SavedTensorHooksScope&) = delete;

 private:
  Tape& tape_;
};

/// torch.cuda.stream(stream) for the scope: allocations and kernels go there.
class StreamScope {
 public:
  StreamScope(Tape& tape, StreamId stream) : tape_(tape), before_(std::exchange(tape.stream, stream)) {}
  ~StreamScope() { tape_.stream = before_; }
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  Tape& tape_;
  StreamId before_;
};

/// What the scope launches was run before (a checkpoint's second run).
class RunningAgain {
 public:
  explicit RunningAgain(Tape& tape) : tape_(tape), before_(std::exchange(tape.running_again, true)) {}
  ~RunningAgain() { tape_.running_again = before_; }
  RunningAgain(const RunningAgain&) = delete;
  RunningAgain& operator=(const RunningAgain&) = delete;

 private:
  Tape& tape_;
  bool before_;
};

/// The module that what is recorded in the scope is attributed to.
class LabelScope {
 public:
  LabelScope(Tape& tape, std::uint32_t label) : tape_(tape), before_(std::exchange(tape.module_label, label)) {}
  ~LabelScope() { tape_.module_label = before_; }
  LabelScope(const LabelScope&) = delete;
  LabelScope& operator=(const LabelScope&) = delete;

 private:
  Tape& tape_;
  std::uint32_t before_;
};

}  // namespace plimsoll::program
