#include "program/blas_workspaces.hpp"

namespace plimsoll::program {
namespace {

constexpr std::int64_t kKiB = 1024, kMiB = 1024 * kKiB;

/// parseChosenWorkspaceSize, CUDA: none of the allocator's before 1.13 (pytorch#85447), 4 MiB in it (pytorch#86167); from 2.0 on ":4096:2:16:8",
/// and 32 MiB on Hopper (pytorch#91564); from 2.12 on also on Blackwell (pytorch#175344).
std::int64_t cublas(const TargetDevice& device, const TorchRelease& torch) {
  if (!torch.since(1, 13)) return 0;
  if (!torch.since(2, 0)) return 4 * kMiB;
  const bool large = torch.large_blackwell_workspaces() ? device.from(90) : device.capability == 90;
  return large ? 32 * kMiB : 2 * 4096 * kKiB + 8 * 16 * kKiB;
}

/// The same, ROCm: none of the allocator's before 2.6 (pytorch#138791); 32 MiB, and 128 MiB on the MI300s and, from 2.8 on, the MI350s.
std::int64_t hipblas(const TargetDevice& device, const TorchRelease& torch) {
  if (!torch.since(2, 6)) return 0;
  const bool large = device.is_gfx("gfx94") || (device.is_gfx("gfx95") && torch.since(2, 8));
  return (large ? 128 : 32) * kMiB;
}

/// _parseChosenWorkspaceSize, ROCm: 76 MiB from 2.6 on (pytorch#139300), 80 MiB from 2.15 on (pytorch#197201).
std::int64_t hipblas_lt(const TorchRelease& torch) {
  if (!torch.since(2, 6)) return kMiB;
  return (torch.since(2, 15) ? 80 : 76) * kMiB;
}

/// Context::blasPreferredBackend with getHipblasltPreferredArchs: hipBLASLt on Instincts from 2.5 on, the MI350s from 2.8 on, and RDNA4.
bool prefers_hipblas_lt(const TargetDevice& device, const TorchRelease& torch) {
  if (device.is_gfx("gfx90a") || device.is_gfx("gfx942")) return torch.since(2, 5);
  return (device.is_gfx("gfx950") || device.is_gfx("gfx120")) && torch.since(2, 8);
}

}  // namespace

BlasWorkspaces blas_workspaces(const TargetDevice& device, const TorchRelease& torch) {
  BlasWorkspaces workspaces;
  if (device.amd()) {  // isCUDABlasWorkspaceCachingEnabled: true by default there, whatever the release
    workspaces.blas = hipblas(device, torch);
    workspaces.blas_lt = hipblas_lt(torch);
    workspaces.keeps_lt = torch.since(2, 7);
    workspaces.lt_alone = prefers_hipblas_lt(device, torch);
    workspaces.own_handle = true;
    return workspaces;
  }
  workspaces.blas = cublas(device, torch);
  workspaces.blas_lt = kMiB;  // pytorch#73328
  workspaces.taken_anew = torch.takes_workspaces_anew();
  workspaces.keeps_lt = torch.keeps_lt_workspace();
  return workspaces;
}

}  // namespace plimsoll::program
