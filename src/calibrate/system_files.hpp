// Small files of /sys and /proc, below a folder that tests replace.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace plimsoll::calibrate {

class SystemFiles {
 public:
  explicit SystemFiles(std::string root) : root_(std::move(root)) {}

  /// The first line; nothing when the file cannot be read.
  std::optional<std::string> line(const std::string& path) const;
  std::vector<std::string> lines(const std::string& path) const;
  std::optional<std::int64_t> number(const std::string& path) const;
  /// "key value" per line, as in the topology of KFD; unsigned values beyond 63 bits are dropped.
  std::map<std::string, std::int64_t> properties(const std::string& path) const;
  /// Names in a folder that start with `prefix`, in the order of the number that follows.
  std::vector<std::string> entries(const std::string& folder, const std::string& prefix = {}) const;
  bool exists(const std::string& path) const;
  /// Whether this process may open it for reading and writing.
  bool writable(const std::string& path) const;

 private:
  std::string at(const std::string& path) const { return root_ + "/" + path; }
  std::string root_;
};

/// PLIMSOLL_SYSTEM_ROOT where set, else "/".
std::string system_root();

}  // namespace plimsoll::calibrate
