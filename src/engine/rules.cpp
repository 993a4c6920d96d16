#include "engine/rules.hpp"

#include <algorithm>

#include "hardware/read_values.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::engine {
namespace {

const std::vector<std::string>& runners() {
  static const std::vector<std::string> kRunners{"v0", "v1", "v2"};
  return kRunners;
}

std::string own_runner(const Release& release) {
  if (!release.since(0, 8)) return "v0";
  return release.since(0, 29) ? "v2" : "v1";
}

JsonDocument overheads() { return hardware::shipped_document("hardware/overheads.json"); }

EngineBand read_band(const JsonValue& object) {
  const auto bytes = [&](const char* key) { return hardware::read_sourced(object[key], hardware::bytes_value).value; };
  return {bytes("low"), bytes("expected"), bytes("high")};
}

EngineBand sum(const EngineBand& a, const EngineBand& b) { return {a.low + b.low, a.expected + b.expected, a.high + b.high}; }

WeightFormat read_format(const std::string& name, const JsonValue& object) {
  constexpr std::int64_t kMostMultiple = 1024;
  WeightFormat format{name, object["bits"].number(1, 32), object["experts_only"].boolean(), object["inputs"].boolean()};
  if (const auto multiples = object.find("multiples"))
    format.width_multiple = multiples->at(0).integer(1, kMostMultiple), format.inner_multiple = multiples->at(1).integer(1, kMostMultiple);
  hardware::read_provenance(object["provenance"]);
  return format;
}

/// 70 GiB and more, but for the A100 (arg_utils.py).
bool is_large(const Accelerator& device) { return device.memory_usable.value >= 70_GiB && device.name.find("a100") == std::string::npos; }

}  // namespace

VllmRelease::VllmRelease(const Release& release, const std::string& runner)
    : release_(release), runner_(runner.empty() ? own_runner(release) : runner) {
  if (!release.since(0, 6, 4)) refuse("vLLM " + release.text() + " was not read", "--engine", "0.6.4 or a later one");
  if (std::find(runners().begin(), runners().end(), runner_) == runners().end())
    fail("vLLM has no runner '" + runner_ + "'", "--runner", suggest(runner_, runners()));
  const bool has = runner_ == "v0" ? !release.since(0, 11) : runner_ == "v1" ? release.since(0, 6, 5) : release.since(0, 22);
  if (!has) fail("vLLM " + release.text() + " has no runner " + runner_, "--runner", "its own is " + own_runner(release));
}

Budget VllmRelease::budget() const {
  if (is_v0()) return release_.since(0, 6, 5) ? Budget::increase : Budget::device_in_use;
  return since(0, 9, 2) ? Budget::increase : Budget::device_in_use;
}

program::Sampling VllmRelease::sampling() const {
  if (runner_ == "v2") return program::Sampling::direct;
  if (runner_ == "v1" && !since(0, 8)) return program::Sampling::none;
  if (since(0, 21)) return program::Sampling::flashinfer;
  return since(0, 17) ? program::Sampling::masked : program::Sampling::sorted;
}

program::TorchRelease VllmRelease::torch() const {
  struct Pair {
    int minor;      ///< of vLLM 0.x
    Release torch;  ///< requirements/cuda.txt
  };
  static const std::vector<Pair> kTorch{
      {31, Release(2, 13)}, {22, Release(2, 11)}, {11, Release(2, 8)}, {9, Release(2, 7)}, {8, Release(2, 6)}};
  for (const Pair& pair : kTorch)
    if (since(0, pair.minor)) return program::TorchRelease(pair.torch);
  return program::TorchRelease(Release(2, 5));
}

std::int64_t VllmRelease::default_tokens(const Accelerator& device, std::int64_t max_model_len, bool offline) const {
  if (is_v0()) {
    if (!cuts_prompts(max_model_len)) return std::max<std::int64_t>(max_model_len, 2048);
    return since(0, 7) ? 2048 : 512;
  }
  const bool large = is_large(device);
  return offline ? (large ? 16384 : 8192) : (large ? 8192 : 2048);
}

std::int64_t VllmRelease::default_sequences(const Accelerator& device) const {
  return !is_v0() && since(0, 8) && is_large(device) ? 1024 : 256;
}

std::vector<std::int64_t> VllmRelease::captured(std::int64_t max_num_seqs, std::int64_t max_num_batched_tokens) const {
  const bool fine = is_v0() || !since(0, 12);  // eights up to the end; later sixteens from 256 on
  const std::int64_t most = std::min(
      {is_v0() ? std::min<std::int64_t>(max_num_seqs, 256) : std::min<std::int64_t>(2 * max_num_seqs, 512), max_num_batched_tokens});
  std::vector<std::int64_t> sizes;
  for (const std::int64_t size : {1, 2, 4})
    if (size <= most) sizes.push_back(size);
  for (std::int64_t size = 8; size <= most; size += fine || size < 256 ? 8 : 16) sizes.push_back(size);
  std::reverse(sizes.begin(), sizes.end());
  return sizes;
}

WeightFormat weight_format(const std::string& name) {
  const JsonDocument document = overheads();
  const JsonValue formats = document.root()["engines"]["weights"];
  const auto found = formats.find(name);
  if (!found) fail("there is no format of weights '" + name + "'", "--weights", suggest(name, engine_weight_formats()));
  return read_format(name, *found);
}

EngineBand outside_of(const Cluster& cluster, const EngineSetting& setting) {
  const JsonDocument document = overheads();
  const JsonValue engines = document.root()["engines"];
  const EngineBand band = read_band(engines["libraries"]);
  if (setting.tp * setting.pp == 1) return band;
  const bool fast = cluster.node.fabric == NodeFabric::nvswitch || cluster.node.fabric == NodeFabric::mesh;
  const char* first = setting.engine == RolloutEngine::vllm ? "communicators_fast" : "communicators_before_load";
  return sum(band, read_band(engines[fast ? first : "communicators_pcie"]));
}

EngineBand graph_of_layer() {
  const JsonDocument document = overheads();
  return read_band(document.root()["engines"]["graph_of_layer"]);
}

}  // namespace plimsoll::engine

namespace plimsoll {

std::vector<std::string> engine_weight_formats() {
  const JsonDocument document = hardware::shipped_document("hardware/overheads.json");
  return document.root()["engines"]["weights"].keys();
}

}  // namespace plimsoll
