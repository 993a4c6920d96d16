// Files of other programs for the tests: the projects' own samples (samples/SOURCES.md), and texts written beside them.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "plimsoll/formats.hpp"

namespace plimsoll {

inline std::string sample(const std::string& name) { return std::string(PLIMSOLL_SOURCE_DIR) + "/tests/formats/samples/" + name; }

/// A folder that is gone when the test is.
class Folder {
 public:
  Folder()
      : path_(std::filesystem::temp_directory_path() / ("plimsoll-formats-" + std::to_string(getpid()) + "-" + std::to_string(++count()))) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() {
    std::error_code none;
    std::filesystem::remove_all(path_, none);
  }
  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = (path_ / name).string();
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  std::string path(const std::string& name) const { return (path_ / name).string(); }

 private:
  static int& count() {
    static int n = 0;
    return n;
  }
  std::filesystem::path path_;
};

/// The value that a run settled for a key, "(nothing)" where it settled none.
inline std::string value_in(const ForeignRun& run, const std::string& key) {
  for (const ForeignKey& one : run.keys)
    if (one.key == key) return one.value;
  return "(nothing)";
}

/// What reading says when it fails; "read" when it does not.
inline std::string problem_of(const std::vector<std::string>& files, const ForeignOptions& options) {
  try {
    (void)read_foreign(files, options);
    return "read";
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace plimsoll
