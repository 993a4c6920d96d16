#include "images.hpp"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace plimsoll::device {
namespace {

constexpr std::uint16_t kMachineCuda = 190;
constexpr std::string_view kInfo = ".nv.info.";

template <class Value>
Value read(const char* at) {
  Value value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// A section .nv.info.KERNEL: attributes of a format, a number and two bytes, which in the last format are the size of what follows. One
/// attribute for each parameter: index, ordinal (16 bits), offset (16 bits), size (from bit 18).
std::vector<KeptArgument> parameters_of_section(const char* at, std::size_t size) {
  constexpr std::uint8_t kSized = 4, kParameter = 0x17;
  constexpr std::uint16_t kMostBytes = 8;
  std::vector<KeptArgument> kept;
  for (std::size_t i = 0; i + 4 <= size;) {
    const auto format = read<std::uint8_t>(at + i), attribute = read<std::uint8_t>(at + i + 1);
    const std::size_t length = format == kSized ? read<std::uint16_t>(at + i + 2) : 0;
    if (format == kSized && attribute == kParameter && length >= 12 && i + 4 + length <= size) {
      const auto ordinal = read<std::uint16_t>(at + i + 8);
      const auto bytes = static_cast<std::uint16_t>(read<std::uint32_t>(at + i + 12) >> 18U);
      if (bytes <= kMostBytes) kept.push_back({ordinal, bytes});
    }
    i += 4 + length;
  }
  std::sort(kept.begin(), kept.end(), [](const KeptArgument& a, const KeptArgument& b) { return a.parameter < b.parameter; });
  return kept;
}

}  // namespace

std::map<std::string, std::vector<KeptArgument>> parameters_in(const void* image) {
  std::map<std::string, std::vector<KeptArgument>> kernels;
  const auto* const bytes = static_cast<const char*>(image);
  if (bytes == nullptr || std::memcmp(bytes, ELFMAG, SELFMAG) != 0 || bytes[EI_CLASS] != ELFCLASS64) return kernels;
  const auto header = read<Elf64_Ehdr>(bytes);
  if (header.e_machine != kMachineCuda || header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shstrndx >= header.e_shnum) return kernels;
  const auto section = [&](std::size_t i) { return read<Elf64_Shdr>(bytes + header.e_shoff + i * sizeof(Elf64_Shdr)); };
  const char* const names = bytes + section(header.e_shstrndx).sh_offset;
  for (std::size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr each = section(i);
    const std::string_view name = names + each.sh_name;
    if (name.substr(0, kInfo.size()) == kInfo)
      kernels[std::string(name.substr(kInfo.size()))] = parameters_of_section(bytes + each.sh_offset, each.sh_size);
  }
  return kernels;
}

}  // namespace plimsoll::device
