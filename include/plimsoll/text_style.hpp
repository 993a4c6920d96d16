/// How a text report is set: what its terminal can show, and how much its reader wants.
#pragma once

#include <cstddef>

namespace plimsoll {

struct TextStyle {
  enum class Detail {
    brief,  ///< the answer alone
    usual,
    full,   ///< and where every number comes from
  };
  std::size_t width = 80;  ///< columns
  bool colour = false;     ///< ANSI escape sequences
  Detail detail = Detail::usual;
};

}  // namespace plimsoll
