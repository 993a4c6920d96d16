// The files of models/ and hardware/ that are part of the library.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plimsoll::data {

/// One shipped file: its path in the project ("models/gpt2/config.json") and its text.
struct ShippedFile {
  std::string_view path;
  std::string_view text;
};

const ShippedFile* shipped_files_begin();
const ShippedFile* shipped_files_end();

/// Puts a text in the place of the shipped file of that path; false: none is shipped. Before anything is read.
bool replace_shipped_file(const std::string& path, std::string text);

/// The shipped file of that path, or what stands in its place, or nullptr.
const ShippedFile* find_shipped_file(std::string_view path);

/// All shipped files whose path starts with `prefix`, in order of path.
std::vector<const ShippedFile*> shipped_files_under(std::string_view prefix);

}  // namespace plimsoll::data
