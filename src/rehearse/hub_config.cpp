// Configs of models that a program names as Hugging Face's hub does, and that cannot be fetched where it is rehearsed.
#include "data/shipped_files.hpp"
#include "model/hub_names.hpp"
#include "plimsoll/rehearse.hpp"

namespace plimsoll {

std::optional<HubConfig> hub_config(const std::string& name) {
  const auto shipped = model::shipped_name_of(name);
  const data::ShippedFile* file = shipped ? data::find_shipped_file("models/" + *shipped + "/config.json") : nullptr;
  if (file == nullptr) return {};
  return HubConfig{*shipped, std::string(file->text)};
}

}  // namespace plimsoll
