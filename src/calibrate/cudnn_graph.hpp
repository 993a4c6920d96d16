// cuDNN's graph interface (cudnn_graph.h of cuDNN 9), found when the program runs: descriptors that are told attribute by attribute,
// operations on tensors, and the plan of the engine that runs a graph of them. Only what attention needs is declared.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/dynamic_library.hpp"

namespace plimsoll::calibrate::cudnn {

/// cudnnDataType_t
enum class Type : int { fp32 = 0, fp16 = 2, int32 = 4, bf16 = 9, boolean = 11 };
/// cudnnPointwiseMode_t
enum class Map : int {
  multiply = 1,
  divide = 6,
  add = 0,
  subtract = 9,
  exp = 13,
  log = 15,
  identity = 21,
  at_least = 303,
  index = 501,
  select = 601
};
/// cudnnReduceTensorOp_t
enum class Reduce : int { sum = 0, maximum = 3 };
/// cudnnBackendDescriptorType_t
enum class Kind : int {
  pointwise = 0,
  engine_configuration = 3,
  heuristics = 4,
  plan = 5,
  pointwise_operation = 13,
  operation_graph = 15,
  variant_pack = 16,
  tensor = 17,
  matmul = 18,
  matmul_operation = 19,
  reduction = 21,
  reduction_operation = 22,
  reshape_operation = 31,
  device_properties = 38,
};
/// cudnnBackendAttributeName_t
enum class Attribute : int;

/// What cuDNN does not take, in its own words.
class Refused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// libcudnn.so.9 and a handle of it.
class Library {
 public:
  /// nullptr, and why.
  static std::unique_ptr<Library> open(std::string& why_not);
  /// For a device that is not here, described as cuDNN writes it down (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION): plans are made for it,
  /// none can be run.
  static std::unique_ptr<Library> open_for(const std::string& device_json, std::string& why_not);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  /// 91900 of 9.19.0.
  std::int64_t version() const { return version_; }
  std::string version_text() const;
  void set_stream(void* stream) const;

 private:
  friend class Descriptor;
  friend class Plan;
  struct Calls {
    std::size_t (*cudnnGetVersion)();
    int (*cudnnCreate)(void**);
    int (*cudnnDestroy)(void*);
    int (*cudnnSetStream)(void*, void*);
    const char* (*cudnnGetErrorString)(int);
    void (*cudnnGetLastErrorString)(char*, std::size_t);
    int (*cudnnBackendCreateDescriptor)(int, void**);
    int (*cudnnBackendDestroyDescriptor)(void*);
    int (*cudnnBackendSetAttribute)(void*, int, int, std::int64_t, const void*);
    int (*cudnnBackendGetAttribute)(void*, int, int, std::int64_t, std::int64_t*, void*);
    int (*cudnnBackendFinalize)(void*);
    int (*cudnnBackendExecute)(void*, void*, void*);
  };

  explicit Library(std::unique_ptr<DynamicLibrary> library) : library_(std::move(library)) {}
  static std::unique_ptr<Library> load(std::string& why_not);
  bool find_calls(std::string& missing);
  /// Throws Refused for a status that is not success.
  void check(int status, const char* call) const;

  std::unique_ptr<DynamicLibrary> library_;
  Calls calls_{};
  std::int64_t version_ = 0;
  void* handle_ = nullptr;
  std::unique_ptr<class Descriptor> device_;  ///< the one that is not here
};

/// One of the library's objects. Told everything, it is finalised and can be named by others.
class Descriptor {
 public:
  Descriptor(const Library& library, Kind kind);
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : library_(other.library_), it_(std::exchange(other.it_, nullptr)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor& operator=(Descriptor&&) = delete;

  void set(Attribute name, Type value);
  void set(Attribute name, Map value);
  void set(Attribute name, Reduce value);
  void set(Attribute name, bool value);
  void set(Attribute name, std::int64_t value);
  void set(Attribute name, const std::string& text);
  void set(Attribute name, const Descriptor& other);
  void set(Attribute name, const std::vector<const Descriptor*>& others);
  void set(Attribute name, const std::vector<std::int64_t>& values);
  void set(Attribute name, void* pointer);
  void set(Attribute name, const std::vector<void*>& pointers);
  void set_handle(Attribute name);
  void set_mode(Attribute name, int heuristics_mode);
  std::int64_t integer(Attribute name) const;
  /// As many of those that the library answers with as there are, `most` at most.
  std::vector<Descriptor> descriptors(Attribute name, Kind kind, std::int64_t most) const;
  void finalize();

 private:
  friend class Plan;
  void tell(Attribute name, int form, std::int64_t count, const void* values);
  const Library* library_;
  void* it_ = nullptr;
};

using Dimensions = std::array<std::int64_t, 4>;
/// Neighbours of the last dimension beside each other, and so on.
Dimensions packed(const Dimensions& dimensions);

struct Tensor {
  std::int64_t id = 0;
  Type type = Type::fp32;
  Dimensions dimensions{}, strides{};
};

/// Operations on tensors. Those between others are virtual: no memory holds them.
class Graph {
 public:
  explicit Graph(const Library& library) : library_(library) {}

  /// In the device's memory, which each run names.
  Tensor memory(Type type, const Dimensions& dimensions, const Dimensions& strides);
  /// A number that the host hands over with each run.
  Tensor number(float value);

  Tensor map(Map how, const Tensor& x);
  Tensor map(Map how, const Tensor& x, const Tensor& b, Type type = Type::fp32);
  void map_into(Map how, const Tensor& x, const Tensor& y);
  void map_into(Map how, const Tensor& x, const Tensor& b, const Tensor& y);
  /// Where `a` is not less than `b`.
  Tensor at_least(const Tensor& a, const Tensor& b);
  /// `x` where `chosen`, `b` elsewhere.
  Tensor select(const Tensor& x, const Tensor& b, const Tensor& chosen);
  /// The place of each element of `x` along a dimension.
  Tensor index(const Tensor& x, std::int64_t dimension);
  /// A·B, head by head; where heads of A share one of B it is there once.
  Tensor matmul(const Tensor& a, const Tensor& b, Type type = Type::fp32);
  void matmul_into(const Tensor& a, const Tensor& b, const Tensor& c);
  /// Over the dimensions in which `dimensions` are 1, or over heads of a group.
  Tensor reduce(Reduce how, const Tensor& x, const Dimensions& dimensions);
  void reduce_into(Reduce how, const Tensor& x, const Tensor& y);
  /// The same elements with their last two dimensions exchanged, cast to `type`.
  Tensor transposed(const Tensor& x, Type type);

 private:
  friend class Plan;
  Tensor add(Type type, const Dimensions& dimensions, const Dimensions& strides, bool is_virtual, bool by_value);
  Tensor between(Type type, const Dimensions& dimensions) { return add(type, dimensions, packed(dimensions), true, false); }
  const Descriptor& descriptor_of(const Tensor& tensor) const { return tensors_[static_cast<std::size_t>(tensor.id)]; }
  void add_map(Map how, std::int64_t dimension, const Tensor& x, const Tensor* b, const Tensor* chosen, const Tensor& y);

  const Library& library_;
  std::deque<Descriptor> tensors_, operations_, details_;
  std::deque<std::pair<std::int64_t, float>> numbers_;
};

/// The first engine of the library's heuristics that takes the graph, as PyTorch takes it. Throws Refused where none does.
class Plan {
 public:
  Plan(const Library& library, Graph graph);
  std::int64_t workspace_bytes() const { return workspace_bytes_; }
  /// How the library itself writes the plan down: its engine and what that chose.
  std::string text() const;
  /// Each tensor in memory with its address.
  void run(std::vector<std::pair<Tensor, void*>> tensors, void* workspace);

 private:
  const Library& library_;
  Graph graph_;
  std::optional<Descriptor> plan_;
  std::int64_t workspace_bytes_ = 0;
};

}  // namespace plimsoll::calibrate::cudnn
