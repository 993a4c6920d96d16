#include "plimsoll/gate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "formats/foreign/node.hpp"
#include "formats/row_reader.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/estimate.hpp"
#include "plimsoll/formats.hpp"
#include "units/json_reader.hpp"
#include "units/text.hpp"

namespace plimsoll {
namespace {

constexpr double kGib = 1073741824.0;
constexpr const char* kSchema = "plimsoll/gate/1";

/// "model" and "on" stand beside the keys of a strategy file; --on is for those that say none.
ForeignOptions options_in(const std::string& file, const GateOptions& options) {
  ForeignOptions found;
  found.on = options.on;
  if (file.size() < 5 || file.substr(file.size() - 5) != ".json") return found;
  const formats::Node tree = formats::parse_json_text(formats::read_plain(file), file);
  if (const formats::Node* on = tree.find("on")) found.on = on->word();
  return found;
}

std::string change_of(double now, double before) {
  if (before <= 0) return "";
  const double percent = (now / before - 1) * 100;
  return std::abs(percent) < 0.05 ? "unchanged" : fmt::format("{:+.1f} %", percent);
}

std::string memory_of(const GateCase& one) { return fmt::format("{:.2f} GiB", static_cast<double>(one.reserved) / kGib); }
std::string time_of(const GateCase& one) { return fmt::format("{:.4g} s", one.step_seconds); }

/// "1,234 tokens/s per GPU"; empty: the model has no tokens.
std::string rate_of(double tokens_per_second) {
  return tokens_per_second > 0 ? with_thousands(std::llround(tokens_per_second)) + " tokens/s per GPU" : std::string();
}

/// How its speed changed: by what it does in a second, which a larger batch does not lower; without tokens by the step.
std::string change_of_speed(const GateCase& one) {
  const bool tokens = one.tokens_per_second > 0 && one.baseline_tokens_per_second > 0;
  return tokens ? change_of(one.tokens_per_second, one.baseline_tokens_per_second) : change_of(one.step_seconds, one.baseline_step_seconds);
}

/// What a host's ranks ask of its memory.
std::string host_of(const HostMemory& host) {
  return fmt::format("{:.2f} of the host's {:.2f} GiB for {} ranks", host.most().gib(), host.capacity->gib(), host.ranks);
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : "; ") + line;
  return text;
}

std::string escaped(const std::string& text) {
  std::string xml;
  for (const char c : text) {
    if (c == '<') {
      xml += "&lt;";
    } else if (c == '>') {
      xml += "&gt;";
    } else if (c == '&') {
      xml += "&amp;";
    } else if (c == '"') {
      xml += "&quot;";
    } else {
      xml += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return xml;
}

void compare(GateCase& one, const JsonValue& before, const GateOptions& options) {
  one.has_baseline = true;
  one.baseline_verdict = before["verdict"].text();
  one.baseline_reserved = before["reserved_bytes"].integer(0, INT64_MAX);
  one.baseline_step_seconds = before["step_seconds"].number(0, 1e12);
  one.baseline_tokens_per_second = before["tokens_per_second_per_gpu"].number(0, 1e15);
  const double memory = static_cast<double>(one.reserved), allowed = static_cast<double>(one.baseline_reserved) * (1 + options.memory);
  if (memory > allowed)
    one.failures.push_back(fmt::format("reserved memory grew from {:.2f} to {:.2f} GiB ({}; {:.3g} % are allowed)",
                                       static_cast<double>(one.baseline_reserved) / kGib, memory / kGib,
                                       change_of(memory, static_cast<double>(one.baseline_reserved)), options.memory * 100));
  if (one.tokens_per_second > 0 && one.baseline_tokens_per_second > 0) {
    if (one.baseline_tokens_per_second > one.tokens_per_second * (1 + options.time))
      one.failures.push_back(fmt::format("it slowed from {} to {} ({}; {:.3g} % are allowed)", rate_of(one.baseline_tokens_per_second),
                                         rate_of(one.tokens_per_second), change_of_speed(one), options.time * 100));
  } else if (one.step_seconds > one.baseline_step_seconds * (1 + options.time)) {
    one.failures.push_back(fmt::format("the step slowed from {:.4g} to {:.4g} s ({}; {:.3g} % are allowed)", one.baseline_step_seconds,
                                       one.step_seconds, change_of(one.step_seconds, one.baseline_step_seconds), options.time * 100));
  }
}

}  // namespace

GateCase gate_case(const std::string& file, const GateOptions& options) {
  GateCase one;
  one.name = file;
  try {
    const ForeignRun run = read_foreign({file}, options_in(file, options));
    const Report report = estimate(run.model, run.cluster, run.strategy);
    const RankMemory& memory = report.worst_rank().memory;
    one.verdict = std::string(name_of(report.verdict));
    one.allocated = memory.allocated.count;
    one.reserved = memory.reserved.count;
    one.device = memory.device.expected;
    one.step_seconds = report.time.step_seconds.expected;
    one.tokens_per_second = report.time.tokens_per_second_per_gpu;
    const bool by_host = report.verdict != Verdict::fits && report.host.verdict == report.verdict;
    if (report.verdict == Verdict::does_not_fit)
      one.failures.push_back(by_host ? "does not fit: " + host_of(report.host)
                                     : fmt::format("does not fit: {:.2f} of {:.2f} GiB", one.device / kGib, static_cast<double>(memory.capacity.count) / kGib));
    if (report.verdict == Verdict::tight && options.fail_on_tight)
      one.failures.push_back(by_host ? "tight: " + host_of(report.host)
                                     : fmt::format("tight: {:.2f} of {:.2f} GiB, {:.2f} at the upper end", one.device / kGib,
                                                   static_cast<double>(memory.capacity.count) / kGib, memory.device.high / kGib));
  } catch (const std::exception& error) {
    one.problem = error.what();
    one.failures.push_back(one.problem);
  }
  return one;
}

std::string gate_baseline(const std::vector<GateCase>& cases) {
  formats::ObjectText all;
  for (const GateCase& one : cases) {
    if (!one.problem.empty() || one.missing) continue;
    formats::ObjectText object;
    object.add("verdict", one.verdict.c_str()).add("allocated_bytes", one.allocated).add("reserved_bytes", one.reserved);
    object.add("step_seconds", one.step_seconds).add("tokens_per_second_per_gpu", one.tokens_per_second);
    all.raw(one.name, "\n    " + object.text());
  }
  return "{\"schema\": \"" + std::string(kSchema) + "\",\n \"cases\": " + all.text() + "}\n";
}

void compare_with_baseline(std::vector<GateCase>& cases, const std::string& path, const GateOptions& options) {
  const JsonDocument document = JsonDocument::read_file(path);
  const JsonValue root = document.root();
  if (!root.is_object() || !root.has("schema") || root["schema"].text() != kSchema)
    fail("is no baseline", path, "plimsoll gate … --write-baseline " + path);
  const JsonValue before = root["cases"];
  for (GateCase& one : cases)
    if (one.problem.empty() && before.has(one.name)) compare(one, before[one.name], options);
  for (const std::string& name : before.keys())
    if (std::none_of(cases.begin(), cases.end(), [&](const GateCase& one) { return one.name == name; })) {
      GateCase one;
      one.name = name;
      one.missing = true;
      cases.push_back(std::move(one));
    }
}

std::string gate_text(const std::vector<GateCase>& cases) {
  std::string text;
  for (const GateCase& one : cases) {
    if (one.missing) {
      text += "----  " + one.name + ": in the baseline, not run\n";
      continue;
    }
    text += (one.failures.empty() ? "pass  " : "FAIL  ") + one.name + ": ";
    if (!one.problem.empty()) {
      text += one.problem + "\n";
      continue;
    }
    text += one.verdict + ", " + memory_of(one) + " reserved, " + time_of(one) + " a step";
    if (const std::string rate = rate_of(one.tokens_per_second); !rate.empty()) text += ", " + rate;
    if (one.has_baseline)
      text += fmt::format(" (memory {}, step {}, speed {})", change_of(static_cast<double>(one.reserved), static_cast<double>(one.baseline_reserved)),
                          change_of(one.step_seconds, one.baseline_step_seconds), change_of_speed(one));
    text += one.failures.empty() ? "\n" : "; " + joined(one.failures) + "\n";
  }
  return text;
}

std::string gate_junit(const std::vector<GateCase>& cases) {
  const auto missing = std::count_if(cases.begin(), cases.end(), [](const GateCase& one) { return one.missing; });
  const auto failed = std::count_if(cases.begin(), cases.end(), [](const GateCase& one) { return !one.failures.empty(); });
  std::string xml =
      fmt::format("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"plimsoll gate\" tests=\"{}\" failures=\"{}\" skipped=\"{}\">\n",
                  cases.size(), failed, missing);
  for (const GateCase& one : cases) {
    xml += "  <testcase classname=\"plimsoll\" name=\"" + escaped(one.name) + "\"";
    if (one.missing) {
      xml += "><skipped message=\"in the baseline, not run\"/></testcase>\n";
      continue;
    }
    xml += one.failures.empty() ? "/>\n" : "><failure message=\"" + escaped(joined(one.failures)) + "\"/></testcase>\n";
  }
  return xml + "</testsuite>\n";
}

std::string gate_markdown(const std::vector<GateCase>& cases) {
  std::string text = "| | case | reserved | | step | tokens/s per GPU | | |\n| --- | --- | ---: | --- | ---: | ---: | --- | --- |\n";
  const auto cell = [](std::string value) {
    for (std::size_t at = 0; (at = value.find('|', at)) != std::string::npos; at += 2) value.insert(at, "\\");
    return value;
  };
  for (const GateCase& one : cases) {
    const std::string mark = one.missing ? "➖" : one.failures.empty() ? "✅" : "❌";
    if (!one.problem.empty() || one.missing) {
      text += "| " + mark + " | " + cell(one.name) + " | | | | | | " + cell(one.missing ? "in the baseline, not run" : one.problem) + " |\n";
      continue;
    }
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |\n", mark, cell(one.name), memory_of(one),
                        change_of(static_cast<double>(one.reserved), static_cast<double>(one.baseline_reserved)), time_of(one),
                        one.tokens_per_second > 0 ? with_thousands(std::llround(one.tokens_per_second)) : std::string(), change_of_speed(one),
                        cell(joined(one.failures)));
  }
  return text;
}

std::string gate_benchmark(const std::vector<GateCase>& cases) {
  std::string list;
  const auto add = [&](const GateCase& one, const char* what, const char* unit, double value) {
    formats::ObjectText object;
    object.add("name", (one.name + ": " + what).c_str()).add("unit", unit).add("value", value).add("extra", one.verdict.c_str());
    list += (list.empty() ? "" : ",\n ") + object.text();
  };
  for (const GateCase& one : cases) {
    if (!one.problem.empty() || one.missing) continue;
    add(one, "reserved memory per GPU", "GiB", static_cast<double>(one.reserved) / kGib);
    add(one, "step", "s", one.step_seconds);
  }
  return "[" + list + "]\n";
}

}  // namespace plimsoll
