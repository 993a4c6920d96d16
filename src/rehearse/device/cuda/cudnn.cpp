// cuDNN's handle, the descriptors of its older functions, and batch normalization. Recurrent networks say that they are not supported.
#include <cstring>

#include "cudnn_descriptors.hpp"

using namespace plimsoll::device;
using namespace plimsoll::device::cuda;

namespace {

constexpr std::size_t kVersion = 92800;  // the newest whose names are known here
constexpr int kMostDimensions = 8;

/// Any descriptor of the older functions: what is told about a tensor is kept, the rest is not needed.
struct OldDescriptor {
  int type = 0, count = 0;
  int dimensions[kMostDimensions] = {}, strides[kMostDimensions] = {};
};

int make(Handle* descriptor) {
  *descriptor = new OldDescriptor;
  return kDnnSuccess;
}
int destroy(Handle descriptor) {
  delete static_cast<OldDescriptor*>(descriptor);
  return kDnnSuccess;
}

int describe(Handle handle, int type, int count, const int* dimensions, const int* strides) {
  if (count < 1 || count > kMostDimensions) return kDnnBadParameter;
  auto& d = *static_cast<OldDescriptor*>(handle);
  d.type = type;
  d.count = count;
  std::memcpy(d.dimensions, dimensions, static_cast<std::size_t>(count) * sizeof(int));
  if (strides != nullptr) std::memcpy(d.strides, strides, static_cast<std::size_t>(count) * sizeof(int));
  return kDnnSuccess;
}

int none(std::size_t* bytes) {
  *bytes = 0;
  return kDnnSuccess;
}

/// The image's dimensions.
int normalization(Handle handle, const char* name, Handle image) {
  Stream* stream = stream_of(dnn(handle).stream);
  if (stream == nullptr || image == nullptr) return kDnnBadParameter;
  const auto& d = *static_cast<OldDescriptor*>(image);
  std::int64_t numbers[kMostDimensions];
  for (int i = 0; i < d.count; ++i) numbers[i] = d.dimensions[i];
  library_call(name, *stream, numbers, static_cast<std::uint32_t>(d.count), type_of_code(d.type), 0);
  return kDnnSuccess;
}

}  // namespace

PLIMSOLL_DEVICE_API std::size_t cudnnGetVersion() { return kVersion; }
PLIMSOLL_DEVICE_API std::size_t cudnnGetMaxDeviceVersion() { return kVersion; }
PLIMSOLL_DEVICE_API std::size_t cudnnGetCudartVersion() { return 13020; }
PLIMSOLL_DEVICE_API int cudnnGetProperty(int which, int* value) {
  *value = which == 0   ? static_cast<int>(kVersion / 10000)
           : which == 1 ? static_cast<int>(kVersion / 100 % 100)
                        : static_cast<int>(kVersion % 100);
  return kDnnSuccess;
}
PLIMSOLL_DEVICE_API const char* cudnnGetErrorString(int status) {
  return status == kDnnSuccess        ? "CUDNN_STATUS_SUCCESS"
         : status == kDnnNotSupported ? "CUDNN_STATUS_NOT_SUPPORTED"
                                      : "CUDNN_STATUS_BAD_PARAM";
}
PLIMSOLL_DEVICE_API void cudnnGetLastErrorString(char* text, std::size_t length) {
  if (length > 0) *text = '\0';
}
PLIMSOLL_DEVICE_API int cudnnCreate(Handle* handle) {
  *handle = new DnnContext;
  return kDnnSuccess;
}
PLIMSOLL_DEVICE_API int cudnnDestroy(Handle handle) {
  delete static_cast<DnnContext*>(handle);
  return kDnnSuccess;
}
PLIMSOLL_DEVICE_API int cudnnSetStream(Handle handle, Handle stream) {
  dnn(handle).stream = stream;
  return kDnnSuccess;
}
PLIMSOLL_DEVICE_API int cudnnGetStream(Handle handle, Handle* stream) {
  *stream = dnn(handle).stream;
  return kDnnSuccess;
}

#define DESCRIPTOR(name)                                                                                 \
  PLIMSOLL_DEVICE_API int cudnnCreate##name##Descriptor(Handle* descriptor) { return make(descriptor); } \
  PLIMSOLL_DEVICE_API int cudnnDestroy##name##Descriptor(Handle descriptor) { return destroy(descriptor); }
DESCRIPTOR(Tensor)
DESCRIPTOR(Filter)
DESCRIPTOR(Convolution)
DESCRIPTOR(Activation)
DESCRIPTOR(Pooling)
DESCRIPTOR(Dropout)
DESCRIPTOR(CTCLoss)
DESCRIPTOR(SpatialTransformer)
#undef DESCRIPTOR
PLIMSOLL_DEVICE_API int cudnnSetTensorNdDescriptor(Handle tensor, int type, int count, const int* dimensions, const int* strides) {
  return describe(tensor, type, count, dimensions, strides);
}
PLIMSOLL_DEVICE_API int cudnnGetTensorNdDescriptor(Handle tensor, int wanted, int* type, int* count, int* dimensions, int* strides) {
  const auto& d = *static_cast<OldDescriptor*>(tensor);
  *type = d.type;
  *count = d.count;
  const auto bytes = static_cast<std::size_t>(wanted < d.count ? wanted : d.count) * sizeof(int);
  std::memcpy(dimensions, d.dimensions, bytes);
  std::memcpy(strides, d.strides, bytes);
  return kDnnSuccess;
}
PLIMSOLL_DEVICE_API int cudnnSetFilterNdDescriptor(Handle filter, int type, int, int count, const int* dimensions) {
  return describe(filter, type, count, dimensions, nullptr);
}

// The workspace and reserve that batch normalization would ask for are not public: none.
PLIMSOLL_DEVICE_API int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(Handle, int, int, Handle, Handle, Handle, Handle, Handle,
                                                                                 std::size_t* bytes) {
  return none(bytes);
}
PLIMSOLL_DEVICE_API int cudnnGetBatchNormalizationBackwardExWorkspaceSize(Handle, int, int, Handle, Handle, Handle, Handle, Handle, Handle,
                                                                          Handle, std::size_t* bytes) {
  return none(bytes);
}
PLIMSOLL_DEVICE_API int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(Handle, int, int, Handle, Handle, std::size_t* bytes) {
  return none(bytes);
}
PLIMSOLL_DEVICE_API int cudnnBatchNormalizationForwardTrainingEx(Handle handle, int, int, const void*, const void*, Handle image) {
  return normalization(handle, "cudnn.batch_normalization_forward dimensions", image);
}
PLIMSOLL_DEVICE_API int cudnnBatchNormalizationBackwardEx(Handle handle, int, int, const void*, const void*, const void*, const void*,
                                                          Handle image) {
  return normalization(handle, "cudnn.batch_normalization_backward dimensions", image);
}
PLIMSOLL_DEVICE_API int cudnnBatchNormalizationForwardInference(Handle handle, int, const void*, const void*, Handle image) {
  return normalization(handle, "cudnn.batch_normalization_inference dimensions", image);
}

// Their weights lie in one buffer whose layout is cuDNN's own.
PLIMSOLL_DEVICE_API int cudnnCreateRNNDescriptor(Handle*) { return kDnnNotSupported; }
PLIMSOLL_DEVICE_API int cudnnCreateRNNDataDescriptor(Handle*) { return kDnnNotSupported; }
