#include "framework/model_classes.hpp"

#include "data/shipped_files.hpp"
#include "plimsoll/error.hpp"
#include "units/json_reader.hpp"

namespace plimsoll::framework {
namespace {

const TypesSince& classes_of(Package package) {
  static std::map<Package, TypesSince> all = {{Package::transformers, types_since(Package::transformers, "classes")},
                                              {Package::torchtitan, types_since(Package::torchtitan, "classes")},
                                              {Package::torchtune, types_since(Package::torchtune, "classes")}};
  return all.at(package);
}

bool before(const Release& release, const Release& came) {
  return came.is_dated() ? release.date() < came.date() : release.with_date(0) < came;
}

}  // namespace

TypesSince types_since(Package package, const char* part) {
  constexpr const char* kTable = "models/releases.json";
  const JsonDocument document = JsonDocument::parse(data::find_shipped_file(kTable)->text, kTable);
  const JsonValue types = document.root()["packages"][std::string(name_of(package))][part];
  TypesSince since;
  for (const std::string& type : types.keys()) since.emplace(type, Release::parse(types[type].text()).value());
  return since;
}

void assume_release_with_classes(Package package, Strategy& s, const Model& model) {
  const TypesSince& classes = classes_of(package);
  const auto found = classes.find(model.model_type);
  if (found == classes.end() || s.releases.says(package) || !before(s.releases.of(package), found->second)) return;
  const Release came = found->second;
  s.releases.put(package, came.is_dated() ? came.with_numbers_of(release_out_on(package, came.date())) : came, Releases::Origin::assumed, "the main branch that brought " + model.model_type);
}

void check_classes(Package package, const Strategy& s, const Model& model) {
  const TypesSince& classes = classes_of(package);
  const auto found = classes.find(model.model_type);
  const Release release = s.releases.of(package), came = found == classes.end() ? facts_of(package).oldest : found->second;
  if (!before(release, came)) return;
  const std::string name(name_of(package)), first = came.text();
  fail(name + " " + release.text() + " has no " + model.model_type + ", whose classes came with " + first, "releases." + name, first + " or later");
}

}  // namespace plimsoll::framework
