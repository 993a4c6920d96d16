// serve: the planner for others, over HTTP.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "command.hpp"
#include "plimsoll/error.hpp"
#include "run_device.hpp"
#include "serve/serve.hpp"

namespace plimsoll::cli {
namespace {

constexpr std::int64_t kMebibyte = 1 << 20;

/// The built page: of the build folder or of the installed prefix; empty where there is none.
std::string page_folder(const std::filesystem::path& program) {
  for (const std::filesystem::path& folder : {program.parent_path() / "page", program.parent_path().parent_path() / "share/plimsoll/page"})
    if (std::filesystem::exists(folder / "index.html")) return folder.string();
  return {};
}

int run_serve(const Arguments& arguments) {
  const std::int64_t memory = arguments.integer_or("--memory", 2048, 64, 1 << 20);
  if (arguments.has("--worker")) return serve::run_worker(static_cast<std::size_t>(memory * kMebibyte));
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  serve::Options options;
  if (arguments.has("--host")) options.host = arguments["--host"];
  options.port = static_cast<int>(arguments.integer_or("--port", options.port, 0, 65535));
  const auto processors = static_cast<std::int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  options.workers = static_cast<std::size_t>(arguments.integer_or("--workers", processors, 1, 256));
  options.waiting = static_cast<std::size_t>(arguments.integer_or("--waiting", 64, 0, 10'000));
  options.seconds = arguments.number_or("--seconds", options.seconds, 0.1, 3600);
  options.cache_bytes = static_cast<std::size_t>(arguments.integer_or("--cache", 16, 0, 1 << 16) * kMebibyte);
  options.names = arguments.all("--allow-host");
  options.page = arguments.has("--page") ? arguments["--page"] : page_folder(program);
  options.worker = {program.string(), "serve", "--worker", "--memory", std::to_string(memory)};
  options.ready = [&](int port) {
    std::fprintf(stderr, "plimsoll: http://%s:%d/%s\n", options.host.c_str(), port,
                 options.page.empty() ? " (the page is not built: POST to /api/call)" : "");
    std::fflush(stderr);
  };
  options.stop = interrupted;
  watch_for_interruption();
  serve::run(options);
  return kFits;
}

}  // namespace

Command serve_command() {
  return {
      "serve",
      "the planner for others: JSON over HTTP, and the page",
      "  plimsoll serve\n"
      "  curl -d '{\"command\":\"estimate\",\"model\":\"gpt2\",\"on\":\"1xh100-sxm\",\"strategy\":{\"micro_batch\":8,\"seq_len\":1024}}' "
      "-H 'Content-Type: application/json' http://127.0.0.1:7465/api/call",
      {{Option::value, "--host", "address to listen at; 127.0.0.1 unless told: nobody else reaches it", false, {}},
       {Option::value_list, "--allow-host", "another name by which it may be asked, such as planner.example; its addresses are always taken", false, {}},
       {Option::value, "--port", "7465 unless told; 0: any that is free", false, {}},
       {Option::value, "--workers", "requests answered at once; the processors unless told", false, {}},
       {Option::value, "--waiting", "requests that may wait for a worker, 64 unless told; more are turned away (503)", false, {}},
       {Option::value, "--seconds", "that a request may take, 10 unless told; then it is ended (504)", false, {}},
       {Option::value, "--memory", "MiB that a worker may take, 2048 unless told", false, {}},
       {Option::value,
        "--cache",
        "MiB of answers that are kept for equal requests, 16 unless told; 0: every request is computed",
        false,
        {}},
       {Option::value, "--page", "folder of the page; else the one beside the program", false, {}},
       {Option::flag, "--worker", "answer requests of standard input: what serve runs", false, {}, true}},
      run_serve,
      {}};
}

}  // namespace plimsoll::cli
