// hipblaslt-bench: a line of column names, then lines of values; other lines are talk. Columns come and go between versions.
#include <algorithm>

#include "calibrate/importers/importers.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::calibrate {
namespace {

std::string type_named(const std::string& name, const Line& line) {
  const std::vector<std::pair<std::string, std::string>> names{
      {"f32_r", "fp32"}, {"f16_r", "fp16"},    {"bf16_r", "bf16"},    {"f64_r", "fp64"},  {"i8_r", "int8"}, {"f8_r", "fp8"},
      {"bf8_r", "fp8"},  {"f8_fnuz_r", "fp8"}, {"bf8_fnuz_r", "fp8"}, {"xf32_r", "tf32"}, {"f6_r", "fp6"},  {"f4_r", "fp4"}};
  for (const auto& [theirs, ours] : names)
    if (name == theirs) return ours;
  fail("'" + name + "' is no type of hipblaslt-bench", line.where);
}

/// "[0]:transA,transB,…": the number of the solution before the names.
std::string without_index(const std::string& text) {
  const std::size_t colon = text.find("]:");
  return text.front() == '[' && colon != std::string::npos ? text.substr(colon + 2) : text;
}

/// With --log_function_name the function's comes first.
bool is_header(const std::vector<std::string>& values) {
  return values[0] == "transA" || (values[0] == "function" && values[1] == "transA");
}

class Columns {
 public:
  Columns(std::vector<std::string> names, const Line& line) : names_(std::move(names)) {
    for (const char* name : {"m", "n", "k", "batch_count", "us"}) at(name, line);
    type_ = std::find(names_.begin(), names_.end(), "a_type") != names_.end() ? "a_type" : "d_type";  // one type only, before 0.7
    at(type_, line);
  }
  std::size_t at(const std::string& name, const Line& line) const {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) fail("the table has no column '" + name + "'", line.where, "hipblaslt-bench prints one");
    return static_cast<std::size_t>(found - names_.begin());
  }
  /// A line whose transposition is one: other lines, such as names of kernels, have commas too.
  bool is_row(const std::vector<std::string>& values) const {
    const auto place = static_cast<std::size_t>(std::find(names_.begin(), names_.end(), "transA") - names_.begin());
    return place < values.size() && (values[place] == "N" || values[place] == "T");
  }
  Sample read(const std::vector<std::string>& values, const Line& line) const {
    if (values.size() != names_.size())
      fail("the line has " + std::to_string(values.size()) + " values for " + std::to_string(names_.size()) + " columns", line.where);
    const auto size = [&](const char* name) { return integer_in(values[at(name, line)], line, 1); };
    Sample sample;
    sample.kind = SampleKind::gemm;
    sample.kernel = "hipblaslt";
    sample.type = type_named(values[at(type_, line)], line);
    sample.m = size("m");
    sample.n = size("n");
    sample.k = size("k");
    sample.batch = size("batch_count");
    sample.flops = 2.0 * static_cast<double>(sample.m) * static_cast<double>(sample.n) * static_cast<double>(sample.k * sample.batch);
    sample.seconds = number_in(values[at("us", line)], line, 1e-3) * 1e-6;
    return sample;
  }

 private:
  std::vector<std::string> names_;
  std::string type_;
};

}  // namespace

std::vector<Sample> import_hipblaslt_bench(const std::string& text, const std::string& where) {
  std::vector<Sample> samples;
  std::vector<Columns> columns;  // the latest header
  bool expecting = false;
  for (const Line& line : lines_of(text, where)) {
    if (line.text.empty()) continue;
    const auto values = split(without_index(line.text), ',');
    if (values.size() > 5 && is_header(values)) {
      columns.assign(1, Columns(values, line));
      expecting = true;
    } else if (!columns.empty() && values.size() > 5 && columns.front().is_row(values)) {
      samples.push_back(columns.front().read(values, line));
      expecting = false;
    }
  }
  if (columns.empty()) fail("this is no output of hipblaslt-bench: no line of columns that begins with transA", where);
  if (expecting) fail("the output is cut off: a line of columns without values", where);
  return samples;
}

}  // namespace plimsoll::calibrate
