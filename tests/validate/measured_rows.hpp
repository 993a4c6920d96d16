// What tests over measured rows share: what a row measured, the row of a name, a test's name, and that a step gives back what it takes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/program.hpp"
#include "plimsoll/rows.hpp"
#include "program/lower.hpp"

namespace plimsoll {

/// 0 where the row did not measure it.
inline double measured(const MeasuredRow& row, const std::string& quantity) {
  for (const Observed& observed : row.measured)
    if (observed.quantity == quantity) return observed.value;
  return 0;
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
    program::lower_transformers(*row.model, resolve(strategy, *row.model, *row.cluster));
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

/// A step is played over and over: it gives back what it takes.
inline void expect_leaves_what_it_found(const StepProgram& program) {
  std::int64_t allocs = 0, frees = 0;
  for (const Instruction& instruction : program.step) {
    allocs += instruction.kind == InstructionKind::alloc ? 1 : 0;
    frees += instruction.kind == InstructionKind::free ? 1 : 0;
  }
  EXPECT_GT(allocs, 0);
  EXPECT_EQ(allocs, frees);
}

}  // namespace plimsoll
