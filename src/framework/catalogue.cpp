#include "framework/catalogue.hpp"

#include <algorithm>

#include "plimsoll/error.hpp"

namespace plimsoll {
namespace framework {

const std::vector<Entry>& catalogue() {
  static const std::vector<Entry> entries = {
      transformers(), accelerate(), torchtitan(), megatron_core(),      megatron_lm(), megatron_bridge(), nemo(),    primus(),
      deepspeed(),    nanotron(),   diffusers(),  megatron_deepspeed(), llm_foundry(), torchtune(),       maxtext(), paxml(),
  };
  return entries;
}

const Entry& entry_of(const std::string& name) {
  std::vector<std::string> known;
  for (const Entry& entry : catalogue()) {
    const auto& aliases = entry.profile.aliases;
    if (entry.profile.name == name || std::find(aliases.begin(), aliases.end(), name) != aliases.end()) return entry;
    known.push_back(entry.profile.name);
  }
  fail("unknown framework '" + name + "'", {}, suggest(name, known));
}

void Complaints::raise() const {
  if (texts_.empty()) return;
  std::string all;
  for (const auto& text : texts_) all += (all.empty() ? "" : "; ") + text;
  fail(all);
}

}  // namespace framework

const std::vector<FrameworkProfile>& frameworks() {
  static const std::vector<FrameworkProfile> profiles = [] {
    std::vector<FrameworkProfile> list;
    for (const auto& entry : framework::catalogue()) list.push_back(entry.profile);
    return list;
  }();
  return profiles;
}

const FrameworkProfile& find_framework(const std::string& name) { return framework::entry_of(name).profile; }

FrameworkProfile profile_of(const Strategy& resolved) {
  const auto& entry = framework::entry_of(resolved.framework);
  FrameworkProfile profile = entry.profile;
  if (entry.adjust != nullptr) entry.adjust(profile, resolved);
  return profile;
}

Engine engine_of(const Strategy& resolved) {
  const bool megatron = find_framework(resolved.framework).layer_spec != "";
  switch (resolved.data_parallel) {
    case DataParallel::zero0:
    case DataParallel::zero2:
    case DataParallel::zero3:
      return Engine::deepspeed;
    case DataParallel::zero1:
      return resolved.framework == "nanotron" ? Engine::nanotron : Engine::deepspeed;
    case DataParallel::fsdp1:
      return Engine::fsdp1;
    case DataParallel::fsdp2:
      return Engine::fsdp2;
    case DataParallel::megatron_fsdp:
      return Engine::megatron_fsdp;
    case DataParallel::megatron_distopt:
      return Engine::megatron;
    case DataParallel::ddp:
      if (resolved.framework == "nanotron") return Engine::nanotron;
      return megatron ? Engine::megatron : Engine::torch_ddp;
    default:
      return megatron ? Engine::megatron : Engine::plain;
  }
}

std::string_view name_of(ModelCode code) {
  switch (code) {
    case ModelCode::transformers:
      return "transformers";
    case ModelCode::diffusers:
      return "diffusers";
    case ModelCode::torchtitan:
      return "torchtitan";
    case ModelCode::torchtune:
      return "torchtune";
    case ModelCode::megatron_local:
      return "megatron-local";
    case ModelCode::megatron_te:
      return "megatron-te";
    case ModelCode::megatron_legacy:
      return "megatron-legacy";
    case ModelCode::nanotron:
      return "nanotron";
    case ModelCode::mpt:
      return "mpt";
    case ModelCode::maxtext:
      return "maxtext";
  }
  return "?";
}

std::string_view name_of(Engine engine) {
  switch (engine) {
    case Engine::plain:
      return "plain";
    case Engine::torch_ddp:
      return "torch-ddp";
    case Engine::fsdp1:
      return "fsdp1";
    case Engine::fsdp2:
      return "fsdp2";
    case Engine::deepspeed:
      return "deepspeed";
    case Engine::megatron:
      return "megatron";
    case Engine::megatron_fsdp:
      return "megatron-fsdp";
    case Engine::nanotron:
      return "nanotron";
  }
  return "?";
}

}  // namespace plimsoll
