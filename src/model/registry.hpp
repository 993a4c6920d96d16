// The one table of known architectures.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.hpp"
#include "plimsoll/model.hpp"

namespace plimsoll::model {

struct Family {
  std::string_view model_type;     ///< "llama"; for diffusers' configs the `_class_name`
  std::string_view class_prefix;   ///< "Llama": architectures are this and a head ("ForCausalLM")
  std::string_view default_class;  ///< built when the config names no architecture
  Model (*build)(const Config&);
};

/// A model type that is known and cannot be modelled yet, and why.
struct RefusedType {
  std::string_view model_type;
  std::string_view missing;
};

const std::vector<Family>& families();
const std::vector<RefusedType>& refused_types();

/// The family of a model type, or nullptr.
const Family* find_family(std::string_view model_type);
/// Whether a class belongs to a family: its prefix and the name of a head ("ForCausalLM", "Model", …) behind it.
bool is_class_of(std::string_view architecture, const Family& family);
/// The family's class that a config's class stands for: itself, or, where a repository calls its own class otherwise ("MyLlamaForCausalLM" of
/// type llama), the one with its head; nullopt: none is told.
std::optional<std::string> class_meant_by(const std::string& architecture, const Family& family);

/// The family that a class belongs to, or nullptr.
const Family* find_family_of_class(std::string_view architecture);

}  // namespace plimsoll::model
