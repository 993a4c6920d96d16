#include <cstdio>
#include <exception>

#include "command.hpp"
#include "plimsoll/error.hpp"

namespace {

int complain(const std::string& line, int code) {
  std::fprintf(stderr, "plimsoll: %s\n", line.c_str());
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace plimsoll;
  try {
    return cli::run({cli::estimate_command(), cli::explain_command(), cli::models_command(), cli::graph_command(), cli::hardware_command(),
                     cli::formula_command(), cli::validate_command(), cli::rehearse_command(), cli::calibrate_command(),
                     cli::doctor_command(), cli::replay_command(), cli::compare_trace_command()},
                    argc, argv);
  } catch (const Error& error) {
    return complain(error.what(), error.code() == ErrorCode::internal ? cli::kInternal : cli::kBadInput);
  } catch (const std::exception& error) {
    return complain(std::string("internal error: ") + error.what(), cli::kInternal);
  }
}
