#include "formats/foreign/reading.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "formats/foreign/keys.hpp"
#include "formats/shell/unknown.hpp"
#include "plimsoll/error.hpp"
#include "units/files.hpp"

namespace plimsoll::formats {
namespace {

constexpr int kDefault = 0, kDerived = 10, kSaid = 20;

bool same_value(const std::string& a, const std::string& b) {
  if (a == b) return true;
  char *end_a = nullptr, *end_b = nullptr;
  const double x = std::strtod(a.c_str(), &end_a), y = std::strtod(b.c_str(), &end_b);
  return !a.empty() && !b.empty() && *end_a == 0 && *end_b == 0 && x == y;
}

/// The file of a place: "a/b.yaml:12" and "a/b.json#/x" are both of a file.
std::string file_of(const std::string& where) { return where.substr(0, std::min(where.rfind(':'), where.find('#'))); }

}  // namespace

void Reading::put(ForeignKey key, int rank) {
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    if (keys_[i].key != key.key) continue;
    const bool contradicts = rank == ranks_[i] && rank >= kSaid - 5 && !same_value(keys_[i].value, key.value);
    if (contradicts)
      fail("'" + key.foreign + ": " + key.value.substr(0, 60) + "' disagrees with '" + keys_[i].foreign + ": " +
               keys_[i].value.substr(0, 60) + "' (" + keys_[i].where + "), which says the same thing",
           key.where, "give one of them");
    if (rank < ranks_[i]) return;
    keys_[i] = std::move(key);
    ranks_[i] = rank;
    return;
  }
  keys_.push_back(std::move(key));
  ranks_.push_back(rank);
}

void Reading::say(const std::string& key, const std::string& value, const std::string& foreign, const std::string& where) {
  put({key, value, foreign, where, ForeignKey::Kind::said}, kSaid + shift_);
}

void Reading::derive(const std::string& key, const std::string& value, const std::string& why) {
  put({key, value, {}, why, ForeignKey::Kind::derived}, kDerived);
}

void Reading::assume(const std::string& key, const std::string& value, const std::string& foreign, const ReadRelease& release) {
  if (!has(key)) put({key, value, foreign, release, ForeignKey::Kind::by_default}, kDefault);
}

void Reading::state_release(Package package, const Release& release, const std::string& where) {
  const auto found = std::find_if(releases_.begin(), releases_.end(), [&](const StatedRelease& one) { return one.package == package; });
  if (found == releases_.end()) return releases_.push_back({package, release, where});
  const std::string name(name_of(package));
  if (found->release != release)
    fail(name + " " + release.text() + " disagrees with " + name + " " + found->release.text() + " (" + found->where + ")", where,
         "state one release");
}

std::optional<Release> Reading::release_of(Package package) const {
  const auto found = std::find_if(releases_.begin(), releases_.end(), [&](const StatedRelease& one) { return one.package == package; });
  return found == releases_.end() ? std::nullopt : std::optional<Release>(found->release);
}

const ForeignKey* Reading::find(const std::string& key) const {
  const auto found = std::find_if(keys_.begin(), keys_.end(), [&](const ForeignKey& one) { return one.key == key; });
  return found == keys_.end() ? nullptr : &*found;
}

std::string Reading::value(const std::string& key, const std::string& otherwise) const {
  const ForeignKey* found = find(key);
  return found ? found->value : otherwise;
}

std::int64_t Reading::count(const std::string& key) const {
  const ForeignKey* found = find(key);
  if (!found) return 0;
  std::int64_t number = 0;
  const std::string& text = found->value;
  require_known(found->foreign, text, found->where);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (error != std::errc() || end != text.data() + text.size() || number < 1 || number > kMost)
    fail("'" + text.substr(0, 60) + "' is no whole number of at least 1 (" + found->foreign + ")", found->where);
  return number;
}

void Reading::forget(const std::string& key) {
  for (std::size_t i = 0; i < keys_.size(); ++i)
    if (keys_[i].key == key) {
      keys_.erase(keys_.begin() + static_cast<std::ptrdiff_t>(i));
      ranks_.erase(ranks_.begin() + static_cast<std::ptrdiff_t>(i));
      return;
    }
}

void Reading::overriding(const std::function<void()>& body) {
  ++shift_;
  body();
  --shift_;
}

void Reading::yielding(const std::function<void()>& body) {
  --shift_;
  body();
  ++shift_;
}

bool Reading::has_format(const std::string& name) const { return std::find(formats_.begin(), formats_.end(), name) != formats_.end(); }

bool Reading::is_answered(const std::string& key) const {
  return has(key) || std::find(said_beside_.begin(), said_beside_.end(), key) != said_beside_.end();
}

void Reading::check_missing() const {
  for (const Missing& one : missing_) {
    if (!one.format.empty() && has_format(one.format)) continue;
    if (is_unknown(one.path)) fail("the file that is named here comes from " + told(one.path) + " and is not known", one.where, asked_for(one.path));
    fail("the file '" + one.path.substr(0, 200) + "' that is named here is not there", one.where, "give it with --from");
  }
}

void Reading::check_values() const {
  for (const auto& [name, value] : script_options_.values)
    if (std::find(used_values_.begin(), used_values_.end(), name) == used_values_.end())
      fail("nothing that was read asks for '" + name.substr(0, 60) + "'", "--set", "a script's own assignment counts where its value is known");
}

bool Reading::has_file(const std::string& path) const {
  return files_.count(path) != 0 || files::exists(path);
}

std::string Reading::text_of(const std::string& path) const {
  const auto found = files_.find(path);
  return found != files_.end() ? plain_text(found->second) : read_plain(path);
}

std::string Reading::located(const std::string& path, const Node& from) const {
  constexpr int kMostFolders = 16;
  namespace fs = std::filesystem;
  fs::path folder = fs::path(file_of(from.where)).parent_path();
  if (has_file(path) || fs::path(path).is_absolute()) return path;
  for (int up = 0; up < kMostFolders; ++up, folder /= "..")
    if (files::exists((folder / path).string())) return (folder / path).string();  // projects name files from their own root
  const std::string name = fs::path(path).filename().string();
  return files_.count(name) != 0 ? name : path;  // files that were handed over lie in no folder
}

void Reading::include(const std::string& path, const Node& from, const std::string& format) {
  constexpr int kMostIncludes = 16;
  if (++depth_ > kMostIncludes) fail("files include each other more than " + std::to_string(kMostIncludes) + " deep", from.where);
  const std::string found = located(path, from);
  if (has_file(found)) {
    reader_(*this, found, format);
  } else {
    miss(path, from, format);
  }
  --depth_;
}

}  // namespace plimsoll::formats
