// Plain text layout shared by the text reports.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plimsoll/printable.hpp"
#include "plimsoll/text_style.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll {

/// A bar of `width` cells, `share` of them filled to the eighth of a cell. Shares beyond 1 fill it and end in ">".
std::string bar(double share, int width);

/// "optimizer_states" as "optimizer states".
std::string spoken(std::string_view name);

/// `lead` and the text, broken at spaces to `width` columns; further lines are indented as far as the lead is long. Ends in a newline.
std::string wrapped(const std::string& lead, const std::string& text, std::size_t width = 80);

/// What is coloured on a terminal.
enum class Ink { heading, good, warning, bad, faint };

/// The text in that ink where the style has colours. Escape sequences take no column.
std::string painted(const TextStyle& style, Ink ink, const std::string& text);

/// "12.3 GiB", of a column whose numbers are compared.
std::string gib_of(Bytes bytes);

/// Rows of equal length as columns: the first flushed left, the others right, two spaces between.
std::string columns(const std::vector<std::vector<std::string>>& rows);

}  // namespace plimsoll
