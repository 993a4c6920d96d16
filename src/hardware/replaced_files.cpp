#include "plimsoll/hardware_files.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/shipped_files.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHardware = "hardware/";

std::vector<std::string> shipped_names() {
  std::vector<std::string> names;
  for (const data::ShippedFile* file : data::shipped_files_under(kHardware))
    names.emplace_back(file->path.substr(std::string_view(kHardware).size()));
  return names;
}

}  // namespace

void use_hardware_files(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) fail("is no folder of hardware files", folder);
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    const std::string name = fs::relative(entry.path(), folder).generic_string();
    std::ifstream file(entry.path(), std::ios::binary);
    std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (!file) fail("cannot be read", entry.path().string());
    if (!data::replace_shipped_file(kHardware + name, std::move(text)))
      fail("no hardware file is called '" + name + "'", folder, suggest(name, shipped_names()));
  }
}

}  // namespace plimsoll
