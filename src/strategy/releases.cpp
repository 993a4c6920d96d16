// The table of packages, models/releases.json, and what people write of their releases.
#include <algorithm>
#include <cctype>

#include "data/shipped_files.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/release.hpp"
#include "units/json_reader.hpp"

namespace plimsoll {
namespace {

constexpr const char* kTable = "models/releases.json";
constexpr std::size_t kShown = 60;

constexpr std::string_view kNames[] = {
    "torch",         "transformers",       "accelerate",  "peft",           "trl",
    "bitsandbytes",  "liger-kernel",       "flash-attn",  "deepspeed",      "megatron-core",
    "megatron-lm",   "transformer-engine", "torchtitan",  "torchao",        "torchtune",
    "axolotl",       "llama-factory",      "llm-foundry", "nanotron",       "nemo",
    "nemo-container", "pytorch-container", "megatron-bridge", "primus",     "diffusers",
    "maxtext",       "jax",                "rocm",        "verl"};

// ---- the table ----------------------------------------------------------------------------------------------------------

/// Of the table, where every release is one.
Release read_release(const JsonValue& value) {
  const std::optional<Release> release = Release::parse(value.text());
  if (!release) value.expected("a release");
  return *release;
}

Release read_release(const JsonValue& object, const std::string& key) {
  const std::optional<Release> release = Release::parse(key);
  if (!release) object.expected("releases as keys, not '" + key + "'");
  return *release;
}

using Dates = std::vector<std::pair<Release, int>>;

Dates read_dates(const JsonValue& facts, const char* key) {
  Dates dates;
  if (!facts.has(key)) return dates;
  for (const std::string& release : facts[key].keys()) {
    const Release day = read_release(facts[key][release]);
    dates.emplace_back(read_release(facts[key], release), day.is_month() ? day.date() / 100 * 100 + 1 : day.date());
  }
  return dates;
}

/// The package of that very name, in the table.
Package read_package(const JsonValue& object, const std::string& name) {
  const auto* found = std::find(std::begin(kNames), std::end(kNames), name);
  if (found == std::end(kNames)) object.expected("packages as keys, not '" + name + "'");
  return static_cast<Package>(found - std::begin(kNames));
}

PackageFacts read_facts(Package package, const JsonValue& json) {
  PackageFacts facts;
  facts.package = package;
  facts.names.emplace_back(name_of(package));
  if (json.has("names"))
    for (const JsonValue& name : json["names"].elements()) facts.names.push_back(name.text());
  facts.dates = read_dates(json, "main");
  facts.released = read_dates(json, "released");
  facts.oldest = read_release(json["oldest"]);
  facts.newest = read_release(json["newest"]);
  facts.older_is_refused = json.has("older") && json["older"].text() == "refused";
  if (json.has("rules")) facts.rules = json["rules"].text();
  facts.source = json["source"].text();
  if (!json.has("holds")) return facts;
  const JsonValue holds = json["holds"];
  for (const std::string& key : holds.keys()) {
    std::vector<std::pair<Package, Release>> held;
    for (const std::string& name : holds[key].keys()) held.emplace_back(read_package(holds[key], name), read_release(holds[key][name]));
    facts.holds.emplace_back(read_release(holds, key), std::move(held));
  }
  return facts;
}

const JsonDocument& table() {
  static const JsonDocument document = [] {
    const data::ShippedFile* file = data::find_shipped_file(kTable);
    if (!file) fail(std::string("there is no shipped file ") + kTable);
    return JsonDocument::parse(file->text, kTable);
  }();
  return document;
}


/// The last of `dates` that began on or before a day; nullptr: none did.
const Release* release_at(const Dates& dates, int day) {
  const Release* found = nullptr;
  for (const auto& [release, since] : dates)
    if (since <= day) found = &release;
  return found;
}

/// When the code of a release was written, as far as `dates` tells.
int date_of(const Dates& dates, const Release& release) {
  int date = 0;
  for (const auto& [one, since] : dates)
    if (!(release < one.with_date(0))) date = since;
  return date;
}

/// A release said by its date has the numbers of its time, one said by numbers the date.
Release completed(const PackageFacts& facts, const Release& release) {
  if (!release.is_dated() && release.date() > 0) return release;  // a nightly
  if (!release.is_dated()) return release.with_date(date_of(facts.dates.empty() ? facts.released : facts.dates, release));
  const Release* numbers = release_at(facts.dates.empty() ? facts.released : facts.dates, release.date());
  return numbers ? release.with_numbers_of(*numbers) : release;
}

// ---- names and releases as people write them ----------------------------------------------------------------------------

/// Small letters, and dashes between words.
std::string plain(std::string_view name) {
  std::string text(name);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return c == '_' || c == ' ' ? '-' : static_cast<char>(std::tolower(c)); });
  return text;
}

/// The packages that go by a name.
std::vector<Package> packages_named(const std::string& name) {
  std::vector<Package> found;
  for (const PackageFacts& facts : package_facts())
    for (const std::string& each : facts.names)
      if (each == name) found.push_back(facts.package);
  return found;
}

/// Whether a package counts like that: a date, or numbers of an order of magnitude that it has had.
bool fits(Package package, const Release& release) {
  const PackageFacts& facts = facts_of(package);
  if (release.is_dated()) return !facts.dates.empty() || !facts.released.empty() || facts.newest.is_dated();
  return release.major() >= facts.oldest.major() && release.major() <= facts.newest.major();
}

/// The first of several packages whose numbers a release fits.
std::optional<Package> fitting(const std::vector<Package>& packages, const Release& release) {
  const auto found = std::find_if(packages.begin(), packages.end(), [&](Package one) { return fits(one, release); });
  return found == packages.end() ? std::nullopt : std::optional<Package>(*found);
}

/// The words of a prose text; quotes, brackets and punctuation between words are gone.
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  const auto end = [&] {
    if (!word.empty()) words.push_back(std::move(word));
    word.clear();
  };
  for (const char c : text)
    if (std::isspace(static_cast<unsigned char>(c)) != 0 || std::string_view(",;|/()'\":=").find(c) != std::string_view::npos)
      end();
    else
      word += c;
  end();
  return words;
}

bool is_commit(const std::string& word) {
  constexpr std::size_t kLeast = 6, kMost = 40;
  return word.size() >= kLeast && word.size() <= kMost &&
         std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
}

/// Words that stand between a package and its release and say nothing.
bool is_filler(const std::string& word) {
  constexpr std::string_view kFiller[] = {"nvidia", "ngc", "release", "framework", "container", "version", "of"};
  return std::find(std::begin(kFiller), std::end(kFiller), plain(word)) != std::end(kFiller);
}

/// "25.04.x", as lists of containers have it, is 25.04.
std::optional<Release> release_of_word(const std::string& word) {
  const bool any = word.size() > 2 && word.compare(word.size() - 2, 2, ".x") == 0;
  return Release::parse(any ? std::string_view(word).substr(0, word.size() - 2) : std::string_view(word));
}

/// A word that names packages, and what is joined to it by a dash ("flash-attn-cace3592", "rocm_version").
struct Named {
  std::vector<Package> packages;
  std::string rest;
};

Named named_by(const std::string& word) {
  const std::string name = plain(word);
  if (std::vector<Package> whole = packages_named(name); !whole.empty()) return {std::move(whole), {}};
  for (std::size_t dash = name.rfind('-'); dash != std::string::npos && dash > 0; dash = name.rfind('-', dash - 1)) {
    const std::string rest = name.substr(dash + 1);
    if (rest != "version" && !is_commit(rest) && !release_of_word(rest)) continue;
    if (std::vector<Package> front = packages_named(name.substr(0, dash)); !front.empty())
      return {std::move(front), rest == "version" ? std::string() : rest};
  }
  return {};
}

/// Reads a text in prose word by word.
class Prose {
 public:
  explicit Prose(const std::vector<Package>& own) : own_(own) {}

  void read(const std::string& word) {
    if (Named named = named_by(word); !named.packages.empty()) {
      current_ = std::move(named.packages);
      foreign_ = false;
      if (!named.rest.empty()) read_value(named.rest);
      return;
    }
    if (!is_filler(word)) read_value(word);
  }

  /// What was named without a release of its own is of the text's date.
  std::vector<std::pair<Package, Release>> finish() && {
    if (date_ && !own_.empty() && !is_found(own_.front()) && fits(own_.front(), *date_)) note(own_.front(), *date_);
    return std::move(found_);
  }

 private:
  void read_value(const std::string& word) {
    if (is_commit(word) && !Release::parse(word)) return;
    const std::optional<Release> release = release_of_word(word);
    if (!release) {
      current_.clear();
      foreign_ = true;
      return;
    }
    if (release->date() > 0 && !date_) date_ = release->is_dated() ? *release : Release::of_day(release->date());
    std::optional<Package> package = fitting(current_, *release);
    if (current_.size() == 1) package = current_.front();
    if ((!package || is_found(*package)) && !foreign_) package = own_fitting(*release);
    if (package && !is_found(*package)) note(*package, *release);
  }

  /// A release that stands alone is the framework's, behind that of another package its first one's ("NeMo 26.04 (v0.4.0)"); where its
  /// numbers fit nothing that has no release yet, it says the first wrongly.
  std::optional<Package> own_fitting(const Release& release) const {
    std::vector<Package> open;
    std::copy_if(own_.begin(), own_.end(), std::back_inserter(open), [&](Package one) { return !is_found(one); });
    if (!current_.empty() && (open.empty() || open.front() != own_.front())) return std::nullopt;
    if (!current_.empty()) open.resize(1);
    if (std::optional<Package> package = fitting(open, release)) return package;
    return found_.empty() && !own_.empty() ? std::optional<Package>(own_.front()) : std::nullopt;
  }
  bool is_found(Package package) const {
    return std::any_of(found_.begin(), found_.end(), [&](const auto& one) { return one.first == package; });
  }
  void note(Package package, const Release& release) { found_.emplace_back(package, completed(facts_of(package), release)); }

  const std::vector<Package>& own_;
  std::vector<std::pair<Package, Release>> found_;
  std::vector<Package> current_;  ///< named last
  std::optional<Release> date_;   ///< the text's first
  bool foreign_ = false;          ///< what was named last is no package of the table
};

/// The nearest that was read, for messages.
std::string nearest_release(const PackageFacts& facts, const std::string& text) {
  std::vector<std::string> known = {facts.newest.text()};
  for (const Dates* dates : {&facts.released, &facts.dates})
    for (const auto& [release, since] : *dates) known.push_back(release.text());
  const std::string near = nearest_name(text, known);
  if (!near.empty()) return "did you mean " + near + "? The newest that was read is " + facts.newest.text();
  return "such as " + facts.newest.text() + ", the newest that was read, or a date (2025-06)";
}

}  // namespace

std::string_view name_of(Package package) { return kNames[static_cast<std::size_t>(package)]; }

std::string_view name_of(Releases::Origin origin) {
  constexpr std::string_view kOrigins[] = {"said", "held", "assumed"};
  return kOrigins[static_cast<std::size_t>(origin)];
}

const std::vector<PackageFacts>& package_facts() {
  static const std::vector<PackageFacts> all = [] {
    std::vector<PackageFacts> facts;
    const JsonValue packages = table().root()["packages"];
    for (std::size_t i = 0; i < std::size(kNames); ++i) facts.push_back(read_facts(static_cast<Package>(i), packages[kNames[i]]));
    for (PackageFacts& one : facts) {
      one.oldest = completed(one, one.oldest);
      one.newest = completed(one, one.newest);
      for (auto& [release, held] : one.holds)
        for (auto& [package, brought] : held) brought = completed(facts[static_cast<std::size_t>(package)], brought);
    }
    return facts;
  }();
  return all;
}

const PackageFacts& facts_of(Package package) { return package_facts()[static_cast<std::size_t>(package)]; }

Release release_out_on(Package package, int day) {
  const PackageFacts& facts = facts_of(package);
  const Dates& dates = facts.released.empty() ? facts.dates : facts.released;
  const Release* found = release_at(dates, day);
  return completed(facts, found ? *found : dates.empty() ? facts.newest : dates.front().first);
}

Release main_branch_on(Package package, int day) {
  const Dates& dates = facts_of(package).dates;
  const Release* found = release_at(dates, day);
  return found ? *found : dates.empty() ? facts_of(package).newest : dates.front().first;
}

std::pair<Package, Release> parse_release(const std::string& package, const std::string& text, const std::string& where) {
  const std::vector<Package> named = packages_named(plain(package));
  if (named.empty()) {
    std::vector<std::string> known;
    for (const PackageFacts& facts : package_facts()) known.insert(known.end(), facts.names.begin(), facts.names.end());
    fail("the releases of '" + package.substr(0, kShown) + "' are not told apart", where, suggest(package.substr(0, kShown), known));
  }
  const std::optional<Release> release = Release::parse(text);
  if (!release)
    fail("'" + text.substr(0, kShown) + "' is no release of " + std::string(name_of(named.front())), where,
         nearest_release(facts_of(named.front()), text.substr(0, kShown)));
  const Package one = fitting(named, *release).value_or(named.front());
  return {one, completed(facts_of(one), *release)};
}

std::pair<std::string, std::string> release_option(const std::string& option) {
  const std::size_t equals = option.find('='), begin = option.find_first_not_of('=', equals);
  if (equals == std::string::npos || equals == 0 || begin == std::string::npos)
    fail("expected a package and its release, found '" + option.substr(0, kShown) + "'", "--release", "transformers=4.51.3");
  return {option.substr(0, equals), option.substr(begin)};
}

std::vector<std::pair<Package, Release>> releases_in(const std::string& text, const std::vector<Package>& own) {
  Prose prose(own);
  for (const std::string& word : words_of(text)) prose.read(word);
  return std::move(prose).finish();
}

void Releases::put(Package package, Release release, Origin origin, std::string why) {
  const auto after = std::lower_bound(entries_.begin(), entries_.end(), package, [](const Entry& one, Package p) { return one.package < p; });
  Entry entry{package, release, origin, std::move(why)};
  if (after != entries_.end() && after->package == package)
    *after = std::move(entry);
  else
    entries_.insert(after, std::move(entry));
}

void Releases::forget(Package package) {
  entries_.erase(std::remove_if(entries_.begin(), entries_.end(), [&](const Entry& one) { return one.package == package; }), entries_.end());
}

const Releases::Entry* Releases::find(Package package) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& one) { return one.package == package; });
  return found == entries_.end() ? nullptr : &*found;
}

Release Releases::of(Package package) const {
  const Entry* known = find(package);
  return known ? known->release : facts_of(package).newest;
}

std::string Releases::text() const {
  std::string text;
  for (const Entry& entry : entries_) text += (text.empty() ? "" : ", ") + std::string(name_of(entry.package)) + " " + entry.release.text();
  return text;
}

}  // namespace plimsoll
