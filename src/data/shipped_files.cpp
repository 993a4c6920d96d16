#include "data/shipped_files.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace plimsoll::data {
namespace {

struct Replacement {
  std::string text;
  ShippedFile file;
};

std::map<std::string, Replacement, std::less<>>& replacements() {
  static std::map<std::string, Replacement, std::less<>> all;
  return all;
}

const ShippedFile* shipped_as(std::string_view path) {
  const auto* end = shipped_files_end();
  const auto* found = std::find_if(shipped_files_begin(), end, [&](const ShippedFile& file) { return file.path == path; });
  return found == end ? nullptr : found;
}

}  // namespace

bool replace_shipped_file(const std::string& path, std::string text) {
  const ShippedFile* shipped = shipped_as(path);
  if (!shipped) return false;
  Replacement& replacement = replacements()[path];
  replacement.text = std::move(text);
  replacement.file = {shipped->path, replacement.text};
  return true;
}

const ShippedFile* find_shipped_file(std::string_view path) {
  const auto found = replacements().find(path);
  return found == replacements().end() ? shipped_as(path) : &found->second.file;
}

std::vector<const ShippedFile*> shipped_files_under(std::string_view prefix) {
  std::vector<const ShippedFile*> found;
  for (const auto* file = shipped_files_begin(); file != shipped_files_end(); ++file)
    if (file->path.substr(0, prefix.size()) == prefix) found.push_back(file);
  return found;
}

}  // namespace plimsoll::data
