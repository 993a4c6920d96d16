#include "calibrate/cudnn_graph.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "plimsoll/error.hpp"

namespace plimsoll::calibrate::cudnn {

enum class Attribute : int {
  pointwise_mode = 0,
  pointwise_precision = 1,
  pointwise_axis = 9,
  heuristics_mode = 200,
  heuristics_graph = 201,
  heuristics_results = 202,
  heuristics_device = 204,
  plan_configuration = 401,
  plan_workspace = 402,
  plan_json = 405,
  plan_device = 407,
  pointwise_operator = 750,
  pointwise_x = 751,
  pointwise_b = 752,
  pointwise_y = 753,
  pointwise_t = 758,
  graph_handle = 800,
  graph_operations = 801,
  graph_engines = 802,
  tensor_alignment = 900,
  tensor_type = 901,
  tensor_dimensions = 902,
  tensor_strides = 903,
  tensor_id = 906,
  tensor_virtual = 907,
  tensor_by_value = 908,
  pack_ids = 1000,
  pack_pointers = 1001,
  pack_workspace = 1003,
  matmul_precision = 1500,
  matmul_a = 1520,
  matmul_b = 1521,
  matmul_c = 1522,
  matmul_operator = 1523,
  reduction_mode = 1600,
  reduction_precision = 1601,
  reduction_x = 1610,
  reduction_y = 1611,
  reduction_operator = 1612,
  reshape_x = 2200,
  reshape_y = 2201,
  device_json = 2702,
};

namespace {

// cudnnBackendAttributeType_t
constexpr int kHandle = 0, kDataType = 1, kBoolean = 2, kInt64 = 3, kPointer = 6, kHeuristicsMode = 8, kPointwiseMode = 14,
              kDescriptor = 15, kReduction = 18, kCharacter = 24;
constexpr int kSuccess = 0, kModeA = 3;  // cudnnBackendHeurMode_t: what frameworks ask
constexpr std::int64_t kAlignment = 16;  // of tensors, as cudnn_frontend takes it where nobody says
constexpr std::int64_t kOldest = 90000;

std::string version_of(std::int64_t version) { return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100); }

std::vector<std::int64_t> list(const Dimensions& dimensions) { return {dimensions.begin(), dimensions.end()}; }

}  // namespace

Dimensions packed(const Dimensions& dimensions) {
  Dimensions strides;
  std::int64_t stride = 1;
  for (std::size_t i = dimensions.size(); i-- > 0; stride *= dimensions[i]) strides[i] = stride;
  return strides;
}

// ---- the library -------------------------------------------------------------------------------------------------------

bool Library::find_calls(std::string& missing) {
  const auto find = [&](auto*& call, const char* name) {
    call = library_->find<std::remove_reference_t<decltype(*call)>>(name);
    if (!call && missing.empty()) missing = name;
  };
#define FIND(name) find(calls_.name, #name)
  FIND(cudnnGetVersion);
  FIND(cudnnCreate);
  FIND(cudnnDestroy);
  FIND(cudnnSetStream);
  FIND(cudnnGetErrorString);
  FIND(cudnnGetLastErrorString);
  FIND(cudnnBackendCreateDescriptor);
  FIND(cudnnBackendDestroyDescriptor);
  FIND(cudnnBackendSetAttribute);
  FIND(cudnnBackendGetAttribute);
  FIND(cudnnBackendFinalize);
  FIND(cudnnBackendExecute);
#undef FIND
  return missing.empty();
}

std::unique_ptr<Library> Library::load(std::string& why_not) {
  auto library = std::make_unique<DynamicLibrary>(place_of("cudnn"));
  if (!library->loaded()) {
    why_not = library->reason();
    return nullptr;
  }
  std::unique_ptr<Library> found(new Library(std::move(library)));
  std::string missing;
  if (!found->find_calls(missing)) {
    why_not = found->library_->name() + " lacks " + missing;
    return nullptr;
  }
  found->version_ = static_cast<std::int64_t>(found->calls_.cudnnGetVersion());
  if (found->version_ >= kOldest) return found;
  why_not = fmt::format("{} is cuDNN {}, and 9 is needed", found->library_->name(), found->version_text());
  return nullptr;
}

std::unique_ptr<Library> Library::open(std::string& why_not) {
  std::unique_ptr<Library> library = load(why_not);
  if (!library) return nullptr;
  if (const int status = library->calls_.cudnnCreate(&library->handle_); status != kSuccess) {
    why_not = fmt::format("cudnnCreate says {}", library->calls_.cudnnGetErrorString(status));
    return nullptr;
  }
  return library;
}

std::unique_ptr<Library> Library::open_for(const std::string& device_json, std::string& why_not) {
  std::unique_ptr<Library> library = load(why_not);
  if (!library) return nullptr;
  try {
    auto device = std::make_unique<Descriptor>(*library, Kind::device_properties);
    device->set(Attribute::device_json, device_json);
    device->finalize();
    library->device_ = std::move(device);
  } catch (const Refused& refused) {
    why_not = refused.what();
    return nullptr;
  }
  return library;
}

Library::~Library() {
  device_.reset();
  if (handle_) calls_.cudnnDestroy(handle_);
}

std::string Library::version_text() const { return version_of(version_); }
void Library::set_stream(void* stream) const { check(calls_.cudnnSetStream(handle_, stream), "cudnnSetStream"); }

void Library::check(int status, const char* call) const {
  if (status == kSuccess) return;
  constexpr std::size_t kMostText = 1024;
  char text[kMostText] = "";
  calls_.cudnnGetLastErrorString(text, sizeof text);
  throw Refused(fmt::format("{} says {}{}{}", call, calls_.cudnnGetErrorString(status), *text ? ": " : "", text));
}

// ---- descriptors -------------------------------------------------------------------------------------------------------

Descriptor::Descriptor(const Library& library, Kind kind) : library_(&library) {
  library.check(library.calls_.cudnnBackendCreateDescriptor(static_cast<int>(kind), &it_), "cudnnBackendCreateDescriptor");
}
Descriptor::~Descriptor() {
  if (it_) library_->calls_.cudnnBackendDestroyDescriptor(it_);
}

void Descriptor::tell(Attribute name, int form, std::int64_t count, const void* values) {
  library_->check(library_->calls_.cudnnBackendSetAttribute(it_, static_cast<int>(name), form, count, values), "cudnnBackendSetAttribute");
}
void Descriptor::set(Attribute name, Type value) { tell(name, kDataType, 1, &value); }
void Descriptor::set(Attribute name, Map value) { tell(name, kPointwiseMode, 1, &value); }
void Descriptor::set(Attribute name, Reduce value) { tell(name, kReduction, 1, &value); }
void Descriptor::set(Attribute name, bool value) { tell(name, kBoolean, 1, &value); }
void Descriptor::set(Attribute name, std::int64_t value) { tell(name, kInt64, 1, &value); }
void Descriptor::set(Attribute name, const std::string& text) {
  tell(name, kCharacter, static_cast<std::int64_t>(text.size()), text.data());
}
void Descriptor::set(Attribute name, const Descriptor& other) { tell(name, kDescriptor, 1, &other.it_); }
void Descriptor::set(Attribute name, const std::vector<const Descriptor*>& others) {
  std::vector<void*> all;
  for (const Descriptor* other : others) all.push_back(other->it_);
  tell(name, kDescriptor, static_cast<std::int64_t>(all.size()), all.data());
}
void Descriptor::set(Attribute name, const std::vector<std::int64_t>& values) {
  tell(name, kInt64, static_cast<std::int64_t>(values.size()), values.data());
}
void Descriptor::set(Attribute name, void* pointer) { tell(name, kPointer, 1, &pointer); }
void Descriptor::set(Attribute name, const std::vector<void*>& pointers) {
  tell(name, kPointer, static_cast<std::int64_t>(pointers.size()), pointers.data());
}
void Descriptor::set_handle(Attribute name) { tell(name, kHandle, 1, &library_->handle_); }
void Descriptor::set_mode(Attribute name, int heuristics_mode) { tell(name, kHeuristicsMode, 1, &heuristics_mode); }

std::int64_t Descriptor::integer(Attribute name) const {
  std::int64_t value = 0, count = 0;
  library_->check(library_->calls_.cudnnBackendGetAttribute(it_, static_cast<int>(name), kInt64, 1, &count, &value),
                  "cudnnBackendGetAttribute");
  return value;
}

std::vector<Descriptor> Descriptor::descriptors(Attribute name, Kind kind, std::int64_t most) const {
  std::vector<Descriptor> found;
  std::vector<void*> empty;
  for (std::int64_t i = 0; i < most; ++i) empty.push_back(found.emplace_back(*library_, kind).it_);
  std::int64_t count = 0;
  library_->check(library_->calls_.cudnnBackendGetAttribute(it_, static_cast<int>(name), kDescriptor, most, &count, empty.data()),
                  "cudnnBackendGetAttribute");
  while (static_cast<std::int64_t>(found.size()) > std::max<std::int64_t>(count, 0)) found.pop_back();
  return found;
}

void Descriptor::finalize() { library_->check(library_->calls_.cudnnBackendFinalize(it_), "cudnnBackendFinalize"); }

// ---- graphs ------------------------------------------------------------------------------------------------------------

Tensor Graph::add(Type type, const Dimensions& dimensions, const Dimensions& strides, bool is_virtual, bool by_value) {
  const Tensor tensor{static_cast<std::int64_t>(tensors_.size()), type, dimensions, strides};
  Descriptor& made = tensors_.emplace_back(library_, Kind::tensor);
  made.set(Attribute::tensor_type, type);
  made.set(Attribute::tensor_dimensions, list(dimensions));
  made.set(Attribute::tensor_strides, list(strides));
  made.set(Attribute::tensor_id, tensor.id);
  made.set(Attribute::tensor_alignment, kAlignment);
  made.set(Attribute::tensor_virtual, is_virtual);
  made.set(Attribute::tensor_by_value, by_value);
  made.finalize();
  return tensor;
}
Tensor Graph::memory(Type type, const Dimensions& dimensions, const Dimensions& strides) {
  return add(type, dimensions, strides, false, false);
}
Tensor Graph::number(float value) {
  const Tensor tensor = add(Type::fp32, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true);
  numbers_.emplace_back(tensor.id, value);
  return tensor;
}

void Graph::add_map(Map how, std::int64_t dimension, const Tensor& x, const Tensor* b, const Tensor* chosen, const Tensor& y) {
  Descriptor& detail = details_.emplace_back(library_, Kind::pointwise);
  detail.set(Attribute::pointwise_mode, how);
  detail.set(Attribute::pointwise_precision, how == Map::at_least ? Type::boolean : Type::fp32);
  if (how == Map::index) detail.set(Attribute::pointwise_axis, dimension);
  detail.finalize();
  Descriptor& operation = operations_.emplace_back(library_, Kind::pointwise_operation);
  operation.set(Attribute::pointwise_operator, detail);
  operation.set(Attribute::pointwise_x, descriptor_of(x));
  if (b) operation.set(Attribute::pointwise_b, descriptor_of(*b));
  if (chosen) operation.set(Attribute::pointwise_t, descriptor_of(*chosen));
  operation.set(Attribute::pointwise_y, descriptor_of(y));
  operation.finalize();
}
void Graph::map_into(Map how, const Tensor& x, const Tensor& y) { add_map(how, 0, x, nullptr, nullptr, y); }
void Graph::map_into(Map how, const Tensor& x, const Tensor& b, const Tensor& y) { add_map(how, 0, x, &b, nullptr, y); }
Tensor Graph::map(Map how, const Tensor& x) {
  const Tensor y = between(Type::fp32, x.dimensions);
  map_into(how, x, y);
  return y;
}
Tensor Graph::map(Map how, const Tensor& x, const Tensor& b, Type type) {
  const Tensor y = between(type, x.dimensions);
  map_into(how, x, b, y);
  return y;
}
Tensor Graph::at_least(const Tensor& a, const Tensor& b) { return map(Map::at_least, a, b, Type::boolean); }
Tensor Graph::select(const Tensor& x, const Tensor& b, const Tensor& chosen) {
  const Tensor y = between(x.type, x.dimensions);
  add_map(Map::select, 0, x, &b, &chosen, y);
  return y;
}
Tensor Graph::index(const Tensor& x, std::int64_t dimension) {
  const Tensor y = between(Type::int32, x.dimensions);
  add_map(Map::index, dimension, x, nullptr, nullptr, y);
  return y;
}

void Graph::matmul_into(const Tensor& a, const Tensor& b, const Tensor& c) {
  Descriptor& detail = details_.emplace_back(library_, Kind::matmul);
  detail.set(Attribute::matmul_precision, Type::fp32);
  detail.finalize();
  Descriptor& operation = operations_.emplace_back(library_, Kind::matmul_operation);
  operation.set(Attribute::matmul_operator, detail);
  operation.set(Attribute::matmul_a, descriptor_of(a));
  operation.set(Attribute::matmul_b, descriptor_of(b));
  operation.set(Attribute::matmul_c, descriptor_of(c));
  operation.finalize();
}
Tensor Graph::matmul(const Tensor& a, const Tensor& b, Type type) {
  const Tensor c = between(type, {a.dimensions[0], a.dimensions[1], a.dimensions[2], b.dimensions[3]});
  matmul_into(a, b, c);
  return c;
}

void Graph::reduce_into(Reduce how, const Tensor& x, const Tensor& y) {
  Descriptor& detail = details_.emplace_back(library_, Kind::reduction);
  detail.set(Attribute::reduction_mode, how);
  detail.set(Attribute::reduction_precision, Type::fp32);
  detail.finalize();
  Descriptor& operation = operations_.emplace_back(library_, Kind::reduction_operation);
  operation.set(Attribute::reduction_operator, detail);
  operation.set(Attribute::reduction_x, descriptor_of(x));
  operation.set(Attribute::reduction_y, descriptor_of(y));
  operation.finalize();
}
Tensor Graph::reduce(Reduce how, const Tensor& x, const Dimensions& dimensions) {
  const Tensor y = between(Type::fp32, dimensions);
  reduce_into(how, x, y);
  return y;
}

Tensor Graph::transposed(const Tensor& x, Type type) {
  const auto exchanged = [](Dimensions dimensions) {
    std::swap(dimensions[2], dimensions[3]);
    return dimensions;
  };
  const Tensor y = add(type, exchanged(x.dimensions), exchanged(x.strides), true, false);
  Descriptor& operation = operations_.emplace_back(library_, Kind::reshape_operation);
  operation.set(Attribute::reshape_x, descriptor_of(x));
  operation.set(Attribute::reshape_y, descriptor_of(y));
  operation.finalize();
  return y;
}

// ---- plans -------------------------------------------------------------------------------------------------------------

Plan::Plan(const Library& library, Graph graph) : library_(library), graph_(std::move(graph)) {
  std::vector<const Descriptor*> operations;
  for (const Descriptor& operation : graph_.operations_) operations.push_back(&operation);
  Descriptor whole(library, Kind::operation_graph);
  if (!library.device_) whole.set_handle(Attribute::graph_handle);
  whole.set(Attribute::graph_operations, operations);
  whole.finalize();

  Descriptor heuristics(library, Kind::heuristics);
  heuristics.set(Attribute::heuristics_graph, whole);
  heuristics.set_mode(Attribute::heuristics_mode, kModeA);
  if (library.device_) heuristics.set(Attribute::heuristics_device, *library.device_);
  heuristics.finalize();

  std::string why_not = "no engine takes the graph";
  for (const Descriptor& configuration :
       heuristics.descriptors(Attribute::heuristics_results, Kind::engine_configuration, whole.integer(Attribute::graph_engines))) {
    try {
      Descriptor plan(library, Kind::plan);
      plan.set(Attribute::plan_configuration, configuration);
      if (library.device_) plan.set(Attribute::plan_device, *library.device_);
      plan.finalize();
      workspace_bytes_ = plan.integer(Attribute::plan_workspace);
      plan_.emplace(std::move(plan));
      return;
    } catch (const Refused& refused) {
      why_not = refused.what();
    }
  }
  throw Refused(why_not);
}

std::string Plan::text() const {
  std::int64_t length = 0;
  const auto ask = [&](std::int64_t most, void* to) {
    library_.check(
        library_.calls_.cudnnBackendGetAttribute(plan_->it_, static_cast<int>(Attribute::plan_json), kCharacter, most, &length, to),
        "cudnnBackendGetAttribute");
  };
  ask(0, nullptr);
  std::string text(static_cast<std::size_t>(length), '\0');
  ask(length, text.data());
  return text.substr(0, text.find('\0'));
}

void Plan::run(std::vector<std::pair<Tensor, void*>> tensors, void* workspace) {
  std::vector<std::int64_t> ids;
  std::vector<void*> pointers;
  for (const auto& [tensor, memory] : tensors) ids.push_back(tensor.id), pointers.push_back(memory);
  for (auto& [id, value] : graph_.numbers_) ids.push_back(id), pointers.push_back(&value);
  Descriptor pack(library_, Kind::variant_pack);
  pack.set(Attribute::pack_pointers, pointers);
  pack.set(Attribute::pack_ids, ids);
  pack.set(Attribute::pack_workspace, workspace);
  pack.finalize();
  library_.check(library_.calls_.cudnnBackendExecute(library_.handle_, plan_->it_, pack.it_), "cudnnBackendExecute");
}

}  // namespace plimsoll::calibrate::cudnn
