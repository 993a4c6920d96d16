// One file per framework, one row per file in catalogue.cpp.
#pragma once

#include <string>
#include <vector>

#include "plimsoll/framework.hpp"

namespace plimsoll::framework {

/// Everything that contradicts itself or the framework, told together at the end.
class Complaints {
 public:
  /// `what` is wrong; `remedy` resolves it.
  void add(std::string what, std::string remedy) { texts_.push_back(std::move(what) + ": " + std::move(remedy)); }
  /// Throws one Error that names all of them; returns when there is none.
  void raise() const;

 private:
  std::vector<std::string> texts_;
};

/// A profile and the rules that no table of values can hold.
struct Entry {
  FrameworkProfile profile;
  /// Changes the profile as the version says.
  void (*adjust)(FrameworkProfile& profile, const Strategy& resolved) = nullptr;
  /// Fills options of this framework only; the common ones are resolved already.
  void (*complete)(Strategy& s, const Model& model) = nullptr;
  /// What the framework itself refuses.
  void (*check)(const Strategy& s, const Model& model, Complaints& complaints) = nullptr;
};

const std::vector<Entry>& catalogue();
const Entry& entry_of(const std::string& name);

Entry transformers();
Entry accelerate();
Entry diffusers();
Entry torchtitan();
Entry torchtune();
Entry deepspeed();
Entry megatron_core();
Entry megatron_lm();
Entry megatron_bridge();
Entry nemo();
Entry primus();
Entry megatron_deepspeed();
Entry nanotron();
Entry llm_foundry();
Entry maxtext();
Entry paxml();

}  // namespace plimsoll::framework
