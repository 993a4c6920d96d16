#include "arguments.hpp"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "../../signature.hpp"

namespace plimsoll::device {
namespace {

/// A structure given by value: the first type of whose parameter name contains `name`, in kernels whose name contains `kernel`. `bytes` of
/// it are kept, never more than it has.
struct Structure {
  std::string_view kernel, name;
  std::uint16_t bytes;
};
/// ATen/native/cuda: the closures of legacy elementwise kernels hold an OffsetCalculator of at least one operand (404 bytes of CUDA's 25
/// dimensions), ReduceOp its numbers, ReduceConfig and such a calculator, cat's metadata the sizes of its inputs; memory-efficient and
/// flash attention have structures of sizes.
constexpr Structure kStructures[] = {{"elementwise_kernel<", "lambda(int", 404},
                                     {"elementwise_kernel_manual_unroll<", "lambda(int", 404},
                                     {"elementwise_kernel<", "LoadWithCast<", 8},
                                     {"elementwise_kernel<", "StoreWithCast<", 8},
                                     {"reduce_kernel<", "ReduceOp<", 512},
                                     {"CatArrayBatchedCopy", ", unsigned int, 128,", 2560},
                                     {"CatArrayBatchedCopy", ", unsigned int, 64,", 1280},
                                     {"flash_", "params", 216},
                                     {"fmha_cutlass", "::Params", 216}};

std::uint16_t bytes_of(std::string_view kernel, std::string_view type) {
  constexpr std::string_view kConst = " const";
  if (type.size() > kConst.size() && type.substr(type.size() - kConst.size()) == kConst) type.remove_suffix(kConst.size());
  if (!type.empty() && type.back() == '*') return sizeof(void*);
  if (type == "long" || type == "unsigned long" || type == "long long" || type == "unsigned long long") return 8;
  if (type == "int" || type == "unsigned int" || type == "float") return 4;
  if (type == "bool") return 1;
  for (const Structure& each : kStructures)
    if (kernel.find(each.kernel) != std::string_view::npos && type.find(each.name) != std::string_view::npos) return each.bytes;
  return 0;
}

}  // namespace

std::vector<KeptArgument> kept_arguments(const char* mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(mangled, nullptr, nullptr, &status), std::free);
  if (status != 0 || !text) return {};
  const std::string_view name = text.get();
  std::vector<KeptArgument> kept;
  std::uint16_t parameter = 0;
  for (const std::string_view type : rehearse::parameters_of(name)) {
    if (const std::uint16_t bytes = bytes_of(name, type); bytes > 0) kept.push_back({parameter, bytes});
    ++parameter;
  }
  return kept;
}

}  // namespace plimsoll::device
