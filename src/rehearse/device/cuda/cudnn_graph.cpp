// cuDNN's graph API: descriptors keep what they are told, every graph has one engine, and running its plan is recorded with the shapes of
// its matrix products, convolutions and attention. The workspace an engine would ask for is not public; it is 0 here.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cudnn_handle.hpp"

using namespace plimsoll::device;
using namespace plimsoll::device::cuda;

namespace {

// cudnnBackendDescriptorType_t
enum Kind {
  kEngine = 2,
  kEngineConfiguration = 3,
  kHeuristic = 4,
  kConvolutionForward = 10,
  kConvolutionFilter = 11,
  kConvolutionData = 12,
  kMatmul = 19,
  kAttentionForward = 41,
  kAttentionBackward = 43,
};

// cudnnBackendAttributeName_t
enum Name {
  kHeuristicGraph = 201,
  kHeuristicResults = 202,
  kConfigurationEngine = 300,
  kConfigurationWorkspace = 303,
  kConfigurationShared = 304,
  kPlanConfiguration = 401,
  kPlanWorkspace = 402,
  kConvForwardW = 703,
  kConvForwardX = 704,
  kConvForwardY = 705,
  kConvDataW = 709,
  kConvDataX = 710,
  kConvDataY = 711,
  kConvFilterW = 715,
  kConvFilterX = 716,
  kConvFilterY = 717,
  kGraphOperations = 801,
  kGraphEngines = 802,
  kTensorType = 901,
  kTensorDimensions = 902,
  kEngineGraph = 1300,
  kEngineIndex = 1301,
  kMatmulA = 1520,
  kMatmulB = 1521,
  kMatmulC = 1522,
  kAttentionForwardQ = 2800,
  kAttentionForwardK = 2801,
  kAttentionBackwardQ = 2851,
  kAttentionBackwardK = 2852,
};

/// Bytes of an element by cudnnBackendAttributeType_t.
std::size_t element_bytes(int type) {
  switch (type) {
    case 2:
    case 24:
      return 1;  // boolean, character
    case 0:
    case 3:
    case 5:
    case 6:
    case 15:
    case 26:
      return 8;  // handle, int64, double, pointer, descriptor, fraction
    default:
      return 4;  // float, int32 and all enumerations
  }
}
constexpr int kInt64 = 3, kDescriptorType = 15;

struct Contents;

struct Attribute {
  int type = 0;
  std::int64_t count = 0;
  std::vector<char> bytes;
  std::vector<std::shared_ptr<const Contents>> children;  ///< in the place of bytes, for descriptors
};

/// What a descriptor holds: shared, because a program may destroy the descriptors that others were made of.
struct Contents {
  int kind = 0;
  std::map<int, Attribute> attributes;

  template <class Value>
  std::vector<Value> get(int name) const {
    const auto it = attributes.find(name);
    if (it == attributes.end()) return {};
    std::vector<Value> values(it->second.bytes.size() / sizeof(Value));
    std::memcpy(values.data(), it->second.bytes.data(), values.size() * sizeof(Value));
    return values;
  }
  /// The descriptors that an attribute names.
  std::vector<std::shared_ptr<const Contents>> children(int name) const {
    const auto it = attributes.find(name);
    return it == attributes.end() ? std::vector<std::shared_ptr<const Contents>>{} : it->second.children;
  }
  /// The first of them, or null.
  std::shared_ptr<const Contents> child(int name) const {
    const auto found = children(name);
    return found.empty() ? nullptr : found[0];
  }
};
using Shared = std::shared_ptr<const Contents>;

/// What cudnnBackendDescriptor_t points to.
struct Descriptor {
  std::shared_ptr<Contents> it;
};

std::vector<std::int64_t> dimensions(const Shared& tensor) {
  return tensor == nullptr ? std::vector<std::int64_t>{} : tensor->get<std::int64_t>(kTensorDimensions);
}

/// cudnnDataType_t
record::Type type_of(const Shared& tensor) {
  using record::Type;
  const auto code = tensor == nullptr ? std::vector<int>{} : tensor->get<int>(kTensorType);
  switch (code.empty() ? -1 : code[0]) {
    case 0:
      return Type::f32;
    case 1:
      return Type::f64;
    case 2:
      return Type::f16;
    case 3:
      return Type::i8;
    case 4:
      return Type::i32;
    case 9:
      return Type::bf16;
    case 12:
      return Type::f8_e4m3;
    case 13:
      return Type::f8_e5m2;
    default:
      return Type::unknown;
  }
}

struct Work {
  std::string name;
  std::vector<std::int64_t> numbers;
  record::Type type = record::Type::unknown;
};

void append(std::vector<std::int64_t>* to, const std::vector<std::int64_t>& values) { to->insert(to->end(), values.begin(), values.end()); }

/// C[…, m, n] = A[…, m, k] B[…, k, n]: the product of the leading dimensions, m, n, k.
void add_matmul(const Contents& op, Work* work) {
  const auto a = dimensions(op.child(kMatmulA)), c = dimensions(op.child(kMatmulC));
  if (a.size() < 2 || c.size() < 2) return;
  std::int64_t batch = 1;
  for (std::size_t i = 0; i + 2 < c.size(); ++i) batch *= c[i];
  append(&work->numbers, {batch, c[c.size() - 2], c[c.size() - 1], a[a.size() - 1]});
  if (work->name.empty()) work->name = "cudnn.matmuls batch m n k ...";
  if (work->type == record::Type::unknown) work->type = type_of(op.child(kMatmulA));
}

/// Dimensions of the image, the filter and the result.
void add_convolution(const Contents& op, int x, int w, int y, const char* name, Work* work) {
  const auto image = dimensions(op.child(x));
  work->name = std::string(name) + " rank, image, filter, result dimensions";
  work->type = type_of(op.child(x));
  append(&work->numbers, {static_cast<std::int64_t>(image.size())});
  for (int part : {x, w, y}) append(&work->numbers, dimensions(op.child(part)));
}

/// Queries [b, h, s, d] and keys.
void add_attention(const Contents& op, int q, int k, const char* name, Work* work) {
  work->name = std::string(name) + " query dimensions, key dimensions";
  work->type = type_of(op.child(q));
  append(&work->numbers, dimensions(op.child(q)));
  append(&work->numbers, dimensions(op.child(k)));
}

Work work_of(const Contents& graph) {
  Work work;
  for (const Shared& op : graph.children(kGraphOperations)) {
    if (op == nullptr) continue;
    switch (op->kind) {
      case kMatmul:
        add_matmul(*op, &work);
        break;
      case kConvolutionForward:
        add_convolution(*op, kConvForwardX, kConvForwardW, kConvForwardY, "cudnn.convolution_forward", &work);
        break;
      case kConvolutionData:
        add_convolution(*op, kConvDataX, kConvDataW, kConvDataY, "cudnn.convolution_data", &work);
        break;
      case kConvolutionFilter:
        add_convolution(*op, kConvFilterX, kConvFilterW, kConvFilterY, "cudnn.convolution_filter", &work);
        break;
      case kAttentionForward:
        add_attention(*op, kAttentionForwardQ, kAttentionForwardK, "cudnn.attention_forward", &work);
        break;
      case kAttentionBackward:
        add_attention(*op, kAttentionBackwardQ, kAttentionBackwardK, "cudnn.attention_backward", &work);
        break;
      default:
        break;
    }
  }
  if (work.name.empty()) work.name = "cudnn.graph";
  return work;
}

/// The one engine of a graph, as the heuristic's answer.
std::shared_ptr<Contents> propose(const Contents& heuristic) {
  auto engine = std::make_shared<Contents>();
  engine->kind = kEngine;
  engine->attributes[kEngineGraph] = {kDescriptorType, 1, {}, {heuristic.child(kHeuristicGraph)}};
  engine->attributes[kEngineIndex] = {kInt64, 1, std::vector<char>(sizeof(std::int64_t)), {}};
  auto configuration = std::make_shared<Contents>();
  configuration->kind = kEngineConfiguration;
  configuration->attributes[kConfigurationEngine] = {kDescriptorType, 1, {}, {engine}};
  return configuration;
}

template <class Number>
int give_number(Number number, std::int64_t wanted, std::int64_t* count, void* to) {
  if (count != nullptr) *count = 1;
  if (wanted > 0 && to != nullptr) std::memcpy(to, &number, sizeof number);
  return kDnnSuccess;
}

int give_stored(const Attribute& a, std::int64_t wanted, std::int64_t* count, void* to) {
  if (count != nullptr) *count = a.count;
  if (to == nullptr || wanted <= 0) return kDnnSuccess;
  const std::int64_t given = std::min(wanted, a.count);
  if (a.type != kDescriptorType) {
    std::memcpy(to, a.bytes.data(), static_cast<std::size_t>(given) * element_bytes(a.type));
    return kDnnSuccess;
  }
  auto* into = static_cast<Descriptor**>(to);
  for (std::int64_t i = 0; i < given; ++i)  // the program made these descriptors to be filled
    if (into[i] != nullptr) into[i]->it = std::const_pointer_cast<Contents>(a.children[static_cast<std::size_t>(i)]);
  return kDnnSuccess;
}

}  // namespace

PLIMSOLL_DEVICE_API int cudnnBackendCreateDescriptor(int kind, Descriptor** descriptor) {
  *descriptor = new Descriptor{std::make_shared<Contents>()};
  (*descriptor)->it->kind = kind;
  return kDnnSuccess;
}
PLIMSOLL_DEVICE_API int cudnnBackendDestroyDescriptor(Descriptor* descriptor) {
  delete descriptor;
  return kDnnSuccess;
}
PLIMSOLL_DEVICE_API int cudnnBackendInitialize(Descriptor*) { return kDnnSuccess; }
PLIMSOLL_DEVICE_API int cudnnBackendFinalize(Descriptor*) { return kDnnSuccess; }
PLIMSOLL_DEVICE_API int cudnnBackendSetAttribute(Descriptor* descriptor, int name, int type, std::int64_t count, const void* values) {
  if (count < 0 || (count > 0 && values == nullptr)) return kDnnBadParameter;
  Attribute a{type, count, {}, {}};
  if (type == kDescriptorType) {
    for (std::int64_t i = 0; i < count; ++i) {
      const Descriptor* child = static_cast<Descriptor* const*>(values)[i];
      a.children.push_back(child == nullptr ? nullptr : child->it);
    }
  } else {
    const auto* from = static_cast<const char*>(values);
    a.bytes.assign(from, from + static_cast<std::size_t>(count) * element_bytes(type));
  }
  descriptor->it->attributes[name] = std::move(a);
  return kDnnSuccess;
}
PLIMSOLL_DEVICE_API int cudnnBackendGetAttribute(const Descriptor* descriptor, int name, int, std::int64_t wanted, std::int64_t* count,
                                                 void* to) {
  const Contents& own = *descriptor->it;
  if (name == kHeuristicResults && own.kind == kHeuristic) {
    if (count != nullptr) *count = 1;
    if (wanted > 0 && to != nullptr && *static_cast<Descriptor**>(to) != nullptr) (*static_cast<Descriptor**>(to))->it = propose(own);
    return kDnnSuccess;
  }
  switch (name) {
    case kPlanWorkspace:
    case kConfigurationWorkspace:
      return give_number(std::int64_t{0}, wanted, count, to);
    case kConfigurationShared:
      return give_number(std::int32_t{0}, wanted, count, to);
    case kGraphEngines:
      return give_number(std::int64_t{1}, wanted, count, to);
    default:
      break;
  }
  const auto it = own.attributes.find(name);
  if (it != own.attributes.end()) return give_stored(it->second, wanted, count, to);
  if (count != nullptr) *count = 0;  // notes, knobs and intermediates: there are none
  return kDnnSuccess;
}
PLIMSOLL_DEVICE_API int cudnnGetExecutionPlanWorkspaceSize(Handle, Descriptor*, Descriptor*, std::size_t* bytes) {
  *bytes = 0;
  return kDnnSuccess;
}
PLIMSOLL_DEVICE_API int cudnnBackendExecute(Handle handle, const Descriptor* plan, const Descriptor*) {
  const Shared configuration = plan->it->child(kPlanConfiguration);
  const Shared engine = configuration == nullptr ? nullptr : configuration->child(kConfigurationEngine);
  const Shared graph = engine == nullptr ? nullptr : engine->child(kEngineGraph);
  Stream* stream = stream_of(dnn(handle).stream);
  if (graph == nullptr || stream == nullptr) return kDnnBadParameter;
  const Work work = work_of(*graph);
  library_call(work.name.c_str(), *stream, work.numbers.data(), static_cast<std::uint32_t>(work.numbers.size()), work.type, 0);
  return kDnnSuccess;
}
