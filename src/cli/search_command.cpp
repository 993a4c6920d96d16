// search: the best plan, and why; merge: its shards put together.
#include <algorithm>

#include "plimsoll/error.hpp"
#include "plimsoll/plimsoll.hpp"
#include "progress.hpp"
#include "search_flags.hpp"

namespace plimsoll::cli {
namespace {

std::string format_of(const Arguments& arguments) {
  if (arguments.has("--json") && arguments.has("--format") && arguments["--format"] != "json")
    fail("two ways to print at once", "--json --format " + arguments["--format"], "leave one of them out");
  const std::string format = arguments.has("--json") ? "json" : arguments.has("--format") ? arguments["--format"] : "text";
  const std::vector<std::string> known{"text", "json", "csv", "html"};
  if (std::find(known.begin(), known.end(), format) == known.end()) fail("there is no format '" + format + "'", "--format", suggest(format, known));
  return format;
}

int run_search(const Arguments& arguments) {
  const std::string format = format_of(arguments);
  SearchRequest request = search_request(arguments, "search");
  constexpr std::size_t kMostLines = 1'000'000;
  if (format == "csv") request.keep_candidates = kMostLines;
  SearchResult result;
  {
    Progress progress;
    result = search(request, [&](const SearchProgress& now) {
      return progress.show(now.phase, now.done, now.of, now.best_seconds > 0 ? "best " + to_string(Seconds(now.best_seconds)) : std::string());
    });
  }
  if (Progress::interrupted()) result.notes.emplace_back("stopped by Ctrl-C. To go on in pieces: --shard 0/16, --shard 1/16 …, each with --json, then plimsoll merge");
  print_to(arguments, format == "json" ? to_json(result) : format == "csv" ? to_csv(result) : format == "html" ? to_html(result) : to_text(result));
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
                  "  plimsoll search llama-3.1-70b --on 128x8xh100-sxm --gpus 64..1024 --minimize gpus --global-batch 1024 --tp 1..8 --recompute none,full",
                  search_flags(),
                  run_search,
                  {}};
  command.options.push_back({Option::flag, "--json", "print one plimsoll/search/1 object", false, {}});
  command.options.push_back({Option::value, "--format", "text, json, csv (every candidate), html (a page with the front)", false, {}});
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
