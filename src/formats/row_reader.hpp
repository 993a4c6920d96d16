// The parts of a measured row.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plimsoll/rows.hpp"
#include "units/json_reader.hpp"

namespace plimsoll::formats {

/// Models and clusters are shared by many rows: each is built once per file.
class RowCaches {
 public:
  std::shared_ptr<const Model> model(const std::string& config, const std::string& where, const std::string& name,
                                     const std::string& architecture);
  const Cluster& cluster(const std::string& gpu, std::int64_t gpus, int gpus_per_node, const std::string& where);

 private:
  std::map<std::string, std::shared_ptr<const Model>> models_;
  std::map<std::string, Cluster> clusters_;
};

/// The network of a row: by whole config, by fields, or by name, in this order. Throws Error naming the absent key.
std::shared_ptr<const Model> read_row_model(const JsonValue& row, const Strategy& strategy, RowCaches& caches);
/// Whether that `hardware.gpu` is a CUDA runtime without a GPU that answers as an architecture: "stub-sm90".
bool is_without_device(const std::string& gpu);
/// Its devices. `unread` gets keys that nothing reads.
Cluster read_row_cluster(const JsonValue& hardware, RowCaches& caches, std::vector<std::string>& unread);
/// What was seen, as quantities that plimsoll predicts.
std::vector<Observed> read_measurements(const JsonValue& row, std::vector<std::string>& unread);

/// Names the keys of `object` that are not `known`; a near-miss throws. `informative` ones are known and change nothing.
void check_keys(const JsonValue& object, const std::vector<std::string>& known, std::vector<std::string>& unread,
                const std::string& prefix);

/// A JSON object as text, member by member.
class ObjectText {
 public:
  ObjectText& add(const std::string& key, std::int64_t value) { return raw(key, std::to_string(value)); }
  ObjectText& add(const std::string& key, bool value) { return raw(key, value ? "true" : "false"); }
  ObjectText& add(const std::string& key, double value);
  ObjectText& add(const std::string& key, const char* value) { return raw(key, quoted(value)); }
  ObjectText& raw(const std::string& key, const std::string& json);
  std::string text() const { return "{" + members_ + "}"; }

  static std::string quoted(const std::string& text);

 private:
  std::string members_;
};

/// A value written back as JSON.
std::string json_text(const JsonValue& value);

}  // namespace plimsoll::formats
