// BabelStream: one line per kernel with a rate and the shortest, longest and mean time. Versions up to 5.0 say "MBytes/sec" ("MiBytes/sec"
// with --mibibytes), later ones "MB/s" or another unit; --csv gives the number and size of elements instead of a precision.
#include <algorithm>
#include <cmath>

#include "calibrate/importers/importers.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::calibrate {
namespace {

struct StreamKernel {
  const char* name;
  const char* group;
  int arrays;  ///< read or written
};
constexpr StreamKernel kKernels[] = {{"Copy", "elementwise", 2},  {"Mul", "elementwise", 2},     {"Add", "elementwise", 3},
                                     {"Triad", "elementwise", 3}, {"Nstream", "elementwise", 4}, {"Dot", "reduction", 2}};

const StreamKernel* kernel_named(const std::string& name) {
  for (const StreamKernel& kernel : kKernels)
    if (name == kernel.name) return &kernel;
  return nullptr;
}

/// Bytes per second of one unit of the rates; 0: no such unit.
double unit_named(const std::string& name) {
  const std::vector<std::pair<std::string, double>> units{{"MBytes/sec", 1e6}, {"MB/s", 1e6},     {"GB/s", 1e9},
                                                          {"TB/s", 1e12},      {"MiB/s", 0x1p20}, {"MiBytes/sec", 0x1p20},
                                                          {"GiB/s", 0x1p30},   {"TiB/s", 0x1p40}};
  for (const auto& [theirs, value] : units)
    if (name == theirs) return value;
  return 0;
}

Sample sample_of(const StreamKernel& kernel, const std::string& type, double bytes, double shortest, double mean) {
  Sample sample;
  sample.kind = SampleKind::stream;
  sample.kernel = kernel.name;
  sample.group = kernel.group;
  sample.type = type;
  sample.bytes = std::llround(bytes);
  sample.fastest = shortest;
  sample.seconds = mean;
  return sample;
}

/// "Function    MBytes/sec  Min (sec)   Max         Average": the unit of its rates.
double unit_of_header(const std::vector<std::string>& words, const Line& line) {
  const bool times = line.text.find("Min (sec)") != std::string::npos && line.text.find("Average") != std::string::npos;
  const double unit = times && words.size() > 1 ? unit_named(words[1]) : 0;
  if (unit == 0) fail("the table's columns are not Function, a rate (MBytes/sec, GB/s), Min (sec), Max, Average", line.where);
  return unit;
}

/// "Triad,100,268435456,8,4100700,0.00157,0.00160,0.00158" under "function,num_times,n_elements,sizeof,…".
Sample csv_sample(const std::vector<std::string>& values, const StreamKernel& kernel, const Line& line) {
  if (values.size() != 8) fail("the line has " + std::to_string(values.size()) + " values, not 8", line.where);
  const std::int64_t element = integer_in(values[3], line, 4);
  if (element != 4 && element != 8) fail("elements of " + values[3] + " bytes are neither float nor double", line.where);
  const double bytes = static_cast<double>(integer_in(values[2], line, 1)) * static_cast<double>(element) * kernel.arrays;
  return sample_of(kernel, element == 8 ? "fp64" : "fp32", bytes, number_in(values[5], line, 1e-9), number_in(values[7], line, 1e-9));
}

/// What has been read so far.
struct Reading {
  std::vector<Sample> samples;
  std::string type;
  double unit = 0;  ///< of a table; 0: none has begun
  bool csv = false;
};

void read_line(const Line& line, Reading& reading) {
  const auto words = words_of(line.text), values = split(line.text, ',');
  if (words.size() == 2 && words[0] == "Precision:") reading.type = words[1] == "double" ? "fp64" : words[1] == "float" ? "fp32" : "";
  if (!values.empty() && values[0] == "function") {
    reading.csv = values.size() == 8 && values[2] == "n_elements" && values[3] == "sizeof" && values[5] == "min_runtime" &&
                  values[7] == "avg_runtime";
    if (!reading.csv) fail("the columns are not function, num_times, n_elements, sizeof, rate, min_, max_, avg_runtime", line.where);
  } else if (!words.empty() && words[0] == "Function") {
    reading.unit = unit_of_header(words, line);
  } else if (const StreamKernel* kernel = values.empty() ? nullptr : kernel_named(values[0]); reading.csv && kernel) {
    reading.samples.push_back(csv_sample(values, *kernel, line));
  } else if (const StreamKernel* row = words.empty() ? nullptr : kernel_named(words[0]); reading.unit > 0 && row) {
    if (words.size() != 5) fail("the line has " + std::to_string(words.size()) + " columns, not 5", line.where);
    const double shortest = number_in(words[2], line, 1e-9), rate = number_in(words[1], line, 1e-3) * reading.unit;
    reading.samples.push_back(sample_of(*row, reading.type, rate * shortest, shortest, number_in(words[4], line, 1e-9)));
  }
}

}  // namespace

std::vector<Sample> import_babelstream(const std::string& text, const std::string& where) {
  Reading reading;
  for (const Line& line : lines_of(text, where)) read_line(line, reading);
  if (reading.unit == 0 && !reading.csv)
    fail("this is no output of BabelStream: no line 'Function MBytes/sec Min (sec) Max Average'", where);
  if (!reading.csv && reading.type.empty()) fail("the output does not say its precision ('Precision: double')", where);
  const bool whole = std::any_of(reading.samples.begin(), reading.samples.end(), [](const Sample& each) { return each.kernel == "Triad"; });
  if (!whole) fail("the output is cut off: there is no line 'Triad'", where);
  return reading.samples;
}

}  // namespace plimsoll::calibrate
