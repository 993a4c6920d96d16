#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "command.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::cli {

const std::string& Arguments::operator[](const std::string& name) const {
  static const std::string kNone;
  const auto found = values_.find(name);
  return found == values_.end() ? kNone : found->second.back();
}

Arguments Arguments::with(const std::string& name, const std::string& value) const {
  Arguments other = *this;
  other.values_[name] = {value};
  return other;
}

const std::vector<std::string>& Arguments::all(const std::string& name) const {
  static const std::vector<std::string> kNone;
  const auto found = values_.find(name);
  return found == values_.end() ? kNone : found->second;
}

double Arguments::number(const std::string& name, double least, double most) const {
  const std::string& text = (*this)[name];
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= least && value <= most))
    fail(fmt::format("'{}' is no number from {:.12g} to {:.12g}", text, least, most), name);
  return value;
}

double Arguments::number_or(const std::string& name, double otherwise, double least, double most) const {
  return has(name) ? number(name, least, most) : otherwise;
}

std::int64_t Arguments::integer_or(const std::string& name, std::int64_t otherwise, std::int64_t least, std::int64_t most) const {
  if (!has(name)) return otherwise;
  const double value = number(name, static_cast<double>(least), static_cast<double>(most));
  if (value != std::floor(value)) fail("'" + (*this)[name] + "' is no whole number", name);
  return static_cast<std::int64_t>(value);
}

void Arguments::check_output() const {
  if (!has("-o")) return;
  const std::string& output = (*this)["-o"];
  std::error_code none;
  if (!std::filesystem::is_regular_file(output, none)) return;
  const auto same = [&](const std::string& path) { return !path.empty() && std::filesystem::equivalent(path, output, none); };
  for (const auto& [name, values] : values_)
    for (const std::string& value : values) {
      if (name == "-o") continue;
      const std::size_t tool = value.find(':'), count = value.rfind('x');  // rccl-tests:FILE, 2xFILE
      if (same(value) || (tool != std::string::npos && same(value.substr(tool + 1))) ||
          (count != std::string::npos && same(value.substr(count + 1))))
        fail("is read by " + name + " of the same line", "-o " + output, "write to another file");
    }
}

void print(const std::string& text) {
  errno = 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written && errno != EPIPE) fail(std::string("the output could not be written to its end: ") + std::strerror(errno));
}

void print_to(const Arguments& arguments, const std::string& text) {
  if (arguments.has("-o") && arguments["-o"] != "-")
    write_file(arguments["-o"], text);
  else
    print(text);
}

std::string read_file(const std::string& path) {
  constexpr std::size_t kMostBytes = std::size_t{64} << 20;
  const bool from_stdin = path == "-";
  std::FILE* file = from_stdin ? stdin : std::fopen(path.c_str(), "rb");
  if (!file) fail(std::string("cannot be read: ") + std::strerror(errno), path);
  std::string text;
  char piece[65536];
  for (std::size_t got = 1; got > 0 && text.size() <= kMostBytes; text.append(piece, got)) got = std::fread(piece, 1, sizeof piece, file);
  const bool failed = std::ferror(file) != 0;
  if (!from_stdin) std::fclose(file);
  if (failed) fail("cannot be read", path, "it may be a folder");
  if (text.size() > kMostBytes) fail("is larger than 64 MiB", path);
  return text;
}

namespace {

void write_all(std::FILE* file, const std::string& path, const std::string& bytes) {
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size() && std::fflush(file) == 0;
  if (std::fclose(file) != 0 || !written) fail("could not be written to its end", path);
}

/// The mode that a new file gets.
mode_t usual_mode() {
  const mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

/// Beside `path`, then in its place: whatever happens on the way, what was there stays. False: nothing can be written beside it.
bool replace_file(const std::string& path, mode_t mode, const std::string& bytes) {
  std::string beside = path + ".XXXXXX";
  const int handle = mkstemp(beside.data());
  if (handle < 0) return false;
  try {
    fchmod(handle, mode);
    write_all(fdopen(handle, "wb"), path, bytes);
    std::filesystem::rename(beside, path);
  } catch (...) {
    unlink(beside.c_str());
    throw;
  }
  return true;
}

}  // namespace

void write_file(const std::string& path, const std::string& bytes) {
  struct stat old {};
  const bool exists = stat(path.c_str(), &old) == 0;
  std::error_code none;
  const std::string target = exists ? std::filesystem::canonical(path, none).string() : path;  // a link stays one
  const bool is_file = !exists || (S_ISREG(old.st_mode) && access(path.c_str(), W_OK) == 0);
  if (is_file && !target.empty() && replace_file(target, exists ? old.st_mode & 07777 : usual_mode(), bytes)) return;
  std::FILE* file = std::fopen(path.c_str(), "wb");  // a device, a pipe, or a file in a folder that is not to be written
  if (!file) fail(std::string("cannot be written: ") + std::strerror(errno), path);
  write_all(file, path, bytes);
}

}  // namespace plimsoll::cli
