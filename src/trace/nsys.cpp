// The SQLite export of Nsight Systems (`nsys export --type sqlite`): tables as NVIDIA's exporter reference documents them. Times are whole
// nanoseconds; names are rows of StringIds. Tables are made lazily, so any but the kernels' may be missing, and columns came over the years.
//
// A database is a program too: a view can count for ever and a generated column can be as long as it likes. So tables alone are read, with
// plain columns, texts are bounded, and so is the work that a file of that size can ask for.
#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>

#include "plimsoll/error.hpp"
#include "trace/recorded_events.hpp"
#include "trace/step_marks.hpp"

namespace plimsoll::trace {
namespace {

constexpr double kNano = 1e-9;

/// A query and its rows.
class Rows {
 public:
  Rows(sqlite3* database, const std::string& query, const std::string& path) : path_(path) {
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v2(database, query.c_str(), -1, &statement, nullptr) != SQLITE_OK) broken(database);
    statement_.reset(statement);
  }

  bool next() {
    const int result = sqlite3_step(statement_.get());
    if (result != SQLITE_ROW && result != SQLITE_DONE) broken(sqlite3_db_handle(statement_.get()));
    return result == SQLITE_ROW;
  }
  std::int64_t integer(int column) const { return sqlite3_column_int64(statement_.get(), column); }
  std::string text(int column) const {
    const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), column));
    return bytes == nullptr ? std::string() : std::string(bytes, static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column)));
  }

 private:
  [[noreturn]] void broken(sqlite3* database) const {
    if (sqlite3_errcode(database) == SQLITE_INTERRUPT)
      fail("asks for more work than a trace of its size can", path_, "export it again: nsys export --type sqlite");
    fail(fmt::format("cannot be read as a database of Nsight Systems: {}", sqlite3_errmsg(database)), path_, "export it again: nsys export --type sqlite");
  }

  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  const std::string& path_;
};

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {
    sqlite3* database = nullptr;
    const int result = sqlite3_open_v2(path.c_str(), &database, SQLITE_OPEN_READONLY, nullptr);
    database_.reset(database);
    if (result != SQLITE_OK) fail(fmt::format("cannot be opened: {}", sqlite3_errmsg(database)), path);
    bound();
  }

  RecordedEvents read() {
    if (columns_of(kKernels).empty())
      fail("is a database without kernels of a device (CUPTI_ACTIVITY_KIND_KERNEL)", path_, "record with nsys profile --trace=cuda,nvtx and export with --type sqlite");
    check_names();
    kernels();
    copies("CUPTI_ACTIVITY_KIND_MEMCPY", DeviceEvent::Kind::copy);
    copies("CUPTI_ACTIVITY_KIND_MEMSET", DeviceEvent::Kind::set);
    if (events_.device.empty()) fail("holds no kernel of a device", path_, "record while the device works");
    marks();
    device();
    return std::move(events_);
  }

 private:
  static constexpr const char* kKernels = "CUPTI_ACTIVITY_KIND_KERNEL";

  /// Steps of SQLite's machine: a row takes some tens, and no row less than ten bytes.
  void bound() {
    constexpr int kLongestText = 256 << 10, kOften = 100'000;
    constexpr std::int64_t kLeastSteps = 20'000'000, kStepsPerByte = 100;
    sqlite3_db_config(database_.get(), SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    sqlite3_db_config(database_.get(), SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    sqlite3_limit(database_.get(), SQLITE_LIMIT_LENGTH, kLongestText);
    std::error_code none;
    const auto bytes = static_cast<std::int64_t>(std::filesystem::file_size(path_, none));
    looks_left_ = (kLeastSteps + kStepsPerByte * std::max<std::int64_t>(none ? 0 : bytes, 0)) / kOften;
    const auto look = [](void* left) { return --*static_cast<std::int64_t*>(left) < 0 ? 1 : 0; };
    sqlite3_progress_handler(database_.get(), kOften, look, &looks_left_);
  }

  /// Empty where there is no such table. Throws Error for a view, for a table of an extension's making, and for columns that are computed.
  std::set<std::string> columns_of(const std::string& table) {
    Rows found(database_.get(), "SELECT type = 'table' AND rootpage > 0 FROM sqlite_master WHERE name = '" + table + "'", path_);
    if (!found.next()) return {};
    if (found.integer(0) == 0) fail(fmt::format("{} is no table", table), path_, "export it again: nsys export --type sqlite");
    std::set<std::string> columns;
    for (Rows rows(database_.get(), "SELECT name, hidden FROM pragma_table_xinfo('" + table + "')", path_); rows.next();) {
      if (rows.integer(1) != 0) fail(fmt::format("{} has a computed column", table), path_, "export it again: nsys export --type sqlite");
      columns.insert(rows.text(0));
    }
    return columns;
  }

  /// The names' table, which queries join, as such.
  void check_names() {
    if (columns_of("StringIds").empty()) fail("is a database without names (StringIds)", path_, "export it again: nsys export --type sqlite");
  }

  /// The column where the table has it.
  static std::string or_zero(const std::set<std::string>& columns, const std::string& column) {
    return columns.count(column) > 0 ? "k." + column : "0";
  }

  static std::string listed(const std::set<std::string>& columns, std::initializer_list<const char*> names) {
    std::string list;
    for (const char* name : names) list += ", " + or_zero(columns, name);
    return list;
  }

  DeviceEvent timed(const Rows& row, const std::string& table) {
    const std::int64_t start = row.integer(0), end = row.integer(1);
    if (end < start) fail(fmt::format("{} holds work that takes {} nanoseconds: its clock ran backwards", table, end - start), path_, "record again");
    DeviceEvent event;
    event.start = static_cast<double>(start) * kNano;
    event.seconds = static_cast<double>(end - start) * kNano;
    event.device = static_cast<std::uint64_t>(row.integer(2));
    event.stream = static_cast<std::uint32_t>(row.integer(3));
    return event;
  }

  void kernels() {
    const std::set<std::string> columns = columns_of(kKernels);
    const std::string name = columns.count("demangledName") > 0 ? "k.demangledName" : "k.shortName";
    const std::string query = "SELECT k.start, k.end" + listed(columns, {"deviceId", "streamId", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"}) +
                              ", s.value FROM " + kKernels + " k LEFT JOIN StringIds s ON s.id = " + name + " ORDER BY k.start";
    for (Rows rows(database_.get(), query, path_); rows.next();) {
      ++events_.device_events;
      if (events_.device.size() >= kMostKernels) continue;
      DeviceEvent event = timed(rows, kKernels);
      for (int i = 0; i < 3; ++i) {
        event.grid[i] = extent(rows.integer(4 + i));
        event.block[i] = extent(rows.integer(7 + i));
      }
      event.name = name_of(rows.text(10));
      events_.device.push_back(event);
    }
  }

  static std::uint32_t extent(std::int64_t value) { return static_cast<std::uint32_t>(std::clamp<std::int64_t>(value, 1, UINT32_MAX)); }

  void copies(const std::string& table, DeviceEvent::Kind kind) {
    const std::set<std::string> columns = columns_of(table);
    if (columns.empty()) return;
    const std::string query = "SELECT k.start, k.end" + listed(columns, {"deviceId", "streamId", "bytes", "copyKind"}) + " FROM " + table + " k ORDER BY k.start";
    for (Rows rows(database_.get(), query, path_); rows.next();) {
      ++events_.device_events;
      if (events_.device.size() >= kMostKernels) continue;
      DeviceEvent event = timed(rows, table);
      event.kind = kind;
      event.bytes = rows.integer(4);
      event.name = name_of(kind == DeviceEvent::Kind::set ? "Memset" : copy_name(rows.integer(5)));
      events_.device.push_back(event);
    }
  }

  /// CUpti_ActivityMemcpyKind.
  static const char* copy_name(std::int64_t kind) { return kind == 1 ? "Memcpy HtoD" : kind == 2 ? "Memcpy DtoH" : "Memcpy DtoD"; }

  /// Ranges of NVTX that bound steps; their text stands in the row or in StringIds.
  void marks() {
    const std::set<std::string> columns = columns_of("NVTX_EVENTS");
    if (columns.empty() || columns.count("end") == 0) return;
    const std::string text = columns.count("textId") > 0 ? "coalesce(k.text, s.value) FROM NVTX_EVENTS k LEFT JOIN StringIds s ON s.id = k.textId"
                                                         : "k.text FROM NVTX_EVENTS k";
    StepMarks found;
    for (Rows rows(database_.get(), "SELECT k.start, k.end, " + text + " WHERE k.end IS NOT NULL", path_); rows.next();)
      found.add({rows.text(2), static_cast<double>(rows.integer(0)) * kNano, static_cast<double>(rows.integer(1)) * kNano});
    std::move(found).write(events_);
  }

  void device() {
    const std::set<std::string> columns = columns_of("TARGET_INFO_GPU");
    if (columns.count("name") == 0) return;
    Rows rows(database_.get(), "SELECT k.name" + listed(columns, {"computeMajor", "computeMinor", "smCount", "totalMemory"}) + " FROM TARGET_INFO_GPU k LIMIT 1", path_);
    if (!rows.next()) return;
    events_.accelerator.name = rows.text(0);
    events_.accelerator.major = static_cast<int>(rows.integer(1));
    events_.accelerator.minor = static_cast<int>(rows.integer(2));
    events_.accelerator.compute_units = static_cast<int>(rows.integer(3));
    events_.accelerator.memory_bytes = rows.integer(4);
  }

  std::uint32_t name_of(const std::string& text) { return names_(text, events_.names); }

  struct Close {
    void operator()(sqlite3* database) const { sqlite3_close(database); }
  };
  const std::string& path_;
  std::int64_t looks_left_ = 0;
  std::unique_ptr<sqlite3, Close> database_;
  RecordedEvents events_;
  NameIndex names_;
};

}  // namespace

RecordedEvents read_nsys(const std::string& path) { return Reader(path).read(); }

}  // namespace plimsoll::trace
