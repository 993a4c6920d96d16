#include <fmt/core.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "command.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::cli {

const std::string& Arguments::operator[](const std::string& name) const {
  static const std::string kNone;
  const auto found = values_.find(name);
  return found == values_.end() ? kNone : found->second.back();
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

void write_file(const std::string& path, const std::string& bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (!file) fail(std::string("cannot be written: ") + std::strerror(errno), path);
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  if (std::fclose(file) != 0 || !written) fail("could not be written to its end", path);
}

}  // namespace plimsoll::cli
