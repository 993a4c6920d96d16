#include "calibrate/importers/importers.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "plimsoll/error.hpp"

namespace plimsoll {
namespace calibrate {
namespace {

std::string trimmed(const std::string& text) {
  const std::size_t from = text.find_first_not_of(" \t\r");
  return from == std::string::npos ? std::string() : text.substr(from, text.find_last_not_of(" \t\r") - from + 1);
}

}  // namespace

std::vector<Line> lines_of(const std::string& text, const std::string& where) {
  std::vector<Line> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back({trimmed(line), fmt::format("{}:{}", where, lines.size() + 1)});
  return lines;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(trimmed(part));
  return parts;
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

double number_in(const std::string& word, const Line& line, double least) {
  char* end = nullptr;
  const bool decimal = word.find_first_not_of("0123456789+-.eE") == std::string::npos;  // strtod also reads nan, inf and hexadecimal
  const double value = std::strtod(word.c_str(), &end);
  if (!decimal || word.empty() || *end != '\0' || !std::isfinite(value) || value < least)
    fail(fmt::format("'{}' is no number of at least {:g}", word.substr(0, 40), least), line.where);
  return value;
}

std::int64_t integer_in(const std::string& word, const Line& line, std::int64_t least) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || value < least || value > (std::int64_t{1} << 50))
    fail(fmt::format("'{}' is no whole number of at least {}", word.substr(0, 40), least), line.where);
  return value;
}

}  // namespace calibrate

std::vector<std::string> sample_importers() {
  return {"rccl-tests", "nccl-tests", "hipblaslt-bench", "babelstream", "transferbench", "rocm-bandwidth-test"};
}

std::vector<Sample> import_samples(const std::string& tool, const std::string& text, const std::string& where) {
  std::vector<Sample> samples;
  if (tool == "rccl-tests" || tool == "nccl-tests")
    samples = calibrate::import_nccl_tests(text, where, tool);
  else if (tool == "hipblaslt-bench")
    samples = calibrate::import_hipblaslt_bench(text, where);
  else if (tool == "babelstream")
    samples = calibrate::import_babelstream(text, where);
  else if (tool == "transferbench")
    samples = calibrate::import_transferbench(text, where);
  else if (tool == "rocm-bandwidth-test")
    samples = calibrate::import_rocm_bandwidth_test(text, where);
  else
    fail("there is no importer for '" + tool + "'", where, suggest(tool, sample_importers()));
  for (Sample& sample : samples) {
    sample.tool = tool;
    if (sample.fastest == 0) sample.fastest = sample.seconds;
  }
  return samples;
}

}  // namespace plimsoll
