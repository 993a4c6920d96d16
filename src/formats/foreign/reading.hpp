// What files of other programs said, gathered key by key with where each value stands.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "formats/foreign/node.hpp"
#include "plimsoll/formats.hpp"
#include "plimsoll/release.hpp"

namespace plimsoll::formats {

/// What is given beside scripts: values of what they do not say, and which of their launch lines is meant.
struct ScriptOptions {
  std::vector<std::pair<std::string, std::string>> values;
  std::int64_t launch = 0;  ///< counted from 1; 0: the only one
  std::int64_t nodes = 0, gpus_per_node = 0;  ///< of the machine that was said beside; 0: nothing was
};

/// A program's release whose keys and defaults were read: "transformers 4.57".
using ReadRelease = std::string;

class Reading {
 public:
  /// What a text says. The same key said twice with different values is a contradiction: throws Error, naming both places.
  void say(const std::string& key, const std::string& value, const std::string& foreign, const std::string& where);
  /// What follows from other keys; yields to what a text says.
  void derive(const std::string& key, const std::string& value, const std::string& why);
  /// What the program takes where its files say nothing; yields to both.
  void assume(const std::string& key, const std::string& value, const std::string& foreign, const ReadRelease& release);
  /// A key that changes nothing of memory or time.
  void leave_unread(const std::string& foreign, const std::string& where) { unread_.push_back(where + " " + foreign); }
  /// A key of a script's own, of which nothing is known.
  void leave_unknown(const std::string& foreign, const std::string& where) { unknown_.push_back(where + " " + foreign); }

  /// Which release of a package runs. Throws Error where two places say different ones.
  void state_release(Package package, const Release& release, const std::string& where);
  /// The release that was stated; nullopt: the newest.
  std::optional<Release> release_of(Package package) const;
  /// The packages whose releases were stated, with the places.
  struct StatedRelease {
    Package package;
    Release release;
    std::string where;
  };
  const std::vector<StatedRelease>& releases() const { return releases_; }

  /// What is known of a key so far; nullptr: nothing. Valid until the next change.
  const ForeignKey* find(const std::string& key) const;
  bool has(const std::string& key) const { return find(key) != nullptr; }
  /// The value of a key; `otherwise` where nothing is known.
  std::string value(const std::string& key, const std::string& otherwise = {}) const;
  /// The value as a whole number of at least 1; 0 where nothing is known. Throws Error, naming the place: no such number.
  std::int64_t count(const std::string& key) const;
  bool is(const std::string& key, const std::string& value) const { return this->value(key) == value; }
  void forget(const std::string& key);

  const std::vector<ForeignKey>& keys() const { return keys_; }
  const std::vector<std::string>& unread() const { return unread_; }
  const std::vector<std::string>& unknown() const { return unknown_; }

  /// Arguments of a command line take precedence over the files that they stand beside: what is said while `body` runs does.
  void overriding(const std::function<void()>& body);
  /// What is said while `body` runs yields to what is said otherwise: a file that is included by another.
  void yielding(const std::function<void()>& body);

  /// Runs once everything is read and the model is known (hidden size, in elements): what only then follows.
  using Completion = std::function<void(Reading&, const Model&)>;
  void when_model_is_known(Completion completion) { completions_.push_back(std::move(completion)); }
  const std::vector<Completion>& completions() const { return completions_; }

  /// A whole config.json, which wins over fields.
  void set_model_config(std::string text, std::string where) { model_config_ = {std::move(text), std::move(where)}; }
  const std::pair<std::string, std::string>& model_config() const { return model_config_; }

  /// Opens another file that one names, seen from the working directory, the folder of `from` and those above it, and reads it. Where it is
  /// nowhere and a file of its format was given, that one stands for it.
  /// Throws Error where it cannot be read, or where files include each other without end.
  void include(const std::string& path, const Node& from, const std::string& format = {});
  /// Where such a file is; the path as it stands where it is nowhere.
  std::string located(const std::string& path, const Node& from) const;
  /// Notes that a named file is nowhere, for check_missing().
  void miss(const std::string& path, const Node& from, const std::string& format) { missing_.push_back({path, from.where, format}); }
  /// Throws Error where a file that was named is nowhere, and none of its format was given.
  void check_missing() const;
  void set_reader(std::function<void(Reading&, const std::string&, const std::string&)> reader) { reader_ = std::move(reader); }

  /// Files that are not on the disk, by name: they come before those that are.
  void add_file(const std::string& name, const std::string& text) { files_[name] = text; }
  bool has_file(const std::string& path) const;
  /// The plain text of a file (node.hpp: read_plain).
  std::string text_of(const std::string& path) const;

  void set_script_options(ScriptOptions options) { script_options_ = std::move(options); }
  const ScriptOptions& script_options() const { return script_options_; }

  /// Keys that flags say on top of the files.
  void set_said_beside(std::vector<std::string> keys) { said_beside_ = std::move(keys); }
  /// Whether a key is said, by the files or beside them.
  bool is_answered(const std::string& key) const;
  /// Notes that a script asked for a value that was given.
  void use_value(const std::string& name) { used_values_.push_back(name); }
  /// Throws Error where a value was given that no script asked for.
  void check_values() const;

  /// Programs that were recognised, for what completes one in the light of another ("accelerate", "deepspeed").
  void note_format(const std::string& name) { formats_.push_back(name); }
  bool has_format(const std::string& name) const;
  const std::vector<std::string>& formats() const { return formats_; }

 private:
  struct Missing {
    std::string path, where, format;
  };

  void put(ForeignKey key, int rank);

  std::vector<ForeignKey> keys_;
  std::vector<StatedRelease> releases_;
  std::vector<int> ranks_;  ///< of keys_: how strongly each is said
  std::vector<std::string> unread_, unknown_, formats_;
  std::vector<Completion> completions_;
  std::pair<std::string, std::string> model_config_;
  std::map<std::string, std::string> files_;
  std::vector<Missing> missing_;
  ScriptOptions script_options_;
  std::vector<std::string> used_values_, said_beside_;
  std::function<void(Reading&, const std::string&, const std::string&)> reader_;
  int shift_ = 0, depth_ = 0;
};

}  // namespace plimsoll::formats
