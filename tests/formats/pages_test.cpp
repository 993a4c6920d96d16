// The pages of docs/formats show the tables that the readers and writers use.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "plimsoll/formats.hpp"

namespace plimsoll {
namespace {

std::string page(const std::string& format) {
  std::ifstream file(std::string(PLIMSOLL_SOURCE_DIR) + "/docs/formats/" + format + ".md");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(FormatPages, ShowTheTablesOfTheirReaders) {
  for (const std::string& format : foreign_formats()) {
    const std::string text = page(format);
    EXPECT_FALSE(text.empty()) << "docs/formats/" << format << ".md is absent";
    if (format == "shell") continue;
    EXPECT_NE(text.find(foreign_key_table(format)), std::string::npos) << "docs/formats/" << format << ".md: the table should be\n"
                                                                       << foreign_key_table(format);
  }
}

}  // namespace
}  // namespace plimsoll
