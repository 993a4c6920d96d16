#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "formats/row_reader.hpp"
#include "plimsoll/validate.hpp"

namespace plimsoll {
namespace {

std::string quoted(const std::string& text) { return formats::ObjectText::quoted(text); }

std::string number(double value) { return std::isfinite(value) ? fmt::format("{}", value) : "null"; }

/// Bytes as GiB, everything else as it is.
std::string readable(const std::string& quantity, double value) {
  const bool bytes = quantity.size() > 6 && quantity.compare(quantity.size() - 6, 6, "_bytes") == 0;
  return bytes ? fmt::format("{:.3f} GiB", value / 1073741824.0) : fmt::format("{:.5g}", value);
}

template <class List, class Write>
std::string json_list(const List& list, Write write) {
  std::string text;
  for (const auto& each : list) text += (text.empty() ? "\n" : ",\n") + write(each);
  return "[" + text + "]";
}

std::string json_kind(const std::map<std::string, std::string>& kind) {
  std::string text;
  for (const auto& [word, value] : kind) text += (text.empty() ? "" : ",") + quoted(word) + ":" + quoted(value);
  return "{" + text + "}";
}

std::string json_row(const Comparison& row) {
  std::string more;
  if (row.banded())
    more += fmt::format(",\"low\":{},\"high\":{},\"inside\":{}", number(row.low), number(row.high), row.inside());
  if (row.lower_bound) more += ",\"lower_bound\":true";
  if (!row.kind.empty()) more += ",\"kind\":" + json_kind(row.kind);
  if (!row.question.empty()) more += ",\"question\":" + quoted(row.question);
  return fmt::format("{{\"id\":{},\"quantity\":{},\"predicted\":{},\"measured\":{},\"error\":{},\"source\":{}{}}}", quoted(row.id),
                     quoted(row.quantity), number(row.predicted), number(row.measured), number(row.error), quoted(row.source), more);
}

std::string json_summary(const Validation& v) {
  const std::string sources = json_list(v.sources, [](const SourceSummary& s) {
    return fmt::format("{{\"source\":{},\"rows\":{},\"predicted\":{}}}", quoted(s.source), s.rows, s.predicted);
  });
  const std::string quantities = json_list(v.quantities, [](const QuantitySummary& q) {
    return fmt::format(
        "{{\"source\":{},\"quantity\":{},\"rows\":{},\"median\":{},\"ninetieth\":{},\"bias\":{},\"closed_form\":{},\"banded\":{},\"inside\":{}}}",
        quoted(q.source), quoted(q.quantity), q.rows, number(q.median), number(q.ninetieth), number(q.bias), q.closed_form, q.banded, q.inside);
  });
  const std::string fits = json_list(v.fits, [](const FitsSummary& f) {
    return fmt::format(
        "{{\"source\":{},\"rows\":{},\"right\":{},\"false_fits\":{},\"fits_right\":{},\"fits_wrong\":{},\"oom_right\":{},\"oom_wrong\":{}}"
        "}",
        quoted(f.source), f.rows(), number(f.right()), number(f.false_fits()), f.fits_right, f.fits_wrong, f.oom_right, f.oom_wrong);
  });
  return "{\"sources\":" + sources + ",\"quantities\":" + quantities + ",\"fits\":" + fits + "}";
}

std::string text_rows(const Validation& v, std::size_t most) {
  const std::size_t shown = most == 0 ? v.rows.size() : std::min(most, v.rows.size());
  std::string text = fmt::format("{:>9}  {:<26} {:>16} {:>16}  {}\n", "error", "quantity", "predicted", "measured", "row");
  for (std::size_t i = 0; i < shown; ++i) {
    const Comparison& row = v.rows[i];
    text += fmt::format("{:>8.2f}%  {:<26} {:>16} {:>16}  {}{}\n", row.error * 100, row.quantity, readable(row.quantity, row.predicted),
                        readable(row.quantity, row.measured), row.id, row.lower_bound ? " (at least)" : "");
  }
  if (shown < v.rows.size()) text += fmt::format("… and {} more\n", v.rows.size() - shown);
  return text;
}

/// Why times were not played, and of how many rows.
std::string text_closed_forms(const Validation& v) {
  std::map<std::string, std::size_t> reasons;
  for (const Comparison& row : v.rows)
    if (!row.closed_form_because.empty()) ++reasons[row.source + ": " + row.closed_form_because];
  std::string text;
  for (const auto& [reason, rows] : reasons) text += fmt::format("{:>5}  {}\n", rows, reason);
  return reasons.empty() ? text : "\nTime by a closed form\n" + text;
}

/// How many rows share a reason; rows of one kind are refused alike.
std::string text_refused(const Validation& v) {
  std::map<std::string, std::size_t> reasons;
  std::map<std::string, std::string> example;
  for (const auto& row : v.refused) {
    // The place names the row; the reason begins behind it.
    const std::size_t colon = row.reason.find(": ");
    const std::string reason = row.reason.find('#') < colon ? row.reason.substr(colon + 2) : row.reason;
    ++reasons[row.source + ": " + reason];
    example.emplace(row.source + ": " + reason, row.id);
  }
  std::string text;
  for (const auto& [reason, rows] : reasons) text += fmt::format("{:>5}  {}  [{}]\n", rows, reason, example[reason]);
  return reasons.empty() ? text : "\nRefused\n" + text;
}

}  // namespace

std::string validation_json(const Validation& v) {
  const std::string refused = json_list(v.refused, [](const RefusedRow& row) {
    return fmt::format("{{\"id\":{},\"reason\":{},\"source\":{}}}", quoted(row.id), quoted(row.reason), quoted(row.source));
  });
  const std::string unread =
      json_list(v.unread_keys, [](const UnreadKey& key) { return fmt::format("{{\"key\":{},\"rows\":{}}}", quoted(key.key), key.rows); });
  return "{\"schema\":\"plimsoll/validation/1\",\"rows\":" + json_list(v.rows, json_row) + ",\"refused\":" + refused +
         ",\"unread_keys\":" + unread + ",\"summary\":" + json_summary(v) + "}\n";
}

std::string validation_text(const Validation& v, std::size_t most) {
  std::string text = text_rows(v, most) + text_refused(v) + text_closed_forms(v);
  if (!v.unread_keys.empty()) text += "\nKeys that nothing read\n";
  for (const auto& key : v.unread_keys) text += fmt::format("{:>5}  {}\n", key.rows, key.key);
  text += fmt::format("\n{:<28} {:<26} {:>6} {:>9} {:>9} {:>9} {:>11}\n", "source", "quantity", "rows", "median", "9 in 10", "bias", "in its band");
  for (const auto& q : v.quantities)
    text += fmt::format("{:<28} {:<26} {:>6} {:>8.2f}% {:>8.2f}% {:>8.2f}% {:>11}{}\n", q.source, q.quantity, q.rows, q.median * 100,
                        q.ninetieth * 100, q.bias * 100, q.banded == 0 ? "" : fmt::format("{} of {}", q.inside, q.banded),
                        q.closed_form == 0 ? "" : fmt::format("  ({} by closed forms)", q.closed_form));
  for (const auto& f : v.fits)
    text += fmt::format("{:<28} fits: {:.1f}% of {} right; ran {} right {} wrong, out of memory {} right {} wrong (false fits {:.2f}%)\n",
                        f.source, f.right() * 100, f.rows(), f.fits_right, f.fits_wrong, f.oom_right, f.oom_wrong, f.false_fits() * 100);
  for (const auto& s : v.sources)
    text += fmt::format("{:<28} {} of {} rows predicted ({:.0f}%)\n", s.source, s.predicted, s.rows,
                        s.rows == 0 ? 0.0 : 100.0 * static_cast<double>(s.predicted) / static_cast<double>(s.rows));
  return text;
}

}  // namespace plimsoll
