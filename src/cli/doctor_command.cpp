// doctor: what this machine has, and what would spoil a measurement.
#include <cstdlib>

#include "command.hpp"
#include "plimsoll/calibrate.hpp"

namespace plimsoll::cli {
namespace {

int run_doctor(const Arguments& arguments) {
  const char* root = std::getenv("PLIMSOLL_SYSTEM_ROOT");
  const Examination seen = examine(root ? root : "/");
  print(arguments.has("--json") ? to_json(seen) : to_text(seen));
  return kFits;
}

}  // namespace

Command doctor_command() {
  Command command{
      "doctor", "what this machine has, and what would spoil a measurement", "  plimsoll doctor\n  plimsoll doctor --json", {}, run_doctor,
      {}};
  command.options = {{Option::flag, "--json", "print one plimsoll/doctor/1 object", false, {}}};
  return command;
}

}  // namespace plimsoll::cli
