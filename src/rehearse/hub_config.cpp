// Configs of models that a program names as Hugging Face's hub does, and that cannot be fetched where it is rehearsed.
#include <array>
#include <cctype>
#include <string_view>

#include "data/shipped_files.hpp"
#include "plimsoll/rehearse.hpp"

namespace plimsoll {
namespace {

/// "meta-llama/Meta-Llama-3-8B-Instruct" is "meta-llama-3-8b-instruct".
std::string without_owner(std::string_view name) {
  while (!name.empty() && name.back() == '/') name.remove_suffix(1);
  const std::size_t slash = name.rfind('/');
  std::string plain(slash == std::string_view::npos ? name : name.substr(slash + 1));
  for (char& letter : plain) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return plain;
}

const data::ShippedFile* shipped_config(const std::string& name) { return data::find_shipped_file("models/" + name + "/config.json"); }

bool cut_end(std::string& name, std::string_view end) {
  if (name.size() <= end.size() || name.compare(name.size() - end.size(), end.size(), end) != 0) return false;
  name.resize(name.size() - end.size());
  return true;
}

/// Tuned models have the shape of those that they come from.
bool cut_tuning(std::string& name) {
  constexpr std::array<std::string_view, 10> kTunings{"-instruct", "-chat", "-it",   "-hf",   "-base",
                                                      "-pt",       "-v0.1", "-v0.2", "-v0.3", "-v1.0"};
  for (const std::string_view tuning : kTunings)
    if (cut_end(name, tuning)) return true;
  return false;
}

}  // namespace

std::optional<HubConfig> hub_config(const std::string& name) {
  std::string plain = without_owner(name);
  constexpr std::string_view kMaker = "meta-";
  if (plain.compare(0, kMaker.size(), kMaker) == 0) plain.erase(0, kMaker.size());
  do {
    if (const data::ShippedFile* file = shipped_config(plain)) return HubConfig{plain, std::string(file->text)};
  } while (cut_tuning(plain));
  return {};
}

}  // namespace plimsoll
