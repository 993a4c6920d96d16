#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <string_view>

#include "command.hpp"
#include "option_words.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/report.hpp"

namespace {

/// Whether the program that reads the answer asked for JSON; what another program is told does not count.
bool asks_for_json(int argc, char** argv) {
  for (int i = 1; i < plimsoll::cli::own_words(plimsoll::cli::all_commands(), argc, argv); ++i) {
    const std::string_view word(argv[i]);
    if (word == "--json" || word == "--format=json" || (word == "json" && std::string_view(argv[i - 1]) == "--format")) return true;
  }
  return false;
}

/// A line for people on stderr; for programs that asked for JSON the same as an object on stdout.
int complain(const plimsoll::Error& error, bool json) {
  std::fprintf(stderr, "plimsoll: %s\n", error.what());
  if (json) std::fputs(plimsoll::to_json(error).c_str(), stdout);
  return error.code() == plimsoll::ErrorCode::internal ? plimsoll::cli::kInternal : plimsoll::cli::kBadInput;
}

}  // namespace

namespace plimsoll::cli {

namespace {

std::vector<Command> grouped() {
  std::vector<Command> all;
  const auto add = [&](const char* group, auto... commands) {
    for (Command* command : {&commands...}) {
      command->group = group;
      all.push_back(std::move(*command));
    }
  };
  add("Plan a step", estimate_command(), search_command(), merge_command(), sweep_command(), compare_command(), rehearse_command(),
      engine_command());
  add("See why", explain_command(), graph_command(), formula_command());
  add("A whole run", campaign_command(), export_command(), fix_command(), gate_command());
  add("What is known", models_command(), hardware_command(), frameworks_command(), validate_command());
  add("Measure a machine", doctor_command(), calibrate_command(), replay_command(), compare_trace_command());
#ifdef PLIMSOLL_SERVE
  add("For shells and programs", serve_command());
#endif
  add("For shells and programs", mcp_command(), completion_command(), man_command());
  return all;
}

}  // namespace

const std::vector<Command>& all_commands() {
  static const std::vector<Command> kCommands = grouped();
  return kCommands;
}

}  // namespace plimsoll::cli

int main(int argc, char** argv) {
  using namespace plimsoll;
  try {
    return cli::run(cli::all_commands(), argc, argv);
  } catch (const Error& error) {
    return complain(error, asks_for_json(argc, argv));
  } catch (const std::filesystem::filesystem_error& error) {  // a path that nothing can be at, a folder that may not be written
    return complain(Error(ErrorCode::bad_input, "cannot be used: " + error.code().message(), error.path1().string().substr(0, 200)),
                    asks_for_json(argc, argv));
  } catch (const std::bad_alloc&) {
    return complain(Error(ErrorCode::internal, "there is not enough memory for this"), asks_for_json(argc, argv));
  } catch (const std::exception& error) {
    return complain(Error(ErrorCode::internal, std::string("internal error: ") + error.what()), asks_for_json(argc, argv));
  }
}
