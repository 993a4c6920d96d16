// The CSV files of rocprofv3 (`--kernel-trace --memory-copy-trace --marker-trace -f csv`) and of its predecessors: a table of kernels, and beside it
// tables of copies and of ROCTx ranges under the same name ("1234_kernel_trace.csv", "1234_marker_api_trace.csv"). Times are nanoseconds.
#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>

#include "plimsoll/error.hpp"
#include "trace/byte_source.hpp"
#include "trace/recorded_events.hpp"
#include "trace/step_marks.hpp"

namespace plimsoll::trace {
namespace {

constexpr double kNano = 1e-9;
constexpr std::size_t kMostLine = 1U << 20U;

/// The lines of a CSV file; quotes hold commas and doubled quotes (RFC 4180), and names of kernels no line ends.
class CsvFile {
 public:
  explicit CsvFile(const std::string& path) : source_(path) {}

  bool next(std::vector<std::string>& fields) {
    std::string line;
    while (next_line(line))
      if (!line.empty()) {
        split(line, fields);
        return true;
      }
    return false;
  }
  std::string where() const { return fmt::format("{}, line {}", source_.path(), line_); }

 private:
  bool next_line(std::string& line) {
    ++line_;
    for (;;) {
      const std::size_t end = rest_.find('\n');
      line.append(rest_.substr(0, end));
      if (line.size() > kMostLine) fail(fmt::format("a line is longer than {} bytes", kMostLine), where());
      if (end != std::string_view::npos) {
        rest_.remove_prefix(end + 1);
        if (!line.empty() && line.back() == '\r') line.pop_back();
        return true;
      }
      rest_ = source_.next();
      if (rest_.empty()) return !line.empty();
    }
  }

  void split(const std::string& line, std::vector<std::string>& fields) const {
    fields.assign(1, "");
    bool quoted = false;
    for (std::size_t i = 0; i < line.size(); ++i) {
      const char c = line[i];
      if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') fields.back() += line[++i];
      else if (c == '"') quoted = !quoted;
      else if (c == ',' && !quoted) fields.emplace_back();
      else fields.back() += c;
    }
    if (quoted) fail("a quote is not closed", where(), "the file may be cut off");
  }

  ByteSource source_;
  std::string_view rest_;
  std::size_t line_ = 0;
};

/// A table: its columns by name, whatever the release called them.
class Table {
 public:
  explicit Table(const std::string& path) : file_(path) { has_header_ = file_.next(names_); }

  bool has_header() const { return has_header_; }
  /// The first of these columns that is there.
  std::optional<std::size_t> column(std::initializer_list<std::string_view> names) const {
    for (const std::string_view name : names)
      for (std::size_t i = 0; i < names_.size(); ++i)
        if (names_[i] == name) return i;
    return {};
  }
  bool next() {
    if (!file_.next(fields_)) return false;
    if (fields_.size() != names_.size()) fail(fmt::format("has {} fields, the header {}", fields_.size(), names_.size()), file_.where(), "the file may be cut off");
    return true;
  }
  const std::string& text(std::size_t column) const { return fields_[column]; }
  std::int64_t integer(std::size_t column) const {
    std::int64_t value = 0;
    const std::string& text = fields_[column];
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) fail(fmt::format("'{}' is no whole number ({})", text, names_[column]), file_.where());
    return value;
  }
  std::string where() const { return file_.where(); }

 private:
  CsvFile file_;
  std::vector<std::string> names_, fields_;
  bool has_header_ = false;
};

/// Ids of agents, queues and streams are numbers or words ("Agent 4"): their order of appearance is enough.
class Numbered {
 public:
  std::uint32_t operator[](const std::string& word) { return ids_.try_emplace(word, static_cast<std::uint32_t>(ids_.size())).first->second; }

 private:
  std::unordered_map<std::string, std::uint32_t> ids_;
};

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  RecordedEvents read() {
    kernels();
    beside("_memory_copy_trace.csv", [this](Table& table) { copies(table); });
    beside("_marker_api_trace.csv", [this](Table& table) { marks(table); });
    std::move(marks_).write(events_);
    events_.accelerator.amd = true;
    return std::move(events_);
  }

 private:
  struct Columns {
    std::size_t start, end;
  };
  static std::optional<Columns> times_of(const Table& table) {
    const auto start = table.column({"Start_Timestamp", "BeginNs", "Start_Time"}), end = table.column({"End_Timestamp", "EndNs", "End_Time"});
    if (!start || !end) return {};
    return Columns{*start, *end};
  }

  DeviceEvent timed(const Table& table, Columns times) const {
    const std::int64_t start = table.integer(times.start), length = table.integer(times.end) - start;
    if (length < 0) fail(fmt::format("work takes {} nanoseconds: its clock ran backwards", length), table.where(), "record again");
    DeviceEvent event;
    event.start = static_cast<double>(start) * kNano;
    event.seconds = static_cast<double>(length) * kNano;
    return event;
  }

  void kernels() {
    Table table(path_);
    const auto name = table.column({"Kernel_Name", "KernelName", "Name"});
    const auto times = times_of(table);
    if (!name || !times) fail("is no table of kernels: it lacks Kernel_Name, Start_Timestamp or End_Timestamp", path_, "rocprofv3 --kernel-trace -f csv writes NAME_kernel_trace.csv");
    const auto agent = table.column({"Agent_Id", "gpu-id", "GPU_ID"}), queue = table.column({"Stream_Id", "Queue_Id", "queue-id", "Queue_ID"});
    while (table.next()) {
      ++events_.device_events;
      if (events_.device.size() >= kMostKernels) continue;
      DeviceEvent event = timed(table, *times);
      event.name = name_of(table.text(*name));
      if (agent) event.device = agents_[table.text(*agent)];
      if (queue) event.stream = queues_[table.text(*queue)];
      extents(table, event);
      events_.device.push_back(event);
    }
    if (events_.device.empty()) fail("holds no kernel", path_, "record while the device works");
  }

  /// AMD's grids count work-items, CUDA's blocks.
  static void extents(const Table& table, DeviceEvent& event) {
    constexpr const char* kAxes[] = {"X", "Y", "Z"};
    for (int i = 0; i < 3; ++i) {
      const std::string group = fmt::format("Workgroup_Size_{}", kAxes[i]), grid = fmt::format("Grid_Size_{}", kAxes[i]);
      const auto threads = table.column({group}), items = table.column({grid});
      if (!threads || !items) return;
      event.block[i] = static_cast<std::uint32_t>(std::clamp<std::int64_t>(table.integer(*threads), 1, UINT32_MAX));
      event.grid[i] = static_cast<std::uint32_t>(std::clamp<std::int64_t>(table.integer(*items) / event.block[i], 1, UINT32_MAX));
    }
  }

  /// The file of the same run that ends so, where it is there.
  void beside(const std::string& ending, const std::function<void(Table&)>& read) {
    const std::string kernels = "_kernel_trace.csv";
    if (path_.size() <= kernels.size() || path_.compare(path_.size() - kernels.size(), kernels.size(), kernels) != 0) return;
    const std::string other = path_.substr(0, path_.size() - kernels.size()) + ending;
    if (!std::filesystem::exists(other)) return;
    Table table(other);
    if (table.has_header()) read(table);
  }

  void copies(Table& table) {
    const auto times = times_of(table);
    const auto direction = table.column({"Direction", "Name"});
    if (!times || !direction) return;
    while (table.next()) {
      ++events_.device_events;
      if (events_.device.size() >= kMostKernels) continue;
      DeviceEvent event = timed(table, *times);
      event.kind = DeviceEvent::Kind::copy;
      event.name = name_of(copy_name(table.text(*direction)));
      event.device = events_.device.front().device;
      events_.device.push_back(event);
    }
  }

  /// "MEMORY_COPY_HOST_TO_DEVICE"
  static const char* copy_name(const std::string& direction) {
    if (direction.find("HOST_TO_DEVICE") != std::string::npos) return "Memcpy HtoD";
    return direction.find("DEVICE_TO_HOST") != std::string::npos ? "Memcpy DtoH" : "Memcpy DtoD";
  }

  void marks(Table& table) {
    const auto times = times_of(table);
    const auto name = table.column({"Function", "Name", "Message"});
    if (!times || !name) return;
    while (table.next())
      marks_.add({table.text(*name), static_cast<double>(table.integer(times->start)) * kNano, static_cast<double>(table.integer(times->end)) * kNano});
  }

  std::uint32_t name_of(const std::string& text) { return names_(text, events_.names); }

  const std::string& path_;
  RecordedEvents events_;
  StepMarks marks_;
  Numbered agents_, queues_;
  NameIndex names_;
};

}  // namespace

RecordedEvents read_rocprof(const std::string& path) { return Reader(path).read(); }

}  // namespace plimsoll::trace
