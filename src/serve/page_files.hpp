// The files of the built page, read once: a request names one of them or nothing.
#pragma once

#include <map>
#include <memory>
#include <string>

namespace plimsoll::serve {

struct PageFile {
  std::shared_ptr<const std::string> text;
  std::string type;
};

/// By the path of their address ("/assets/index.js"; "/" is index.html). Throws Error where the folder holds no index.html.
std::map<std::string, PageFile> read_page(const std::string& folder);

}  // namespace plimsoll::serve
