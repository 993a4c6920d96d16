#include "calibrate/kernels/code_objects.hpp"

#include <fmt/format.h>

// Each object's bytes become part of this file's read-only data, on a page of their own and followed by a NUL (PTX is text).
#define PLIMSOLL_CODE_OBJECT(target, file)                                                              \
  __asm__(".pushsection .rodata\n.balign 4096\nplimsoll_code_object_" #target ":\n.incbin \"" file      \
          "\"\n"                                                                                        \
          "plimsoll_code_object_end_" #target ":\n.byte 0\n.popsection\n");                             \
  extern "C" const unsigned char plimsoll_code_object_##target[] __attribute__((visibility("hidden"))); \
  extern "C" const unsigned char plimsoll_code_object_end_##target[] __attribute__((visibility("hidden")));
#include "code_object_rows.inc"
#undef PLIMSOLL_CODE_OBJECT

namespace plimsoll::calibrate {
namespace {

bool is_amd(Target target) { return target == Target::gfx90a || target == Target::gfx942 || target == Target::gfx950; }

// Major · 10 + minor of the lowest device that a PTX text runs on.
int capability(Target target) { return target == Target::sm_80 ? 80 : 90; }

}  // namespace

const std::vector<CodeObject>& code_objects() {
  static const std::vector<CodeObject> objects{
#define PLIMSOLL_CODE_OBJECT(target, file)                 \
  {Target::target, #target, plimsoll_code_object_##target, \
   static_cast<std::size_t>(plimsoll_code_object_end_##target - plimsoll_code_object_##target)},
#include "code_object_rows.inc"
#undef PLIMSOLL_CODE_OBJECT
  };
  return objects;
}

const CodeObject* code_object_for_amd(std::string_view gcn_arch_name) {
  bool found;
  const Target target = target_named(gcn_arch_name, found);
  if (!found || !is_amd(target)) return nullptr;
  for (const CodeObject& object : code_objects()) {
    if (object.target == target) return &object;
  }
  return nullptr;
}

const CodeObject* code_object_for_nvidia(int major, int minor) {
  const CodeObject* best = nullptr;
  for (const CodeObject& object : code_objects()) {
    if (is_amd(object.target) || capability(object.target) > 10 * major + minor) continue;
    const bool hopper_only = object.target == Target::sm_90a;
    if (hopper_only && (major != 9 || minor != 0)) continue;
    if (!best || hopper_only || capability(object.target) > capability(best->target)) best = &object;
  }
  return best;
}

std::string why_no_code_object(std::string_view device_architecture) {
  if (code_objects().empty()) {
    return fmt::format("no device code for {}: this plimsoll was built without it (it takes clang 22)", device_architecture);
  }
  std::string held;
  for (const CodeObject& object : code_objects()) held += fmt::format("{}{}", held.empty() ? "" : ", ", object.name);
  return fmt::format("no device code for {}; this plimsoll holds {}", device_architecture, held);
}

}  // namespace plimsoll::calibrate
