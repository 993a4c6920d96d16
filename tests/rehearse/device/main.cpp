// Sets the machine that the tests run on, before anything loads the libraries; and plays the child processes of some tests.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>

#include "libraries.hpp"

namespace {

using plimsoll::rehearse::test::library;

void set_machine() {
  const auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 0); };
  set("PLIMSOLL_REHEARSE_DEVICES", std::to_string(plimsoll::rehearse::test::kDevices));
  set("PLIMSOLL_REHEARSE_MEMORY", std::to_string(plimsoll::rehearse::test::kMemory));
  set("PLIMSOLL_REHEARSE_CONTEXT", std::to_string(plimsoll::rehearse::test::kContext));
  set("PLIMSOLL_REHEARSE_NAME", "Test accelerator");
  set("PLIMSOLL_REHEARSE_RECORD", testing::TempDir() + "plimsoll-device-%p.record");
}

/// Takes memory; then ends as it is told.
int child(const char* how) {
  void* at = nullptr;
  library("libcudart.so.13").get<int(void**, std::size_t)>("cudaMalloc")(&at, std::size_t{3} << 20);
  if (std::strcmp(how, "killed") == 0) std::raise(SIGKILL);
  return 0;
}

}  // namespace

/// Handles that are gone stay recognizable and kernels keep their names as long as the process: the libraries free neither, so under the
/// address sanitizer leaks are not looked for.
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }

int main(int argc, char** argv) {
  set_machine();
  if (argc == 3 && std::strcmp(argv[1], "--child") == 0) return child(argv[2]);
  testing::InitGoogleTest(&argc, argv);
  const int result = RUN_ALL_TESTS();
  const std::string record = plimsoll::rehearse::test::core().get<const char*()>("plimsoll_rehearse_record_path")();
  if (!record.empty()) std::remove(record.c_str());
  return result;
}
