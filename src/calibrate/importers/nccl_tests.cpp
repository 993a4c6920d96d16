// all_reduce_perf and its sisters of nccl-tests and rccl-tests: one line per size, out of place and in place.
#include <algorithm>
#include <set>

#include "calibrate/importers/importers.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::calibrate {
namespace {

const std::vector<std::string> kCollectives{"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"};

struct Header {
  std::size_t size = 0, type = 0, time = 0, bus = 0;
  std::size_t words = 0;  ///< of a line of the table; 0: not read yet
};

/// "size count type redop root time algbw busbw #wrong time algbw busbw #wrong": older versions lack root and say error.
Header read_header(const std::vector<std::string>& words, const Line& line) {
  const auto column = [&](const char* name) {
    const auto found = std::find(words.begin() + 1, words.end(), name);
    if (found == words.end())
      fail("the table has no column '" + std::string(name) + "'", line.where, "nccl-tests and rccl-tests print one");
    return static_cast<std::size_t>(found - words.begin() - 1);
  };
  return {column("size"), column("type"), column("time"), column("busbw"), words.size() - 1};
}

std::string type_named(const std::string& name, const Line& line) {
  const std::vector<std::pair<std::string, std::string>> names{
      {"float", "fp32"},   {"half", "fp16"},   {"bfloat16", "bf16"}, {"double", "fp64"}, {"int8", "int8"},
      {"uint8", "uint8"},  {"int32", "int32"}, {"uint32", "uint32"}, {"int64", "int64"}, {"uint64", "uint64"},
      {"fp8_e4m3", "fp8"}, {"f8e4m3", "fp8"},  {"fp8_e5m2", "fp8"},  {"f8e5m2", "fp8"}};
  for (const auto& [theirs, ours] : names)
    if (name == theirs) return ours;
  fail("'" + name + "' is no type of nccl-tests", line.where);
}

/// The collective that a word names ("all_reduce_perf", "alltoall_perf"), or empty.
std::string collective_in(const std::string& word) {
  for (const std::string& name : kCollectives)
    if (word.find(name + "_perf") != std::string::npos) return name;
  return word.find("alltoall_perf") != std::string::npos ? "all_to_all" : "";
}

struct Run {
  std::string collective;
  int ranks = 0;
  std::set<std::string> hosts;
  bool ended = false;
};

/// "#  Rank  0 Group  0 Pid 2517106 on gpuf2b8 device  0 [0000:05:00] AMD Instinct MI300X", and which test it is.
void read_comment(const std::vector<std::string>& words, Run& run) {
  if (words.size() > 2 && words[1] == "Rank") {
    ++run.ranks;
    const auto on = std::find(words.begin(), words.end(), "on");
    if (on != words.end() && on + 1 != words.end()) run.hosts.insert(*(on + 1));
  }
  for (const std::string& word : words)
    if (const std::string name = collective_in(word); !name.empty()) run.collective = name;
  run.ended = run.ended || (words.size() > 3 && words[1] == "Avg" && words[2] == "bus");
}

Sample read_row(const std::vector<std::string>& words, const Header& header, const Run& run, const Line& line) {
  if (words.size() != header.words)
    fail("the line has " + std::to_string(words.size()) + " columns, its header " + std::to_string(header.words), line.where);
  Sample sample;
  sample.kind = SampleKind::collective;
  sample.group = sample.kernel = run.collective;
  sample.bytes = integer_in(words[header.size], line);
  sample.type = type_named(words[header.type], line);
  sample.seconds = number_in(words[header.time], line, 1e-3) * 1e-6;
  number_in(words[header.bus], line);
  sample.ranks = run.ranks;
  sample.nodes = static_cast<int>(std::max<std::size_t>(1, run.hosts.size()));
  sample.runs = 20;
  return sample;
}

}  // namespace

std::vector<Sample> import_nccl_tests(const std::string& text, const std::string& where, const std::string& tool) {
  Run run;
  run.collective = collective_in(where);
  Header header;
  std::vector<Sample> samples;
  for (const Line& line : lines_of(text, where)) {
    const auto words = words_of(line.text);
    if (words.empty()) continue;
    if (words[0] == "#" && words.size() > 2 && words[1] == "size")
      header = read_header(words, line);
    else if (words[0].front() == '#' || header.words == 0)
      read_comment(words, run);
    else if (words[0].find_first_not_of("0123456789") == std::string::npos) {
      if (run.collective.empty())
        fail("which collective is it? the text does not say", line.where, "name the file all_reduce_perf.txt, all_gather_perf.txt, …");
      if (run.ranks < 2) fail("the text lists " + std::to_string(run.ranks) + " ranks, a collective needs two", line.where);
      const Sample sample = read_row(words, header, run, line);
      if (sample.bytes > 0) samples.push_back(sample);
    }
  }
  if (header.words == 0) fail("this is no output of " + tool + ": no table with the columns size, type, time, busbw", where);
  if (!run.ended) fail("the output is cut off: the line '# Avg bus bandwidth' at its end is missing", where);
  return samples;
}

}  // namespace plimsoll::calibrate
