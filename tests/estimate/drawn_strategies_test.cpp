// Strategies drawn over every key of the table, whole: each is answered or refused by name. And what an answer lists as assumed is what it
// would be with the same said aloud. By hand, by the hundred thousand: PLIMSOLL_DRAWS=100000 test_estimate --gtest_filter='Drawn.*'
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <set>

#include "estimate/drawn_plans.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"

namespace plimsoll {
namespace {

using namespace drawn;

/// As many as the environment asks for.
unsigned draws(unsigned usual) {
  const char* asked = std::getenv("PLIMSOLL_DRAWS");
  return asked ? static_cast<unsigned>(std::strtoul(asked, nullptr, 10)) : usual;
}

/// What is being estimated, for a crash to name.
char g_now[4096];

void name_it(int signal) {
  (void)!write(STDERR_FILENO, g_now, std::strlen(g_now));
  (void)!write(STDERR_FILENO, "\n", 1);
  ::signal(signal, SIG_DFL);
  raise(signal);
}

/// On a stack of its own, since a stack that overflowed has no room.
class NamesItsCrash {
 public:
  NamesItsCrash() {
    const stack_t stack{space_, 0, sizeof space_};
    sigaltstack(&stack, nullptr);
    struct sigaction action {};
    action.sa_handler = name_it;
    action.sa_flags = SA_ONSTACK;
    for (const int signal : {SIGSEGV, SIGABRT, SIGFPE}) sigaction(signal, &action, nullptr);
  }
  ~NamesItsCrash() {
    for (const int signal : {SIGSEGV, SIGABRT, SIGFPE}) ::signal(signal, SIG_DFL);
    const stack_t none{nullptr, SS_DISABLE, 0};
    sigaltstack(&none, nullptr);
  }
  NamesItsCrash(const NamesItsCrash&) = delete;
  NamesItsCrash& operator=(const NamesItsCrash&) = delete;

 private:
  char space_[1 << 16];
};

struct Whole {
  const Model* model;
  std::string cluster;
  Options options;

  std::string text() const { return model->name + " --on " + cluster + text_of(options); }
  Strategy strategy() const {
    Strategy said;
    set_options(said, options);
    return said;
  }
  Report report() const {
    std::strncpy(g_now, text().c_str(), sizeof g_now - 1);
    return estimate(*model, parse_cluster(cluster), strategy());
  }
};

const std::vector<Model>& models() {
  static const std::vector<Model> all = [] {
    std::vector<Model> list{small_model(false), small_model(true)};
    for (const char* name : {"gpt2", "bert-base-uncased", "t5-small", "qwen3-0.6b", "vit-b16", "opt-125m", "pythia-160m"})
      list.push_back(load_model(name));
    return list;
  }();
  return all;
}

/// The key of that name.
const StrategyOption& option_named(const std::string& key) {
  const auto& options = strategy_options();
  return *std::find_if(options.begin(), options.end(), [&](const StrategyOption& option) { return option.key == key; });
}

/// A runner on a machine, and up to six keys: of all, or of those that choose which code runs.
Whole drawn_whole(unsigned seed) {
  static const std::vector<std::string> kClusters{"1xh100-sxm", "8xh100-sxm", "4xh100-sxm", "1xmi300x", "8xmi300x", "2x8xa100-80gb-sxm", "1xrtx4090", "8xv100-sxm2"};
  static const std::vector<std::string> kChoosing{"framework", "data_parallel", "fsdp", "zero",   "compile", "precision", "attention", "loss",
                                                  "optimizer", "recompute",     "offload", "lora.r", "tp",    "pp",        "grad_accum", "task"};
  std::mt19937 random(seed);
  Whole drawn{&one_of(random, models()), one_of(random, kClusters), random() % 2 == 0 ? drawn_strategy(random) : Options{{"seq_len", "64"}}};
  for (unsigned more = random() % 7; more > 0; --more) {
    const StrategyOption& option = random() % 2 == 0 ? one_of(random, strategy_options()) : option_named(one_of(random, kChoosing));
    std::erase_if(drawn.options, [&](const auto& other) { return other.first == option.key; });
    drawn.options.emplace_back(option.key, one_of(random, values_of(option)));
  }
  return drawn;
}

TEST(Drawn, StrategiesAreAnsweredOrRefusedByName) {
  const NamesItsCrash names_it;
  std::set<std::string> reached;
  unsigned answered = 0;
  const unsigned all = draws(2000);
  for (unsigned seed = 0; seed < all; ++seed) {
    const Whole drawn = drawn_whole(seed);
    for (const auto& [key, value] : drawn.options) reached.insert(key);
    try {
      const Report report = drawn.report();
      ++answered;
      EXPECT_GT(report.time.step_seconds.expected, 0) << seed << ": " << drawn.text();
      EXPECT_GT(report.worst_rank().memory.device.expected, 0) << seed << ": " << drawn.text();
      EXPECT_LE(report.flops.hfu, 1) << seed << ": " << drawn.text() << ": more FLOPs than the device's peak";
    } catch (const Error& error) {
      ASSERT_NE(error.code(), ErrorCode::internal) << seed << ": " << drawn.text() << ": " << error.what();
    } catch (const std::exception& error) {
      FAIL() << seed << ": " << drawn.text() << ": " << error.what();
    }
  }
  RecordProperty("answered", static_cast<int>(answered));
  EXPECT_GT(answered, all / 10);
  EXPECT_EQ(reached.size(), strategy_options().size()) << "keys that no draw has";
}

/// A key and its value as a line of assumptions names them ("precision: bf16 as fsdp-mixed-bf16": bf16); nothing where the line is not about
/// a key.
std::optional<std::pair<std::string, std::string>> said_aloud(const std::string& line) {
  const std::size_t colon = line.find(": ");
  if (colon == std::string::npos) return {};
  const std::string key = line.substr(0, colon);
  const auto& options = strategy_options();
  if (std::none_of(options.begin(), options.end(), [&](const StrategyOption& option) { return option.key == key; })) return {};
  std::string value = line.substr(colon + 2);
  value.resize(std::min(value.size(), value.find(" (")));
  if (option_named(key).values.rfind("list", 0) == 0) {
    std::erase(value, ' ');
    return std::pair{key, value};
  }
  value.resize(std::min(value.size(), value.find(", ")));
  value.resize(std::min(value.size(), value.find(" as ")));
  if (value.find(' ') != std::string::npos) return {};
  return std::pair{key, value};
}

void expect_same(const Whole& drawn, const std::string& before, const Options& aloud) {
  Whole more = drawn;
  for (const auto& each : aloud) {
    std::erase_if(more.options, [&](const auto& other) { return other.first == each.first; });
    more.options.push_back(each);
  }
  try {
    EXPECT_EQ(numbers(more.report()), before) << drawn.text() << "\n  said aloud:" << text_of(aloud);
  } catch (const Error& error) {
    ADD_FAILURE() << drawn.text() << "\n  said aloud:" << text_of(aloud) << "\n  " << error.what();
  }
}

TEST(Drawn, AssumptionsSaidAloudChangeNothing) {
  const NamesItsCrash names_it;
  unsigned compared = 0;
  for (unsigned seed = 0; compared < draws(150); ++seed) {
    const Whole drawn = drawn_whole(1'000'000 + seed);
    std::optional<Report> report;
    try {
      report = drawn.report();
    } catch (const Error&) {
      continue;
    }
    Options all;
    for (const std::string& line : report->assumptions) {
      const auto aloud = said_aloud(line);
      const auto is_its = [&](const auto& said) { return said.first == aloud->first; };  // "precision: fp8", of which the rest is assumed
      if (!aloud || std::any_of(drawn.options.begin(), drawn.options.end(), is_its)) continue;
      std::erase_if(all, [&](const auto& other) { return other.first == aloud->first; });  // the last line counts
      all.push_back(*aloud);
    }
    if (all.empty()) continue;
    ++compared;
    const std::string before = numbers(*report);
    expect_same(drawn, before, all);
    for (const auto& one : all) expect_same(drawn, before, {one});
    if (testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count() > 30) return;
  }
}

}  // namespace
}  // namespace plimsoll
