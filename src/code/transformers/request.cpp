// What a name and some packages ask for: the configuration that is played, and whose code plays it.
#include <algorithm>
#include <filesystem>
#include <sstream>

#include "plimsoll/code.hpp"
#include "units/files.hpp"
#include "units/json_reader.hpp"

namespace plimsoll {
namespace {

bool is_package(const std::string& word) { return word.ends_with(".whl") || std::filesystem::is_directory(word); }

}  // namespace

std::vector<std::string> packages_in(const std::string& text) {
  if (std::filesystem::is_directory(text)) return {text};  // whose name may have a comma
  std::vector<std::string> packages;
  std::istringstream words(text);
  for (std::string each; std::getline(words, each, ',');) packages.push_back(each);
  return std::all_of(packages.begin(), packages.end(), is_package) ? packages : std::vector<std::string>{};
}

PackageModel package_model(const std::string& name_or_path, const std::vector<std::string>& packages) {
  PackageModel package;
  package.package = packages.front();
  package.beside.assign(packages.begin() + 1, packages.end());
  const bool is_folder = std::filesystem::is_directory(name_or_path);
  if (is_folder || files::exists(name_or_path) || name_or_path.ends_with(".json")) {
    package.where = is_folder ? name_or_path + "/config.json" : name_or_path;
    package.config = read_text_file(package.where, JsonLimits{}.text_bytes);
    package.folder = std::filesystem::absolute(package.where).parent_path().string();
  } else if (auto shipped = shipped_config(name_or_path)) {
    package.where = shipped->name;
    package.config = std::move(shipped->text);
  } else {
    package.model_type = name_or_path;
  }
  return package;
}

}  // namespace plimsoll
