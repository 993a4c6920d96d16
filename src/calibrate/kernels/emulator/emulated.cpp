#include "calibrate/kernels/emulator/emulated.hpp"

namespace plimsoll::calibrate {

namespace emulated {
namespace gfx90a {
extern const emulator::EmulatedRow rows[];
}
namespace gfx942 {
extern const emulator::EmulatedRow rows[];
}
namespace gfx950 {
extern const emulator::EmulatedRow rows[];
}
namespace sm_80 {
extern const emulator::EmulatedRow rows[];
}
namespace sm_90 {
extern const emulator::EmulatedRow rows[];
}
namespace sm_90a {
extern const emulator::EmulatedRow rows[];
}
}  // namespace emulated

namespace emulator {
namespace {

const EmulatedRow* rows_of(Target target) {
  switch (target) {
    case Target::gfx90a:
      return emulated::gfx90a::rows;
    case Target::gfx942:
      return emulated::gfx942::rows;
    case Target::gfx950:
      return emulated::gfx950::rows;
    case Target::sm_80:
      return emulated::sm_80::rows;
    case Target::sm_90:
      return emulated::sm_90::rows;
    case Target::sm_90a:
      return emulated::sm_90a::rows;
    case Target::cpu:
      return nullptr;
  }
  return nullptr;
}

}  // namespace

const EmulatedRow* emulated_kernel(Target target, std::string_view name) {
  const EmulatedRow* row = rows_of(target);
  while (row && row->name && name != row->name) ++row;
  return row && row->name ? row : nullptr;
}

}  // namespace emulator
}  // namespace plimsoll::calibrate
