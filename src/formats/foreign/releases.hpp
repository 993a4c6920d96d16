// What programs take where their files say nothing, release by release: models/releases.json.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace plimsoll::formats {

/// The program that a package of PyPI is of, as releases.json names it ("llamafactory" → "llama-factory"); empty: none whose releases are
/// told apart.
std::string program_of_package(const std::string& package);

/// The packages that have a program here, PyTorch's among them, for messages.
std::vector<std::string> known_packages();

/// The program of a release as readers name it: "DeepSpeed 0.19" → "deepspeed".
std::string program_of(const std::string& release);

/// Whether one release comes before another, number by number: "4.9" < "4.33.1", "core_v0.5.0" < "0.6".
bool is_earlier(const std::string& release, const std::string& other);

/// What a program of that release takes for a key, in its own words; an empty text says nothing. nullopt: releases do not differ in it, or
/// nobody knows. An empty release is the newest.
std::optional<std::string> default_of_release(const std::string& program, const std::string& key, const std::string& release);

/// From which release on a program takes which default for a key, oldest first ("0": from the first); empty as above.
std::vector<std::pair<std::string, std::string>> defaults_by_release(const std::string& program, const std::string& key);

/// A program's release as the key `framework_version` has it; empty: it says nothing there.
std::string framework_version_of(const std::string& program, const std::string& release);

}  // namespace plimsoll::formats
