#include "calibrate/backend.hpp"

#include "plimsoll/error.hpp"

namespace plimsoll::calibrate {

std::unique_ptr<Backend> open_backend(const std::string& name, int device, std::vector<std::string>& tried) {
  const std::vector<std::string> known{"auto", "hip", "cuda", "cpu"};
  const bool any = name == "auto";
  for (const std::string each : {"hip", "cuda", "cpu"}) {
    if (!any && name != each) continue;
    FoundBackend found = each == "hip" ? open_hip(device) : each == "cuda" ? open_cuda(device) : open_cpu();
    if (found.backend) return std::move(found.backend);
    tried.push_back(each + ": " + found.why_not);
    if (!any) fail("no " + each + " device: " + found.why_not, "--backend " + name, "--backend cpu measures this machine's processor");
  }
  fail("there is no backend '" + name + "'", "--backend", suggest(name, known));
}

}  // namespace plimsoll::calibrate
