/// What programs tell cuDNN's graph API: descriptors, their attributes, and the numbers by which they are named.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "cudnn_handle.hpp"

namespace plimsoll::device::cuda {

// cudnnBackendDescriptorType_t
enum Kind {
  kEngine = 2,
  kEngineConfiguration = 3,
  kHeuristic = 4,
  kConvolutionForward = 10,
  kConvolutionFilter = 11,
  kConvolutionData = 12,
  kPointwise = 13,
  kMatmul = 19,
  kReduction = 22,
  kReshape = 31,
  kRandom = 33,
  kAttentionForward = 41,
  kAttentionBackward = 43,
  kBandMask = 44,
};

// cudnnBackendAttributeName_t
enum Name {
  kMode = 0,  // of a pointwise operation's own descriptor, and the axis along which it counts
  kAxis = 9,
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
  kPointwiseMode = 750,
  kPointwiseX = 751,
  kPointwiseB = 752,
  kPointwiseY = 753,
  kGraphOperations = 801,
  kGraphEngines = 802,
  kTensorType = 901,
  kTensorDimensions = 902,
  kTensorStrides = 903,
  kTensorId = 906,
  kTensorByValue = 908,
  kTensorConstant = 910,
  kPackIds = 1000,
  kPackPointers = 1001,
  kEngineGraph = 1300,
  kEngineIndex = 1301,
  kMatmulA = 1520,
  kMatmulB = 1521,
  kMatmulC = 1522,
  kReductionX = 1610,
  kReductionY = 1611,
  kReshapeY = 2201,
  kAttentionForwardQ = 2800,
  kAttentionForwardK = 2801,
  kAttentionForwardV = 2802,
  kAttentionForwardSubgraph = 2811,
  kAttentionForwardDropout = 2818,
  kAttentionBackwardQ = 2851,
  kAttentionBackwardK = 2852,
  kAttentionBackwardV = 2853,
  kAttentionBackwardSubgraph = 2867,
  kBandMaskLeft = 3003,
  kBandMaskY = 3006,
};

/// Bytes of an element by cudnnBackendAttributeType_t.
inline std::size_t element_bytes(int type) {
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
inline constexpr int kInt64 = 3, kDescriptorType = 15;

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

inline std::vector<std::int64_t> dimensions(const Shared& tensor) {
  return tensor == nullptr ? std::vector<std::int64_t>{} : tensor->get<std::int64_t>(kTensorDimensions);
}

/// cudnnDataType_t
inline record::Type type_of_code(int code) {
  using record::Type;
  switch (code) {
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
inline record::Type type_of(const Shared& tensor) {
  const auto code = tensor == nullptr ? std::vector<int>{} : tensor->get<int>(kTensorType);
  return type_of_code(code.empty() ? -1 : code[0]);
}

}  // namespace plimsoll::device::cuda
