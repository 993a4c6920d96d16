#include "plimsoll/rows.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "formats/row_reader.hpp"
#include "formats/row_recipes.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "strategy/setting.hpp"

namespace plimsoll {
namespace formats {

std::shared_ptr<const Model> RowCaches::model(const std::string& config, const std::string& where, const std::string& name,
                                              const std::string& architecture) {
  auto& entry = models_[architecture + name + config];
  if (!entry) entry = std::make_shared<const Model>(parse_model(config, where, name, architecture));
  return entry;
}

const Cluster& RowCaches::cluster(const std::string& gpu, std::int64_t gpus, int gpus_per_node, const std::string& where) {
  const std::string key = gpu + "/" + std::to_string(gpus) + "/" + std::to_string(gpus_per_node);
  const auto found = clusters_.find(key);
  if (found != clusters_.end()) return found->second;
  return clusters_.emplace(key, cluster_of(gpu, gpus, gpus_per_node, where)).first->second;
}

void check_keys(const JsonValue& object, const std::vector<std::string>& known, std::vector<std::string>& unread,
                const std::string& prefix) {
  for (const auto& key : object.keys()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string near = nearest_name(key, known);
    if (!near.empty()) fail("unknown key '" + key + "'", object[key].where(), "did you mean '" + near + "'?");
    unread.push_back(prefix + key);
  }
}

namespace {

std::vector<std::string> texts(const JsonValue& list) {
  std::vector<std::string> all;
  for (const JsonValue& element : list.elements()) all.push_back(element.text());
  return all;
}

/// What no default may stand for: the lengths, the batch, the degrees and the precision of a measured run.
void require_keys(const JsonValue& training, std::int64_t gpus, const Model& model) {
  auto need = [&](bool given, const char* key) {
    if (!given) fail(std::string("training.") + key + " is absent", training.where());
  };
  auto has = [&](const char* key) { return training.has(key) && !training[key].is_null(); };
  need(has("seq_len") || model.patch_size > 0, "seq_len");
  need(has("micro_batch") || (has("global_batch") && (has("grad_accum") || has("micro_batches_per_step"))), "micro_batch");
  need(has("precision"), "precision");
  need(gpus == 1 || has("tp"), "tp");
  need(gpus == 1 || has("pp"), "pp");
  need(gpus == 1 || has("dp") || has("dp_shard"), "dp");
}

/// The whole number that a text begins with; 0: none.
std::int64_t number_at(std::string_view text) {
  std::int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// What a row says of its framework's release, in prose ("NeMo 24.07 container"): releases, as far as it names any.
void read_stated_releases(MeasuredRow& row) {
  Strategy& s = row.strategy;
  const auto known = [&](const FrameworkProfile& one) {
    return one.name == s.framework || std::find(one.aliases.begin(), one.aliases.end(), s.framework) != one.aliases.end();
  };
  if (s.framework_version.empty() || std::none_of(frameworks().begin(), frameworks().end(), known)) return;
  const auto found = releases_in(s.framework_version, packages_of(s.framework));
  if (found.empty()) row.assumed.push_back("training.framework_version: '" + s.framework_version + "' names no release that is told apart");
  for (const auto& [package, release] : found)
    if (!s.releases.says(package)) s.releases.put(package, release);
  s.framework_version.clear();
}

/// The last day of the month that a date names, as Release's dates are: "2023-11/12, torch 2.0" is of December 2023; 0: it names no month.
int last_day_named(std::string_view date) {
  const std::int64_t year = number_at(date);
  if (year < 2017 || year > 2099 || date.size() < 7 || date[4] != '-') return 0;
  const std::int64_t first = number_at(date.substr(5)), last = date.size() > 7 && date[7] == '/' ? number_at(date.substr(8)) : first;
  constexpr int kYear = 10000, kMonth = 100, kLastDay = 31;
  return last < 1 || last > 12 ? 0 : static_cast<int>(year) * kYear + static_cast<int>(last) * kMonth + kLastDay;
}

/// When a row's source was published, in its words; empty: it says nothing.
std::string source_date(const JsonValue& json) {
  return json.has("source") && json["source"].has("version_or_date") ? json["source"]["version_or_date"].text() : std::string();
}

/// Adapters of a row that names no release, from a source that names its month, are those of the PEFT that was out then.
void date_adapters_by_source(const JsonValue& json, MeasuredRow& row) {
  if (!row.strategy.lora || !row.strategy.releases.all().empty()) return;
  const std::string date = source_date(json);
  const int day = last_day_named(date);
  if (day == 0) return;
  const Release peft = release_out_on(Package::peft, day);
  row.strategy.releases.put(Package::peft, peft, Releases::Origin::assumed, "the source is of " + date);
  row.assumed.push_back("releases.peft: " + peft.text() + " (the source is of " + date + ")");
}

/// A row that names no release of its framework or of PyTorch, from a source of the years before PyTorch 2.0, is taken as run on the last
/// release before it. Later sources say nothing that a prediction depends on.
void date_by_source(const JsonValue& json, MeasuredRow& row) {
  if (!row.strategy.releases.all().empty()) return;
  const std::string date = source_date(json);
  const std::int64_t year = number_at(date);
  if (year < 2017 || year > 2022) return;
  row.strategy.releases.put(Package::torch, Release(1, 13), Releases::Origin::assumed, "the source is of " + date);
  row.assumed.push_back("training.torch: 1.13 (the source is of " + date + ")");
}

bool says(const JsonValue& object, const char* key) { return object.has(key) && !object[key].is_null(); }

/// What NeMo's launchers and MLPerf's reference fix and no row of a NeMo run repeats: the allocator's segments (scripts/performance/
/// executors.py: expandable, but on B200), the dropout of MLPerf's adapters, and whose memory a log tells: global rank zero writes it.
void take_nemo_conventions(const JsonValue& json, MeasuredRow& row) {
  const JsonValue training = json["training"];
  Strategy& s = row.strategy;
  if (s.framework != "nemo") return;
  const auto assume = [&](const char* what) { row.assumed.push_back(std::string("training.") + what); };
  const std::string gpu = json["hardware"].has("gpu") ? json["hardware"]["gpu"].text() : std::string();
  if (!says(training, "allocator") && gpu.rfind("B200", 0) != 0) {
    s.allocator.expandable_segments = true;
    assume("allocator.expandable_segments: true (NeMo's launcher)");
  }
  const bool logged = json["measured"].has("peak_mem_kind") && json["measured"]["peak_mem_kind"].text() == "unspecified";
  if (logged && s.pp > 1 && !s.pp_rank) {
    s.pp_rank = 0;
    assume("pp_rank: 0 (the log is that of global rank zero)");
  }
  const bool mlperf = s.lora && s.lora->targets == std::vector<std::string>{"attention qkv and proj"};
  // Its configurations of every round set NVTE_FUSED_ATTN, which containers of their own took from 24.09 on.
  if (mlperf && s.releases.says(Package::nemo_container) && !s.releases.of(Package::nemo_container).since(24, 9)) {
    s.releases.put(Package::nemo_container, *Release::parse("24.09"));
    assume("releases.nemo-container: 24.09 (MLPerf's code attends by cuDNN, as containers do since)");
  }
  if (mlperf && !says(training["lora"], "dropout")) {
    s.lora->dropout = 0.1;
    assume("lora.dropout: 0.1 (MLPerf's reference)");
  }
}

/// The performance recipes of NeMo and Megatron-Bridge adapt queries, keys and values alone.
void take_adapter_conventions(MeasuredRow& row) {
  Strategy& s = row.strategy;
  if ((s.framework != "nemo" && s.framework != "megatron-bridge") || !s.lora || !s.lora->targets.empty()) return;
  s.lora->targets = {"linear_qkv"};
  row.assumed.push_back("training.lora.target_modules: linear_qkv (the launchers' performance recipes)");
}

/// What nanotron's benchmark fixes and no row repeats: whose memory it writes (helpers.py: global rank zero's) and since when (trainer.py:
/// log_memory resets the peaks after the passes), and the day's code, which the number of the cluster's job tells where an id has it. The
/// source itself calls the runs from 14097000 on those after the pipeline's fix; between 14016421 and 14019166 each collective across nodes
/// becomes slower by as much for every rank of its group.
void take_nanotron_conventions(const JsonValue& json, MeasuredRow& row) {
  constexpr int kFirstMeeting = 14018000, kFirstAfterFix = 14097000;
  Strategy& s = row.strategy;
  if (s.framework != "nanotron") return;
  for (Observed& seen : row.measured) seen.of_optimizer = seen.quantity == quantity::reserved;
  if (json["measured"].has("peak_mem_gib") && s.pp > 1 && !s.pp_rank) {
    s.pp_rank = 0;
    row.assumed.push_back("training.pp_rank: 0 (the log is that of global rank zero)");
  }
  constexpr std::string_view kName = "nanotron-";
  const std::int64_t job = row.id.rfind(kName, 0) == 0 ? number_at(std::string_view(row.id).substr(kName.size())) : 0;
  if (s.releases.says(Package::nanotron) || job < 10'000'000 || job > 99'999'999) return;
  const char* day = job < kFirstMeeting ? "2024-12-18" : job < kFirstAfterFix ? "2024-12-26" : "2024-12-27";
  s.releases.put(Package::nanotron, *Release::parse(day));
  row.assumed.push_back("training.releases.nanotron: " + std::string(day) + " (job " + std::to_string(job) + ")");
}

/// TorchTitan's activation_checkpoint.mode alone: the option beside it is that of the configurations that it ships (selective_ac_option
/// "op" in every train_configs/*.toml; Primus takes it over).
void take_torchtitan_conventions(MeasuredRow& row) {
  Strategy& s = row.strategy;
  if (s.framework != "torchtitan" || s.recompute.kind != Recompute::Kind::selective || !s.recompute.modules.empty()) return;
  s.recompute.kind = Recompute::Kind::operators;
  row.assumed.push_back("training.recompute: selective-ac-op (selective_ac_option of the shipped configurations)");
}

/// What a table of torchtune's means: where "each row adds to the previous", what a row does not name is still off; samples that are not
/// packed are as long as they are, and seq_len only their limit.
void take_torchtune_conventions(const JsonValue& json, MeasuredRow& row) {
  const JsonValue training = json["training"];
  Strategy& s = row.strategy;
  if (s.framework != "torchtune") return;
  const bool cumulative = json.has("source") && json["source"].has("where") &&
                          json["source"]["where"].text().find("each row adds to the previous") != std::string::npos;
  if (cumulative && !says(training, "loss") && !says(training, "loss_chunks")) {
    s.loss = LossKernel::cross_entropy;
    row.assumed.push_back("training.loss: ce (a row of the table that adds chunked-ce later)");
  }
  const bool unpacked = says(training, "packed") && !training["packed"].boolean();
  if (unpacked && !says(training, "average_tokens_per_sample"))
    refuse("the row does not say how long its unpacked samples are (training.average_tokens_per_sample)");
}

/// Boards that are said to be held to less than their power, without to how much, are taken at all of it.
void take_unstated_limit(const JsonValue& json, MeasuredRow& row) {
  const JsonValue hardware = json["hardware"];
  const bool limited = hardware.has("power_limited") && hardware["power_limited"].boolean();
  if (limited && !hardware.has("power_limit")) row.assumed.push_back("hardware.power_limit: not stated, the boards' own power stands in");
}

/// A CUDA runtime without a GPU has no cuDNN.
void take_conventions_without_device(const JsonValue& json, MeasuredRow& row) {
  const JsonValue hardware = json["hardware"];
  if (!hardware.has("gpu") || !is_without_device(hardware["gpu"].text())) return;
  if (!row.strategy.cudnn_attention) row.strategy.cudnn_attention = false;
  row.strategy.cudnn = false;
}

/// Megatron's router options may stand with the model.
void take_router_options(const JsonValue& model, Strategy& strategy) {
  if (!model.has("moe")) return;
  const JsonValue moe = model["moe"];
  if (moe.has("capacity_factor") && !strategy.moe.capacity_factor) strategy.moe.capacity_factor = moe["capacity_factor"].number(0, 1e6);
  if (moe.has("pad_to_capacity")) strategy.moe.pad_to_capacity = moe["pad_to_capacity"].boolean();
}

/// Modules of multi-token prediction stand with the model; Megatron-core's launchers build them.
void take_prediction(const JsonValue& model, Strategy& strategy) {
  if (!model.has("mtp_layers")) return;
  const auto depth = static_cast<int>(model["mtp_layers"].integer(0, 1 << 10));
  const bool builds = strategy.framework == "megatron-bridge" || strategy.framework == "megatron-core" || strategy.framework == "nemo";
  if (depth > 0 && !builds) refuse("multi-token-prediction layers are modelled for Megatron-core alone", model.where());
  strategy.megatron.mtp_num_layers = depth;
}

void read_row(const JsonValue& json, RowCaches& caches, MeasuredRow& row) {
  check_keys(json, {"id", "source", "assumed", "model", "hardware", "training", "measured", "extra", "group"}, row.unread_keys, "");
  if (json.has("source") && json["source"].has("title")) row.title = json["source"]["title"].text();
  if (json.has("assumed")) row.assumed = texts(json["assumed"]);
  row.measured = read_measurements(json, row.unread_keys);
  if (json.has("training")) {
    strategy::read_object(row.strategy, json["training"]);
    for (const auto& key : row.strategy.unread_keys) row.unread_keys.push_back("training." + key);
    take_router_options(json["model"], row.strategy);
    take_prediction(json["model"], row.strategy);
    read_stated_releases(row);
    date_by_source(json, row);
    date_adapters_by_source(json, row);
    take_nemo_conventions(json, row);
    take_adapter_conventions(row);
    take_nanotron_conventions(json, row);
    take_torchtune_conventions(json, row);
    take_torchtitan_conventions(row);
    take_unstated_limit(json, row);
    take_conventions_without_device(json, row);
  }
  row.model = read_row_model(json, row.strategy, caches);
  if (row.strategy.post_training && !row.strategy.post_training->teacher.empty())
    row.model = std::make_shared<const Model>(beside_teacher(*row.model, row.strategy));
  for (const auto& key : row.model->unread_keys) row.unread_keys.push_back("model.config." + key);
  if (!json.has("training")) return;
  row.cluster = read_row_cluster(json["hardware"], caches, row.unread_keys);
  require_keys(json["training"], row.cluster->gpus(), *row.model);
}

MeasuredRow read_one(const JsonValue& json, RowCaches& caches, std::size_t index) {
  MeasuredRow row;
  row.id = "row " + std::to_string(index);
  try {
    if (!json.is_object()) json.expected("an object");
    row.id = json["id"].text();
    std::vector<std::string> taken;
    const auto completed = completed_by_recipe(json, taken);
    if (completed)
      read_row(JsonDocument::parse(*completed, json.where() + ", completed").root(), caches, row);
    else
      read_row(json, caches, row);
    row.assumed.insert(row.assumed.end(), taken.begin(), taken.end());
  } catch (const Error& error) {
    row.refused = error.what();
  }
  return row;
}

std::vector<MeasuredRow> read_all(const JsonValue& root) {
  if (!root.is_array()) root.expected("an array of rows");
  root.check_printable();
  constexpr std::size_t kMostRows = 20'000;  // each is held with its whole strategy
  if (root.size() > kMostRows)
    fail("a file of " + std::to_string(root.size()) + " rows is too large", root.where(), "split it: at most 20000");
  RowCaches caches;
  std::vector<MeasuredRow> rows;
  for (const JsonValue& element : root.elements()) rows.push_back(read_one(element, caches, rows.size()));
  return rows;
}

}  // namespace
}  // namespace formats

std::vector<MeasuredRow> parse_rows(const std::string& json, const std::string& where) {
  return formats::read_all(JsonDocument::parse(json, where).root());
}

std::vector<MeasuredRow> load_rows(const std::string& path) { return formats::read_all(JsonDocument::read_file(path).root()); }

}  // namespace plimsoll
