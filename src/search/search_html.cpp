// A page that needs nothing else: the front as a chart, and the tables of the text.
#include <fmt/format.h>

#include <algorithm>

#include "plimsoll/search.hpp"
#include "search/comparison.hpp"
#include "strategy/flags.hpp"

namespace plimsoll {
namespace {

using namespace searching;

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) switch (c) {
      case '&': safe += "&amp;"; break;
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '"': safe += "&quot;"; break;
      default: safe += c;
    }
  return safe;
}

constexpr double kWidth = 720, kHeight = 360, kMargin = 56;

/// What plans are compared by: seconds of a step; of a million tokens where their steps train different numbers.
double time_of(const EstimatedPlan& plan, bool free_batch) { return free_batch ? 1e6 * plan.seconds_per_token() : plan.seconds(); }

/// Where plans stand: time to the right, memory left upwards.
struct Frame {
  double least_seconds = 0, most_seconds = 1, most_gib = 1;

  Frame(const std::vector<EstimatedPlan>& plans, bool free_batch) {
    least_seconds = 1e300;
    most_seconds = 0;
    for (const EstimatedPlan& plan : plans) {
      least_seconds = std::min(least_seconds, time_of(plan, free_batch));
      most_seconds = std::max(most_seconds, time_of(plan, free_batch));
      most_gib = std::max(most_gib, plan.headroom().gib());
    }
    if (most_seconds <= least_seconds) most_seconds = least_seconds * 1.05 + 1e-9;
  }
  double x(double seconds) const { return kMargin + (seconds - least_seconds) / (most_seconds - least_seconds) * (kWidth - 2 * kMargin); }
  double y(double gib) const { return kHeight - kMargin - gib / most_gib * (kHeight - 2 * kMargin); }
};

std::string chart(const std::vector<EstimatedPlan>& plans, bool free_batch) {
  if (plans.empty()) return "<p>no plan that fits was found</p>\n";
  const Frame frame(plans, free_batch);
  std::string svg = fmt::format("<svg viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\" aria-label=\"step time against memory left\">\n", kWidth, kHeight);
  svg += fmt::format("<path class=\"axis\" d=\"M{0} {0}V{1}H{2}\"/>\n", kMargin, kHeight - kMargin, kWidth - kMargin);
  svg += fmt::format("<text x=\"{}\" y=\"{}\">{:.4g} s</text><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{:.4g} s {}</text>\n", kMargin, kHeight - 30,
                     frame.least_seconds, kWidth - kMargin, kHeight - 30, frame.most_seconds, free_batch ? "a million tokens" : "a step");
  svg += fmt::format("<text x=\"{}\" y=\"{}\">{:.4g} GiB left</text>\n", kMargin, kMargin - 12, frame.most_gib);
  for (const EstimatedPlan& plan : plans)
    svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"6\"><title>{:.4g} s, {:.1f} GiB left, {} GPUs: {}</title></circle>\n", frame.x(time_of(plan, free_batch)),
                       frame.y(std::max(0.0, plan.headroom().gib())), time_of(plan, free_batch), plan.headroom().gib(), plan.plan.gpus,
                       escaped(as_flags(plan.plan.options)));
  return svg + "</svg>\n";
}

std::string table(const std::vector<EstimatedPlan>& plans, bool free_batch) {
  std::string html = fmt::format("<table><tr>{}<th>step</th><th>GPUs</th><th>memory left</th><th>GPU-seconds{}</th><th>loses to the first</th><th>command</th></tr>\n",
                                 free_batch ? "<th>tokens/s</th>" : "", free_batch ? " a million tokens" : "");
  for (const EstimatedPlan& plan : plans)
    html += fmt::format("<tr>{}<td>{}</td><td>{}</td><td>{:.1f} GiB</td><td>{:.4g}</td><td>{}</td><td><code>{}</code></td></tr>\n",
                        free_batch ? fmt::format("<td>{:.0f}</td>", plan.tokens_per_second()) : std::string(), to_string(Seconds(plan.seconds())),
                        plan.plan.gpus, plan.headroom().gib(), free_batch ? 1e6 * plan.gpu_seconds_per_token() : plan.gpu_seconds(),
                        escaped(losses_in_words(plan, plans.front())), escaped(plan.command));
  return html + "</table>\n";
}

std::string rejected(const SearchResult& result) {
  std::string html = "<table><tr><th>plans</th><th>reason</th><th>for example</th><th>rescue</th></tr>\n";
  for (const auto& [reason, rejection] : result.rejected)
    html += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n", rejection.count, escaped(reason), escaped(rejection.example),
                        escaped(rejection.rescue));
  return html + "</table>\n";
}

constexpr const char* kStyle =
    "body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;margin:1em 0}td,th{text-align:left;padding:.25em .8em .25em 0;border-bottom:1px solid #ddd;vertical-align:top}"
    "svg text{font-size:12px;fill:#555}.axis{fill:none;stroke:#999}circle{fill:#1b6ca8;fill-opacity:.75}code{font-size:12px}";

}  // namespace

std::string to_html(const SearchResult& result) {
  std::string html = fmt::format("<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{0} on {1}</title><style>{2}</style>\n<h1>{0} on {1}</h1>\n",
                                 escaped(result.model), escaped(result.cluster), kStyle);
  html += fmt::format("<p>{:.4g} points, {} legal plans, {} screened, {} estimated in full{}</p>\n", result.points, result.legal, result.screened,
                      result.estimated, result.complete ? "" : "; stopped before the best was certain");
  if (result.free_batch) html += "<p>Plans train batches of their own (no one global batch is said): tokens per second decide, not the step's time.</p>\n";
  html += "<h2>Plans that no other beats in time, memory left, GPUs and cost together</h2>\n" + chart(result.front, result.free_batch) + table(result.front, result.free_batch);
  html += "<h2>The best</h2>\n" + table(result.best, result.free_batch) + "<h2>Rejected</h2>\n" + rejected(result);
  return html + "</html>\n";
}

}  // namespace plimsoll
