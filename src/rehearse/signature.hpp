/// What a demangled function name says: its parameters and its template arguments. For this room and for the libraries of rehearse/device,
/// which link nothing of it.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace plimsoll::rehearse {

namespace detail {

/// The parts of a list between commas that stand outside of brackets, without the blank behind a comma.
inline std::vector<std::string_view> list_parts(std::string_view list) {
  std::vector<std::string_view> parts;
  std::size_t from = 0;
  int depth = 0;
  for (std::size_t at = 0; at <= list.size(); ++at) {
    const char letter = at == list.size() ? ',' : list[at];
    if (letter == ',' && (depth == 0 || at == list.size())) {
      while (from < at && list[from] == ' ') ++from;
      if (at > from) parts.push_back(list.substr(from, at - from));
      from = at + 1;
    } else if (letter == '(' || letter == '<' || letter == '{' || letter == '[') {
      ++depth;
    } else if (letter == ')' || letter == '>' || letter == '}' || letter == ']') {
      --depth;
    }
  }
  return parts;
}

}  // namespace detail

/// The types between the parentheses that end a name: "int", "float const*" of "f<float>(int, float const*)".
inline std::vector<std::string_view> parameters_of(std::string_view name) {
  const std::size_t end = name.rfind(')');
  if (end == std::string_view::npos) return {};
  std::size_t begin = end;
  for (int depth = 0;; --begin) {
    depth += name[begin] == ')' ? 1 : name[begin] == '(' ? -1 : 0;
    if (depth == 0) break;
    if (begin == 0) return {};
  }
  return detail::list_parts(name.substr(begin + 1, end - begin - 1));
}

/// The arguments of the first template whose name ends so: {"128", "2", …} of "elementwise_kernel<128, 2, …>(…)" for
/// "elementwise_kernel<". Empty where there is none, or where the name is cut off.
inline std::vector<std::string_view> template_arguments(std::string_view name, std::string_view opening) {
  const std::size_t at = name.find(opening);
  if (at == std::string_view::npos) return {};
  const std::size_t from = at + opening.size();
  int depth = 1;
  for (std::size_t i = from; i < name.size(); ++i) {
    const char letter = name[i];
    if (letter == '(' || letter == '<' || letter == '{') ++depth;
    if (letter == ')' || letter == '>' || letter == '}') --depth;
    if (depth == 0) return detail::list_parts(name.substr(from, i - from));
  }
  return {};
}

}  // namespace plimsoll::rehearse
