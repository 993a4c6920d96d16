#pragma once

namespace plimsoll::cli {
inline constexpr const char* kVersion = PLIMSOLL_VERSION;
}
