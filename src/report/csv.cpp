#include "report/csv.hpp"

#include "plimsoll/document.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

bool is_number(const std::string& text) { return text.find_first_not_of("0123456789.+-e") == std::string::npos; }

}  // namespace

std::string csv_field(const std::string& text) {
  const bool formula = !text.empty() && std::string_view("=+-@\t\r").find(text.front()) != std::string_view::npos && !is_number(text);
  std::string safe = formula ? "'" + text : text;
  if (safe.find_first_of(",\"\r\n") == std::string::npos) return safe;
  std::string quoted = "\"";
  for (const char c : safe) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::string to_csv(const Document& document) {
  if (document.tables.empty()) throw Error(ErrorCode::internal, "a document without a table was asked for as CSV");
  const Table& table = document.tables.front();
  std::string text;
  for (const Column& column : table.columns) text += (text.empty() ? "" : ",") + csv_field(column.key);
  text += "\r\n";
  for (const std::vector<Cell>& row : table.rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += (i == 0 ? "" : ",") + csv_field(row[i].exact);
    text += line + "\r\n";
  }
  return text;
}

}  // namespace plimsoll
