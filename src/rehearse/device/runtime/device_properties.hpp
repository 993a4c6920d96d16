/// cudaDeviceProp as the CUDA Runtime API documents it, of toolkit 12 or 13 (PLIMSOLL_CUDA_MAJOR): 13 dropped the fields marked so. HIP's
/// hipDeviceProp_tR0600 begins as toolkit 12's does and goes on with fields of its own.
#pragma once

#include <cstddef>

#include "vendor.hpp"

namespace plimsoll::device {

#if PLIMSOLL_HIP || PLIMSOLL_CUDA_MAJOR < 13
#define PLIMSOLL_DROPPED(field) int field;
#else
#define PLIMSOLL_DROPPED(field)
#endif

struct DeviceProperties {
  char name[256];
  Uuid uuid;
  char luid[8];
  unsigned luidDeviceNodeMask;
  std::size_t totalGlobalMem, sharedMemPerBlock;
  int regsPerBlock, warpSize;
  std::size_t memPitch;
  int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
  PLIMSOLL_DROPPED(clockRate)
  std::size_t totalConstMem;
  int major, minor;
  std::size_t textureAlignment, texturePitchAlignment;
  PLIMSOLL_DROPPED(deviceOverlap)
  int multiProcessorCount;
  PLIMSOLL_DROPPED(kernelExecTimeoutEnabled)
  int integrated, canMapHostMemory;
  PLIMSOLL_DROPPED(computeMode)
  int maxTexture1D, maxTexture1DMipmap;
  PLIMSOLL_DROPPED(maxTexture1DLinear)
  int maxTexture2D[2], maxTexture2DMipmap[2], maxTexture2DLinear[3], maxTexture2DGather[2];
  int maxTexture3D[3], maxTexture3DAlt[3], maxTextureCubemap;
  int maxTexture1DLayered[2], maxTexture2DLayered[3], maxTextureCubemapLayered[2];
  int maxSurface1D, maxSurface2D[2], maxSurface3D[3], maxSurface1DLayered[2], maxSurface2DLayered[3];
  int maxSurfaceCubemap, maxSurfaceCubemapLayered[2];
  std::size_t surfaceAlignment;
  int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver, asyncEngineCount, unifiedAddressing;
  PLIMSOLL_DROPPED(memoryClockRate)
  int memoryBusWidth, l2CacheSize, persistingL2CacheMaxSize, maxThreadsPerMultiProcessor, streamPrioritiesSupported;
  int globalL1CacheSupported, localL1CacheSupported;
  std::size_t sharedMemPerMultiprocessor;
  int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID, hostNativeAtomicSupported;
  PLIMSOLL_DROPPED(singleToDoublePrecisionPerfRatio)
  int pageableMemoryAccess, concurrentManagedAccess, computePreemptionSupported, canUseHostPointerForRegisteredMem, cooperativeLaunch;
  PLIMSOLL_DROPPED(cooperativeMultiDeviceLaunch)
  std::size_t sharedMemPerBlockOptin;
  int pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost, maxBlocksPerMultiProcessor, accessPolicyMaxWindowSize;
  std::size_t reservedSharedMemPerBlock;
  int hostRegisterSupported, sparseCudaArraySupported, hostRegisterReadOnlySupported, timelineSemaphoreInteropSupported;
  int memoryPoolsSupported, gpuDirectRDMASupported;
  unsigned gpuDirectRDMAFlushWritesOptions;
  int gpuDirectRDMAWritesOrdering;
  unsigned memoryPoolSupportedHandleTypes;
  int deferredMappingCudaArraySupported, ipcEventSupported, clusterLaunch, unifiedFunctionPointers;
#if PLIMSOLL_HIP || PLIMSOLL_CUDA_MAJOR < 13
  int reserved[63];
#else
  int deviceNumaConfig, deviceNumaId, mpsEnabled, hostNumaId;
  unsigned gpuPciDeviceID, gpuPciSubsystemID;
  int hostNumaMultinodeIpcSupported, reserved[56];
#endif
#if PLIMSOLL_HIP
  int hipReserved[32];
  char gcnArchName[256];
  std::size_t maxSharedMemoryPerMultiProcessor;
  int clockInstructionRate;
  unsigned archFeatures;
  unsigned *hdpMemFlushCntl, *hdpRegFlushCntl;
  int cooperativeMultiDeviceUnmatched[4], isLargeBar, asicRevision;
#endif
};

#undef PLIMSOLL_DROPPED

// Sizes and offsets of the toolkits' own structures on 64-bit Linux.
#if PLIMSOLL_HIP
static_assert(sizeof(DeviceProperties) == 1472 && offsetof(DeviceProperties, gcnArchName) == 1160);
#elif PLIMSOLL_CUDA_MAJOR < 13
static_assert(sizeof(DeviceProperties) == 1032 && offsetof(DeviceProperties, multiProcessorCount) == 388 &&
              offsetof(DeviceProperties, sharedMemPerBlockOptin) == 696);
/// The structure before toolkit 12 ended here (cudaGetDeviceProperties without a version in its name).
inline constexpr std::size_t kOldBytes = offsetof(DeviceProperties, hostRegisterSupported);
#else
static_assert(sizeof(DeviceProperties) == 1008 && offsetof(DeviceProperties, multiProcessorCount) == 384 &&
              offsetof(DeviceProperties, sharedMemPerBlockOptin) == 672);
#endif

}  // namespace plimsoll::device
