/// The libraries under test, loaded as programs load them, and the record they write.
#pragma once

#include <dlfcn.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "rehearse/device/control.h"
#include "rehearse/record.hpp"
#include "rehearse/record_file.hpp"

namespace plimsoll::rehearse::test {

class Library {
 public:
  explicit Library(const std::string& soname) : handle_(dlopen((PLIMSOLL_DEVICE_FOLDER "/" + soname).c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) throw std::runtime_error(dlerror());
  }
  void* symbol(const char* name) const { return dlsym(handle_, name); }
  void* symbol(const char* name, const char* version) const { return dlvsym(handle_, name, version); }
  /// `get<int(void**, std::size_t)>("cudaMalloc")`
  template <class Signature>
  Signature* get(const char* name) const {
    void* found = symbol(name);
    if (found == nullptr) throw std::runtime_error(std::string("no ") + name);
    return reinterpret_cast<Signature*>(found);
  }

 private:
  void* handle_;
};

/// The libraries stay loaded, as under a program.
inline const Library& library(const std::string& soname) {
  static auto* const loaded = new std::vector<std::pair<std::string, Library*>>;
  for (const auto& [name, it] : *loaded)
    if (name == soname) return *it;
  loaded->push_back({soname, new Library(soname)});
  return *loaded->back().second;
}

inline const Library& core() { return library("libplimsoll_device.so"); }
inline const Library& driver() { return library("libcuda.so.1"); }

/// Events written since this object was made.
class Recorded {
 public:
  Recorded() : first_(read().events().size()) {}

  /// Those of one kind.
  template <class Event>
  std::vector<Event> of(record::Kind kind) const {
    const RecordFile file = read();
    std::vector<Event> found;
    for (std::size_t i = first_; i < file.events().size(); ++i)
      if (file.events()[i].kind() == kind) found.push_back(file.events()[i].as<Event>());
    return found;
  }
  /// With the numbers that follow each.
  template <class Event, class Number>
  std::vector<std::pair<Event, std::vector<Number>>> of_tail(record::Kind kind) const {
    const RecordFile file = read();
    std::vector<std::pair<Event, std::vector<Number>>> found;
    for (std::size_t i = first_; i < file.events().size(); ++i) {
      if (file.events()[i].kind() != kind) continue;
      const auto tail = file.events()[i].tail(sizeof(Event));
      std::vector<Number> numbers(tail.size() / sizeof(Number));
      std::memcpy(numbers.data(), tail.data(), numbers.size() * sizeof(Number));
      found.push_back({file.events()[i].as<Event>(), std::move(numbers)});
    }
    return found;
  }
  std::string name(std::uint32_t id) const { return read().name(id); }

 private:
  static RecordFile read() {
    core().get<decltype(plimsoll_rehearse_mark)>("plimsoll_rehearse_mark")(5, "recorded", 0);  // the file is there from the first event on
    return RecordFile(core().get<decltype(plimsoll_rehearse_record_path)>("plimsoll_rehearse_record_path")());
  }

  std::size_t first_;
};

/// What every test process runs with (main.cpp sets the environment).
inline constexpr std::uint64_t kMemory = 80000000000, kContext = 500000000;
inline constexpr int kDevices = 2;

}  // namespace plimsoll::rehearse::test
