#include "settings.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace plimsoll::device {
namespace {

constexpr int kMostDevices = 64;
constexpr std::uint64_t kMostMemory = std::uint64_t{1} << 42;  // 4 TiB: address space for it must exist beside the process's own

[[noreturn]] void bad_value(const char* variable, const char* value, const std::string& expected) {
  complain(std::string(variable) + ": expected " + expected + ", got '" + value + "'");
  _exit(2);
}

std::uint64_t number(const char* variable, std::uint64_t fallback, std::uint64_t least, std::uint64_t most) {
  const char* value = std::getenv(variable);
  if (value == nullptr || *value == '\0') return fallback;
  errno = 0;
  char* end = nullptr;
  const unsigned long long parsed = std::strtoull(value, &end, 10);
  if (errno != 0 || *end != '\0' || *value < '0' || *value > '9' || parsed < least || parsed > most)
    bad_value(variable, value, "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  return parsed;
}

std::string text(const char* variable, const std::string& fallback) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' ? std::string(value) : fallback;
}

void read_capability(Settings& s) {
  const char* value = std::getenv("PLIMSOLL_REHEARSE_CAPABILITY");
  if (value == nullptr || *value == '\0') return;
  char rest = 0;
  if (std::sscanf(value, "%d.%d%c", &s.major, &s.minor, &rest) != 2 || s.major < 1 || s.major > 99 || s.minor < 0 || s.minor > 9)
    bad_value("PLIMSOLL_REHEARSE_CAPABILITY", value, "a compute capability such as 9.0");
}

bool addresses_rise() {
  const std::string said = text("PLIMSOLL_REHEARSE_ADDRESSES", "falling");
  if (said != "falling" && said != "rising") bad_value("PLIMSOLL_REHEARSE_ADDRESSES", said.c_str(), "falling or rising");
  return said == "rising";
}

/// A list of devices hides the others; an empty list hides all.
int visible(int devices) {
  for (const char* variable : {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}) {
    const char* value = std::getenv(variable);
    if (value == nullptr) continue;
    const std::string list(value);
    if (list.empty() || list[0] == '-') return 0;
    devices = std::min(devices, 1 + static_cast<int>(std::count(list.begin(), list.end(), ',')));
  }
  return devices;
}

Settings read() {
  Settings s;
  s.record = text("PLIMSOLL_REHEARSE_RECORD", s.record);
  s.devices = visible(static_cast<int>(number("PLIMSOLL_REHEARSE_DEVICES", 1, 0, kMostDevices)));
  s.name = text("PLIMSOLL_REHEARSE_NAME", s.name);
  s.memory_bytes = number("PLIMSOLL_REHEARSE_MEMORY", s.memory_bytes, std::uint64_t{1} << 20, kMostMemory);
  s.context_bytes = number("PLIMSOLL_REHEARSE_CONTEXT", std::min(s.context_bytes, s.memory_bytes), 0, s.memory_bytes);
  s.communicator_bytes = number("PLIMSOLL_REHEARSE_COMMUNICATOR", 0, 0, s.memory_bytes);
  s.processors = static_cast<int>(number("PLIMSOLL_REHEARSE_PROCESSORS", 132, 1, 100000));
  read_capability(s);
  s.arch = text("PLIMSOLL_REHEARSE_ARCH", s.arch);
  s.lag = static_cast<std::uint32_t>(number("PLIMSOLL_REHEARSE_LAG", 0, 0, 1u << 30));
  s.keep_bytes = number("PLIMSOLL_REHEARSE_KEEP", s.keep_bytes, 0, std::uint64_t{1} << 32);
  s.addresses_rise = addresses_rise();
  s.nccl_version = static_cast<int>(number("PLIMSOLL_REHEARSE_NCCL_VERSION", 22703, 2000, 99999));
  return s;
}

Settings& current() {
  static Settings* const once = new Settings(read());  // never destroyed: calls arrive while the process ends
  return *once;
}

}  // namespace

const Settings& settings() { return current(); }

void read_settings_again() { current() = read(); }

void complain(const std::string& message) {
  const std::string line = "plimsoll rehearse: " + message + "\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace plimsoll::device
