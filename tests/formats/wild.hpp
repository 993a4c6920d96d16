// A file in our own words and what it must become: keys that are settled, or a refusal by name.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "foreign_test.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"

namespace plimsoll {

using Keys = std::vector<std::pair<std::string, std::string>>;

struct Wild {
  std::string what, file, text, model;
  Keys keys;            ///< what is settled; empty: refused
  std::string refusal;  ///< part of what is said then
};

inline void PrintTo(const Wild& one, std::ostream* out) { *out << one.what; }

inline void expect_read_truly(const Wild& one) {
  const Folder folder;
  const std::string file = folder.write(one.file, one.text);
  if (!one.refusal.empty()) {
    std::string said = "read";
    try {
      const ForeignRun run = read_foreign({file}, {one.model, "8xh100-sxm", {}});
      (void)resolve(run.strategy, run.model, run.cluster);
    } catch (const Error& error) {
      said = error.what();
      EXPECT_NE(error.code(), ErrorCode::internal);
    }
    EXPECT_NE(said.find(one.refusal), std::string::npos) << said;
    EXPECT_EQ(said.find('\n'), std::string::npos) << "a message is one line: " << said;
    return;
  }
  const ForeignRun run = read_foreign({file}, {one.model, "8xh100-sxm", {}});
  for (const auto& [key, value] : one.keys) EXPECT_EQ(value_in(run, key), value) << key;
  EXPECT_GT(resolve(run.strategy, run.model, run.cluster).gpus, 0);
}

}  // namespace plimsoll
