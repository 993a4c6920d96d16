#include "child_process.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace plimsoll::cli {
namespace {

using Clock = std::chrono::steady_clock;

volatile std::sig_atomic_t asked_to_end = 0;

/// While it lives, signals that would end us are noted: the child's group, which a terminal's Ctrl-C does not reach, is ended first.
class EndRequests {
 public:
  EndRequests() {
    asked_to_end = 0;
    struct sigaction noted {};
    noted.sa_handler = [](int signal) { asked_to_end = signal; };
    for (std::size_t i = 0; i < kSignals; ++i) sigaction(kEnding[i], &noted, &before_[i]);
  }
  ~EndRequests() {
    for (std::size_t i = 0; i < kSignals; ++i) sigaction(kEnding[i], &before_[i], nullptr);
  }
  EndRequests(const EndRequests&) = delete;
  EndRequests& operator=(const EndRequests&) = delete;

 private:
  static constexpr std::size_t kSignals = 3;
  static constexpr int kEnding[kSignals] = {SIGINT, SIGTERM, SIGHUP};
  struct sigaction before_[kSignals];
};

/// In the child: never returns. What goes wrong is written to `problem_pipe`, which a successful exec closes.
[[noreturn]] void become(const std::vector<std::string>& command, const std::vector<std::pair<std::string, std::string>>& environment,
                         int problem_pipe) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  const int nothing = open("/dev/null", O_RDONLY);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execvp(words.front(), words.data());
  const int why = errno;
  [[maybe_unused]] const auto written = write(problem_pipe, &why, sizeof why);
  _exit(127);
}

/// Waits for the child until `until`, or until we are asked to end; true when it ended.
bool ended_by(pid_t child, Clock::time_point until, int& status, rusage& usage) {
  while (true) {
    const pid_t done = wait4(child, &status, WNOHANG, &usage);
    if (done == child || (done < 0 && errno != EINTR)) return true;
    if (asked_to_end != 0 || Clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

ChildResult run_child(const std::vector<std::string>& command, const std::vector<std::pair<std::string, std::string>>& environment,
                      double limit_seconds, int ask_signal) {
  ChildResult result;
  int problem_pipe[2];
  if (pipe2(problem_pipe, O_CLOEXEC) != 0) {
    result.problem = std::strerror(errno);
    return result;
  }
  const auto start = Clock::now();
  const EndRequests end_requests;
  const pid_t child = fork();
  if (child == 0) become(command, environment, problem_pipe[1]);
  close(problem_pipe[1]);
  int why = 0;
  const bool failed = child < 0 || read(problem_pipe[0], &why, sizeof why) == sizeof why;
  close(problem_pipe[0]);
  int status = 0;
  rusage usage{};
  if (failed) {
    result.problem = std::strerror(child < 0 ? errno : why);
    if (child > 0) ended_by(child, after(1), status, usage);
    return result;
  }
  result.started = true;
  const bool ended = ended_by(child, after(limit_seconds), status, usage);
  result.interrupted_by = asked_to_end;
  asked_to_end = 0;
  if (!ended && result.interrupted_by != 0) {
    kill(-child, SIGKILL);
    ended_by(child, after(5), status, usage);
  } else if (!ended) {
    result.timed_out = true;
    kill(-child, ask_signal);
    if (!ended_by(child, after(2), status, usage)) {
      kill(-child, SIGKILL);
      ended_by(child, after(5), status, usage);
    }
  }
  kill(-child, SIGKILL);  // what it left running in its group: compile workers, data loaders
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.peak_kilobytes = usage.ru_maxrss;
  return result;
}

std::string output_of(const std::vector<std::string>& command) {
  int output[2];
  if (pipe2(output, O_CLOEXEC) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    dup2(output[1], STDOUT_FILENO);
    const int nothing = open("/dev/null", O_RDWR);
    dup2(nothing, STDIN_FILENO);
    dup2(nothing, STDERR_FILENO);
    std::vector<char*> words;
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    execvp(words.front(), words.data());
    _exit(127);
  }
  close(output[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t got = 1; child > 0 && text.size() < (64U << 10U) && (got = read(output[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(got));
  close(output[0]);
  int status = 1;
  if (child > 0) waitpid(child, &status, 0);
  return status == 0 ? text : std::string();
}

}  // namespace plimsoll::cli
