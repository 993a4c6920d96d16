#include "plimsoll/plimsoll.hpp"

namespace plimsoll {

const char* version() { return PLIMSOLL_VERSION; }

}  // namespace plimsoll
