// search: the best plan, and why; merge: its shards put together.
#include <algorithm>
#include <filesystem>

#include "machines.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/plimsoll.hpp"
#include "plimsoll/processes.hpp"
#include "price_options.hpp"
#include "progress.hpp"
#include "report_flags.hpp"
#include "search_flags.hpp"

namespace plimsoll::cli {
namespace {

/// --largest or --least: one quantity, everything else as the line says.
int run_solver(const Arguments& arguments, SearchRequest request, const std::string& format) {
  if (format != "text" && format != "json") fail("a solution is text or json", "--format " + format, "leave --format out");
  if (arguments.has("--largest") && arguments.has("--least")) fail("two questions at once", "--largest --least", "leave one of them out");
  request.width = SearchWidth::named;
  std::string key = arguments["--largest"];
  std::replace(key.begin(), key.end(), '-', '_');
  const std::string& least = arguments["--least"];
  if (!least.empty() && least != "recompute") fail("there is no least '" + least + "'", "--least", suggest(least, {"recompute"}));
  Progress progress;
  const auto watch = [&](const SearchProgress& now) { return progress.show(now.phase, now.done, now.of, {}); };
  const Solution solution = least.empty() ? largest(request, key, watch) : least_recompute(request, watch);
  print_to(arguments, format == "json" ? to_json(solution) : to_text(solution));
  return solution.plan ? kFits : kDoesNotFit;
}

/// `command`: the line that searched, for documents.
std::string text_of(const SearchResult& result, const std::string& format, const std::string& command) {
  if (format == "json") return to_json(result);
  if (format == "csv") return to_csv(result);
  if (format == "text") return to_text(result);
  Document document = dated(document_of(result));
  document.command = command;
  return format == "html" ? to_html(document) : to_markdown(document);
}

std::string searched_by(const Arguments& arguments) { return command_line("search", arguments, search_command().options); }

SearchResult watched(const SearchRequest& request) {
  Progress progress;
  return search(request, [&](const SearchProgress& now) {
    return progress.show(now.phase, now.done, now.of,
                         now.best_seconds > 0 ? "best " + to_string(Seconds(now.best_seconds)) : std::string());
  });
}

/// What mpirun started: every process searches its part, the first answers for all.
int run_among_processes(const Arguments& arguments, SearchRequest request, const std::string& format) {
  for (const char* one : {"--shard", "--resume"})
    if (arguments.has(one)) fail("mpirun splits the search itself", one, "leave it out, or start one process");
  if (format == "csv") fail("every candidate is listed by one process alone", "--format csv", "start one process, or --shard i/n");
  const std::vector<std::string> texts = gather_texts([&](int rank, int ranks) {
    request.shard = static_cast<std::uint64_t>(rank);
    request.shards = static_cast<std::uint64_t>(ranks);
    return to_json(watched(request));
  });
  if (texts.empty()) return kFits;
  std::vector<std::pair<std::string, std::string>> files;
  for (const std::string& text : texts) files.emplace_back("process " + std::to_string(files.size()), text);
  const SearchResult whole = result_of(request, merge_searches(files));
  print_to(arguments, text_of(whole, format, searched_by(arguments)));
  return whole.best.empty() ? kDoesNotFit : kFits;
}

/// Where a search that is stopped leaves what it knows, and says so.
void leave_state(const Arguments& arguments, SearchResult& result) {
  if (result.state.empty()) return;
  const std::string part = result.shards > 1 ? "-" + std::to_string(result.shard) : std::string();
  const std::string path = arguments.has("--resume") ? arguments["--resume"] : "plimsoll-search-" + result.fingerprint + part + ".json";
  write_file(path, result.state);
  result.notes.push_back("stopped by Ctrl-C; the same line with --resume " + path + " goes on from here");
}

/// The best plan on each of several machines.
int search_on_machines(const Arguments& arguments, const std::string& format) {
  for (const char* other : {"--largest", "--least", "--shard", "--resume"})
    if (arguments.has(other)) fail(std::string(other) + " is of one machine", other, "name one machine behind --on");
  if (among_processes()) fail("mpirun splits the search of one machine", "--on " + arguments["--on"], "start one process");
  return offer_machines(arguments, format, [](const Arguments& there) {
    SearchRequest request = search_request(there, "search");
    request.top = 1;
    const SearchResult result = watched(request);
    if (result.best.empty()) refuse("no plan fits", there["--on"], "plimsoll search on it alone tells the nearest, and what would take it");
    const EstimatedPlan& best = result.best.front();
    return MachineJob{part_of(request.cluster, best.plan.gpus), best.report, best.command};
  });
}

int run_search(const Arguments& arguments) {
  const std::string format = format_of(arguments);
  if (names_machines(arguments)) return search_on_machines(arguments, format);
  if (arguments.has(kPrices)) fail("one machine has no price beside another's", kPrices, "name several machines behind --on, or any");
  SearchRequest request = search_request(arguments, "search");
  if (arguments.has("--largest") || arguments.has("--least")) return run_solver(arguments, std::move(request), format);
  if (among_processes()) return run_among_processes(arguments, std::move(request), format);
  constexpr std::size_t kMostLines = 1'000'000;
  if (format == "csv") request.keep_candidates = kMostLines;
  const bool resumes = arguments.has("--resume") && std::filesystem::exists(arguments["--resume"]);
  if (resumes) request.resume = read_file(arguments["--resume"]);
  SearchResult result = watched(request);
  if (arguments.has("--resume") && !resumes) result.notes.push_back(arguments["--resume"] + " was not there: this search began anew");
  leave_state(arguments, result);
  print_to(arguments, text_of(result, format, searched_by(arguments)));
  return result.best.empty() ? kDoesNotFit : kFits;
}

int run_merge(const Arguments& arguments) {
  std::vector<std::pair<std::string, std::string>> files;
  for (const std::string& path : arguments.all("SHARDS")) files.emplace_back(path, read_file(path));
  print_to(arguments, merge_searches(files));
  return kFits;
}

}  // namespace

Command search_command() {
  Command command{"search",
                  "the best strategy, the trade-offs around it, and why the others fail",
                  "  plimsoll search gpt-3-175b --on 8x8xa100-80gb-sxm --global-batch 1536 --seq 2048\n"
                  "  plimsoll search llama-3.1-8b --on 4x8xh100-sxm --framework any --global-batch 256 --seq 8192 --json\n"
                  "  plimsoll search llama-3.1-8b --on 8xh100-sxm --fsdp full --recompute full --largest seq\n"
                  "  plimsoll search llama-3.1-8b --on 8xh200,8xmi300x,8xb200 --minimize dollars --seq 8192\n"
                  "  plimsoll search llama-3.1-70b --on 128x8xh100-sxm --gpus 64..1024 --minimize gpus --global-batch 1024 --tp 1..8 "
                  "--recompute none,full",
                  search_flags(),
                  run_search,
                  {}};
  command.options.push_back(prices_option());
  command.options.push_back(
      {Option::value, "--largest", "micro-batch, seq or layers: the largest with which what the line names fits", false, {}});
  command.options.push_back({Option::value, "--least", "recompute: the least with which it fits", false, {}});
  command.options.push_back({Option::value,
                             "--resume",
                             "go on from this file, which a search that was stopped has left; where it is not there, the file to leave",
                             false,
                             {}});
  command.options.push_back({Option::flag, "--json", "print one plimsoll/search/1 object", false, {}});
  command.options.push_back({Option::value, "--format", "text, json, html (one file, with the front as a chart), markdown, csv (every candidate)", false, {}});
  command.options.push_back({Option::value, "-o", "write to this file", false, {}});
  return command;
}

Command merge_command() {
  Command command{"merge", "put the shards of one search together", "  plimsoll merge shard-*.json -o search.json", {}, run_merge, {}};
  command.options = {{Option::positional_list, "SHARDS", "objects that plimsoll search --shard i/n --json wrote", true, {}},
                     {Option::value, "-o", "write to this file", false, {}}};
  return command;
}

}  // namespace plimsoll::cli
