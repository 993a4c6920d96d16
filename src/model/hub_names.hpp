// Shipped models by the names that others give them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace plimsoll::model {

/// The shipped name of a repository of Hugging Face's hub ("meta-llama/Llama-3.1-8B-Instruct" → "llama-3.1-8b"), by models/hub.json or, for
/// another owner's copy or tuning, by its own name without the owner and what tells how it was tuned. Case does not matter.
std::optional<std::string> shipped_name_of(std::string_view hub_name);

/// The type in which a checkpoint lies on the hub.
struct CheckpointDtype {
  std::string type;     ///< "bf16"
  std::string told_by;  ///< whose copy of its config.json says so, or why it is assumed
};

/// That of a shipped model, where models/hub.json has it.
std::optional<CheckpointDtype> checkpoint_dtype_of(const std::string& shipped);

/// The model type of a repository whose class is code of its own (auto_map), not transformers': "qwen" of "Qwen/Qwen-7B".
std::optional<std::string> own_code_type_of(std::string_view hub_name);

/// A shipped model's name on the hub: the first that models/hub.json has, else its own.
std::string hub_name_of(const std::string& shipped);

/// "google/Gemma-3-27b-it" is "gemma-3-27b-it": as shipped models are named.
std::string name_without_owner(std::string_view hub_name);

}  // namespace plimsoll::model
