// The report of a rollout engine, as a document with its text, and "plimsoll/engine/1" (docs/engine.md).
#include <fmt/format.h>

#include "plimsoll/document.hpp"
#include "plimsoll/engine.hpp"
#include "report/document_parts.hpp"
#include "report/json_text.hpp"
#include "report/layout.hpp"

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kBar = 20;

struct Part {
  const char* name;
  const char* key;
  Bytes bytes;
  std::string note;
};

std::string band_of(const EngineBand& band) {
  return band.low == band.high ? std::string() : fmt::format("{} to {}", gib_of(band.low), gib_of(band.high));
}

Bytes cache_of(const EnginePlan& plan) { return plan.cache > Bytes(0) ? plan.cache : Bytes(0); }

std::vector<Part> parts_of(const EnginePlan& plan) {
  const bool profiled = plan.setting.engine == RolloutEngine::vllm;
  std::vector<Part> parts{
      {"cache", "cache_bytes", cache_of(plan),
       fmt::format("{} blocks of {} tokens", with_thousands(plan.blocks), *plan.setting.block_size)},
      {"weights", "weights_bytes", plan.weights, plan.setting.weights == "auto" ? plan.setting.dtype : plan.setting.weights},
      {"activation peak", "activation_peak_bytes", plan.activation_peak,
       fmt::format("at {}, {}", plan.peak_label, profiled ? "of the profile pass" : "of a full step, beside the fraction")},
      {"outside", "outside_bytes", plan.outside.expected, band_of(plan.outside)},
      {"graphs", "graphs_bytes", plan.graphs.expected,
       plan.setting.enforce_eager
           ? "none"
           : fmt::format("{}, {}", band_of(plan.graphs), plan.graphs_in_budget ? "taken off the cache" : "on top of the budget")},
      {"context", "context_bytes", plan.context.expected, ""}};
  if (plan.setting.others > Bytes(0)) parts.push_back({"others", "others_bytes", plan.setting.others, "held when the engine starts"});
  return parts;
}

std::string answer_of(const EnginePlan& plan, const std::string& model, const std::string& cluster) {
  const std::string who = fmt::format("{} {} with {} on {}", name_of(plan.setting.engine), plan.setting.release->text(), model, cluster);
  if (!plan.refused.empty()) return fmt::format("{} does not start: {}", who, plan.refused);
  return fmt::format("{}: a cache of {} tokens ({}) per rank, {:.2f} requests of {} tokens at once", who, with_thousands(plan.tokens),
                     gib_of(plan.cache), plan.concurrency, with_thousands(*plan.setting.max_model_len));
}

std::string setting_of(const EnginePlan& plan) {
  const EngineSetting& setting = plan.setting;
  return fmt::format("tp {}, pp {}, {} {:.3g}, {} tokens a step{}, {}{}", setting.tp, setting.pp,
                     setting.engine == RolloutEngine::vllm ? "gpu_memory_utilization" : "mem_fraction_static", *setting.memory_fraction,
                     with_thousands(*setting.max_num_batched_tokens),
                     setting.max_num_seqs ? fmt::format(", {} sequences", with_thousands(*setting.max_num_seqs)) : "",
                     setting.engine == RolloutEngine::vllm ? "runner " + plan.runner : std::string("no profile"),
                     setting.enforce_eager ? ", eager" : "");
}

Table parts_table(const EnginePlan& plan) {
  Table table{"memory of a rank", {{"part", "part"}, {"memory", "bytes"}, {"share", "share"}, {"", "note"}}, {}};
  for (const Part& part : parts_of(plan))
    table.rows.push_back({text_cell(part.name), bytes_cell(part.bytes),
                          share_cell(static_cast<double>(part.bytes.count) / static_cast<double>(plan.total.count)), text_cell(part.note)});
  return table;
}

Table fits_table(const EnginePlan& plan) {
  Table table{"sequences that fit at once", {{"tokens each", "tokens"}, {"sequences", "sequences"}}, {}};
  for (const EngineFit& fit : plan.fits) table.rows.push_back({count_cell(fit.tokens), count_cell(fit.sequences)});
  return table;
}

Table groups_table(const EnginePlan& plan) {
  Table table{"what layers keep", {{"attention", "kind"}, {"layers", "layers"}, {"window", "window_tokens"}, {"page", "page_bytes"}}, {}};
  for (const CacheGroup& group : plan.groups)
    table.rows.push_back({text_cell(group.kind), count_cell(group.layers), count_cell(group.window), bytes_cell(group.page)});
  return table;
}

Table decode_table(const EnginePlan& plan) {
  Table table{"a step that decodes",
              {{"sequences", "sequences"}, {"context", "context_tokens"}, {"step", "step_seconds"}, {"tokens/s", "tokens_per_second"}},
              {}};
  for (const DecodeTime& time : plan.decode)
    table.rows.push_back({count_cell(time.sequences), count_cell(time.context), seconds_cell(time.step),
                          count_cell(static_cast<std::int64_t>(static_cast<double>(time.sequences) / time.step.value))});
  return table;
}

std::string prompts_line(const EnginePlan& plan) {
  const std::int64_t tokens = *plan.setting.max_num_batched_tokens;
  return fmt::format("a step of {} tokens of prompts takes {}, {} tokens/s", with_thousands(tokens), to_string(plan.prompt_step),
                     with_thousands(static_cast<std::int64_t>(static_cast<double>(tokens) / plan.prompt_step.value)));
}

std::string rollout_line(const EnginePlan& plan) {
  const RolloutTime& time = *plan.rollout;
  return fmt::format("{} completions on {} engine{}: {} ({} of prompts), {} steps of at most {} sequences, {} tokens/s",
                     with_thousands(plan.setting.rollout.completions), time.engines, time.engines == 1 ? "" : "s",
                     to_string(time.prompts + time.decoding), to_string(time.prompts), with_thousands(time.steps),
                     with_thousands(time.largest_batch), with_thousands(static_cast<std::int64_t>(time.tokens_per_second)));
}

Table sleep_table(const EnginePlan& plan) {
  Table table{"asleep", {{"level", "level"}, {"freed", "freed_bytes"}, {"to the host", "host_bytes"}, {"stays", "stays_bytes"}}, {}};
  for (const SleepLevel& level : plan.sleep)
    table.rows.push_back({count_cell(level.level), bytes_cell(level.freed), bytes_cell(level.to_host), bytes_cell(level.stays)});
  return table;
}

std::string table_text(const Table& table) {
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> titles;
  for (const Column& column : table.columns) titles.push_back(column.title);
  rows.push_back(titles);
  for (const std::vector<Cell>& row : table.rows) {
    std::vector<std::string> shown;
    for (const Cell& cell : row) shown.push_back(cell.shown);
    rows.push_back(shown);
  }
  return fmt::format("\n{}\n", table.title) + columns(rows);
}

std::string text_of(const EnginePlan& plan, const Document& document) {
  std::string text = wrapped("", document.answer) + document.setting + "\n\n";
  text += fmt::format("memory of a rank, {} of {} in use while it serves\n", gib_of(plan.device), gib_of(plan.total));
  for (const Part& part : parts_of(plan)) {
    const double share = static_cast<double>(part.bytes.count) / static_cast<double>(plan.total.count);
    const std::string line = fmt::format("  {:<16}{:>10}  {:<{}}  {}", part.name, gib_of(part.bytes), bar(share, kBar), kBar, part.note);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  for (std::size_t i = 1; i < document.tables.size(); ++i) text += table_text(document.tables[i]);
  for (const Listing& listing : document.listings) {
    if (listing.title != "device time") continue;
    text += "\n" + listing.title + "\n";
    for (const std::string& line : listing.lines) text += wrapped("  ", line);
  }
  text += "\n";
  for (const std::string& line : plan.risks) text += wrapped("at risk: ", line);
  for (const std::string& line : plan.assumed) text += wrapped("assumed: ", line);
  return text;
}

Json band_json(const EngineBand& band) { return {{"low", band.low.count}, {"expected", band.expected.count}, {"high", band.high.count}}; }

Json setting_json(const EngineSetting& setting) {
  Json json{{"engine", name_of(setting.engine)},
            {"release", setting.release->text()},
            {"tp", setting.tp},
            {"pp", setting.pp},
            {"dtype", setting.dtype},
            {"weights", setting.weights},
            {"kv_cache_dtype", setting.cache_dtype},
            {"memory_fraction", *setting.memory_fraction},
            {"block_size", *setting.block_size},
            {"max_model_len", *setting.max_model_len},
            {"max_num_batched_tokens", *setting.max_num_batched_tokens},
            {"max_num_seqs", *setting.max_num_seqs},
            {"enforce_eager", setting.enforce_eager},
            {"sleep_mode", setting.sleep_mode},
            {"others_bytes", setting.others.count}};
  if (setting.runner) json["runner"] = *setting.runner;
  return json;
}

Json rollout_json(const EnginePlan& plan) {
  const RolloutTime& time = *plan.rollout;
  return {{"completions", plan.setting.rollout.completions},
          {"engines", time.engines},
          {"largest_batch", time.largest_batch},
          {"steps", time.steps},
          {"prompt_seconds", time.prompts.value},
          {"decode_seconds", time.decoding.value},
          {"tokens_per_second", time.tokens_per_second}};
}

}  // namespace

Document document_of(const EnginePlan& plan, const std::string& model, const std::string& cluster) {
  Document document;
  document.title = fmt::format("{} with {} on {}", name_of(plan.setting.engine), model, cluster);
  document.verdict = plan.refused.empty() ? "fits" : "does not fit";
  document.answer = answer_of(plan, model, cluster);
  document.setting = setting_of(plan);
  document.tables = {parts_table(plan), fits_table(plan), groups_table(plan)};
  if (!plan.sleep.empty()) document.tables.push_back(sleep_table(plan));
  if (!plan.decode.empty()) {
    document.tables.push_back(decode_table(plan));
    document.listings.push_back({"device time", {prompts_line(plan)}});
    if (plan.rollout) document.listings.back().lines.push_back(rollout_line(plan));
  }
  if (!plan.risks.empty()) document.listings.push_back({"at risk", plan.risks});
  if (!plan.assumed.empty()) document.listings.push_back({"assumed", plan.assumed});
  document.text = text_of(plan, document);
  return document;
}

std::string to_json(const EnginePlan& plan, const std::string& model, const std::string& cluster) {
  Json groups = Json::array(), fits = Json::array(), sleep = Json::array();
  for (const CacheGroup& group : plan.groups)
    groups.push_back({{"kind", group.kind}, {"layers", group.layers}, {"window_tokens", group.window}, {"page_bytes", group.page.count}});
  for (const EngineFit& fit : plan.fits) fits.push_back({{"tokens", fit.tokens}, {"sequences", fit.sequences}});
  for (const SleepLevel& level : plan.sleep)
    sleep.push_back({{"level", level.level},
                     {"freed_bytes", level.freed.count},
                     {"host_bytes", level.to_host.count},
                     {"stays_bytes", level.stays.count}});
  Json decode = Json::array();
  for (const DecodeTime& time : plan.decode)
    decode.push_back({{"sequences", time.sequences}, {"context_tokens", time.context}, {"step_seconds", time.step.value}});
  return json_text({{"schema", "plimsoll/engine/1"},
                    {"model", model},
                    {"on", cluster},
                    {"setting", setting_json(plan.setting)},
                    {"starts", plan.refused.empty()},
                    {"refused", plan.refused},
                    {"total_bytes", plan.total.count},
                    {"budget_bytes", plan.budget.count},
                    {"weights_bytes", plan.weights.count},
                    {"outside_bytes", band_json(plan.outside)},
                    {"context_bytes", band_json(plan.context)},
                    {"activation_peak_bytes", plan.activation_peak.count},
                    {"activation_peak_at", plan.peak_label},
                    {"graphs_bytes", band_json(plan.graphs)},
                    {"graphs_in_budget", plan.graphs_in_budget},
                    {"cache_bytes", plan.cache.count},
                    {"blocks", plan.blocks},
                    {"tokens", plan.tokens},
                    {"concurrency", plan.concurrency},
                    {"longest_tokens", plan.longest},
                    {"device_bytes", plan.device.count},
                    {"groups", std::move(groups)},
                    {"fits", std::move(fits)},
                    {"sleep", std::move(sleep)},
                    {"prompt_step_seconds", plan.prompt_step.value},
                    {"decode", std::move(decode)},
                    {"rollout", plan.rollout ? rollout_json(plan) : Json()},
                    {"risks", plan.risks},
                    {"assumed", plan.assumed}});
}

}  // namespace plimsoll
