#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "command.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/report.hpp"

namespace {

/// Whether the program that reads the answer asked for JSON.
bool asks_for_json(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word(argv[i]);
    if (word == "--") return false;
    if (word == "--json" || (word == "json" && std::string_view(argv[i - 1]) == "--format")) return true;
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

int main(int argc, char** argv) {
  using namespace plimsoll;
  try {
    return cli::run({cli::estimate_command(), cli::explain_command(), cli::models_command(), cli::graph_command(), cli::hardware_command(),
                     cli::formula_command(), cli::validate_command(), cli::rehearse_command(), cli::calibrate_command(),
                     cli::doctor_command(), cli::replay_command(), cli::compare_trace_command(),
                     cli::search_command(), cli::sweep_command(), cli::compare_command(), cli::merge_command(),
                     cli::campaign_command()},
                    argc, argv);
  } catch (const Error& error) {
    return complain(error, asks_for_json(argc, argv));
  } catch (const std::bad_alloc&) {
    return complain(Error(ErrorCode::internal, "there is not enough memory for this"), asks_for_json(argc, argv));
  } catch (const std::exception& error) {
    return complain(Error(ErrorCode::internal, std::string("internal error: ") + error.what()), asks_for_json(argc, argv));
  }
}
