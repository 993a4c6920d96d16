#include "real.hpp"

#include <cstdlib>
#include <string>
#include <system_error>
#include <version>

namespace plimsoll {

std::from_chars_result real_from_chars(const char* first, const char* last, double& number) {
#ifdef __cpp_lib_to_chars
  return std::from_chars(first, last, number);
#else
  const std::string text(first, last);
  const bool begins = !text.empty() && (text[0] == '-' || text[0] == '.' || (text[0] >= '0' && text[0] <= '9'));
  if (!begins || text.find_first_of("xX") != std::string::npos) return {first, std::errc::invalid_argument};
  char* end = nullptr;
  number = std::strtod(text.c_str(), &end);
  return {first + (end - text.c_str()), end == text.c_str() ? std::errc::invalid_argument : std::errc()};
#endif
}

}  // namespace plimsoll
