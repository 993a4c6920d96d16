#include "formats/foreign/keys.hpp"

#include <algorithm>
#include <cctype>

#include "formats/foreign/releases.hpp"
#include "formats/foreign/schema.hpp"
#include "formats/shell/unknown.hpp"
#include "plimsoll/error.hpp"
#include "units/switches.hpp"

namespace plimsoll::formats {
namespace {

struct Word {
  std::string theirs, ours;
};

std::vector<Word> words_of(const Row& row) {
  std::vector<Word> words;
  const std::string text = row.words;
  if (text.empty() || text == "not") return words;
  for (std::size_t at = 0, comma = 0; comma != std::string::npos; at = comma + 1) {
    comma = text.find(',', at);
    const std::string word = text.substr(at, comma == std::string::npos ? comma : comma - at);
    const std::size_t equals = word.find('=');
    words.push_back({word.substr(0, equals), equals == std::string::npos ? word : word.substr(equals + 1)});
  }
  return words;
}

bool same_word(const std::string& a, const std::string& b) {
  const auto plain = [](char c) { return c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c))); };
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [&](char x, char y) { return plain(x) == plain(y); });
}

bool is_among(const Row& row, const std::string& value) {
  for (const Word& word : words_of(row))
    if (same_word(word.theirs, value)) return true;
  return false;
}

/// Whether `row` stands for the key `path`: by name, or for everything below it.
bool stands_for(const Row& row, const std::string& path) {
  const std::string_view name(row.foreign);
  if (name == "*") return true;
  if (name.size() > 2 && name.substr(name.size() - 2) == ".*")
    return path.compare(0, name.size() - 1, name.substr(0, name.size() - 1)) == 0;
  return name == path;
}

bool is_pattern(const Row& row) {
  const std::string_view name(row.foreign);
  return name == "*" || (name.size() > 2 && name.substr(name.size() - 2) == ".*");
}

/// "deepspeed.zero_optimization.*" for everything below "zero_optimization.*".
std::string our_key(const Row& row, const std::string& path) {
  std::string ours(row.ours);
  if (ours.size() < 2 || ours.substr(ours.size() - 2) != ".*") return ours;
  return ours.substr(0, ours.size() - 1) + path.substr(std::string_view(row.foreign).size() - 1);
}

std::vector<std::string> names_of(const Rows& rows) {
  std::vector<std::string> names;
  for (const Row& row : rows) names.emplace_back(row.foreign);
  return names;
}

/// Keys that name files and folders, by their ends or as they are: who opens such a file asks for it.
bool names_a_path(const std::string& key) {
  return key.ends_with("_path") || key.ends_with("_file") || key.ends_with("_dir") || key.ends_with("_model") || key == "deepspeed" ||
         key == "deepspeed_config";
}

class RowReader {
 public:
  RowReader(Reading& reading, const Rows& rows, std::string prefix, Unknown unknown, const Schema* schema = nullptr)
      : reading_(reading), rows_(rows), prefix_(std::move(prefix)), unknown_(unknown), schema_(schema) {}

  void read(const Node& table, const std::string& path = {}) {
    for (const auto& [name, value] : table.members) one(path + name, value);
  }

 private:
  void one(const std::string& key, const Node& value) {
    const Row* row = find_row(rows_, key);
    const bool exact = row != nullptr && !is_pattern(*row);
    if (value.is_table() && !exact && has_rows_below(key)) return read(value, key + ".");
    const bool ours = row != nullptr && row->ours != kCode && row->ours != kNothing && row->ours != kRefused;
    const bool whole = schema_ && row == nullptr && !schema_->has_below(key) && !has_pattern_below(key);
    if (value.is_table() && !whole && (row == nullptr || (ours && is_pattern(*row)))) return read(value, key + ".");
    if (row == nullptr) return unknown(key, value);
    if (row->ours != kNothing && exact) require_resolved(key, value);
    if (row->ours == kCode) require_deciding(*row, key, value);
    if (row->ours == kCode || value.is_null()) return;
    if (row->ours == kNothing) return reading_.leave_unread(prefix_ + key, value.where);
    if (row->ours == kRefused) return refuse_value(*row, key, value);
    for (const Row& each : rows_)  // one key may say several things
      if (&each == row || (!is_pattern(*row) && key == each.foreign)) {
        const std::string said = to_ours(each, truth_of(key, value.word()), value.where);
        if (!said.empty()) reading_.say(our_key(each, key), said, prefix_ + key, value.where);
      }
  }

  bool has_rows_below(const std::string& key) const {
    return std::any_of(rows_.begin(), rows_.end(), [&](const Row& row) {
      const std::string_view name(row.foreign);
      return !is_pattern(row) && name.size() > key.size() && name.substr(0, key.size()) == key && name[key.size()] == '.';
    });
  }

  /// A reference that its file does not settle may stand for a folder, and for nothing that decides.
  void require_resolved(const std::string& key, const Node& value) const {
    if (!is_unresolved(value) || names_a_path(key)) return;
    fail("there is no value that " + value.text.substr(0, 80) + " of " + prefix_ + key + " could stand for", value.where,
         "write the value into the file");
  }

  /// A number that stands for a switch, which its default tells, as one: 1 of `sequence_parallel: 1`.
  std::string truth_of(const std::string& key, const std::string& value) const {
    const std::optional<bool> on = truth_of_number(value);
    if (!schema_ || !on) return value;
    const std::optional<std::string> usual = schema_->mark(key).by_default;
    return usual == "true" || usual == "false" ? (*on ? "true" : "false") : value;
  }

  bool has_pattern_below(const std::string& key) const {
    return std::any_of(rows_.begin(), rows_.end(), [&](const Row& row) { return row.foreign == key + ".*"; });
  }

  /// What is read by hand decides something, unless it only names a file: who opens that asks for it.
  void require_deciding(const Row& row, const std::string& key, const Node& value) const {
    if (value.is_table() || value.is_null() || std::string_view(row.remark) == "model" || names_a_path(key)) return;
    require_known(prefix_ + key, value.word(), value.where);
  }

  void refuse_value(const Row& row, const std::string& key, const Node& value) {
    const std::string text = value.is_table() ? "{…}" : value.word();
    require_known(prefix_ + key, text, value.where);
    if (text.empty() || is_among(row, text)) return;
    refuse("not modelled: " + std::string(row.remark) + ", found " + prefix_ + key + ": " + text.substr(0, 60), value.where,
           way_without(*row.words ? words_of(row).front().theirs : std::string()));
  }

  void unknown(const std::string& key, const Node& value) {
    if (schema_) return judge(reading_, *schema_, rows_, prefix_ + key, value, unknown_);
    if (unknown_ == Unknown::unread) return reading_.leave_unread(prefix_ + key, value.where);
    if (unknown_ == Unknown::dropped) return drop(key, value);
    const std::string near = nearest_name(key, names_of(rows_));
    fail("unknown key '" + prefix_ + key + "'", value.where,
         near.empty() ? "the program refuses it itself" : "did you mean '" + near + "'?");
  }

  /// What the program takes no notice of, unless it is nearly a name that it knows.
  void drop(const std::string& key, const Node& value) {
    const std::string near = slip_of(key, names_of(rows_));
    if (!near.empty()) fail("unknown key '" + prefix_ + key + "'", value.where, "did you mean '" + near + "'?");
    reading_.leave_unread(prefix_ + key + ": the program drops it", value.where);
  }

  Reading& reading_;
  const Rows& rows_;
  std::string prefix_;
  Unknown unknown_;
  const Schema* schema_;
};

std::vector<std::string> parts_of(std::string_view name) {
  std::vector<std::string> parts(1);
  for (const char c : name) {
    if (c == '_') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

/// Whether one of two names has a word that the other has not: min_length is no slip of max_length, budget none of judge, lora_rank none of
/// q_lora_rank.
bool has_another_word(std::string_view key, const std::string& name) {
  const std::vector<std::string> ours = parts_of(key), theirs = parts_of(name);
  if (ours.size() != theirs.size()) {
    const auto &fewer = ours.size() < theirs.size() ? ours : theirs, &more = ours.size() < theirs.size() ? theirs : ours;
    return std::equal(fewer.begin(), fewer.end(), more.begin()) || std::equal(fewer.rbegin(), fewer.rend(), more.rbegin());
  }
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const bool begins_alike = ours[i].substr(0, 1) == theirs[i].substr(0, 1);
    if (nearest_name(ours[i], {theirs[i]}, begins_alike ? std::max<std::size_t>(1, ours[i].size() / 2) : 1).empty()) return true;
  }
  return false;
}

}  // namespace

std::string slip_of(std::string_view key, const std::vector<std::string>& names) {
  std::vector<std::string> near = names;
  std::erase_if(near, [&](const std::string& name) { return has_another_word(key, name); });
  return nearest_name(key, near, std::min(kSlips, key.size() / 3));
}

void require_known(const std::string& key, const std::string& value, const std::string& where) {
  if (is_unknown(value)) fail("the value of " + key + " comes from " + told(value) + " and is not known here", where, asked_for(value));
}

const Row* find_row(const Rows& rows, const std::string& foreign) {
  for (const Row& row : rows)
    if (stands_for(row, foreign)) return &row;
  return nullptr;
}

std::pair<Node, Node> deal_keys(const Rows& rows, const Node& table) {
  std::pair<Node, Node> dealt{Node::table(table.where), Node::table(table.where)};
  for (const auto& member : table.members) (find_row(rows, member.first) ? dealt.first : dealt.second).members.push_back(member);
  return dealt;
}

std::string to_ours(const Row& row, const std::string& value, const std::string& where) {
  const std::string rule = row.words;
  require_known(row.foreign, value, where);
  if (rule == "not") {
    const std::optional<bool> on = switch_of(value);
    if (!on)
      fail(std::string("expected ") + kSwitchWords + " for " + row.foreign + ", found \"" + value.substr(0, 60) + "\"", where);
    return *on ? "false" : "true";
  }
  const std::vector<Word> words = words_of(row);
  if (words.empty()) return value;
  const Word* others = nullptr;
  std::vector<std::string> known;
  for (const Word& word : words) {
    if (word.theirs == "*") {
      others = &word;
      continue;
    }
    known.push_back(word.theirs);
    if (!same_word(word.theirs, value)) continue;
    if (word.ours[0] == '!')
      refuse(std::string(row.foreign) + ": " + value + " is not modelled" + (word.ours.size() > 1 ? " (" + word.ours.substr(1) + ")" : ""),
             where);
    return word.ours == "-" ? std::string() : word.ours;
  }
  if (others && others->ours == "*") return value;
  if (others && others->ours == "-") return {};
  if (others) refuse(std::string(row.foreign) + ": " + value.substr(0, 60) + " is not modelled", where, suggest("", known));
  fail("'" + value.substr(0, 60) + "' is no value of " + row.foreign, where, suggest(value.substr(0, 60), known));
}

std::string to_theirs(const Row& row, const std::string& value) {
  if (std::string_view(row.words) == "not") return value == "true" ? "false" : "true";
  const std::vector<Word> words = words_of(row);
  bool others = words.empty();
  for (const Word& word : words) {
    if (word.theirs == "*") others = true;
    if (word.ours == value && word.theirs != "*") return word.theirs;
  }
  return others ? value : std::string();
}

void read_rows(Reading& reading, const Rows& rows, const Node& tree, const std::string& prefix, Unknown unknown) {
  if (tree.is_null()) return;
  if (!tree.is_table()) fail("expected a table of keys", tree.where);
  RowReader(reading, rows, prefix, unknown).read(tree);
}

void read_rows(Reading& reading, const Rows& rows, const Schema& schema, const Node& tree, Unknown unknown) {
  if (tree.is_null()) return;
  if (!tree.is_table()) fail("expected a table of keys", tree.where);
  RowReader(reading, rows, {}, unknown, &schema).read(tree);
}

ProgramDefault program_default(const Reading& reading, const std::string& key, const char* otherwise, const ReadRelease& read) {
  const std::optional<Package> package = package_of(read);
  const std::optional<Release> stated = package ? reading.release_of(*package) : std::nullopt;
  const Steps steps = defaults_by_release(package, key);
  ProgramDefault found;
  found.release = stated ? std::string(name_of(*package)) + " " + stated->text() : read;
  found.word = default_of_release(steps, stated);
  if (!found.word && otherwise) found.word = otherwise;
  found.told = key + ": " + found.word.value_or("");
  for (std::size_t i = steps.size(); !stated && i > 1; --i)
    found.told += ", before " + steps[i - 1].first.text() + " " + (steps[i - 2].second.empty() ? "nothing" : steps[i - 2].second);
  return found;
}

void take_default(Reading& reading, const Row& row, const ReadRelease& release, const std::string& prefix) {
  if (row.ours == kCode || row.ours == kNothing || row.ours == kRefused) return;
  const std::string key = prefix + row.foreign;
  const bool given = std::any_of(reading.keys().begin(), reading.keys().end(), [&](const ForeignKey& one) {
    return one.kind == ForeignKey::Kind::said && one.foreign == key;  // a value that says nothing of this key of ours
  });
  if (given) return;
  const ProgramDefault found = program_default(reading, key, row.by_default, release);
  if (!found.word || found.word->empty()) return;
  const std::string value = to_ours(row, *found.word, found.release);
  if (!value.empty()) reading.assume(std::string(row.ours), value, found.told, found.release);
}

void take_defaults(Reading& reading, const Rows& rows, const ReadRelease& release, const std::string& prefix) {
  for (const Row& row : rows) take_default(reading, row, release, prefix);
}

Node table_of_flags(const std::vector<Node>& words, std::vector<Node>& positional) {
  const auto is_flag = [](const Node& word) {
    return word.text.size() > 1 && word.text[0] == '-' && !word.quoted && std::isdigit(static_cast<unsigned char>(word.text[1])) == 0 &&
           word.text[1] != '.';
  };
  const auto truth = [](std::string text) { return text == "True" ? "true" : text == "False" ? "false" : text; };
  Node table = Node::table(words.empty() ? std::string() : words.front().where);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const Node& word = words[i];
    const std::size_t equals = word.text.find('=');
    if (!is_flag(word)) {
      const bool override = equals != std::string::npos && equals > 0 && std::isalpha(static_cast<unsigned char>(word.text[0])) != 0;
      if (override) {
        table.set(word.text.substr(0, equals), Node::scalar(truth(word.text.substr(equals + 1)), word.where));
      } else {
        positional.push_back(word);
      }
      continue;
    }
    std::string name = word.text.substr(0, equals);
    name.erase(0, name.find_first_not_of('-'));
    std::replace(name.begin(), name.end(), '-', '_');
    std::vector<std::string> values;
    if (equals != std::string::npos) values.push_back(word.text.substr(equals + 1));
    while (equals == std::string::npos && i + 1 < words.size() && !is_flag(words[i + 1])) values.push_back(words[++i].text);
    Node value = Node::scalar(values.empty() ? "true" : truth(values.front()), word.where);
    if (values.size() > 1) {
      value.kind = Node::Kind::list;
      for (const std::string& one : values) value.members.emplace_back("", Node::scalar(one, word.where));
    }
    table.set(name, std::move(value));
  }
  return table;
}

}  // namespace plimsoll::formats
