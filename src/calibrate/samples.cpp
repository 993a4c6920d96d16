// The file of samples: one JSON object per line, so that what was measured before an interruption is whole.
#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "plimsoll/calibrate.hpp"
#include "plimsoll/error.hpp"
#include "units/files.hpp"
#include "units/json_reader.hpp"

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSchema = "plimsoll/samples/1";
constexpr std::array<std::string_view, 16> kKinds{"launch",         "round_trip", "stream",     "cache_read",         "pointer_chase",
                                                  "matrix_rate",    "gemm",       "attention",  "attention_backward", "host_to_device",
                                                  "device_to_host", "peer_copy",  "collective", "context_memory",     "allocation", "reference"};
constexpr std::int64_t kMostFileBytes = std::int64_t{256} << 20;
constexpr double kMost = 1e30;

std::string text_of(const JsonValue& object, std::string_view key) {
  const auto found = object.find(key);
  return found ? found->text() : std::string();
}

double number_of(const JsonValue& object, std::string_view key, double otherwise = 0) {
  const auto found = object.find(key);
  return found ? found->number(0, kMost) : otherwise;
}

std::int64_t integer_of(const JsonValue& object, std::string_view key, std::int64_t least, std::int64_t most, std::int64_t otherwise) {
  const auto found = object.find(key);
  return found ? found->integer(least, most) : otherwise;
}

SampleKind kind_of(const JsonValue& value) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < kKinds.size(); ++i) {
    names.emplace_back(kKinds[i]);
    if (value.text() == kKinds[i]) return static_cast<SampleKind>(i);
  }
  fail("'" + value.text() + "' is no kind of sample", value.where(), suggest(value.text(), names));
}

DeviceFacts read_device(const JsonValue& root) {
  if (root["schema"].text() != kSchema) root["schema"].expected("\"" + std::string(kSchema) + "\"");
  DeviceFacts device;
  device.backend = text_of(root, "backend");
  device.name = text_of(root, "name");
  device.target = text_of(root, "target");
  device.driver = text_of(root, "driver");
  device.library = text_of(root, "library");
  device.date = text_of(root, "date");
  device.compute_units = static_cast<int>(integer_of(root, "compute_units", 0, 65536, 0));
  device.devices = static_cast<int>(integer_of(root, "devices", 1, 1 << 20, 1));
  if (const auto left_out = root.find("left_out"))
    for (const JsonValue& each : left_out->elements()) device.left_out.push_back(each.text());
  device.memory_bytes = integer_of(root, "memory_bytes", 0, std::int64_t{1} << 50, 0);
  device.cache_bytes = integer_of(root, "cache_bytes", 0, std::int64_t{1} << 50, 0);
  device.clock_hertz = number_of(root, "clock_hertz");
  device.watts = number_of(root, "watts");
  return device;
}

void check_sample(const Sample& sample, const JsonValue& root) {
  if (sample.kind != SampleKind::context_memory && !(sample.seconds > 0)) root["seconds"].expected("a time above zero");
  if (sample.kind == SampleKind::gemm && (sample.m == 0 || sample.n == 0 || sample.k == 0)) root.expected("m, n and k of a product");
  if (!sample.layout.empty() && (sample.layout.size() != 2 || sample.layout.find_first_not_of("NT") != std::string::npos))
    root["layout"].expected("two letters, each N or T");
  const bool moves = sample.kind == SampleKind::stream || sample.kind == SampleKind::collective || sample.kind == SampleKind::peer_copy;
  if (moves && sample.bytes == 0) root.expected("the bytes that were moved");
}

Sample read_sample(const JsonValue& root) {
  constexpr std::int64_t kMostSize = std::int64_t{1} << 50;
  Sample sample;
  sample.kind = kind_of(root["sample"]);
  sample.kernel = text_of(root, "kernel");
  sample.group = text_of(root, "group");
  sample.type = text_of(root, "type");
  sample.m = integer_of(root, "m", 1, kMostSize, 0);
  sample.n = integer_of(root, "n", 1, kMostSize, 0);
  sample.k = integer_of(root, "k", 1, kMostSize, 0);
  sample.batch = integer_of(root, "batch", 1, kMostSize, 1);
  sample.kv_batch = integer_of(root, "kv_batch", 1, sample.batch, 0);
  if (const auto causal = root.find("causal")) sample.causal = causal->boolean();
  sample.layout = text_of(root, "layout");
  sample.bytes = integer_of(root, "bytes", 0, kMostSize, 0);
  sample.reuse = integer_of(root, "reuse", 0, kMostSize, -1);
  sample.flops = number_of(root, "flops");
  sample.ranks = static_cast<int>(integer_of(root, "ranks", 1, 1 << 20, 1));
  sample.nodes = static_cast<int>(integer_of(root, "nodes", 1, sample.ranks, 1));
  sample.seconds = number_of(root, "seconds");
  sample.fastest = number_of(root, "fastest", sample.seconds);
  sample.spread = number_of(root, "spread");
  sample.runs = static_cast<int>(integer_of(root, "runs", 1, 1 << 30, 1));
  sample.clock_hertz = number_of(root, "clock_hertz");
  sample.watts = number_of(root, "watts");
  sample.tool = text_of(root, "tool");
  check_sample(sample, root);
  return sample;
}

template <class T>
void put(Json& object, const char* key, const T& value, const T& absent) {
  if (value != absent) object[key] = value;
}

std::string line_of(const Json& object) { return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace

std::string_view name_of(SampleKind kind) { return kKinds[static_cast<std::size_t>(kind)]; }

std::string to_json_line(const DeviceFacts& device) {
  Json object{{"schema", kSchema}, {"backend", device.backend}, {"name", device.name}};
  const std::string none;
  put(object, "target", device.target, none);
  put(object, "driver", device.driver, none);
  put(object, "library", device.library, none);
  put(object, "date", device.date, none);
  put(object, "compute_units", device.compute_units, 0);
  put(object, "devices", device.devices, 1);
  if (!device.left_out.empty()) object["left_out"] = device.left_out;
  put(object, "memory_bytes", device.memory_bytes, std::int64_t{0});
  put(object, "cache_bytes", device.cache_bytes, std::int64_t{0});
  put(object, "clock_hertz", device.clock_hertz, 0.0);
  put(object, "watts", device.watts, 0.0);
  return line_of(object);
}

std::string to_json_line(const Sample& sample) {
  Json object{{"sample", name_of(sample.kind)}};
  const std::string none;
  const std::int64_t zero = 0;
  put(object, "kernel", sample.kernel, none);
  put(object, "group", sample.group, none);
  put(object, "type", sample.type, none);
  put(object, "m", sample.m, zero);
  put(object, "n", sample.n, zero);
  put(object, "k", sample.k, zero);
  put(object, "batch", sample.batch, std::int64_t{1});
  put(object, "kv_batch", sample.kv_batch, zero);
  put(object, "causal", sample.causal, false);
  put(object, "layout", sample.layout, none);
  put(object, "bytes", sample.bytes, zero);
  put(object, "reuse", sample.reuse, std::int64_t{-1});
  put(object, "flops", sample.flops, 0.0);
  put(object, "ranks", sample.ranks, 1);
  put(object, "nodes", sample.nodes, 1);
  object["seconds"] = sample.seconds;
  put(object, "fastest", sample.fastest, sample.seconds);
  put(object, "spread", sample.spread, 0.0);
  put(object, "runs", sample.runs, 1);
  put(object, "clock_hertz", sample.clock_hertz, 0.0);
  put(object, "watts", sample.watts, 0.0);
  put(object, "tool", sample.tool, none);
  return line_of(object);
}

SampleSet parse_samples(const std::string& lines, const std::string& where) {
  SampleSet set;
  std::size_t from = 0;
  for (int number = 1; from < lines.size(); ++number) {
    const std::string place = fmt::format("{}:{}", where, number);
    const std::size_t end = lines.find('\n', from);
    if (end == std::string::npos)
      fail("the last line is cut off", place, fmt::format("remove it: the {} samples before it are whole", set.samples.size()));
    const JsonDocument document = JsonDocument::parse(std::string_view(lines).substr(from, end - from), place);
    if (number == 1)
      set.device = read_device(document.root());
    else
      set.samples.push_back(read_sample(document.root()));
    if (const auto unread = document.root().unread_keys(); !unread.empty()) fail("unknown key '" + unread.front() + "'", place);
    from = end + 1;
  }
  if (from == 0) fail("there are no samples", where, "the first line describes the device");
  return set;
}

SampleSet load_samples(const std::string& path) { return parse_samples(read_text_file(path, kMostFileBytes), path); }

}  // namespace plimsoll
