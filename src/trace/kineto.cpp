// Kineto's events (libkineto/src/output_json.cpp, CuptiActivity_inl.h, RocprofActivity_inl.h) as torch.profiler exports them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "plimsoll/error.hpp"
#include "trace/event_stream.hpp"
#include "trace/recorded_events.hpp"
#include "units/json_reader.hpp"

namespace plimsoll::trace {
namespace {

constexpr std::int64_t kMostSize = std::int64_t{1} << 48;
constexpr std::size_t kMostDistinct = 200'000;

/// The value of a member of an event's text, without parsing it: traces hold tens of events that do not matter for each that does.
std::string_view text_member(std::string_view event, std::string_view key) {
  std::size_t at = event.find(key);
  if (at == std::string_view::npos) return {};
  at = event.find('"', at + key.size());
  if (at == std::string_view::npos) return {};
  const std::size_t end = event.find('"', at + 1);
  return end == std::string_view::npos ? std::string_view() : event.substr(at + 1, end - at - 1);
}

/// Types as PyTorch's profiler writes them: those of c10's meta types, and "float" for fp32.
std::optional<DType> tensor_type(const std::string& name) {
  constexpr std::pair<std::string_view, DType> kTypes[] = {{"float", DType::fp32},          {"double", DType::fp64},
                                                           {"c10::BFloat16", DType::bf16},  {"c10::Half", DType::fp16},
                                                           {"long int", DType::int64},      {"long", DType::int64},
                                                           {"int", DType::int32},           {"short int", DType::bf16},
                                                           {"unsigned char", DType::uint8}, {"signed char", DType::int8},
                                                           {"bool", DType::boolean},        {"c10::complex<float>", DType::complex64},
                                                           {"c10::Float8_e4m3fn", DType::fp8}, {"c10::Float8_e5m2", DType::fp8},
                                                           {"c10::Float8_e4m3fnuz", DType::fp8}, {"c10::Float8_e5m2fnuz", DType::fp8}};
  for (const auto& [text, type] : kTypes)
    if (name == text) return type;
  return {};
}

std::vector<std::int64_t> sizes_in(const JsonValue& list) {
  std::vector<std::int64_t> sizes;
  for (const JsonValue& size : list.elements()) sizes.push_back(size.integer(0, kMostSize));
  return sizes;
}

bool is_list_of_lists(const JsonValue& value) { return value.is_array() && value.size() > 0 && value.at(0).is_array(); }

/// "Input Dims" and its two sisters, argument by argument; a list of tensors has a list of lists, and its elements' type is not told.
void read_shapes(const JsonValue& arguments, Operator& op) {
  const auto dims = arguments.find("Input Dims"), types = arguments.find("Input type"), strides = arguments.find("Input Strides");
  if (!dims || !types || dims->size() != types->size()) return;
  op.shaped = true;
  for (std::size_t i = 0; i < dims->size(); ++i) {
    const std::string type = types->at(i).is_text() ? types->at(i).text() : "";
    if (is_list_of_lists(dims->at(i))) {
      for (std::size_t j = 0; j < dims->at(i).size(); ++j) op.inputs.push_back({{}, sizes_in(dims->at(i).at(j)), {}});
      continue;
    }
    TensorShape shape{tensor_type(type), dims->at(i).is_array() ? sizes_in(dims->at(i)) : std::vector<std::int64_t>(), {}};
    if (strides && i < strides->size() && strides->at(i).is_array() && !is_list_of_lists(strides->at(i))) shape.strides = sizes_in(strides->at(i));
    op.inputs.push_back(std::move(shape));
  }
}

class Reader {
 public:
  explicit Reader(const std::string& path) : source_(path) {}

  RecordedEvents read() {
    read_events(source_, {[&](std::string_view event, std::uint64_t offset) { take(event, offset); },
                          [&](std::string_view key, std::string_view value) { member(key, value); }});
    if (events_.device_events == 0)
      fail(fmt::format("holds {} events and no kernel of a device", events_.events), source_.path(),
           "record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] while the device works");
    std::sort(events_.operator_ids.begin(), events_.operator_ids.end());
    return std::move(events_);
  }

 private:
  void take(std::string_view text, std::uint64_t offset) {
    ++events_.events;
    const std::string_view category = text_member(text, "\"cat\"");
    if (category == "kernel" || category == "Kernel") return device_event(text, offset, DeviceEvent::Kind::kernel);
    if (category == "gpu_memcpy" || category == "Memcpy") return device_event(text, offset, DeviceEvent::Kind::copy);
    if (category == "gpu_memset" || category == "Memset") return device_event(text, offset, DeviceEvent::Kind::set);
    if (category == "cpu_op" || category == "Operator") return operation(text, offset);
    if (category == "user_annotation") return annotation(text, offset);
  }

  std::string where(std::uint64_t offset) const { return fmt::format("{}, byte {}", source_.path(), offset); }

  /// Microseconds of the trace's clock as seconds.
  struct Interval {
    double start, seconds;
  };
  Interval interval(const JsonValue& event, std::uint64_t offset) const {
    constexpr double kMicro = 1e-6, kMost = 1e16;
    if (!event.find("ts") || !event.find("dur")) fail("an event has no time ('ts' and 'dur')", where(offset));
    const double start = event["ts"].number(-kMost, kMost), length = event["dur"].number(-kMost, kMost);
    if (length < 0) fail(fmt::format("an event takes {} microseconds: its clock ran backwards", length), where(offset), "record again");
    return {start * kMicro, length * kMicro};
  }

  std::uint32_t name(const std::string& text, std::uint64_t offset) {
    const std::uint32_t index = names_(text, events_.names);
    if (index >= kMostDistinct) fail(fmt::format("has more than {} kernels of different names", kMostDistinct), where(offset));
    return index;
  }

  static std::uint64_t number_or(const JsonValue& arguments, std::string_view key, std::uint64_t otherwise) {
    const auto value = arguments.find(key);
    return value && value->is_integer() ? static_cast<std::uint64_t>(value->integer(INT64_MIN, INT64_MAX)) : otherwise;
  }

  static void extent(const JsonValue& arguments, std::string_view key, std::uint32_t (&to)[3]) {
    const auto value = arguments.find(key);
    if (!value || !value->is_array()) return;
    for (std::size_t i = 0; i < std::min<std::size_t>(3, value->size()); ++i)
      to[i] = static_cast<std::uint32_t>(std::max<std::int64_t>(1, value->at(i).integer(0, UINT32_MAX)));
  }

  void device_event(std::string_view text, std::uint64_t offset, DeviceEvent::Kind kind) {
    ++events_.device_events;
    if (events_.device.size() >= kMostKernels) return;
    const JsonDocument document = JsonDocument::parse(text, where(offset));
    const JsonValue event = document.root();
    const Interval time = interval(event, offset);
    DeviceEvent it;
    it.kind = kind;
    it.start = time.start;
    it.seconds = time.seconds;
    it.name = name(event["name"].text(), offset);
    if (const auto arguments = event.find("args"); arguments && arguments->is_object()) {
      it.operation = number_or(*arguments, "External id", 0);
      it.bytes = static_cast<std::int64_t>(number_or(*arguments, "bytes", 0));
      it.stream = static_cast<std::uint32_t>(number_or(*arguments, "stream", 0));
      const std::uint64_t process = event.find("pid") && event["pid"].is_integer() ? number_or(event, "pid", 0) : 0;
      it.device = process << 16U | (number_or(*arguments, "device", 0) & 0xffffU);
      extent(*arguments, "grid", it.grid);
      extent(*arguments, "block", it.block);
      if (arguments->find("Collective name")) it.collective = collective(*arguments);
    }
    events_.device.push_back(it);
  }

  /// Equal calls are one.
  std::uint32_t collective(const JsonValue& arguments) {
    CollectiveCall call;
    call.name = arguments["Collective name"].text();
    if (const auto type = arguments.find("dtype"); type && type->is_text()) call.type = type->text();
    call.in = static_cast<std::int64_t>(number_or(arguments, "In msg nelems", 0));
    call.out = static_cast<std::int64_t>(number_or(arguments, "Out msg nelems", 0));
    call.ranks = static_cast<std::int64_t>(number_or(arguments, "Group size", 0));
    if (const auto ranks = arguments.find("Process Group Ranks"); ranks && ranks->is_text()) call.members = numbers_in(ranks->text());
    const std::string key = fmt::format("{} {} {} {} {} {}", call.name, call.type, call.in, call.out, call.ranks, fmt::join(call.members, " "));
    const auto [found, is_new] = collectives_.try_emplace(key, static_cast<std::uint32_t>(events_.collectives.size() + 1));
    if (is_new) events_.collectives.push_back(std::move(call));
    return found->second;
  }

  /// "[0, 1, 2, 3]"; a shortened list ("...") is none.
  static std::vector<std::int64_t> numbers_in(const std::string& text) {
    std::vector<std::int64_t> numbers;
    for (std::size_t at = 0; at < text.size() && numbers.size() < 1U << 20U;) {
      if (text[at] == '.') return {};
      std::size_t used = 1;
      if (std::isdigit(static_cast<unsigned char>(text[at])) != 0 && text.size() - at < 4096) numbers.push_back(std::strtoll(text.c_str() + at, nullptr, 10));
      while (at + used < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0 && std::isdigit(static_cast<unsigned char>(text[at + used])) != 0) ++used;
      at += used;
    }
    return numbers;
  }

  void operation(std::string_view text, std::uint64_t offset) {
    ++events_.operator_events;
    if (events_.operator_ids.size() >= kMostOperators) return;
    const JsonDocument document = JsonDocument::parse(text, where(offset));
    const JsonValue event = document.root();
    const Interval time = interval(event, offset);
    host(time);
    const auto arguments = event.find("args");
    if (!arguments || !arguments->is_object()) return;
    const std::uint64_t id = number_or(*arguments, "External id", 0);
    if (id == 0) return;
    Operator op;
    op.name = event["name"].text();
    std::string key = op.name;
    const std::size_t from = text.find("\"args\"");
    for (const std::string_view part : {"\"Input Dims\"", "\"Input type\"", "\"Input Strides\"", "\"Concrete Inputs\""}) key += array_text(text.substr(from), part);
    const auto [found, is_new] = operators_.try_emplace(key, static_cast<std::uint32_t>(events_.operators.size()));
    if (is_new) {
      if (events_.operators.size() >= kMostDistinct) fail(fmt::format("has more than {} operators of different shapes", kMostDistinct), where(offset));
      read_shapes(*arguments, op);
      if (const auto constants = arguments->find("Concrete Inputs"); constants && constants->is_array())
        for (const JsonValue& each : constants->elements()) op.constants.push_back(each.is_text() ? each.text() : "");
      events_.operators.push_back(std::move(op));
    }
    events_.operator_ids.emplace_back(id, found->second);
  }

  /// The array behind a key, as text.
  static std::string_view array_text(std::string_view event, std::string_view key) {
    const std::size_t at = event.find(key);
    if (at == std::string_view::npos) return {};
    std::size_t end = event.find('[', at);
    for (int depth = 0; end < event.size(); ++end) {
      depth += event[end] == '[' ? 1 : event[end] == ']' ? -1 : 0;
      if (depth == 0) break;
    }
    return event.substr(at, std::min(end, event.size()) - at);
  }

  void host(const Interval& time) {
    const bool first = events_.host_end == 0 && events_.host_start == 0;
    events_.host_start = first ? time.start : std::min(events_.host_start, time.start);
    events_.host_end = first ? time.start + time.seconds : std::max(events_.host_end, time.start + time.seconds);
  }

  void annotation(std::string_view text, std::uint64_t offset) {
    const std::string_view name = text_member(text, "\"name\"");
    const bool step = name.substr(0, 13) == "ProfilerStep#", optimizer = name.substr(0, 15) == "Optimizer.step#";
    if (!step && !optimizer) return;
    const JsonDocument document = JsonDocument::parse(text, where(offset));
    const Interval time = interval(document.root(), offset);
    (step ? events_.steps : events_.optimizers).push_back({std::string(name), time.start, time.start + time.seconds});
  }

  void member(std::string_view key, std::string_view value) {
    if (key != "deviceProperties" && key != "distributedInfo") return;
    const JsonDocument document = JsonDocument::parse(value, fmt::format("{}, {}", source_.path(), key));
    const JsonValue root = document.root();
    if (key == "distributedInfo") {
      if (!root.is_object()) return;
      events_.rank = static_cast<std::int64_t>(number_or(root, "rank", static_cast<std::uint64_t>(-1)));
      events_.world = static_cast<std::int64_t>(number_or(root, "world_size", 0));
    } else if (root.is_array() && root.size() > 0 && root.at(0).is_object()) {
      properties(root.at(0));
    }
  }

  void properties(const JsonValue& first) {
    TracedDevice& device = events_.accelerator;
    if (const auto name = first.find("name"); name && name->is_text()) device.name = name->text();
    device.amd = device.name.find("AMD") != std::string::npos || device.name.find("Instinct") != std::string::npos ||
                 device.name.find("Radeon") != std::string::npos;
    device.major = static_cast<int>(number_or(first, "computeMajor", 0));
    device.minor = static_cast<int>(number_or(first, "computeMinor", 0));
    device.compute_units = static_cast<int>(number_or(first, "numSms", 0));
    device.memory_bytes = static_cast<std::int64_t>(number_or(first, "totalGlobalMem", 0));
  }

  ByteSource source_;
  RecordedEvents events_;
  NameIndex names_;
  std::unordered_map<std::string, std::uint32_t> operators_, collectives_;
};

}  // namespace

std::int64_t TensorShape::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t size : sizes) product = size == 0 ? 0 : std::min(product, kMostSize / size) * size;
  return product;
}

const Operator* RecordedEvents::operator_of(const DeviceEvent& event) const {
  if (event.operation == 0) return nullptr;
  const auto found = std::lower_bound(operator_ids.begin(), operator_ids.end(), std::pair<std::uint64_t, std::uint32_t>{event.operation, 0});
  return found != operator_ids.end() && found->first == event.operation ? &operators[found->second] : nullptr;
}

RecordedEvents read_kineto(const std::string& path) { return Reader(path).read(); }

}  // namespace plimsoll::trace
