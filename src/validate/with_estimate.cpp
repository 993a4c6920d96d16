#include "plimsoll/validate.hpp"

namespace plimsoll {

Validation validate(const std::vector<RowSet>& sets) { return validate(sets, estimate); }

}  // namespace plimsoll
