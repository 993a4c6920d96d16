// BabelStream: one line per kernel with MB/s and the shortest, longest and mean time.
#include <algorithm>
#include <cmath>

#include "calibrate/importers/importers.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::calibrate {
namespace {

struct StreamKernel {
  const char* name;
  const char* group;
};
constexpr StreamKernel kKernels[] = {
    {"Copy", "elementwise"}, {"Mul", "elementwise"}, {"Add", "elementwise"}, {"Triad", "elementwise"}, {"Dot", "reduction"}};

const StreamKernel* kernel_named(const std::string& name) {
  for (const StreamKernel& kernel : kKernels)
    if (name == kernel.name) return &kernel;
  return nullptr;
}

}  // namespace

std::vector<Sample> import_babelstream(const std::string& text, const std::string& where) {
  std::vector<Sample> samples;
  std::string type;
  bool header = false;
  for (const Line& line : lines_of(text, where)) {
    const auto words = words_of(line.text);
    if (words.size() == 2 && words[0] == "Precision:") type = words[1] == "double" ? "fp64" : words[1] == "float" ? "fp32" : "";
    if (!words.empty() && words[0] == "Function") {
      header = line.text.find("MBytes/sec") != std::string::npos && line.text.find("Min (sec)") != std::string::npos &&
               line.text.find("Average") != std::string::npos;
      if (!header)
        fail("the table's columns are not Function, MBytes/sec, Min (sec), Max, Average", line.where,
             "run it without --csv and --mibibytes");
    }
    const StreamKernel* kernel = words.empty() || !header ? nullptr : kernel_named(words[0]);
    if (!kernel) continue;
    if (words.size() != 5) fail("the line has " + std::to_string(words.size()) + " columns, not 5", line.where);
    Sample sample;
    sample.kind = SampleKind::stream;
    sample.kernel = kernel->name;
    sample.group = kernel->group;
    sample.type = type;
    sample.fastest = number_in(words[2], line, 1e-9);
    sample.seconds = number_in(words[4], line, 1e-9);
    sample.bytes = std::llround(number_in(words[1], line, 1e-3) * 1e6 * sample.fastest);  // the rate is that of the shortest time
    samples.push_back(sample);
  }
  if (!header) fail("this is no output of BabelStream: no line 'Function MBytes/sec Min (sec) Max Average'", where);
  if (type.empty()) fail("the output does not say its precision ('Precision: double')", where);
  const bool whole = std::any_of(samples.begin(), samples.end(), [](const Sample& each) { return each.kernel == "Triad"; });
  if (!whole) fail("the output is cut off: there is no line 'Triad'", where);
  return samples;
}

}  // namespace plimsoll::calibrate
