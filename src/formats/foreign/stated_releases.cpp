#include "formats/foreign/stated_releases.hpp"

#include <algorithm>
#include <cctype>

#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

/// "Transformers[torch] == 4.46.3 ; python_version > '3.8'": a package and what stands behind "=="; both empty where it is no requirement.
struct Requirement {
  std::string package, release;
};

Requirement requirement_of(std::string line) {
  std::erase_if(line, [](unsigned char c) { return std::isspace(c) != 0; });
  line = line.substr(0, line.find_first_of("#;"));
  const std::size_t end = line.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
  Requirement found{line.substr(0, end), {}};
  if (found.package.empty() || std::isalnum(static_cast<unsigned char>(found.package[0])) == 0) return {};
  std::string rest = end == std::string::npos ? std::string() : line.substr(end);
  if (!rest.empty() && rest[0] == '[') {
    const std::size_t close = rest.find(']');
    if (close == std::string::npos) return {};
    rest.erase(0, close + 1);
  }
  std::transform(found.package.begin(), found.package.end(), found.package.begin(),
                 [](unsigned char c) { return c == '_' ? '-' : static_cast<char>(std::tolower(c)); });
  if (rest.rfind("==", 0) == 0 && rest.find(',') == std::string::npos) {
    const std::size_t release = rest.find_first_not_of('=');
    if (release == std::string::npos) return {};  // a shell's "NODES==" is no requirement
    found.release = rest.substr(release);
  }
  const bool other = rest.empty() || std::string_view("=<>~!@").find(rest[0]) != std::string_view::npos;
  return other ? found : Requirement{};
}

/// A requirement of a package whose releases are told apart, pinned to a release.
void state(Reading& reading, const Requirement& requirement, const std::string& where) {
  for (const PackageFacts& facts : package_facts()) {
    const bool named = std::find(facts.names.begin(), facts.names.end(), requirement.package) != facts.names.end();
    if (!named || !Release::parse(requirement.release)) continue;
    const auto [package, release] = parse_release(requirement.package, requirement.release, where);
    return reading.state_release(package, release, where);
  }
}

}  // namespace

void read_release_options(Reading& reading, const std::vector<std::string>& options) {
  for (const std::string& option : options) {
    const auto [name, text] = release_option(option);
    const auto [package, release] = parse_release(name, text, "--release");
    reading.state_release(package, release, "--release");
  }
}

bool read_requirements(Reading& reading, const std::string& text, const std::string& where) {
  std::vector<std::pair<Requirement, int>> found;
  bool pinned = false;
  int number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    const std::size_t first = line.find_first_not_of(" \t");
    if (first == std::string::npos || line[first] == '#' || line[first] == '-') continue;  // pip's own options
    const Requirement one = requirement_of(line);
    const std::size_t space = line.find_first_of(" \t", first), next = line.find_first_not_of(" \t", space);
    const bool words = space != std::string::npos && next != std::string::npos && line.find_first_of("=<>~!@#;[", next) != next;
    if (one.package.empty() || words) return false;
    pinned = pinned || !one.release.empty();
    found.emplace_back(one, number);
  }
  if (!pinned) return false;
  for (const auto& [one, line] : found) state(reading, one, where + ":" + std::to_string(line));
  return true;
}

void read_pip_line(Reading& reading, const std::vector<Node>& words) {
  const auto install = std::find_if(words.begin(), words.end(), [](const Node& word) { return word.text == "install"; });
  const bool pip = std::any_of(words.begin(), install, [](const Node& word) {
    const std::string name = word.text.substr(word.text.rfind('/') + 1);
    return name == "pip" || name == "pip3";
  });
  if (!pip || install == words.end()) return;
  for (auto word = install + 1; word != words.end(); ++word) state(reading, requirement_of(word->text), word->where);
}

void settle_releases(Reading& reading) {
  for (const auto& [package, release, where] : reading.releases())
    reading.derive("releases." + std::string(name_of(package)), release.text(), std::string(name_of(package)) + " " + release.text() + " of " + where);
}

}  // namespace plimsoll::formats
