// Who decided each key of a resolved strategy.
#include "plimsoll/settled_keys.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "formats/export/values.hpp"
#include "plimsoll/formats.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll {
namespace {

using formats::told_as;

/// Keys that are counted from others where nobody says them, and from which.
struct Rule {
  std::string_view key, from;
};
constexpr Rule kCounted[] = {
    {"gpus", "the cluster"},
    {"dp", "gpus / (tp · pp · cp)"},
    {"dp_shard", "dp / dp_replicate"},
    {"dp_replicate", "dp / dp_shard"},
    {"fsdp_degree", "dp_shard · cp"},
    {"etp", "tp"},
    {"global_batch", "micro_batch · grad_accum · dp"},
    {"grad_accum", "global_batch / (micro_batch · dp)"},
    {"micro_batches_per_step", "grad_accum and the schedule"},
    {"zero_stage", "data_parallel"},
    {"task", "the model's head"},
    {"pp_layers", "pp · vp and the model's layers"},
    {"param_dtype", "precision"},
    {"grad_dtype", "precision"},
    {"reduce_dtype", "precision"},
    {"master_dtype", "precision"},
    {"lora.adapter_dtype", "param_dtype"},
};

/// The assumption that begins with the key: "loss_chunks: 8", "torch: 2.15 (…)".
const std::string* assumption_of(const Strategy& resolved, const std::string& key) {
  const auto found = std::find_if(resolved.assumed.begin(), resolved.assumed.end(),
                                  [&](const std::string& line) { return line.rfind(key + ":", 0) == 0; });
  return found == resolved.assumed.end() ? nullptr : &*found;
}

SettledKey origin_of(const Strategy& resolved, const std::vector<SaidKey>& said, const std::string& key, std::string value) {
  const auto last = std::find_if(said.rbegin(), said.rend(), [&](const SaidKey& one) { return one.key == key; });
  if (last != said.rend()) return {key, std::move(value), last->by, last->where};
  if (const std::string* assumed = assumption_of(resolved, key)) return {key, std::move(value), SettledBy::assumed, *assumed};
  const auto* counted = std::find_if(std::begin(kCounted), std::end(kCounted), [&](const Rule& rule) { return rule.key == key; });
  if (counted != std::end(kCounted)) return {key, std::move(value), SettledBy::derived, std::string(counted->from)};
  return {key, std::move(value), SettledBy::by_default, resolved.framework};
}

void note(std::vector<SaidKey>& keys, const std::string& key, SettledBy by, const std::string& where) {
  for (std::string& told : told_as(key)) keys.push_back({std::move(told), by, where});
}

}  // namespace

std::string_view name_of(SettledBy by) {
  switch (by) {
    case SettledBy::user:
      return "user";
    case SettledBy::file:
      return "file";
    case SettledBy::derived:
      return "derived";
    case SettledBy::by_default:
      return "default";
    case SettledBy::assumed:
      return "assumed";
  }
  return "assumed";
}

std::vector<SaidKey> said_keys(const Strategy& said, const std::string& file) {
  std::vector<SaidKey> keys;
  for (const std::string& key : said.file_keys) {
    std::string pointer = key;
    std::replace(pointer.begin(), pointer.end(), '.', '/');
    note(keys, key, file.empty() ? SettledBy::user : SettledBy::file, (file.empty() ? "strategy" : file) + "#/" + pointer);
  }
  for (const auto& [key, value] : said.options) {
    std::string name = key, flag = "--" + key;
    std::replace(name.begin(), name.end(), '-', '_');
    std::replace(flag.begin(), flag.end(), '_', '-');
    note(keys, name, SettledBy::user, flag);
  }
  return keys;
}

std::vector<SaidKey> said_keys(const ForeignRun& run) {
  std::vector<SaidKey> keys;
  for (const ForeignKey& key : run.keys)
    note(keys, key.key,
         key.kind == ForeignKey::Kind::said      ? SettledBy::file
         : key.kind == ForeignKey::Kind::derived ? SettledBy::derived
                                                 : SettledBy::by_default,
         key.where);
  return keys;
}

std::vector<SettledKey> settled_keys(const Strategy& resolved, const std::vector<SaidKey>& said) {
  std::vector<SettledKey> keys;
  for (const formats::ListedKey& key : formats::listed_keys())
    if (auto value = key.value(resolved)) keys.push_back(origin_of(resolved, said, key.name, std::move(*value)));
  return keys;
}

}  // namespace plimsoll
