// Whole steps that were traced on one H100, kernel by kernel: the predicted step launches what they launched, in their order, and takes as
// long by class. The traces (bench/corpus/traces-h100.json.gz) are of the rows of the same id in bench/corpus/silicon-h100.json.
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "devices.hpp"
#include "measured_rows.hpp"
#include "plimsoll/explain.hpp"
#include "plimsoll/topology.hpp"
#include "plimsoll/trace.hpp"
#include "program/kernels.hpp"

namespace plimsoll {
namespace {

using nlohmann::json;

json unpacked(const std::string& path) {
  const gzFile file = gzopen(path.c_str(), "rb");
  std::string text, piece(1 << 20, '\0');
  for (int got; (got = gzread(file, piece.data(), static_cast<unsigned>(piece.size()))) > 0;)
    text.append(piece, 0, static_cast<std::size_t>(got));
  gzclose(file);
  return json::parse(text);
}

/// As torch.profiler writes it: each kernel with the operator that launched it.
json as_kineto(const json& trace) {
  json events = json::array();
  std::int64_t id = 0;
  for (const json& kernel : trace["kernels"]) {
    const std::string name = trace["names"][kernel[0].get<std::size_t>()];
    const bool copies = name.rfind("Memcpy", 0) == 0, sets = name.rfind("Memset", 0) == 0;
    const double start = kernel[2];
    json arguments{{"External id", ++id}, {"device", 0}, {"stream", kernel[5]}};
    if (copies || sets)
      arguments["bytes"] = kernel[3];
    else
      arguments["grid"] = kernel[3], arguments["block"] = {128, 1, 1};
    if (!kernel[4].is_null()) {
      const json& op = trace["operations"][kernel[4].get<std::size_t>()];
      events.push_back({{"ph", "X"},
                        {"cat", "cpu_op"},
                        {"name", op[0]},
                        {"pid", 1},
                        {"tid", 1},
                        {"ts", start},
                        {"dur", 1},
                        {"args", {{"External id", id}, {"Input Dims", op[1]}, {"Input type", op[2]}, {"Input Strides", op[3]}}}});
    }
    events.push_back({{"ph", "X"},
                      {"cat", sets     ? "gpu_memset"
                              : copies ? "gpu_memcpy"
                                       : "kernel"},
                      {"name", name},
                      {"pid", 0},
                      {"tid", 7},
                      {"ts", start},
                      {"dur", kernel[1]},
                      {"args", arguments}});
  }
  return {{"traceEvents", events}};
}

Trace read(const json& trace) {
  const std::string path = testing::TempDir() + "plimsoll-" + trace["id"].get<std::string>() + ".json";
  std::ofstream(path) << as_kineto(trace);
  Trace result = read_trace(path);
  std::remove(path.c_str());
  return result;
}

const std::vector<MeasuredRow>& rows() {
  static const std::vector<MeasuredRow> list = load_rows(PLIMSOLL_SOURCE_DIR "/bench/corpus/silicon-h100.json");
  return list;
}

/// The traces of rows that are predicted, by id.
const std::map<std::string, json>& traces() {
  static const std::map<std::string, json> all = [] {
    std::map<std::string, json> map;
    for (json& trace : unpacked(PLIMSOLL_SOURCE_DIR "/bench/corpus/traces-h100.json.gz"))
      if (row_of(rows(), trace["id"]).refused.empty()) map.emplace(trace["id"], std::move(trace));
    return map;
  }();
  return all;
}

std::vector<std::string> ids() {
  std::vector<std::string> list;
  for (const auto& each : traces()) list.push_back(each.first);
  return list;
}

struct Class {
  double predicted = 0, measured = 0;  ///< seconds
};

/// Inductor's kernels are told by their names alone, which say little of what they reduce: what is bound by memory is one class.
std::map<std::string, Class> classes_of(const TraceComparison& comparison) {
  std::map<std::string, Class> classes;
  for (const TraceLine& line : comparison.classes) {
    const bool attends = line.what.rfind("attention", 0) == 0, apart = line.what == "gemm" || line.what == "copies and sets";
    Class& sum = classes[attends ? "attention" : apart ? line.what : "bound by memory"];
    sum.predicted += line.predicted, sum.measured += line.measured;
  }
  return classes;
}

class SiliconTraces : public testing::TestWithParam<std::string> {};

TEST_P(SiliconTraces, KernelByKernel) {
  const MeasuredRow& row = row_of(rows(), GetParam());
  const PlayableRank rank = playable_rank(*row.model, *row.cluster, row.strategy, 0);
  const TraceComparison found = compare_trace(rank.program, pricing_of(*row.cluster, {}, "transformers"), read(traces().at(GetParam())));
  EXPECT_NEAR(found.predicted_busy / found.measured_busy, 1, 0.04);

  // Split reductions of products, and what sums up in two kernels, are the libraries' own launches; fused kernels say less of themselves.
  std::int64_t traced = 0;
  for (const TraceLine& line : found.classes) traced += line.measured_count;
  const bool compiled = row.strategy.compile != Strategy::Compile::no;
  EXPECT_GT(static_cast<double>(found.matched), (compiled ? 0.75 : 0.86) * static_cast<double>(traced));

  // Copies of 2 to 64 bytes are what their launches take. T5's attention reads its bias: priced a quarter too fast.
  const bool biased = row.model->model_type == "t5";
  for (const auto& [what, sum] : classes_of(found))
    if (what != "copies and sets" && sum.measured > 0.02 * found.measured_busy) {
      EXPECT_NEAR(sum.predicted / sum.measured, 1, what == "attention" ? biased ? 0.26 : 0.13 : 0.08) << what;
    }
}

INSTANTIATE_TEST_SUITE_P(H100, SiliconTraces, testing::ValuesIn(ids()),
                         [](const testing::TestParamInfo<std::string>& each) { return test_name(row_of(rows(), each.param)); });

/// Whether the maker of products sets a counter of tiles before this one: sizes of the left and of the right factor, two or three each.
bool sets_a_counter(const json& left, const json& right) {
  const auto size = [](const json& sizes, std::size_t from_the_end) { return sizes[sizes.size() - from_the_end].get<std::int64_t>(); };
  const std::int64_t m = size(left, 2), k = size(left, 1), n = size(right, 1), batch = left.size() == 3 ? size(left, 3) : 1;
  const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
    return program::Matrix{rows, columns, batch, columns, false, DType::bf16};
  };
  program::Tape tape{program::h100()};
  tape.torch = program::TorchRelease(Release(2, 11));
  tape.record_into(program::Tape::Part::step);
  program::gemm(tape, matrix(m, k), matrix(k, n), matrix(m, n));
  const auto& copies = tape.program().copies;
  return std::any_of(copies.begin(), copies.end(),
                     [](const Copy& copy) { return copy.direction == Copy::Direction::set && copy.bytes == 4; });
}

// cuBLAS's kernels of Hopper are called nvjet. Each of those traced has a memset before it on its stream where the rule of the makers of
// products says so, and none elsewhere.
TEST(SiliconProducts, SetACounterOfTilesBeforeThemWhereTheDeviceDid) {
  std::map<std::string, bool> known;  // thousands of launches are of a few hundred sizes
  std::int64_t with = 0, without = 0;
  for (const auto& [id, trace] : traces()) {
    std::map<std::int64_t, std::string> before;  // by stream: the name of the last launch
    for (const json& kernel : trace["kernels"]) {
      const std::string name = trace["names"][kernel[0].get<std::size_t>()];
      const std::string last = std::exchange(before[kernel[5].get<std::int64_t>()], name);
      if (name.rfind("nvjet", 0) != 0 || kernel[4].is_null()) continue;
      const json& op = trace["operations"][kernel[4].get<std::size_t>()];
      const std::string operation = op[0];
      const std::size_t first = operation == "aten::addmm" ? 1 : 0;
      if (first == 0 && operation != "aten::mm" && operation != "aten::bmm") continue;
      const json &left = op[1][first], &right = op[1][first + 1];
      const auto [found, added] = known.try_emplace(left.dump() + right.dump());
      if (added) found->second = sets_a_counter(left, right);
      EXPECT_EQ(last.rfind("Memset", 0) == 0, found->second) << id << ": " << name << " of " << left << " and " << right;
      ++(found->second ? with : without);
    }
  }
  EXPECT_GT(with, 4000);
  EXPECT_GT(without, 4000);
}

}  // namespace
}  // namespace plimsoll
