#include "data/shipped_files.hpp"

#include <algorithm>

namespace plimsoll::data {

const ShippedFile* find_shipped_file(std::string_view path) {
  const auto* end = shipped_files_end();
  const auto* found = std::find_if(shipped_files_begin(), end, [&](const ShippedFile& file) { return file.path == path; });
  return found == end ? nullptr : found;
}

std::vector<const ShippedFile*> shipped_files_under(std::string_view prefix) {
  std::vector<const ShippedFile*> found;
  for (const auto* file = shipped_files_begin(); file != shipped_files_end(); ++file)
    if (file->path.substr(0, prefix.size()) == prefix) found.push_back(file);
  return found;
}

}  // namespace plimsoll::data
