// What tests over measured rows share: the rows of a file, the row of a name, a test's name.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "devices.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/rows.hpp"
#include "program/lower.hpp"
#include "validate/digests/row_files.hpp"

namespace plimsoll {

/// The rows of a file of the table in digests/row_files.cpp, read once.
inline const std::vector<MeasuredRow>& rows_in(const std::string& file) {
  static std::map<std::string, std::vector<MeasuredRow>> files;
  const auto [found, added] = files.try_emplace(file);
  if (added) found->second = load_rows(digests::path_of(digests::row_file(file)));
  return found->second;
}

inline const MeasuredRow& row_of(const std::vector<MeasuredRow>& rows, const std::string& id) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const MeasuredRow& row) { return row.id == id; });
  if (found == rows.end()) throw std::runtime_error("no row " + id);
  return *found;
}

/// The row's id as GoogleTest takes it.
inline std::string test_name(const MeasuredRow& row) {
  std::string name = row.id;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

/// What resolving or lowering the row's step fails with once `change` was made; nothing where it does not.
inline std::optional<ErrorCode> failure_after(const MeasuredRow& row, void (*change)(Strategy&)) {
  Strategy strategy = row.strategy;
  change(strategy);
  try {
    program::lower_transformers(program::on_cluster(*row.cluster, *row.model, resolve(strategy, *row.model, *row.cluster)));
  } catch (const Error& error) {
    return error.code();
  }
  return std::nullopt;
}

/// Whether the row's step is refused by name once `change` was made: as not modelled, or as what the framework itself fails on.
inline bool refused_after(const MeasuredRow& row, void (*change)(Strategy&)) {
  const std::optional<ErrorCode> failure = failure_after(row, change);
  return failure && *failure != ErrorCode::internal;
}

}  // namespace plimsoll
