// What the files said, key by key, and the tables of docs/formats.
#include <fmt/format.h>

#include <algorithm>

#include "formats/foreign/format.hpp"
#include "formats/foreign/releases.hpp"
#include "formats/foreign/schema.hpp"
#include "formats/shell/unknown.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"

namespace plimsoll {
namespace {

std::string shortened(const std::string& text, std::size_t most) {
  if (text.size() <= most) return text;
  std::string cut = text.substr(0, most - 1);
  cut += "…";
  return cut;
}

std::string origin_of(const ForeignKey& key) {
  switch (key.kind) {
    case ForeignKey::Kind::said:
      return key.where + "  " + key.foreign;
    case ForeignKey::Kind::derived:
      return "follows: " + key.where;
    default:
      return "default of " + key.where + (key.foreign.empty() ? "" : " (" + key.foreign + ")");
  }
}

/// What the program takes where the key is absent, by release where releases differ.
std::string absent_of(const formats::Format& format, const formats::Row& row) {
  const bool fsdp = std::string_view(format.name) == "fsdp_config";
  const auto steps =
      formats::defaults_by_release(formats::package_of(format.release), (fsdp ? "fsdp_config." : "") + std::string(row.foreign));
  if (steps.empty()) return row.by_default ? fmt::format("`{}`", row.by_default) : "";
  std::string text;
  for (std::size_t i = steps.size(); i-- > 0;) {
    const std::string word = steps[i].second.empty() ? "nothing" : "`" + steps[i].second + "`";
    text += (text.empty() ? "" : ", ") + (i + 1 < steps.size() ? "before " + steps[i + 1].first.text() + " " : std::string()) + word;
  }
  return text;
}

}  // namespace

std::string show_resolved(const ForeignRun& run) {
  std::string text = "read as";
  for (std::size_t i = 0; i < run.formats.size(); ++i) text += (i == 0 ? " " : ", ") + run.formats[i];
  text += "\n\n";
  std::size_t width = 0;
  for (const ForeignKey& key : run.keys) width = std::max(width, std::min<std::size_t>(key.key.size(), 52));
  for (const ForeignKey& key : run.keys)
    text += fmt::format("  {:{}}  {:18}  {}\n", key.key, width, shortened(formats::readable(key.value), 40), origin_of(key));
  const Strategy resolved = resolve(run.strategy, run.model, run.cluster);
  if (!resolved.assumed.empty()) text += "\ntaken where nothing was said, as of " + find_framework(resolved.framework).source + "\n";
  for (const std::string& line : resolved.assumed) text += "  " + line + "\n";
  if (!run.unknown.empty()) text += "\nnot read: what these keys change is not known here\n";
  for (const std::string& line : run.unknown) text += "  " + line + "\n";
  if (!run.unread.empty()) text += "\nunread: they change nothing of memory or time\n";
  for (const std::string& line : run.unread) text += "  " + line + "\n";
  return text;
}

std::string foreign_key_table(const std::string& name) {
  const formats::Format& format = formats::find_format(name);
  std::string text =
      fmt::format("Keys as of {}.\n\n| key | ours | values | where absent | remark |\n| --- | --- | --- | --- | --- |\n", format.release);
  for (const formats::Row& row : format.rows()) {
    const std::string_view ours = row.ours;
    const std::string what = ours == formats::kNothing   ? "nothing"
                             : ours == formats::kRefused ? "refused"
                             : ours == formats::kCode    ? ""
                                                         : fmt::format("`{}`", ours);
    std::string words = row.words;
    for (std::size_t at = 0; (at = words.find(',', at)) != std::string::npos; at += 2) words.replace(at, 1, ", ");
    const std::string absent = absent_of(format, row);
    text += fmt::format("| `{}` | {} | {} | {} | {} |\n", row.foreign, what, words, absent, row.remark);
  }
  const formats::Schema* schema = formats::Schema::of(name);
  return schema ? text + schema->page() : text;
}

}  // namespace plimsoll
