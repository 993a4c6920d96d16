#include "plimsoll/estimate.hpp"

namespace plimsoll {

std::string_view name_of(Basis basis) {
  constexpr std::string_view kNames[] = {"played", "closed form", "profile"};
  return kNames[static_cast<int>(basis)];
}

std::string_view name_of(Verdict verdict) {
  constexpr std::string_view kNames[] = {"fits", "tight", "does_not_fit"};
  return kNames[static_cast<int>(verdict)];
}

}  // namespace plimsoll
