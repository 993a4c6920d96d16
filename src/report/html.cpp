// One file that needs nothing else. Its scripts and styles are those of page/, which the page of web/ uses too.
#include <nlohmann/json.hpp>

#include "data/shipped_files.hpp"
#include "plimsoll/document.hpp"
#include "plimsoll/error.hpp"
#include "report/layout.hpp"

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kPage = "src/report/page/";

/// The modules of the page in the order in which they use each other; report.js begins.
constexpr const char* kModules[] = {"dom.js", "units.js", "bars.js", "treemap.js", "memory.js", "streams.js", "tables.js", "front.js", "why.js", "report.js"};

std::string_view shipped(const std::string& path) {
  const auto* file = data::find_shipped_file(path);
  if (!file) throw Error(ErrorCode::internal, "a part of the page is not in the library", path);
  return file->text;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : printable(text)) {
    if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (c == '&') out += "&amp;";
    else if (c == '"') out += "&quot;";
    else out += c;
  }
  return out;
}

/// Lines keep their ends; everything else as `escaped`.
std::string escaped_lines(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    out += escaped(text.substr(at, end - at)) + "\n";
    at = end + 1;
  }
  return out;
}

/// JSON inside a script element: nothing in it ends the element.
std::string embedded(const Json& value) {
  std::string out;
  for (const char c : value.dump(-1, ' ', false, Json::error_handler_t::replace)) out += c == '<' ? "\\u003c" : std::string(1, c);
  return out;
}

/// The modules as one script: what they import from each other stands above them.
std::string script() {
  std::string text;
  for (const char* name : kModules) {
    const std::string_view module = shipped(std::string(kPage) + name);
    for (std::size_t at = 0; at < module.size();) {
      const std::size_t end = std::min(module.find('\n', at), module.size());
      if (const std::string_view line = module.substr(at, end - at); line.substr(0, 7) != "import ") text += std::string(line) + "\n";
      at = end + 1;
    }
  }
  return text;
}

Json tables_of(const Document& document) {
  Json tables = Json::array();
  for (const Table& table : document.tables) {
    Json titles = Json::array(), rows = Json::array();
    for (const Column& column : table.columns) titles.push_back(column.title);
    for (const std::vector<Cell>& row : table.rows) {
      Json cells = Json::array();
      for (const Cell& cell : row) cells.push_back(Json::array({cell.shown, cell.exact}));
      rows.push_back(std::move(cells));
    }
    tables.push_back({{"title", table.title}, {"columns", std::move(titles)}, {"rows", std::move(rows)}});
  }
  return tables;
}

Json data_of(const Document& document) {
  Json listings = Json::array();
  for (const Listing& listing : document.listings) listings.push_back({{"title", listing.title}, {"lines", listing.lines}});
  return {{"title", document.title},     {"verdict", document.verdict},  {"answer", document.answer},
          {"setting", document.setting}, {"command", document.command},  {"made", document.made}, {"tables", tables_of(document)},
          {"listings", listings},        {"views", Json::parse(document.views)}};
}

}  // namespace

std::string to_html(const Document& document) {
  std::string text = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  text += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"generator\" content=\"plimsoll\">\n";
  text += "<title>" + escaped(document.answer) + "</title>\n<style>\n" + std::string(shipped("third_party/uplot/uPlot.min.css")) +
          std::string(shipped(std::string(kPage) + "report.css")) + "</style>\n</head>\n<body>\n";
  text += "<main id=\"report\"><h1>" + escaped(document.answer) + "</h1></main>\n";
  text += "<details class=\"as-text\"><summary>The report as text</summary>\n<pre>" + escaped_lines(document.text) + "</pre></details>\n";
  text += "<script type=\"application/json\" id=\"document\">" + embedded(data_of(document)) + "</script>\n";
  text += "<script>/* uPlot\n" + std::string(shipped("third_party/uplot/LICENSE")) + "*/\n" +
          std::string(shipped("third_party/uplot/uPlot.iife.min.js")) + "</script>\n";
  text += "<script type=\"module\">\n" + script() + "showReport(document.getElementById(\"report\"), JSON.parse(document.getElementById(\"document\").textContent));\n</script>\n";
  return text + "</body>\n</html>\n";
}

}  // namespace plimsoll
