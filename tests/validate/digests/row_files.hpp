// The files of measured rows that are held row by row, and what is held of a row.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plimsoll/rows.hpp"
#include "validate/digests/held.hpp"

namespace plimsoll::digests {

struct RowFile {
  const char* folder;  ///< in the source tree
  const char* name;    ///< without ".json"
  int slices;          ///< tests that its rows are dealt to
};

/// The one table of them.
const std::vector<RowFile>& row_files();
/// Throws std::runtime_error: no such file.
const RowFile& row_file(const std::string& name);

/// A row and what its file says beside what `validate` reads of it: bytes between steps and of the first step, where they were measured.
struct HeldRow {
  MeasuredRow row;
  std::map<std::string, std::int64_t> beside;
};
std::string path_of(const RowFile& file);
std::vector<HeldRow> rows_of(const RowFile& file);

/// Predicts a row, once.
Held predicted(const HeldRow& row);
/// The programs of its ranks as text.
std::string dump_of(const HeldRow& row);

/// Where the lines of a file of rows, or of "drawn", are held.
std::string held_path(const std::string& name);

}  // namespace plimsoll::digests
