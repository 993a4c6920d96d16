// What HIP and CUDA have in common: one table of driver calls with plain C types, filled by either, and the backend on top of it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "calibrate/backend.hpp"
#include "calibrate/dynamic_library.hpp"
#include "calibrate/kernels/code_objects.hpp"

namespace plimsoll::calibrate {

/// What memory is to be mapped: CUmemAllocationProp (cuda.h) and hipMemAllocationProp (hip_runtime_api.h), the same 32 bytes.
struct MappedMemory {
  int type, handle_types, location_type, device;
  void* meta_data;
  unsigned char flags[8];

  static constexpr MappedMemory on(int device) {
    constexpr int kPinned = 1, kNoHandle = 0, kDevice = 1;
    return {kPinned, kNoHandle, kDevice, device, nullptr, {}};
  }
};
static_assert(sizeof(MappedMemory) == 32);

/// Who may use it: CUmemAccessDesc and hipMemAccessDesc.
struct MappedAccess {
  int location_type, device, flags;

  static constexpr MappedAccess on(int device) {
    constexpr int kDevice = 1, kReadAndWrite = 3;
    return {kDevice, device, kReadAndWrite};
  }
};
static_assert(sizeof(MappedAccess) == 12);

/// The driver's calls. Every one returns the driver's own error code, 0 for success.
class GpuDriver {
 public:
  virtual ~GpuDriver() = default;

  virtual std::string backend() const = 0;  ///< "hip"
  virtual std::string library() const = 0;  ///< file and version
  virtual std::string error_name(int code) const = 0;

  virtual int count(int& devices) = 0;
  virtual int select(int device) = 0;
  virtual int name(int device, std::string& text) = 0;
  /// "gfx942:sramecc+:xnack-" or "sm_90".
  virtual int architecture(int device, std::string& text) = 0;
  virtual const CodeObject* code_object(const std::string& architecture) = 0;
  virtual int compute_units(int device, int& units) = 0;
  virtual int clock_kilohertz(int device, int& clock) = 0;
  virtual int memory(std::size_t& free, std::size_t& total) = 0;
  /// "0000:1b:00.0", or empty.
  virtual std::string pci_address(int device) = 0;

  virtual int allocate(void** memory, std::size_t bytes) = 0;
  /// Memory in which other devices see what a running kernel writes.
  virtual int allocate_shared(void** memory, std::size_t bytes) = 0;
  virtual int release(void* memory) = 0;
  /// Whether the driver has the calls for memory that is mapped page by page.
  virtual bool has_mapping() const = 0;
  virtual int reserve(void** range, std::size_t bytes) = 0;
  virtual int release_range(void* range, std::size_t bytes) = 0;
  /// A page of its own, readable and writable by the device; `handle` receives the driver's name for its memory.
  virtual int map(void* at, std::size_t page, int device, void** handle) = 0;
  virtual int unmap(void* at, std::size_t page, void* handle) = 0;
  virtual int allocate_host(void** memory, std::size_t bytes) = 0;
  virtual int release_host(void* memory) = 0;
  virtual int copy(void* to, const void* from, std::size_t bytes, CopyDirection direction, void* stream) = 0;
  virtual int fill(void* to, int byte, std::size_t bytes, void* stream) = 0;

  virtual int load(void** module, const CodeObject& object) = 0;
  virtual int function(void** function, void* module, const char* name) = 0;
  virtual int launch(void* function, Launch launch, void* stream, void** arguments) = 0;

  virtual int create_stream(void** stream) = 0;
  virtual int wait_event(void* stream, void* event) = 0;
  virtual int create_event(void** event) = 0;
  virtual int destroy_event(void* event) = 0;
  virtual int record(void* event, void* stream) = 0;
  virtual int wait_for(void* event) = 0;
  virtual int elapsed(float* milliseconds, void* from, void* to) = 0;
  virtual int synchronize() = 0;

  virtual int can_access_peer(int* can, int device, int peer) = 0;
  virtual int enable_peer(int peer) = 0;
};

/// What a user can do about an error; the codes are the same in HIP and CUDA.
std::string advice_on(int code);
/// Throws Error for a code that is not 0: the call, the driver's word for the error, and what to do.
void check(const GpuDriver& driver, int code, const char* call);

/// The driver, or why there is none.
struct FoundDriver {
  std::unique_ptr<GpuDriver> driver;
  std::string why_not;
};
FoundDriver find_hip_driver();
FoundDriver find_cuda_driver();

/// A product through a vendor's BLAS library, opened when it is there.
class GemmLibrary {
 public:
  virtual ~GemmLibrary() = default;
  virtual std::string name() const = 0;
  /// Whether the library has products of that type and shape; operands do not matter.
  virtual bool takes(const GemmCall& call) = 0;
  /// Issues the product; false where it does not take it.
  virtual bool multiply(const GemmCall& call, void* stream) = 0;
};
std::unique_ptr<GemmLibrary> open_rocblas();
std::unique_ptr<GemmLibrary> open_cublas();
std::unique_ptr<GemmLibrary> open_hipblaslt(GpuDriver& driver, Target target);
std::unique_ptr<GemmLibrary> open_cublaslt(GpuDriver& driver, Target target);

/// Fused attention through a vendor's library.
class FusedAttention {
 public:
  virtual ~FusedAttention() = default;
  virtual std::string name() const = 0;
  virtual std::string version() const = 0;
  /// Why the library does not run such a pass; empty: it does.
  virtual std::string why_not(const Attention& attention, HeadOrder order) = 0;
  virtual void run(const AttentionCall& call, void* stream) = 0;
};
/// nullptr, and why.
std::unique_ptr<FusedAttention> open_cudnn(GpuDriver& driver, std::string& why_not);

/// A vendor's libraries that are there; of products what frameworks prefer first.
struct VendorLibraries {
  std::vector<std::unique_ptr<GemmLibrary>> products;
  std::unique_ptr<FusedAttention> attention;
  std::string no_attention;  ///< why there is none
};
using OpenLibraries = VendorLibraries(GpuDriver& driver, Target target);
FoundBackend open_gpu(FoundDriver found, int device, OpenLibraries* libraries);

/// The device of a backend made by open_gpu.
GpuDriver& driver_of(Backend& backend);

}  // namespace plimsoll::calibrate
