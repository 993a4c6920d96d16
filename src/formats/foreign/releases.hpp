// What programs take where their files say nothing, release by release: the `defaults` of models/releases.json.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plimsoll/release.hpp"

namespace plimsoll::formats {

/// The package of keys as readers name their program and release: "DeepSpeed 0.19" → deepspeed, "Megatron-LM core_v0.16" → megatron-core.
std::optional<Package> package_of(const std::string& release);

/// What a program takes for a key from which release on, in its own words, oldest first; an empty text says nothing. No step: releases do
/// not differ in it, or nobody knows.
using Steps = std::vector<std::pair<Release, std::string>>;
Steps defaults_by_release(std::optional<Package> package, const std::string& key);

/// What holds in a release; nullopt: the newest. Of no steps: nullopt.
std::optional<std::string> default_of_release(const Steps& steps, const std::optional<Release>& release);

}  // namespace plimsoll::formats
