// What vendors' own benchmarks print, read as samples. Every reader finds its columns by name and refuses a table that lacks one, a
// number that is none, and a table that ends before its tool says it is done.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plimsoll/calibrate.hpp"

namespace plimsoll::calibrate {

/// A text by lines, with the line's number for errors.
struct Line {
  std::string text;
  std::string where;  ///< "out.txt:17"
};
std::vector<Line> lines_of(const std::string& text, const std::string& where);

/// The parts between separators, without blanks around them; `blank_separated`: any run of blanks separates.
std::vector<std::string> split(const std::string& text, char separator);
std::vector<std::string> words_of(const std::string& text);

/// A finite number above or equal to `least`. Throws Error with the line.
double number_in(const std::string& word, const Line& line, double least = 0);
std::int64_t integer_in(const std::string& word, const Line& line, std::int64_t least = 0);

std::vector<Sample> import_nccl_tests(const std::string& text, const std::string& where, const std::string& tool);
std::vector<Sample> import_hipblaslt_bench(const std::string& text, const std::string& where);
std::vector<Sample> import_babelstream(const std::string& text, const std::string& where);
std::vector<Sample> import_transferbench(const std::string& text, const std::string& where);
std::vector<Sample> import_rocm_bandwidth_test(const std::string& text, const std::string& where);

}  // namespace plimsoll::calibrate
