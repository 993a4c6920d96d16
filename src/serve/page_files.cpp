#include "serve/page_files.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "plimsoll/error.hpp"

namespace plimsoll::serve {
namespace {

std::string type_of(const std::filesystem::path& path) {
  static const std::map<std::string, std::string> kTypes{
      {".html", "text/html; charset=utf-8"}, {".js", "text/javascript; charset=utf-8"}, {".css", "text/css; charset=utf-8"},
      {".wasm", "application/wasm"},         {".svg", "image/svg+xml"},                 {".json", "application/json"},
      {".txt", "text/plain; charset=utf-8"}};
  const auto found = kTypes.find(path.extension().string());
  return found == kTypes.end() ? "application/octet-stream" : found->second;
}

}  // namespace

std::map<std::string, PageFile> read_page(const std::string& folder) {
  std::map<std::string, PageFile> files;
  std::error_code problem;
  for (auto each = std::filesystem::recursive_directory_iterator(folder, problem); !problem && each != std::filesystem::end(each); each.increment(problem)) {
    if (!each->is_regular_file()) continue;
    std::ifstream file(each->path(), std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    files["/" + std::filesystem::relative(each->path(), folder).generic_string()] = {std::make_shared<const std::string>(text.str()), type_of(each->path())};
  }
  const auto index = files.find("/index.html");
  if (index == files.end()) fail("there is no page", folder, "npm ci && npm run build in web/, or leave --page out");
  files["/"] = index->second;
  return files;
}

}  // namespace plimsoll::serve
