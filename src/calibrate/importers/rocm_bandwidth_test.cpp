// rocm_bandwidth_test (-a or -A): a list of devices and a square of peak copy rates in GB/s, source by destination.
#include <algorithm>

#include "calibrate/importers/importers.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::calibrate {
namespace {

constexpr std::int64_t kPeakBytes = std::int64_t{512} << 20;  // the largest size of the sweep, where the peak is reached

struct Square {
  std::vector<std::string> columns;
  std::size_t rows = 0;
  bool whole() const { return !columns.empty() && rows == columns.size(); }
};

Sample sample_of(bool from_host, bool to_host, double gigabytes, const std::string& route) {
  Sample sample;
  sample.kind = from_host ? SampleKind::host_to_device : to_host ? SampleKind::device_to_host : SampleKind::peer_copy;
  sample.kernel = route;
  sample.bytes = kPeakBytes;
  sample.seconds = static_cast<double>(kPeakBytes) / (gigabytes * 1e9);
  return sample;
}

}  // namespace

std::vector<Sample> import_rocm_bandwidth_test(const std::string& text, const std::string& where) {
  std::vector<Sample> samples;
  std::vector<bool> host;  // by device
  Square square;
  bool in_square = false;
  for (const Line& line : lines_of(text, where)) {
    const auto words = words_of(line.text);
    if (words.empty()) continue;
    if (words[0] == "Device:" && words.size() > 2) {
      const std::string& name = line.text;
      host.push_back(name.find("EPYC") != std::string::npos || name.find("Xeon") != std::string::npos ||
                     name.find("CPU") != std::string::npos || name.find("Ryzen") != std::string::npos);
    }
    if (line.text.find("copy peak bandwidth GB/s") != std::string::npos) {
      in_square = words[0] == "Unidirectional";
    } else if (in_square && words[0] == "D/D") {
      square = {{words.begin() + 1, words.end()}, 0};
      if (square.columns.size() != host.size())
        fail(std::to_string(square.columns.size()) + " columns for " + std::to_string(host.size()) + " devices", line.where);
    } else if (in_square && !square.columns.empty() && !square.whole()) {
      if (words.size() != square.columns.size() + 1)
        fail("a line of the square has " + std::to_string(words.size()) + " columns", line.where);
      const std::size_t from = square.rows++;
      for (std::size_t to = 0; to < square.columns.size(); ++to)
        if (from != to && words[to + 1] != "N/A" && !(host[from] && host[to]))
          samples.push_back(sample_of(host[from], host[to], number_in(words[to + 1], line, 1e-6), words[0] + "->" + square.columns[to]));
    }
  }
  if (square.columns.empty()) fail("this is no output of rocm_bandwidth_test: no table 'Unidirectional copy peak bandwidth GB/s'", where);
  if (!square.whole())
    fail("the output is cut off: the table of unidirectional rates has " + std::to_string(square.rows) + " lines", where);
  return samples;
}

}  // namespace plimsoll::calibrate
