#include "formats/foreign/schema.hpp"

#include <algorithm>
#include <initializer_list>

#include "data/shipped_files.hpp"
#include "formats/foreign/format.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/formats.hpp"
#include "units/json_reader.hpp"

namespace plimsoll::formats {
namespace {

/// What to do about a key that only trainers of preferences and rewards have.
constexpr const char* kTrainersLine =
    "give the line of the trainer that has it, for example -- trl dpo --config FILE; if it means something else in a script of your own, leave it out";

/// "eval_*" stands for all names that begin so, another for itself and what lies below it.
bool stands_for(const std::string& pattern, const std::string& key) {
  if (!pattern.empty() && pattern.back() == '*') return key.compare(0, pattern.size() - 1, pattern, 0, pattern.size() - 1) == 0;
  return key.compare(0, pattern.size(), pattern) == 0 && (key.size() == pattern.size() || key[pattern.size()] == '.');
}

std::optional<std::string> default_in(const JsonValue& keys, const std::string& name) {
  const JsonValue value = keys[name];
  return value.is_null() ? std::nullopt : std::optional<std::string>(value.text());
}

/// A value as it is compared and told: of a table or a list whether it holds anything.
std::string text_of(const Node& value) {
  if (value.is_null()) return "null";
  if (value.is_table()) return value.members.empty() ? "" : "{…}";
  if (value.is_list() && !value.members.empty() && !value.members.front().second.is_scalar()) return "[…]";
  return value.word();
}

bool same_number(const std::string& a, const std::string& b) {
  char *end_a = nullptr, *end_b = nullptr;
  const double x = std::strtod(a.c_str(), &end_a), y = std::strtod(b.c_str(), &end_b);
  return end_a != a.c_str() && *end_a == 0 && end_b != b.c_str() && *end_b == 0 && x == y;
}

/// Whether a value is what the program takes where nothing is said.
bool says_nothing(const std::string& text, const std::optional<std::string>& by_default) {
  if (text == "null" || text.empty() || text == by_default) return true;
  if (!by_default || *by_default == "null") return text == "false";
  return same_number(text, *by_default);
}

bool has_any(const std::string& key, std::initializer_list<const char*> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](const char* part) { return key.find(part) != std::string::npos; });
}

/// Whether its value is a way of training: full, lora, …
bool names_a_way(const std::string& key) { return has_any(key, {"train_mode", "train_type", "tuner"}); }

/// Names that tell which weights are trained, or in what they lie.
bool tells_of_weights(const std::string& key) {
  if (names_a_way(key) || has_any(key, {"lora", "peft", "adapter", "quantiz", "4bit", "8bit", "freez", "frozen", "trainable", "tunable", "unlock", "tune_"})) return true;
  return key.ends_with("layers") && key != "num_hidden_layers" && key != "num_layers";  // so many are trained, or these
}

/// What to say in the place of a script's own key of weights: of what rests TRL has no name.
const char* said_of_weights(const std::string& key) {
  return has_any(key, {"freez", "frozen"}) ? "leave it out and say what is trained by --trained-modules" : "leave it out and say it by TRL's names: use_peft, lora_r, load_in_4bit";
}

/// Names that tell how a run is laid out over devices, or what is kept.
bool tells_of_layout(const std::string& key) { return has_any(key, {"parallel", "recompute", "offload", "shard", "fsdp", "zero_stage", "degree"}); }

/// What names of a script's own keys tell by a part of them.
struct Telling {
  std::vector<std::string_view> parts;
  bool at_end;          ///< the name ends so
  const char *what, *instead;
};

const std::vector<Telling>& tellings() {
  static const std::vector<Telling> all{
      {{"num_hidden_layers", "num_layers", "hidden_size"}, true, "the model's size", "give a config.json of that size as MODEL"},
      {{"max_len", "max_length", "train_group_size", "num_negatives"}, true, "how long sequences are, or how many a sample has",
       "say --seq-len and --micro-batch"},
      {{"classif", "num_labels", "num_classes"}, false, "which head is trained", "say --task"},
      {{"vision_tower", "vision_model", "vision_lr", "mm_projector", "image_folder", "video_folder"}, false, "that a model of images is trained",
       "give that model as MODEL"},
      {{"optim"}, false, "the optimizer", "say --optimizer"},
  };
  return all;
}

/// What a key may decide; of evaluation it decides nothing.
const Telling* told_by(const std::string& key) {
  for (const char* other : {"eval", "val_", "test_", "gen", "infer"})
    if (key.starts_with(other)) return nullptr;
  for (const Telling& one : tellings())
    for (const std::string_view part : one.parts)
      if (one.at_end ? key.ends_with(part) : key.find(part) != std::string::npos) return &one;
  return nullptr;
}

/// A file that configures more: what it says is not known.
bool names_configuration(const std::string& key, const std::string& text) {
  if (key.find("config") == std::string::npos) return false;
  for (const char* end : {".yaml", ".yml", ".json", ".toml"})
    if (text.ends_with(end)) return true;
  return false;
}

/// "--data-parallel", as the command line calls a key of ours.
std::string flag_of(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return "--" + key;
}

/// What the program calls what another program calls so.
std::string same_of(const std::string& key, const Rows& rows) {
  const auto ours = strategy_key_of(key);
  const Row* found = nullptr;
  for (const Row& row : rows)  // the name that has a default is not an older one
    if (ours && row.ours == *ours && (!found || (row.by_default && !found->by_default))) found = &row;
  return found ? found->foreign : std::string();
}

/// The key that argparse reads an option as which only begins it ("gradient_acc"): the one name of all that begins so, where it decides anything.
std::string abbreviated(const std::string& key, const std::vector<std::string>& names, const Rows& rows) {
  std::string whole;
  for (const std::string& name : names) {
    if (name.rfind(key, 0) != 0 || name == whole) continue;
    if (!whole.empty()) return {};
    whole = name;
  }
  const bool decides = std::any_of(rows.begin(), rows.end(), [&](const Row& row) { return whole == row.foreign; });
  return decides ? whole : std::string();
}

bool names_the_model(const std::string& key, const Rows& rows) {
  const Row* row = key.empty() ? nullptr : find_row(rows, key);
  return row && row->remark == std::string_view("model");
}

/// A key that the program has not.
void absent(Reading& reading, const Schema& schema, const Rows& rows, const std::string& key, const Node& value, Unknown unknown) {
  std::vector<std::string> names = schema.keys();
  for (const Row& row : rows) names.emplace_back(row.foreign);
  std::string near = unknown == Unknown::refused ? nearest_name(key, names) : slip_of(key, names);
  if (near.empty() && unknown == Unknown::refused) near = same_of(key, rows);
  const bool of_weights = unknown == Unknown::own && tells_of_weights(key) && !tells_of_weights(near);  // lora_rank is no local_rank
  if ((!near.empty() && !of_weights) || unknown == Unknown::refused)
    fail("unknown key '" + key.substr(0, 80) + "': " + schema.release() + " has none of this name", value.where,
         near.empty() ? "leave it out" : "did you mean '" + near + "'?");
  if (unknown == Unknown::dropped) return reading.leave_unread(key + ": " + schema.release() + " has no such key and drops it", value.where);
  const std::string text = text_of(value);
  if (says_nothing(text, std::nullopt)) return reading.leave_unknown(key, value.where);
  if (names_a_way(key) && text == "full") return reading.leave_unknown(key, value.where);
  if (tells_of_weights(key))
    refuse("not modelled: " + key.substr(0, 60) + ", a key of the script's own which may decide what is trained", value.where,
           said_of_weights(key));
  if (const auto ours = strategy_key_of(key))
    refuse("'" + key.substr(0, 60) + "' is a key of the script's own, and may decide " + *ours, value.where,
           "leave it out and say " + flag_of(*ours) + ", or " + kRehearsal);
  const std::string whole = abbreviated(key, names, rows);
  if (names_the_model(whole, rows) && !reading.has("model")) return say_model(reading, value, key);  // so it does by either reading
  if (!whole.empty())
    refuse("'" + key.substr(0, 60) + "' is a key of the script's own, or argparse's short form of " + whole, value.where, "write " + whole + ", or leave it out");
  if (tells_of_layout(key))
    refuse("not modelled: " + key.substr(0, 60) + ", a key that " + schema.release() + " has not and that may decide how the run is laid out",
           value.where, std::string("leave it out and say what it means by flags, or ") + kRehearsal);
  if (const Telling* telling = told_by(key))
    refuse("'" + key.substr(0, 60) + "' is a key of the script's own, and may decide " + telling->what, value.where,
           std::string("leave it out and ") + telling->instead + ", or " + kRehearsal);
  if (names_configuration(key, text))
    refuse("'" + key.substr(0, 60) + "' names a configuration of the script's own, " + text.substr(0, 60) + ", which is not read", value.where,
           std::string("leave it out and say what it means by flags, or ") + kRehearsal);
  reading.leave_unknown(key, value.where);
}

}  // namespace

std::string way_without(const std::string& value) {
  return (value.empty() ? std::string("leave it out") : "set it to " + value) + " to plan without it, or " + kRehearsal;
}

void judge(Reading& reading, const Schema& schema, const Rows& rows, const std::string& key, const Node& value, Unknown unknown) {
  const KeyMark mark = schema.mark(key);
  if (mark.kind == KeyMark::Kind::absent) return absent(reading, schema, rows, key, value, unknown);
  const std::string text = text_of(value);
  const bool decides = mark.kind == KeyMark::Kind::not_modelled || mark.kind == KeyMark::Kind::unjudged;
  if (decides) require_known(key, text, value.where);
  if (decides && !says_nothing(text, mark.by_default))
    refuse("not modelled: " + (mark.why.empty() ? "'" + key + "' of " + schema.release() : mark.why) + ", found " + key + ": " +
               text.substr(0, 60),
           value.where,
           !mark.instead.empty() ? mark.instead : way_without(mark.by_default && *mark.by_default != "null" ? *mark.by_default : std::string()));
  if (mark.kind == KeyMark::Kind::told && !says_nothing(text, mark.by_default))
    return reading.leave_unknown(key + ": " + text.substr(0, 40) + " (" + mark.why + ", not modelled)", value.where);
  reading.leave_unread(key, value.where);
}

Schema::Schema(const std::string& text, const std::string& where) {
  const JsonDocument document = JsonDocument::parse(text, where);
  const JsonValue root = document.root();
  release_ = root["release"].text();
  for (const std::string& key : root["keys"].keys()) keys_[key] = default_in(root["keys"], key);
  for (const std::string& key : root["former"].keys()) keys_[key] = default_in(root["former"], key);
  if (const auto beside = root.find("beside"))
    for (const std::string& key : beside->keys()) keys_[key] = std::nullopt;
  for (const auto& [part, kind] : {std::pair("neutral", KeyMark::Kind::neutral), std::pair("told", KeyMark::Kind::told),
                                   std::pair("not_modelled", KeyMark::Kind::not_modelled)})
    for (const JsonValue& group : root.find(part) ? root[part].elements() : std::vector<JsonValue>()) {
      Group read{kind, group["why"].text(), {}};
      for (const JsonValue& key : group["keys"].elements()) read.keys.push_back(key.text());
      groups_.push_back(std::move(read));
    }
  if (const auto post = root.find("post_training")) {  // behind what is judged by name
    Group read{KeyMark::Kind::not_modelled, "training by preferences or rewards", {}};
    read.instead = kTrainersLine;
    for (const JsonValue& key : post->elements()) {
      keys_.emplace(key.text(), std::nullopt);
      read.keys.push_back(key.text());
    }
    groups_.push_back(std::move(read));
  }
}

const Schema* Schema::of(const std::string& format) {
  static const std::map<std::string, Schema> schemas = [] {
    const std::string front = "models/keys/", end = ".json";
    std::map<std::string, Schema> read;
    for (const auto* file : data::shipped_files_under(front)) {
      const std::string path(file->path);
      read.emplace(path.substr(front.size(), path.size() - front.size() - end.size()), Schema(std::string(file->text), path));
    }
    return read;
  }();
  const auto found = schemas.find(format);
  return found == schemas.end() ? nullptr : &found->second;
}

KeyMark Schema::mark(const std::string& key) const {
  KeyMark mark;
  const auto known = keys_.find(key);
  if (known != keys_.end()) mark = {KeyMark::Kind::unjudged, {}, known->second};
  for (const Group& group : groups_)
    for (const std::string& name : group.keys) {
      const bool whole = name == key;
      if (!whole && (!stands_for(name, key) || (known == keys_.end() && name.back() == '*'))) continue;
      mark.kind = group.kind;
      mark.why = group.why;
      mark.instead = group.instead;
      if (whole) return mark;  // a name goes before a pattern
    }
  return mark;
}

bool Schema::has_below(const std::string& key) const {
  const auto next = keys_.upper_bound(key + ".");
  return next != keys_.end() && next->first.compare(0, key.size() + 1, key + ".") == 0;
}

std::vector<std::string> Schema::keys() const {
  std::vector<std::string> names;
  for (const auto& [key, unused] : keys_) names.push_back(key);
  return names;
}

namespace {

const char* meaning_of(KeyMark::Kind kind) {
  return kind == KeyMark::Kind::neutral ? "nothing: " : kind == KeyMark::Kind::told ? "told: " : "refused: ";
}

}  // namespace

std::string Schema::page() const {
  std::string text = "\nThe other keys of " + release_ + " (models/keys), by what they mean:\n\n| keys | |\n| --- | --- |\n";
  for (const Group& group : groups_) {
    std::string names;
    for (const std::string& key : group.keys) names += (names.empty() ? "`" : ", `") + key + "`";
    text += "| " + names + " | " + meaning_of(group.kind) + group.why + " |\n";
  }
  return text;
}

Node with_switches_off(const Reading& reading, const Node& flags, const Rows& rows, const Schema& schema, const ReadRelease& release) {
  constexpr std::string_view kNo = "no_";
  Node spelled = flags;
  for (auto& [name, value] : spelled.members) {
    if (!name.starts_with(kNo) || !value.is_scalar() || value.text != "true") continue;
    const std::string key = name.substr(kNo.size());
    const Row* row = find_row(rows, key);
    const auto usual = row && row->by_default ? program_default(reading, key, row->by_default, release).word : schema.mark(key).by_default;
    if (usual != "true" || flags.find(key)) continue;
    value = Node::scalar("false", value.where);
    name = key;
  }
  return spelled;
}

}  // namespace plimsoll::formats
