#include "units/files.hpp"

#include <fmt/format.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "plimsoll/error.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll {
namespace {

std::atomic<bool> g_closed{false};

std::string read_standard_input(std::int64_t most_bytes) {
  std::string text;
  char block[1 << 14];
  while (std::cin.read(block, sizeof(block)), std::cin.gcount() > 0) {
    text.append(block, static_cast<std::size_t>(std::cin.gcount()));
    if (static_cast<std::int64_t>(text.size()) > most_bytes)
      fail(fmt::format("more than {} is too large", to_string(Bytes(most_bytes))), "standard input");
  }
  return text;
}

}  // namespace

std::string read_text_file(const std::string& path, std::int64_t most_bytes) {
  if (!g_closed && path == "-") return read_standard_input(most_bytes);
  if (!files::exists(path)) fail("there is no such file", path);
  std::error_code status;
  if (!std::filesystem::is_regular_file(path, status)) fail("this is no regular file", path);
  const auto bytes = std::filesystem::file_size(path, status);
  if (status) fail("cannot read the file: " + status.message(), path);
  if (bytes > static_cast<std::uintmax_t>(most_bytes))
    fail(fmt::format("a file of {} is too large (at most {})", to_string(Bytes(static_cast<std::int64_t>(bytes))),
                     to_string(Bytes(most_bytes))),
         path);
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<std::size_t>(bytes), '\0');
  file.read(text.data(), static_cast<std::streamsize>(bytes));
  if (!file) fail("cannot read the file", path);
  return text;
}

namespace files {

bool exists(const std::string& path) {
  std::error_code status;
  return !g_closed && std::filesystem::exists(path, status);
}

bool is_folder(const std::string& path) {
  std::error_code status;
  return !g_closed && std::filesystem::is_directory(path, status);
}

void close() { g_closed = true; }

}  // namespace files
}  // namespace plimsoll
