#include "validate/digests/row_files.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "estimate/read_programs.hpp"
#include "plimsoll/error.hpp"
#include "validate/compare.hpp"

namespace plimsoll::digests {
namespace {

constexpr const char* kPersistent = "persistent_bytes";
constexpr const char* kFirstStep = "first_step_allocated_bytes";
constexpr const char* kLeft = "tensors_left";

/// Of the rank that the row is about, else the most of all ranks.
std::int64_t most_of(const Report& report, const Strategy& strategy, Bytes RankMemory::* field) {
  std::int64_t most = 0;
  for (const RankReport& rank : report.ranks)
    if (!strategy.pp_rank || rank.stage == *strategy.pp_rank) most = std::max(most, (rank.memory.*field).count);
  return most;
}

/// Times are not held: they follow the constants of hardware/, and `plimsoll validate` says how far off they are.
bool is_held(const Comparison& comparison) {
  const bool kept = comparison.lower_bound && comparison.error >= 0;
  return !kept && !validation::is_time(comparison.quantity) && comparison.quantity != quantity::device;
}

}  // namespace

const std::vector<RowFile>& row_files() {
  constexpr const char *kCorpus = "bench/corpus", *kValidate = "tests/validate/data";
  static const std::vector<RowFile> files = {
      {kCorpus, "allocator-accelerate", 1},
      {kCorpus, "allocator-axolotl", 1},
      {kCorpus, "allocator-compiled", 2},
      {kCorpus, "allocator-compiled-ddp", 1},
      {kCorpus, "allocator-compiled-fsdp2", 1},
      {kCorpus, "allocator-compiled-model", 2},
      {kCorpus, "allocator-deepspeed", 4},
      {kCorpus, "allocator-deepspeed-lora", 2},
      {kCorpus, "allocator-deepspeed-releases", 2},
      {kCorpus, "allocator-diffusers", 1},
      {kCorpus, "allocator-families", 8},
      {kCorpus, "allocator-flash-attention", 1},
      {kCorpus, "allocator-images", 1},
      {kCorpus, "allocator-launches", 1},
      {kCorpus, "allocator-launches-families", 2},
      {kCorpus, "allocator-launches-frameworks", 1},
      {kCorpus, "allocator-liger-mixtures", 1},
      {kCorpus, "allocator-megatron", 1},
      {kCorpus, "allocator-msamp", 1},
      {kCorpus, "allocator-parameters", 1},
      {kCorpus, "allocator-peft", 1},
      {kCorpus, "allocator-peft-mixtures", 1},
      {kCorpus, "allocator-qlora", 1},
      {kCorpus, "allocator-trl", 1},
      {kCorpus, "allocator-verl", 1},
      {kCorpus, "allocator-torchao", 1},
      {kCorpus, "allocator-torchtitan", 8},
      {kCorpus, "allocator-torchtitan-compiled", 1},
      {kCorpus, "allocator-torchtune", 1},
      {kCorpus, "allocator-transformers", 6},
      {kCorpus, "silicon-h100", 1},
      {kCorpus, "silicon-h100-unseen", 1},
      {kCorpus, "simumax-b200", 2},
      {kValidate, "data_parallel_rows", 1},
      {kValidate, "device_rows", 1},
      {kValidate, "megatron_core_rows", 3},
      {kValidate, "megatron_fsdp_rows", 1},
      {kValidate, "modules_rows", 1},
      {kValidate, "simumax_rows", 1},
      {kValidate, "training_rows", 2},
  };
  return files;
}

const RowFile& row_file(const std::string& name) {
  const auto found = std::find_if(row_files().begin(), row_files().end(), [&](const RowFile& file) { return file.name == name; });
  if (found == row_files().end()) throw std::runtime_error("no file of rows is called " + name);
  return *found;
}

std::string path_of(const RowFile& file) { return std::string(PLIMSOLL_SOURCE_DIR) + "/" + file.folder + "/" + file.name + ".json"; }

std::vector<HeldRow> rows_of(const RowFile& file) {
  const std::string path = path_of(file);
  std::ifstream stream(path);
  const nlohmann::json texts = nlohmann::json::parse(stream);
  std::vector<HeldRow> rows;
  for (MeasuredRow& row : load_rows(path)) {
    const nlohmann::json& measured = texts.at(rows.size()).at("measured");
    HeldRow held{std::move(row), {}};
    for (const char* name : {kPersistent, kFirstStep})
      if (const auto found = measured.find(name); found != measured.end() && found->is_number())
        held.beside[name] = found->get<std::int64_t>();
    rows.push_back(std::move(held));
  }
  return rows;
}

Held predicted(const HeldRow& held) {
  ProgramDigest digest;
  std::optional<Report> report;
  Outcome failed = Outcome::refused;
  const auto predict = [&](const Model& model, const Cluster& cluster, const Strategy& strategy) {
    const bool first = !report;
    try {
      report = estimation::estimate_and_read(model, cluster, strategy, [&](const StepProgram& program) {
        if (first) digest.read(program);
      });
    } catch (const Error& error) {
      failed = outcome_of(error);
      throw;
    }
    return *report;
  };
  const validation::RowResult result = validation::compare_row({}, held.row, predict);
  Held now{held.row.id, Outcome::played, {}, digest.parts()};
  if (!result.refused.empty())
    now.outcome = failed;
  else if (report)
    now.outcome = outcome_of(*report);
  const auto off = [&](const std::string& name, std::int64_t by) {
    if (by != 0) now.figures[name] = by;
  };
  for (const Comparison& each : result.comparisons)
    if (is_held(each)) off(each.quantity, std::llround(each.predicted - each.measured));
  off(kLeft, digest.left());
  if (!report) return now;
  for (const auto& [name, value] : held.beside)
    off(name,
        most_of(*report, held.row.strategy, name == kPersistent ? &RankMemory::persistent : &RankMemory::first_step_allocated) - value);
  return now;
}

std::string dump_of(const HeldRow& held) {
  std::string text;
  if (!held.row.cluster) return text;
  estimation::estimate_and_read(*held.row.model, *held.row.cluster, held.row.strategy,
                                [&](const StepProgram& program) { text += dump(program); });
  return text;
}

std::string held_path(const std::string& name) { return std::string(PLIMSOLL_SOURCE_DIR) + "/tests/validate/held/" + name + ".txt"; }

}  // namespace plimsoll::digests
