// TransferBench: under each test and executor one line per transfer,
// "Transfer 00  |  45.301 GB/s |    1.481 ms |     67108864 bytes | G0 -> GPU00:008 -> G1" (1.52; "G0->G000:8->G1" in earlier ones).
#include "calibrate/importers/importers.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::calibrate {
namespace {

/// The number before the unit of a cell such as "45.301 GB/s".
double cell(const std::string& text, const std::string& unit, const Line& line) {
  const auto words = words_of(text);
  if (words.size() != 2 || words[1] != unit)
    fail("'" + text + "' is no value in " + unit, line.where, "TransferBench's columns have changed");
  return number_in(words[0], line, 1e-9);
}

/// The kinds of memory at both ends of "G0 -> GPU00:008 -> G1" or "(C0->D1->G1)": C is the host's, G and F a device's.
std::pair<char, char> ends_of(const std::string& route, const Line& line) {
  const std::size_t from = route.find_first_not_of("( "), last = route.rfind("->");
  const std::size_t to = last == std::string::npos ? last : route.find_first_not_of(' ', last + 2);
  if (from == std::string::npos || to == std::string::npos)
    fail("'" + route + "' is no route of a transfer", line.where, "such as G0 -> GPU00:008 -> G1");
  return {route[from], route[to]};
}

bool on_host(char memory) { return memory == 'C' || memory == 'B' || memory == 'U' || memory == 'H' || memory == 'M'; }

}  // namespace

std::vector<Sample> import_transferbench(const std::string& text, const std::string& where) {
  std::vector<Sample> samples;
  bool open = false;
  for (const Line& line : lines_of(text, where)) {
    if (line.text.rfind("Test", 0) == 0 && line.text.back() == ':') open = true;
    if (line.text.rfind("Aggregate", 0) == 0) open = false;
    if (line.text.rfind("Transfer", 0) != 0 || line.text.find('|') == std::string::npos) continue;
    const auto cells = split(line.text, '|');
    if (cells.size() < 5) fail("the line has " + std::to_string(cells.size()) + " columns, not 5", line.where);
    const auto [from, to] = ends_of(cells[4], line);
    if (from == 'N' || to == 'N') continue;  // reads or writes only
    Sample sample;
    sample.kind = on_host(from) ? SampleKind::host_to_device : on_host(to) ? SampleKind::device_to_host : SampleKind::peer_copy;
    if (on_host(from) && on_host(to)) continue;
    sample.kernel = cells[4];
    cell(cells[1], "GB/s", line);
    sample.seconds = cell(cells[2], "ms", line) * 1e-3;
    const auto bytes = words_of(cells[3]);
    if (bytes.size() != 2 || bytes[1] != "bytes") fail("'" + cells[3] + "' is no number of bytes", line.where);
    sample.bytes = integer_in(bytes[0], line, 1);
    samples.push_back(sample);
  }
  if (samples.empty()) fail("this is no output of TransferBench: no line 'Transfer … | GB/s | ms | bytes | route'", where);
  if (open) fail("the output is cut off: the last test has no line 'Aggregate'", where);
  return samples;
}

}  // namespace plimsoll::calibrate
