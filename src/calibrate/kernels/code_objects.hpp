// Device code embedded in the binary: one code object per AMD target, one PTX text per NVIDIA target, built by clang without any
// vendor's SDK.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/kernels/kernel_table.hpp"

namespace plimsoll::calibrate {

struct CodeObject {
  Target target;
  std::string_view name;      ///< "gfx942", "sm_90"
  const unsigned char* data;  ///< ELF (AMD) or NUL-terminated PTX (NVIDIA), 4096-byte aligned
  std::size_t size;           ///< without the NUL
};

/// All embedded objects; empty when the binary was built without clang's GPU targets.
const std::vector<CodeObject>& code_objects();

/// The object for an AMD device by its name ("gfx942:sramecc+:xnack-"), or nullptr: AMD objects run on exactly their own processor.
const CodeObject* code_object_for_amd(std::string_view gcn_arch_name);

/// The best PTX for an NVIDIA device of that compute capability (sm_90a for 9.0, else the highest that is not newer), or nullptr.
const CodeObject* code_object_for_nvidia(int major, int minor);

/// Why there is no object for that device, and for which there is: "no device code for gfx1100; this plimsoll holds gfx90a, gfx942".
std::string why_no_code_object(std::string_view device_architecture);

}  // namespace plimsoll::calibrate
