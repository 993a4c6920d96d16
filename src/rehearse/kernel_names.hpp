// What a kernel does, read off its name, its grid and those of its arguments that a record has: PyTorch's kernels name their element types,
// and their arguments say how many elements they handle and how they walk through them. A kernel of which these tell no more than a class
// is Unspecified.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "plimsoll/program.hpp"
#include "rehearse/launch.hpp"

namespace plimsoll::rehearse {

struct NamedKernel {
  Kernel kernel;
  bool bytes_known = false;  ///< else: sixteen bytes of each thread
};

/// The name as it was written in C++; a name that is not mangled is taken as it is.
std::string demangled(const std::string& mangled);

/// "at::native::silu_kernel" as a person says it: demangled, without template arguments, parameters and namespaces that all share.
std::string short_name(const std::string& mangled);

/// "c10::BFloat16", "float const*", "long": the element type that C++ text names; nothing for another text.
std::optional<DType> element_type(std::string_view text);
/// The element type that a name mentions first; float where it mentions none.
DType first_type(std::string_view name);

/// `per_thread`: elements that a thread of PyTorch's vectorised elementwise kernels handles (4 before PyTorch 2.7, 8 since).
NamedKernel classify_kernel(const std::string& mangled, const Launch& launch, int per_thread);

}  // namespace plimsoll::rehearse
