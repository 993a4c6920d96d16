#include "status.hpp"

namespace plimsoll::device {
namespace {

struct Row {
  Status status;
  const char* name;
  const char* text;
};

// CUDA Runtime API, "Data types used by CUDA Runtime": cudaError. HIP's hipError_t has the same names and texts.
constexpr Row kRows[] = {
    {Status::ok, "Success", "no error"},
    {Status::invalid_value, "InvalidValue", "invalid argument"},
    {Status::out_of_memory, "MemoryAllocation", "out of memory"},
    {Status::not_initialized, "InitializationError", "initialization error"},
    {Status::no_device, "NoDevice", "no CUDA-capable device is detected"},
    {Status::invalid_device, "InvalidDevice", "invalid device ordinal"},
    {Status::invalid_image, "InvalidKernelImage", "device kernel image is invalid"},
    {Status::invalid_context, "DeviceUninitialized", "invalid device context"},
    {Status::peer_access_already_enabled, "PeerAccessAlreadyEnabled", "peer access is already enabled"},
    {Status::peer_access_not_enabled, "PeerAccessNotEnabled", "peer access has not been enabled"},
    {Status::host_memory_already_registered, "HostMemoryAlreadyRegistered", "part or all of the requested memory range is already mapped"},
    {Status::host_memory_not_registered, "HostMemoryNotRegistered", "pointer does not correspond to a registered memory region"},
    {Status::not_supported, "NotSupported", "operation not supported"},
    {Status::invalid_handle, "InvalidResourceHandle", "invalid resource handle"},
    {Status::not_found, "SymbolNotFound", "named symbol not found"},
    {Status::not_ready, "NotReady", "device not ready"},
    {Status::invalid_configuration, "InvalidConfiguration", "invalid configuration argument"},
    {Status::capture_unsupported, "StreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {Status::capture_invalidated, "StreamCaptureInvalidated", "operation failed due to a previous error during capture"},
    {Status::capture_unmatched, "StreamCaptureUnmatched", "capture was not ended in the same stream as it began"},
    {Status::unknown, "Unknown", "unknown error"},
};

const Row* row_of(Status status) {
  for (const Row& row : kRows)
    if (row.status == status) return &row;
  return nullptr;
}

}  // namespace

const char* text_of(Status status) {
  const Row* row = row_of(status);
  return row == nullptr ? nullptr : row->text;
}

const char* name_of(Status status) {
  const Row* row = row_of(status);
  return row == nullptr ? nullptr : row->name;
}

}  // namespace plimsoll::device
