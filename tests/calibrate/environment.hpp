#pragma once

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace plimsoll {

/// Environment variables for the time of one test.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& values) {
    for (const auto& [name, value] : values) set(name, value);
  }
  ~Environment() {
    for (const std::string& name : names_) unsetenv(name.c_str());
  }
  void set(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    names_.push_back(name);
  }

 private:
  std::vector<std::string> names_;
};

}  // namespace plimsoll
