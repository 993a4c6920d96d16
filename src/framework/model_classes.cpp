#include "framework/model_classes.hpp"

#include <utility>
#include <vector>

#include "data/shipped_files.hpp"
#include "plimsoll/error.hpp"
#include "units/json_reader.hpp"

namespace plimsoll::framework {
namespace {

constexpr const char* kClasses = "classes";

/// models/releases.json: since when a package has what, by the package and the table's part.
using Tables = std::map<std::pair<Package, std::string>, TypesSince>;

Tables read_tables() {
  constexpr const char* kTable = "models/releases.json";
  const JsonDocument document = JsonDocument::parse(data::find_shipped_file(kTable)->text, kTable);
  const std::vector<Tables::key_type> parts = {
      {Package::transformers, kClasses}, {Package::transformers, "sdpa"}, {Package::torchtitan, kClasses}, {Package::torchtune, kClasses}};
  Tables tables;
  for (const Tables::key_type& part : parts) {
    const JsonValue types = document.root()["packages"][std::string(name_of(part.first))][part.second];
    for (const std::string& type : types.keys()) tables[part].emplace(type, Release::parse(types[type].text()).value());
  }
  return tables;
}

bool before(const Release& release, const Release& came) {
  return came.is_dated() ? release.date() < came.date() : release.with_date(0) < came;
}

}  // namespace

const TypesSince& types_since(Package package, const char* part) {
  static const Tables tables = read_tables();
  return tables.at({package, part});
}

void assume_release_with_classes(Package package, Strategy& s, const Model& model) {
  const TypesSince& classes = types_since(package, kClasses);
  const auto found = classes.find(model.model_type);
  if (found == classes.end() || s.releases.says(package) || !before(s.releases.of(package), found->second)) return;
  const Release came = found->second;
  s.releases.put(package, came.is_dated() ? came.with_numbers_of(release_out_on(package, came.date())) : came, Releases::Origin::assumed, "the main branch that brought " + model.model_type);
}

void check_classes(Package package, const Strategy& s, const Model& model) {
  const TypesSince& classes = types_since(package, kClasses);
  const auto found = classes.find(model.model_type);
  const Release release = s.releases.of(package), came = found == classes.end() ? facts_of(package).oldest : found->second;
  if (!before(release, came)) return;
  const std::string name(name_of(package)), first = came.text();
  fail(name + " " + release.text() + " has no " + model.model_type + ", whose classes came with " + first, "releases." + name, first + " or later");
}

}  // namespace plimsoll::framework
