// Which releases run: those that were said, what they bring with them, and what else the framework stands on.
#include <algorithm>
#include <map>

#include "framework/resolver.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::framework {
namespace {

constexpr std::size_t kShown = 60;

std::string named(Package package, const Release& release) { return std::string(name_of(package)) + " " + release.text(); }

/// The text of `framework_version`, whose packages are the framework's.
void read_framework_version(Resolver& r) {
  Strategy& s = r.s;
  if (s.framework_version.empty()) return;
  const std::vector<Package>& own = packages_of(s.framework);
  const auto found = releases_in(s.framework_version, own);
  if (found.empty()) {
    const PackageFacts& facts = facts_of(own.front());
    fail("'" + s.framework_version.substr(0, kShown) + "' is no release of " + std::string(name_of(own.front())), "framework_version",
         "such as " + facts.newest.text() + ", the newest that was read");
  }
  for (const auto& [package, release] : found) {
    const Releases::Entry* before = s.releases.find(package);
    if (before != nullptr && before->origin == Releases::Origin::said && before->release != release)
      fail("disagrees with " + named(package, before->release) + ", which says the same thing", "framework_version", "give one of them");
    s.releases.put(package, release);
  }
  s.framework_version.clear();
}

/// A release newer than all that were read is taken as the newest of them, one older than all rules as the oldest, or refused.
void clamp(Resolver& r) {
  const std::vector<Releases::Entry> said = r.s.releases.all();
  for (const auto& [package, release, origin, why] : said) {
    const PackageFacts& facts = facts_of(package);
    if (origin != Releases::Origin::said) continue;
    if (facts.newest < release && !(facts.newest.text() == release.text())) {
      r.assume(std::string(name_of(package)) + ": " + release.text() + " as " + facts.newest.text() + ", the newest that was read");
      r.s.releases.put(package, facts.newest);
    } else if (release < facts.oldest) {
      const std::string first = facts.oldest.text() + ", the oldest that " + std::string(name_of(package)) + "'s rules know";
      if (facts.older_is_refused) refuse(named(package, release) + " is not modelled", "releases." + std::string(name_of(package)), first);
      r.assume(std::string(name_of(package)) + ": " + release.text() + " as " + first);
      r.s.releases.put(package, facts.oldest);
    }
  }
}

/// What a release brings where nobody says otherwise: containers' packages.
void take_held(Resolver& r) {
  std::vector<Package> holders;
  for (const Releases::Entry& entry : r.s.releases.all())
    if (entry.origin == Releases::Origin::said || entry.package == Package::verl) holders.push_back(entry.package);
  for (const Package own : packages_of(r.s.framework)) holders.push_back(own);
  for (const Package holder : holders) {
    const PackageFacts& facts = facts_of(holder);
    const bool container = holder == Package::nemo_container || holder == Package::pytorch_container;
    if (container && !r.s.releases.says(holder)) continue;
    const Release release = r.s.releases.of(holder);
    const auto* held = static_cast<const std::vector<std::pair<Package, Release>>*>(nullptr);
    for (const auto& [since, packages] : facts.holds)
      if (!(release < since)) held = &packages;
    if (!held) continue;
    for (const auto& [package, brought] : *held)
      if (!r.s.releases.find(package)) r.s.releases.put(package, brought, Releases::Origin::held, named(holder, release));
  }
}

/// PyTorch where nobody says: of a main branch the nightly of its day, of a release the one that was out then.
void take_torch(Resolver& r) {
  Strategy& s = r.s;
  if (r.profile().code == ModelCode::maxtext || s.releases.find(Package::torch)) return;  // JAX runs without
  for (const Package own : packages_of(s.framework)) {
    const Releases::Entry* entry = s.releases.find(own);
    if (!entry || entry->release.date() == 0 || entry->release == facts_of(own).newest) continue;
    const int day = entry->release.date();
    const bool of_main_branch = entry->release.is_dated() || !facts_of(own).dates.empty();  // whose authors run nightlies
    const Release torch = of_main_branch ? main_branch_on(Package::torch, day) : release_out_on(Package::torch, day);
    const std::string time = "of the time of " + named(own, entry->release);  // putting another moves the entries
    s.releases.put(Package::torch, torch, Releases::Origin::assumed, time);
    return r.assume("torch: " + torch.text() + " (" + time + ")");
  }
  const Release newest = facts_of(Package::torch).newest;
  s.releases.put(Package::torch, newest, Releases::Origin::assumed, "the newest that was read");
  r.assume("torch: " + newest.text());
}

/// DeepSpeed and Accelerate where transformers' release is said and theirs are not: those that were out when it came out.
void take_of_transformers_time(Resolver& r) {
  if (!r.s.releases.find(Package::transformers)) return;
  const Release transformers = r.s.releases.of(Package::transformers);
  if (transformers.date() == 0 || transformers == facts_of(Package::transformers).newest) return;
  for (const Package own : packages_of(r.s.framework)) {
    if ((own != Package::deepspeed && own != Package::accelerate) || r.s.releases.find(own)) continue;
    const std::string time = named(Package::transformers, transformers);
    const Release release = release_out_on(own, transformers.date());
    r.assume(std::string(name_of(own)) + ": " + release.text() + " (of the time of " + time + ")");
    r.s.releases.put(own, release, Releases::Origin::assumed, "of the time of " + time);
  }
}

/// Of transformers' classes before the attention interface of 4.48, rotary tables and masks are not told apart; those before 4.36, which brought
/// scaled dot-product attention, are 4.36's with attention in single steps.
void tell_older_classes(Resolver& r) {
  const Release transformers = r.s.releases.of(Package::transformers);
  if (r.profile().code != ModelCode::transformers || transformers.since(4, 48)) return;
  const std::string rest = transformers.since(4, 36) ? "" : ", and all else as in 4.36 with eager attention";
  r.assume("transformers " + transformers.text() + ": rotary tables and masks are made as in 4.48, whose classes were read for them" + rest);
}

/// What else runs is the newest.
void take_newest(Resolver& r) {
  for (const Package own : packages_of(r.s.framework)) {
    const bool other = own == Package::nemo_container || own == Package::pytorch_container || own == Package::nemo;
    if (other || r.s.releases.find(own)) continue;
    r.s.releases.put(own, facts_of(own).newest, Releases::Origin::assumed, "the newest that was read");
  }
}

}  // namespace

void resolve_releases(Resolver& r) {
  read_framework_version(r);
  clamp(r);
}

void complete_releases(Resolver& r) {
  take_held(r);
  take_torch(r);
  take_of_transformers_time(r);
  take_newest(r);
  tell_older_classes(r);
}

}  // namespace plimsoll::framework

namespace plimsoll {

const std::vector<Package>& packages_of(const std::string& framework) {
  using P = Package;
  static const std::map<std::string, std::vector<Package>> all = {
      {"transformers", {P::transformers}},
      {"accelerate", {P::accelerate, P::transformers}},
      {"diffusers", {P::diffusers}},
      {"torchtitan", {P::torchtitan}},
      {"torchtune", {P::torchtune}},
      {"deepspeed", {P::deepspeed, P::transformers}},
      {"megatron-core", {P::megatron_core, P::transformer_engine}},
      {"megatron-lm", {P::megatron_lm, P::megatron_core, P::transformer_engine}},
      {"megatron-bridge", {P::megatron_bridge, P::nemo_container, P::megatron_core, P::transformer_engine}},
      {"nemo", {P::nemo, P::nemo_container, P::pytorch_container, P::megatron_core, P::transformer_engine}},
      {"primus", {P::primus, P::megatron_core, P::transformer_engine}},
      {"megatron-deepspeed", {P::deepspeed}},
      {"nanotron", {P::nanotron}},
      {"llm-foundry", {P::llm_foundry}},
      {"jax-maxtext", {P::maxtext, P::nemo_container, P::jax}},
      {"jax-paxml", {P::nemo_container, P::jax}}};
  return all.at(find_framework(framework).name);
}

}  // namespace plimsoll
