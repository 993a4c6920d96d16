// A document for a pull request: GitHub's Markdown.
#include <algorithm>

#include "plimsoll/document.hpp"
#include "report/layout.hpp"

namespace plimsoll {
namespace {

constexpr std::size_t kMostRows = 20;  // of a table; a comment is read, a file is searched

/// Text in which nothing is markup: names come from files.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : printable(text)) {
    if (std::string_view("\\`*_[]<>|#~").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

std::string line_of(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const std::string& cell : cells) line += " " + cell + " |";
  return line + "\n";
}

bool is_number(const Cell& cell) { return cell.exact.find_first_not_of("0123456789.+-e") == std::string::npos; }

/// Whether a column holds numbers alone, and any.
bool is_of_numbers(const Table& table, std::size_t column) {
  const auto filled = [&](const std::vector<Cell>& row) { return !row[column].exact.empty(); };
  return std::any_of(table.rows.begin(), table.rows.end(), filled) &&
         std::all_of(table.rows.begin(), table.rows.end(), [&](const std::vector<Cell>& row) { return is_number(row[column]); });
}

/// Columns of numbers are flushed right.
std::string rule_of(const Table& table) {
  std::string line = "|";
  for (std::size_t i = 0; i < table.columns.size(); ++i) line += is_of_numbers(table, i) ? " ---: |" : " --- |";
  return line + "\n";
}

std::string table_text(const Table& table) {
  std::vector<std::string> cells;
  for (const Column& column : table.columns) cells.push_back(escaped(column.title));
  std::string text = "\n**" + escaped(table.title) + "**\n\n" + line_of(cells) + rule_of(table);
  for (std::size_t i = 0; i < std::min(kMostRows, table.rows.size()); ++i) {
    cells.clear();
    for (const Cell& cell : table.rows[i]) cells.push_back(escaped(cell.shown));
    text += line_of(cells);
  }
  if (table.rows.size() > kMostRows) text += "\n… and " + std::to_string(table.rows.size() - kMostRows) + " more\n";
  return text;
}

std::string listing_text(const Listing& listing) {
  std::string text = "\n<details><summary>" + escaped(listing.title) + " (" + std::to_string(listing.lines.size()) + ")</summary>\n\n";
  for (const std::string& line : listing.lines) text += "- " + escaped(line) + "\n";
  return text + "\n</details>\n";
}

}  // namespace

std::string to_markdown(const Document& document) {
  const std::string mark = document.verdict == "fits" ? "✅ " : document.verdict == "tight" ? "⚠️ " : document.verdict.empty() ? "" : "❌ ";
  std::string text = "### " + mark + escaped(document.answer) + "\n";
  if (!document.setting.empty()) text += "\n" + escaped(document.setting) + "\n";
  if (!document.command.empty()) text += "\n```sh\n" + printable(document.command) + "\n```\n";
  for (const Table& table : document.tables)
    if (!table.rows.empty()) text += table_text(table);
  for (const Listing& listing : document.listings) text += listing_text(listing);
  if (!document.made.empty()) text += "\n" + escaped(document.made) + "\n";
  return text;
}

}  // namespace plimsoll
