/// A report as what it consists of, and the writers of documents: Markdown for a pull request, CSV for a spreadsheet, HTML for a colleague.
#pragma once

#include <string>
#include <vector>

#include "plimsoll/course.hpp"
#include "plimsoll/explain.hpp"
#include "plimsoll/settled_keys.hpp"

namespace plimsoll {

struct Rehearsal;
struct SearchResult;
struct Validation;

/// A value as a person reads it, and as a program does: exact, without its unit.
struct Cell {
  std::string shown, exact;
};

struct Column {
  std::string title;  ///< "allocated"
  std::string key;    ///< "allocated_bytes": the unit of the exact values is part of it
};

struct Table {
  std::string title;
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;
};

struct Listing {
  std::string title;
  std::vector<std::string> lines;
};

struct Document {
  std::string title;            ///< "llama-3.1-8b on 8 x mi300x"
  std::string verdict;          ///< "fits", "tight" or "does not fit"; empty where nothing was judged
  std::string answer;           ///< the first line: what the reader wanted to know
  std::string setting;          ///< what was asked, in the words of the report
  std::string command;          ///< the command line that made it; empty where it is not known
  std::string made;             ///< by which release, and on which day: "plimsoll 0.1.0, 2026-11-30"; empty where it is not said
  std::vector<Table> tables;    ///< the first is what CSV holds
  std::vector<Listing> listings;
  std::string text;             ///< the same report as text
  std::string views = "{}";     ///< a JSON object of what the charts of the page show: "estimate", "explain", "course", "front"
};

/// All that a page shows of one run.
struct RunView {
  std::string command;
  std::vector<SettledKey> settings;  ///< the strategy's keys as --json tells them; empty: they are not told
  Explanation explanation;
  Course course;
};

/// Explains a run and follows its step. Throws Error as explain does.
RunView view_of(const Model& model, const Cluster& cluster, const Strategy& strategy, std::optional<std::int64_t> stage = {});

Document document_of(const Report& report);
Document document_of(const Explanation& explanation);
Document document_of(const RunView& view);
Document document_of(const Rehearsal& rehearsal);
Document document_of(const Validation& validation);
/// The front as a chart and a table, the best, and why others were left out.
Document document_of(const SearchResult& result);

/// One object "plimsoll/view/1" (docs/reports.md): the run's estimate, explanation and course.
std::string to_json(const RunView& view);

/// The answer as a heading, the tables, and the listings folded.
std::string to_markdown(const Document& document);

/// The first table as RFC 4180 has it, a line of keys before it. Text that a spreadsheet would take for a formula gets an apostrophe.
std::string to_csv(const Document& document);

/// One file that needs nothing else: it loads nothing, and shows its text where no script runs.
std::string to_html(const Document& document);

}  // namespace plimsoll
