// How a report is printed: the options that every reporting command shares.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "command.hpp"
#include "plimsoll/document.hpp"
#include "plimsoll/text_style.hpp"

namespace plimsoll::cli {

/// --format (these, and `more`), --json, -o, --verbose, --quiet, --color.
std::vector<Option> report_flags(const std::string& more = {});

/// Whether an option is one of those, which say how a report is printed and not what of.
bool is_of_printing(const std::string& name);

/// The format asked for: "text" unless told. Throws Error: unknown (nearest name), or two at once.
std::string format_of(const Arguments& arguments, const std::vector<std::string>& more = {});

/// The terminal's width, colours where it takes them (NO_COLOR, TERM=dumb and files do not), and how much the reader wants.
TextStyle style_of(const Arguments& arguments);

/// The command line again, without how its report is printed; `more`: flags that are added to it.
std::string command_line(const std::string& command, const Arguments& arguments, const std::vector<Option>& options, const std::string& more = {});

/// Writes of a report: what each format takes is made when it is asked for.
struct ReportWriters {
  std::function<std::string(const TextStyle&)> text;
  std::function<std::string()> json;
  std::function<Document()> document;  ///< of Markdown and CSV
  std::function<Document()> page;      ///< of HTML; empty: the same
};

/// The document with the release that made it and the day.
Document dated(Document document);

/// The report in that format ("text", "json", "html", "markdown" or "csv").
std::string report_in(const std::string& format, const Arguments& arguments, const ReportWriters& writers);

}  // namespace plimsoll::cli
