#include "rehearsed_variants.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "plimsoll/error.hpp"
#include "plimsoll/variants.hpp"
#include "report_flags.hpp"

namespace plimsoll::cli {
namespace {

constexpr double kFirstGuess = 1.5e9;  // bytes of host memory of a rehearsal, before one is known

struct Finished {
  int exit_code = kInternal;
  std::string json, log;
};

/// A file in memory, for what a program prints.
class Printed {
 public:
  Printed() : file_(memfd_create("plimsoll", MFD_CLOEXEC)) {
    if (file_ < 0) fail("what a program prints cannot be kept", std::strerror(errno));
  }
  ~Printed() { close(file_); }
  Printed(const Printed&) = delete;
  Printed& operator=(const Printed&) = delete;
  int file() const { return file_; }

  std::string text() const {
    std::string text;
    char buffer[1U << 14U];
    off_t at = 0;
    for (ssize_t got = 0; (got = pread(file_, buffer, sizeof buffer, at)) > 0; at += got) text.append(buffer, static_cast<std::size_t>(got));
    return text;
  }

 private:
  int file_;
};

/// Runs this very program with these words, gone when this one is; what it prints is kept.
Finished run_self(const std::vector<std::string>& words) {
  const Printed out, log;
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    dup2(nothing, STDIN_FILENO);
    dup2(out.file(), STDOUT_FILENO);
    dup2(log.file(), STDERR_FILENO);
    execv("/proc/self/exe", argv.data());
    _exit(kInternal);
  }
  close(nothing);
  int status = 0;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  Finished finished;
  if (child > 0) finished.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  finished.json = out.text();
  finished.log = log.text();
  return finished;
}

/// Bytes of the machine that are free for more processes.
double available_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("MemAvailable:", 0) == 0) return 1024 * std::strtod(line.c_str() + 13, nullptr);
  return 0;
}

/// Lets as many rehearsals run at once as there are processors and memory for; what one takes is known from those that ended.
class Places {
 public:
  void enter() {
    std::unique_lock lock(mutex_);
    freed_.wait(lock, [&] { return running_ == 0 || (running_ < most_ && available_memory() > 1.25 * each_); });
    ++running_;
  }
  void leave(double bytes) {
    const std::lock_guard lock(mutex_);
    --running_;
    largest_ = std::max(largest_, bytes);
    if (largest_ > 0) each_ = largest_;
    freed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable freed_;
  const unsigned most_ = std::max(1U, std::thread::hardware_concurrency());
  unsigned running_ = 0;
  double each_ = kFirstGuess, largest_ = 0;
};

/// "… 878 MB of host memory": the largest of a log, in bytes.
double host_memory_of(const std::string& log) {
  const std::string sign = " MB of host memory";
  double most = 0;
  for (std::size_t at = log.find(sign); at != std::string::npos; at = log.find(sign, at + 1)) {
    const std::size_t space = log.rfind(' ', at - 1);
    most = std::max(most, 1e6 * std::strtod(log.c_str() + (space == std::string::npos ? 0 : space), nullptr));
  }
  return most;
}

/// The last line of a log that this program wrote: why it failed.
std::string reason_in(const std::string& log) {
  const std::string own = "plimsoll: ";
  const std::size_t at = log.rfind("\n" + own);
  const std::size_t from = at != std::string::npos ? at + 1 + own.size() : log.rfind(own, 0) == 0 ? own.size() : std::string::npos;
  return from == std::string::npos ? "it ended without a word" : log.substr(from, log.find('\n', from) - from);
}

/// A quantity of a report: a number, or the middle of a band.
double expected_of(const nlohmann::json& quantity) { return (quantity.is_object() ? quantity.at("expected") : quantity).get<double>(); }

/// The devices of --on, which may be several with commas between.
std::vector<std::string> devices_of(const Arguments& arguments) {
  std::vector<std::string> devices;
  std::istringstream names(arguments["--on"]);
  for (std::string name; std::getline(names, name, ',');)
    if (!name.empty()) devices.push_back(name);
  if (devices.empty()) devices.emplace_back();
  return devices;
}

bool belongs_to_one(const std::string& name) {
  return name == "--vary" || name == "--largest" || name == "--on" || is_of_printing(name);
}

std::string outcome_of(const RehearsedVariant& variant) {
  if (!variant.failure.empty()) return "failed: " + variant.failure;
  if (variant.ran_out()) return "does not fit: it ran out of memory";
  return fmt::format("{}, {:.1f} of {:.1f} GiB{}", variant.fits() ? "fits" : "does not fit", variant.memory.gib(), variant.capacity.gib(),
                     variant.step > Seconds(0) ? ", " + to_string(variant.step) + " a step" : "");
}

class Variants {
 public:
  Variants(const Arguments& arguments, const std::vector<Option>& options, Rehearse (*wanted_of)(const Arguments&))
      : arguments_(arguments), options_(options), wanted_of_(wanted_of) {
    for (const char* each : {"--trace", "--memory-viz", "--record", "--stacks"})
      if (arguments.has(each)) fail("a file of one rehearsal, where there are several", each, "rehearse that setting alone");
    std::vector<VariedKey> keys;
    if (arguments.has("--vary"))
      for (const std::string& text : arguments.all("--vary")) keys.push_back(parse_varied_key(text));
    if (arguments.has("--largest")) take_bounds(keys);
    for (const std::string& device : devices_of(arguments))
      for (const Settings& settings : combinations_of(keys)) {
        RehearsedVariant& each = list_.emplace_back();
        each.settings = settings;
        each.device = device;
      }
    for (const RehearsedVariant& each : list_) with_settings(arguments.all("COMMAND"), tried_settings(each, least_));  // every key stands somewhere
  }

  std::vector<RehearsedVariant> run() {
    std::unique_ptr<WarmPython> python;
    std::string device = "-";
    for (const RehearsedVariant& each : list_) {
      if (each.device == device) continue;  // what is asked of each device is looked at before the first is tried
      const Rehearse wanted = wanted_of_(line_of(each, least_));
      device = each.device;
      if (!python && (list_.size() > 1 || !largest_.empty())) python = imported_ahead(wanted);
    }
    std::vector<std::thread> threads;
    for (RehearsedVariant& each : list_)
      threads.emplace_back([&] { largest_.empty() ? rehearse(each) : search(each); });
    for (std::thread& thread : threads) thread.join();
    return std::move(list_);
  }

 private:
  void take_bounds(std::vector<VariedKey>& keys) {
    largest_ = arguments_["--largest"];
    const auto found = std::find_if(keys.begin(), keys.end(), [&](const VariedKey& each) { return each.key == largest_; });
    if (found == keys.end()) return;
    std::vector<std::int64_t> bounds;
    for (const std::string& value : found->values) {
      char* end = nullptr;
      bounds.push_back(std::strtoll(value.c_str(), &end, 10));
      if (*end != '\0' || bounds.back() < 1) fail(fmt::format("'{}' of '{}' is no whole number from 1 on", value, largest_), "--largest");
    }
    least_ = *std::min_element(bounds.begin(), bounds.end());
    most_ = bounds.size() > 1 ? *std::max_element(bounds.begin(), bounds.end()) : 0;
    keys.erase(found);
  }

  Settings tried_settings(const RehearsedVariant& variant, std::int64_t number) const {
    Settings settings = variant.settings;
    const bool known = std::any_of(settings.begin(), settings.end(), [&](const auto& each) { return each.first == largest_; });
    if (!largest_.empty() && !known) settings.emplace_back(largest_, std::to_string(number));
    return settings;
  }

  /// What the command line of the one rehearsal gives.
  Arguments line_of(const RehearsedVariant& variant, std::int64_t number) const {
    Arguments one;
    if (!variant.device.empty()) one.add("--on", variant.device);
    for (const Option& option : options_)
      if (arguments_.has(option.name) && !belongs_to_one(option.name) && option.kind != Option::rest)
        for (const std::string& value : arguments_.all(option.name)) one.add(option.name, value);
    for (const std::string& word : with_settings(arguments_.all("COMMAND"), tried_settings(variant, number))) one.add("COMMAND", word);
    return one;
  }

  /// The words of the one rehearsal.
  std::vector<std::string> words_of(const Arguments& one) const {
    std::vector<std::string> words{"plimsoll", "rehearse", "--json"};
    for (const Option& option : options_) {
      if (!one.has(option.name) || option.kind == Option::rest) continue;
      if (option.kind == Option::flag) words.push_back(option.name);
      if (option.kind == Option::words) words.push_back(option.name);
      for (const std::string& value : one.all(option.name)) {
        if (option.kind != Option::flag && option.kind != Option::words) words.push_back(option.name);
        if (option.kind != Option::flag) words.push_back(value);
      }
    }
    words.emplace_back("--");
    const std::vector<std::string>& command = one.all("COMMAND");
    words.insert(words.end(), command.begin(), command.end());
    return words;
  }

  void rehearse(RehearsedVariant& variant) {
    places_.enter();
    const Arguments one = line_of(variant, least_);
    variant.command = command_line("rehearse", one, options_);
    Finished finished;
    try {
      finished = run_self(words_of(one));
    } catch (const Error& error) {
      finished.log = std::string("plimsoll: ") + error.what();
    }
    places_.leave(host_memory_of(finished.log));
    read(finished, variant);
    tell(variant);
  }

  static void read(const Finished& finished, RehearsedVariant& variant) {
    const auto report = nlohmann::json::parse(finished.json, nullptr, false);
    if ((finished.exit_code != kFits && finished.exit_code != kDoesNotFit) || !report.is_object()) {
      variant.failure = reason_in(finished.log);
      return;
    }
    variant.failure.clear();
    variant.verdict = report.at("verdict").get<std::string>();
    variant.memory = Bytes(static_cast<std::int64_t>(expected_of(report.at("memory").at("device_bytes"))));
    variant.capacity = Bytes(static_cast<std::int64_t>(expected_of(report.at("memory").at("capacity_bytes"))));
    for (const nlohmann::json& rank : report.at("ranks")) {
      const nlohmann::json& memory = rank.at("memory");
      variant.allocated = std::max(variant.allocated, Bytes(memory.at("allocated_bytes").get<std::int64_t>()));
      variant.reserved = std::max(variant.reserved, Bytes(memory.at("reserved_bytes").get<std::int64_t>()));
    }
    const nlohmann::json& time = report.at("time");
    variant.step = Seconds(expected_of(time.at("step_seconds")));
    if (time.contains("tokens_per_second_per_gpu")) variant.tokens_per_second = expected_of(time.at("tokens_per_second_per_gpu"));
  }

  /// The largest number that fits, with the other settings as they are: the variant becomes that one, or the least where none does.
  void search(RehearsedVariant& variant) {
    LargestSearch numbers(least_, most_);
    RehearsedVariant best = variant;
    for (std::optional<std::int64_t> number = numbers.next(); number; number = numbers.next()) {
      RehearsedVariant one = variant;
      one.settings = tried_settings(variant, *number);
      rehearse(one);
      if (!one.failure.empty()) {
        best = std::move(one);
        break;
      }
      numbers.tried(*number, one.fits(), one.memory, one.capacity);
      if (one.fits() || best.settings.size() == variant.settings.size()) best = std::move(one);
    }
    variant = std::move(best);
  }

  void tell(const RehearsedVariant& variant) {
    const std::lock_guard lock(telling_);
    std::string words;
    for (const auto& [key, value] : variant.settings) words += key + "=" + value + " ";
    std::fprintf(stderr, "plimsoll: %son %s: %s\n", words.c_str(), variant.device.c_str(), outcome_of(variant).c_str());
  }

  const Arguments& arguments_;
  const std::vector<Option>& options_;
  Rehearse (*wanted_of_)(const Arguments&);
  std::string largest_;
  std::int64_t least_ = 1, most_ = 0;
  std::vector<RehearsedVariant> list_;
  Places places_;
  std::mutex telling_;
};

}  // namespace

bool asks_for_variants(const Arguments& arguments) {
  return arguments.has("--vary") || arguments.has("--largest") || arguments["--on"].find(',') != std::string::npos;
}

int run_variants(const Arguments& arguments, const std::vector<Option>& options, Rehearse (*wanted_of)(const Arguments&)) {
  const std::string format = format_of(arguments);
  const std::vector<RehearsedVariant> variants = Variants(arguments, options, wanted_of).run();
  const auto document = [&] {
    Document made = document_of(variants);
    made.command = command_line("rehearse", arguments, options);
    return made;
  };
  print_to(arguments, report_in(format, arguments,
                                {[&](const TextStyle& style) { return to_text(variants, style); }, [&] { return to_json(variants); }, document, {}}));
  const auto fits = [](const RehearsedVariant& each) { return each.fits(); };
  const auto failed = [](const RehearsedVariant& each) { return !each.failure.empty(); };
  if (std::all_of(variants.begin(), variants.end(), failed)) fail("every setting failed", "rehearse", "their reasons stand above");
  return std::any_of(variants.begin(), variants.end(), fits) ? kFits : kDoesNotFit;
}

}  // namespace plimsoll::cli
