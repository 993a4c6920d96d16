#include "search/fingerprint.hpp"

#include <fmt/format.h>

namespace plimsoll::searching {
namespace {

/// FNV-1a, 64 bits.
class Hash {
 public:
  void add(std::string_view text) {
    for (const char c : text) mix(static_cast<unsigned char>(c));
    mix(0xFF);
  }
  std::uint64_t value() const { return value_; }

 private:
  void mix(unsigned char byte) { value_ = (value_ ^ byte) * 1099511628211ULL; }
  std::uint64_t value_ = 14695981039346656037ULL;
};

}  // namespace

std::string fingerprint_of(const SearchRequest& request, const Space& space) {
  Hash hash;
  for (const std::string& text : {request.model.name, std::to_string(request.model.parameters()), request.cluster.name,
                                  std::to_string(request.cluster.gpus()), std::to_string(static_cast<int>(request.goal)),
                                  std::to_string(request.sample), std::to_string(request.top), fmt::format("{:.17g}", request.most_step_seconds)})
    hash.add(text);
  for (const auto& [key, value] : request.base.options) hash.add(key + "=" + value);
  for (const SearchAxis& axis : space.axes()) {
    hash.add(axis.key);
    for (const std::string& value : axis.values) hash.add(value);
  }
  return fmt::format("{:016x}", hash.value());
}

}  // namespace plimsoll::searching
